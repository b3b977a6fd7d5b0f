//! The façade of the crate: what the API, the command line and the roles use.
//!
//! Callers see no connection and no SQL; they call the methods here. Cheap to clone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use tallystick_gateway::{Gateway, WebhookMessage};
use tallystick_ledger::{self as ledger, AccountCache, LedgerError};
use tallystick_money::Currency;
use tallystick_outbox::{self as outbox, EventSink, OutboxError};
use tallystick_runner::{Db, DbError, Shutdown};
use tokio::sync::{Notify, mpsc, watch};
use uuid::Uuid;

use crate::bookkeeping::{self, BookError, OpenAccount, PostJournal};
use crate::breaks::{self, Break};
use crate::create::{self, CreateError};
use crate::dispatch;
use crate::dispatch::Walk;
use crate::gauges::{self, Gauges};
use crate::history::repo as history;
use crate::ids::{BreakId, PaymentId, PayoutId, TenantId};
use crate::inbound::{self, InboundError};
use crate::loops;
use crate::payment::repo as payments;
use crate::payment::wait::{self, Waiters};
use crate::payment::{self, Attempt, CreatePayment, HistoryRow, Payment, PaymentFilter};
use crate::payout::repo as payouts;
use crate::payout::{self, CreatePayout, Payout, PayoutFilter};
use crate::settings::{Settings, SettingsError};
use crate::tenants::{self, Believed, Caller};

/// Partitions must reach at least this many days ahead for a process to call itself ready.
pub const READY_PARTITION_DAYS: i32 = 2;

/// The first or a repeated answer to a request that creates something.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status: 202 or 201 first, 200 repeated or when the object existed.
    pub status: u16,
    /// The body, byte for byte the same on every repeat.
    pub body: Bytes,
    /// A repeat of an earlier request.
    pub replayed: bool,
    /// The order had this payment already.
    pub existing: bool,
    /// The object.
    pub id: Uuid,
}

/// What all parts of a process share.
pub(crate) struct Inner {
    pub db: Db,
    pub gateways: HashMap<String, Arc<dyn Gateway>>,
    pub settings: Settings,
    pub accounts: AccountCache,
    pub believed: Believed,
    pub waiters: Waiters,
    pub walk: Walk,
    pub inbound_sizes: inbound::Sizes,
    pub wake_dispatch: Arc<Notify>,
    pub payment_writer: mpsc::Sender<create::Job<Payment>>,
    pub payout_writer: mpsc::Sender<create::Job<Payout>>,
    pub inbound: mpsc::Sender<inbound::Job>,
    inboxes: Mutex<Option<Inboxes>>,
    failure: watch::Sender<Option<String>>,
}

struct Inboxes {
    payments: mpsc::Receiver<create::Job<Payment>>,
    payouts: mpsc::Receiver<create::Job<Payout>>,
    inbound: mpsc::Receiver<inbound::Job>,
}

impl Inner {
    /// Something that must go on cannot: the process is told to stop with a failure.
    pub(crate) fn fail(&self, reason: String) {
        self.failure.send_replace(Some(reason));
    }
}

/// The payment engine of one process.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

impl Engine {
    /// Puts the parts together.
    ///
    /// # Errors
    /// [`SettingsError`] when settings do not fit together, or two gateway accounts have one name.
    pub fn new(db: Db, gateways: Vec<Arc<dyn Gateway>>, settings: Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        let mut by_name = HashMap::new();
        for gateway in gateways {
            settings.check_gateway(gateway.name(), gateway.capability())?;
            let name = gateway.name().to_owned();
            if by_name.insert(name.clone(), gateway).is_some() {
                return Err(SettingsError(format!("two gateway accounts are called {name:?}")));
            }
        }
        if !by_name.is_empty() && !by_name.contains_key(&settings.default_gateway) {
            return Err(SettingsError(format!(
                "default_gateway is {:?}, but there is no gateway account of that name",
                settings.default_gateway
            )));
        }
        let (payment_writer, payments) = mpsc::channel(settings.max_queued);
        let (payout_writer, payouts) = mpsc::channel(settings.max_queued);
        let (inbound, inbound_inbox) = mpsc::channel(settings.max_queued);
        let inner = Inner {
            db,
            gateways: by_name,
            settings,
            accounts: AccountCache::default(),
            believed: Believed::default(),
            waiters: Waiters::default(),
            walk: Walk::default(),
            inbound_sizes: inbound::Sizes::default(),
            wake_dispatch: Arc::new(Notify::new()),
            payment_writer,
            payout_writer,
            inbound,
            inboxes: Mutex::new(Some(Inboxes { payments, payouts, inbound: inbound_inbox })),
            failure: watch::Sender::new(None),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The database.
    #[must_use]
    pub fn db(&self) -> &Db {
        &self.inner.db
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Resolves with the reason when something that must go on cannot.
    pub async fn failed(&self) -> String {
        let mut failure = self.inner.failure.subscribe();
        match failure.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    // --- roles ---------------------------------------------------------------------------------------------------

    /// Starts what the API needs: the writers of creations and webhooks, and the shared query of waiting requests.
    /// A second call does nothing.
    pub fn spawn_api(&self, shutdown: &Shutdown) {
        let Some(inboxes) = self.inner.inboxes.lock().expect("no panic while held").take() else { return };
        create::spawn(&self.inner, inboxes.payments, shutdown);
        create::spawn(&self.inner, inboxes.payouts, shutdown);
        inbound::spawn(&self.inner, inboxes.inbound, shutdown);
        wait::spawn(&self.inner, shutdown);
    }

    /// Starts claiming, calling and recording.
    pub fn spawn_dispatch(&self, shutdown: &Shutdown) {
        dispatch::spawn(&self.inner, shutdown);
    }

    /// Starts the repairing and tidying loops.
    pub fn spawn_sweep(&self, shutdown: &Shutdown) {
        loops::spawn_sweep(&self.inner, shutdown);
    }

    /// Starts the ticker of event windows and a relay per sink.
    pub fn spawn_relay(&self, shutdown: &Shutdown, sinks: Vec<Arc<dyn EventSink>>) {
        loops::spawn_relay(&self.inner, shutdown, sinks);
    }

    // --- payments ------------------------------------------------------------------------------------------------

    /// Creates a payment, or answers as before when the key or the order is known.
    ///
    /// # Errors
    /// [`CreateError`].
    pub async fn create_payment(
        &self,
        tenant: TenantId,
        key: &str,
        request: CreatePayment,
    ) -> Result<Answer, CreateError> {
        payment::create::create(&self.inner, tenant, key, request).await
    }

    /// One payment of a tenant.
    ///
    /// # Errors
    /// Of the database.
    pub async fn payment(&self, tenant: TenantId, id: PaymentId) -> Result<Option<Payment>, DbError> {
        let row = payments::get(&mut *self.inner.db.conn().await?, tenant.0, id.0).await?;
        Ok(row.map(payments::PaymentRow::into_view))
    }

    /// A page of a tenant's payments, newest first, those before `before`.
    ///
    /// # Errors
    /// Of the database.
    pub async fn payments(
        &self,
        tenant: TenantId,
        filter: &PaymentFilter,
        before: Option<PaymentId>,
        limit: i64,
    ) -> Result<Vec<Payment>, DbError> {
        let mut conn = self.inner.db.conn().await?;
        let rows = payments::list(&mut conn, tenant.0, filter, before.map(|id| id.0), limit).await?;
        Ok(rows.into_iter().map(payments::PaymentRow::into_view).collect())
    }

    /// The payment once its status has left `pending`, or as it is at `until`.
    ///
    /// # Errors
    /// Of the database.
    pub async fn wait_for_payment(
        &self,
        tenant: TenantId,
        id: PaymentId,
        until: tokio::time::Instant,
    ) -> Result<Option<Payment>, DbError> {
        let row = wait::wait(&self.inner, tenant.0, id.0, until).await?;
        Ok(row.map(payments::PaymentRow::into_view))
    }

    // --- payouts -------------------------------------------------------------------------------------------------

    /// Creates a payout, or answers as before when the key or the reference is known.
    ///
    /// # Errors
    /// [`CreateError`].
    pub async fn create_payout(
        &self,
        tenant: TenantId,
        key: &str,
        request: CreatePayout,
    ) -> Result<Answer, CreateError> {
        payout::create::create(&self.inner, tenant, key, request).await
    }

    /// One payout of a tenant.
    ///
    /// # Errors
    /// Of the database.
    pub async fn payout(&self, tenant: TenantId, id: PayoutId) -> Result<Option<Payout>, DbError> {
        let row = payouts::get(&mut *self.inner.db.conn().await?, tenant.0, id.0).await?;
        Ok(row.map(payouts::PayoutRow::into_view))
    }

    /// A page of a tenant's payouts, newest first, those before `before`.
    ///
    /// # Errors
    /// Of the database.
    pub async fn payouts(
        &self,
        tenant: TenantId,
        filter: &PayoutFilter,
        before: Option<PayoutId>,
        limit: i64,
    ) -> Result<Vec<Payout>, DbError> {
        let mut conn = self.inner.db.conn().await?;
        let rows = payouts::list(&mut conn, tenant.0, filter, before.map(|id| id.0), limit).await?;
        Ok(rows.into_iter().map(payouts::PayoutRow::into_view).collect())
    }

    // --- what belongs to an object -------------------------------------------------------------------------------

    /// The moves of an object's status, of a payment or a payout. The caller has checked whose it is.
    ///
    /// # Errors
    /// Of the database.
    pub async fn history(&self, id: Uuid) -> Result<Vec<HistoryRow>, DbError> {
        history::of(&mut *self.inner.db.conn().await?, id).await
    }

    /// The calls to the gateway about an object. The caller has checked whose it is.
    ///
    /// # Errors
    /// Of the database.
    pub async fn attempts(&self, id: Uuid) -> Result<Vec<Attempt>, DbError> {
        history::attempts_of(&mut *self.inner.db.conn().await?, id).await
    }

    /// The journals that an object caused.
    ///
    /// # Errors
    /// Of the database.
    pub async fn journals_of(&self, tenant: TenantId, id: Uuid) -> Result<Vec<ledger::Journal>, LedgerError> {
        let mut conn = self.inner.db.conn().await.map_err(LedgerError::from)?;
        ledger::journals_of(&mut conn, tenant.0, &[id]).await
    }

    /// The retained events of an object, by sequence, as they are published.
    ///
    /// # Errors
    /// Of the database.
    pub async fn events_of(&self, tenant: TenantId, id: Uuid) -> Result<Vec<Value>, OutboxError> {
        let mut conn = self.inner.db.conn().await.map_err(OutboxError::from)?;
        let events = outbox::events_of(&mut conn, tenant.0, &[id]).await?;
        // We wrote these bytes ourselves, as JSON.
        Ok(events.iter().filter_map(|e| serde_json::from_slice(&e.payload).ok()).collect())
    }

    /// A page of a tenant's breaks, newest first.
    ///
    /// # Errors
    /// Of the database.
    pub async fn breaks(
        &self,
        tenant: TenantId,
        status: Option<&str>,
        before: Option<BreakId>,
        limit: i64,
    ) -> Result<Vec<Break>, DbError> {
        let mut conn = self.inner.db.conn().await?;
        breaks::repo::list(&mut conn, tenant.0, status, before.map(|id| id.0), limit).await
    }

    // --- events and webhooks -------------------------------------------------------------------------------------

    /// A page of a tenant's events, oldest first, those behind `after`. Nothing is skipped.
    ///
    /// # Errors
    /// [`OutboxError::Cursor`] for a position that was never given out, else of the database.
    pub async fn events(
        &self,
        tenant: TenantId,
        after: outbox::Cursor,
        limit: i64,
    ) -> Result<outbox::Page, OutboxError> {
        let mut conn = self.inner.db.conn().await.map_err(OutboxError::from)?;
        outbox::page(&mut conn, Some(tenant.0), after, limit).await
    }

    /// Verifies and stores a webhook of a gateway; it is applied right after.
    ///
    /// # Errors
    /// [`InboundError`]; nothing was stored.
    pub async fn receive_webhook(
        &self,
        gateway: &str,
        message: WebhookMessage<'_>,
    ) -> Result<(), InboundError> {
        inbound::receive(&self.inner, gateway, message).await
    }

    // --- ledger --------------------------------------------------------------------------------------------------

    /// Opens an account.
    ///
    /// # Errors
    /// [`BookError`]; nothing was stored.
    pub async fn open_account(
        &self,
        tenant: TenantId,
        key: &str,
        request: OpenAccount,
    ) -> Result<Answer, BookError> {
        bookkeeping::open_account(&self.inner, tenant, key, request).await
    }

    /// Posts a manual journal.
    ///
    /// # Errors
    /// [`BookError`]; nothing was stored.
    pub async fn post_journal(
        &self,
        tenant: TenantId,
        key: &str,
        request: PostJournal,
    ) -> Result<Answer, BookError> {
        bookkeeping::post_journal(&self.inner, tenant, key, request).await
    }

    /// Reverses a journal; a second time gives the first reversal.
    ///
    /// # Errors
    /// [`BookError`]; nothing was stored.
    pub async fn reverse_journal(
        &self,
        tenant: TenantId,
        key: &str,
        journal_id: Uuid,
        reason: String,
    ) -> Result<Answer, BookError> {
        bookkeeping::reverse_journal(&self.inner, tenant, key, journal_id, reason).await
    }

    /// One account of a tenant.
    ///
    /// # Errors
    /// Of the database.
    pub async fn account(&self, tenant: TenantId, id: Uuid) -> Result<Option<ledger::Account>, LedgerError> {
        let mut conn = self.inner.db.conn().await.map_err(LedgerError::from)?;
        ledger::account(&mut conn, tenant.0, id).await
    }

    /// A page of a tenant's accounts, newest first.
    ///
    /// # Errors
    /// [`LedgerError::BadCursor`], else of the database.
    pub async fn accounts(
        &self,
        tenant: TenantId,
        cursor: Option<&str>,
        limit: i64,
    ) -> Result<ledger::Page<ledger::Account>, LedgerError> {
        let mut conn = self.inner.db.conn().await.map_err(LedgerError::from)?;
        ledger::accounts(&mut conn, tenant.0, cursor, limit).await
    }

    /// A page of an account's entries, newest first.
    ///
    /// # Errors
    /// [`LedgerError::BadCursor`], else of the database.
    pub async fn account_entries(
        &self,
        tenant: TenantId,
        id: Uuid,
        cursor: Option<&str>,
        limit: i64,
    ) -> Result<Option<ledger::Page<ledger::AccountEntry>>, LedgerError> {
        let mut conn = self.inner.db.conn().await.map_err(LedgerError::from)?;
        ledger::account_entries(&mut conn, tenant.0, id, cursor, limit).await
    }

    /// The balance of an account, now or as it was recorded at `at`.
    ///
    /// # Errors
    /// Of the database.
    pub async fn balance(
        &self,
        tenant: TenantId,
        id: Uuid,
        at: Option<Timestamp>,
    ) -> Result<Option<ledger::Balance>, LedgerError> {
        let mut conn = self.inner.db.conn().await.map_err(LedgerError::from)?;
        ledger::balance(&mut conn, tenant.0, id, at).await
    }

    /// The trial balance of a tenant in one currency.
    ///
    /// # Errors
    /// Of the database.
    pub async fn trial_balance(
        &self,
        tenant: TenantId,
        currency: Currency,
        at: Option<Timestamp>,
    ) -> Result<ledger::TrialBalance, LedgerError> {
        let mut conn = self.inner.db.conn().await.map_err(LedgerError::from)?;
        ledger::trial_balance(&mut conn, tenant.0, currency, at).await
    }

    /// One journal of a tenant.
    ///
    /// # Errors
    /// Of the database.
    pub async fn journal(&self, tenant: TenantId, id: Uuid) -> Result<Option<ledger::Journal>, LedgerError> {
        let mut conn = self.inner.db.conn().await.map_err(LedgerError::from)?;
        ledger::journal(&mut conn, tenant.0, id).await
    }

    // --- callers, health -----------------------------------------------------------------------------------------

    /// Whose key this is.
    ///
    /// # Errors
    /// Of the database.
    pub async fn authenticate(&self, key: &str) -> Result<Option<Caller>, DbError> {
        tenants::authenticate(&self.inner.db, &self.inner.believed, key).await
    }

    /// Whether this process can do its work now.
    ///
    /// # Errors
    /// The reason, for people.
    pub async fn readiness(&self) -> Result<(), String> {
        let text = |error: &dyn std::error::Error| tallystick_runner::looper::chain(error);
        tallystick_runner::cluster::check(&self.inner.db).await.map_err(|e| text(&e))?;
        let days = outbox::partition_days_left(&self.inner.db).await.map_err(|e| text(&e))?;
        if days < READY_PARTITION_DAYS {
            return Err(format!(
                "the outbox has partitions for {days} more days, less than {READY_PARTITION_DAYS}: \
                 run `tallystick migrate`, or a process with the sweep role"
            ));
        }
        Ok(())
    }

    /// Figures for monitoring.
    ///
    /// # Errors
    /// Of the database.
    pub async fn gauges(&self) -> Result<Gauges, DbError> {
        gauges::read(&self.inner.db).await
    }
}
