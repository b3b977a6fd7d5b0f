//! The first design that comes to mind: one transaction locks the account, posts the debit, calls the bank and commits.
//!
//! It is wrong on purpose, and nothing of the product does it. The account stays locked for as long as the bank takes,
//! and when the commit fails after the call the money is gone and the books do not know it. It is given every advantage
//! that it could have: no HTTP request to accept, no idempotency key, no event, no webhook to wait for; a payout is over
//! when the transaction has committed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Uri;
use serde_json::json;
use tallystick_ledger::{
    self as ledger, AccountKind, AccountRef, Direction, LedgerError, NewAccount, NewEntry, NewJournal,
};
use tallystick_payments::tenants;
use tallystick_runner::{Db, DbError, DbOptions, Fault};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::super::accounts::CURRENCY;
use super::super::bank::{Bank, Manner, Place};
use super::super::complete::Gap;
use super::super::environment::{Another, Environment};
use super::super::load::AMOUNT_MINOR;
use super::super::measure::{self, Run};
use super::super::meter::{Meter, Processes};
use super::super::wire::{Side, Wire, uri};
use super::{LONGEST, WORKERS};
use crate::cli::CliError;
use crate::cli::tenants::refusal;

/// Name of the second database and of the second bank's folder.
const NAME: &str = "first_design";
/// A worker waits for the lock until nine others have spoken to the bank.
const LOCK_TIMEOUT: Duration = Duration::from_secs(600);
/// The sandbox's ordinary payee.
const DESTINATION: &str = "acct_ok";
const PATH: &str = "/gateways/sandbox/payouts";
/// Ids that are shown of what is missing.
const SHOWN: usize = 3;

/// Why a payout was not made.
#[derive(Debug, thiserror::Error)]
enum PayError {
    /// Of the database.
    #[error(transparent)]
    Db(#[from] DbError),
    /// Of the ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The account has too little.
    #[error("an account has too little for its payouts")]
    Funds,
    /// Of the bank.
    #[error("the bank: {0}")]
    Bank(String),
}

impl Fault for PayError {
    fn db(&self) -> Option<&DbError> {
        match self {
            Self::Db(error) => Some(error),
            Self::Ledger(error) => error.db(),
            Self::Funds | Self::Bank(_) => None,
        }
    }
}

fn told(error: PayError) -> CliError {
    match error {
        PayError::Db(error) | PayError::Ledger(LedgerError::Db(error)) => error.into(),
        other => CliError::Broken(format!("the baseline call_inside_lock: {other}")),
    }
}

/// The design, ready to run.
pub struct CallInsideLock {
    database_url: String,
    tenant: Uuid,
    clearing: AccountRef,
    side: Side,
    bank: Bank,
    place: Place,
    bank_pid: u32,
}

/// What its workers share.
struct Shop {
    db: Db,
    tenant: Uuid,
    accounts: Vec<AccountRef>,
    clearing: AccountRef,
    path: Uri,
    body: Bytes,
    next: AtomicU64,
    payouts: u64,
    until: Instant,
}

impl CallInsideLock {
    /// Makes its database and its bank.
    ///
    /// # Errors
    /// [`CliError`] says what could not be made.
    pub async fn set_up(environment: &mut Environment<'_>, manner: &Manner) -> Result<Self, CliError> {
        let Another { bank_url, bank: bank_pid, secret, database_url } = environment.another(NAME).await?;
        let db = connect(&database_url).await?;
        let all = tenants::list(&db).await.map_err(refusal)?;
        let tenant = all.first().map(|tenant| tenant.tenant_id.0);
        let tenant = tenant.ok_or_else(|| CliError::Broken("there is no tenant".into()))?;
        let clearing = open(&db, tenant, "at the bank", AccountKind::Asset, None).await?;
        db.pool().close().await;
        let mut bank = Bank::at(&bank_url)?;
        // Nobody would take its webhooks.
        bank.set(&Manner { webhooks: false, ..manner.clone() }).await?;
        let side = Side::at(&bank_url)?.with_secret(&secret)?;
        Ok(Self { database_url, tenant, clearing, side, bank, place: Place::default(), bank_pid })
    }

    /// Opens so many accounts with enough in each.
    ///
    /// # Errors
    /// [`CliError`] of the database.
    pub async fn accounts(&self, count: usize, each_minor: i64) -> Result<Vec<AccountRef>, CliError> {
        let db = connect(&self.database_url).await?;
        let mut accounts = Vec::with_capacity(count);
        for number in 1..=count {
            let name = format!("customer {number}");
            let account = open(&db, self.tenant, &name, AccountKind::Liability, Some(0)).await?;
            let paid_in = journal(self.tenant, Uuid::now_v7(), self.clearing, account, each_minor);
            post(&db, paid_in).await?;
            accounts.push(account);
        }
        db.pool().close().await;
        Ok(accounts)
    }

    /// Makes payouts until all are made or the time for it is over. Our server should be stopped meanwhile: also one
    /// that has nothing to do asks the database for work.
    ///
    /// # Errors
    /// [`CliError`] when the database or the bank does not answer as it should.
    pub async fn run(
        &mut self,
        environment: &Environment<'_>,
        round: u32,
        payouts: u64,
        accounts: &[AccountRef],
    ) -> Result<Run, CliError> {
        let database = environment.info.pids.postgres;
        let processes = Processes { server: None, database, bank: self.bank_pid };
        let reading = connect(&self.database_url).await?;
        let mut meter = Meter::new(reading.clone(), None, processes);
        let db = connect(&self.database_url).await?;
        let mut connections = Vec::with_capacity(WORKERS);
        for _ in 0..WORKERS {
            connections.push(db.conn().await?);
        }
        drop(connections);
        meter.begin().await?;
        let began = Instant::now();
        let body = json!({"destination": DESTINATION, "amount_minor": AMOUNT_MINOR, "currency": CURRENCY});
        let shop = Arc::new(Shop {
            db: db.clone(),
            tenant: self.tenant,
            accounts: accounts.to_vec(),
            clearing: self.clearing,
            path: uri(PATH)?,
            body: body.to_string().into(),
            next: AtomicU64::new(0),
            payouts,
            until: began + LONGEST,
        });
        let mut workers = JoinSet::new();
        for _ in 0..WORKERS {
            workers.spawn(worker(shop.clone(), self.side.wire()));
        }
        let mut done = Vec::new();
        while let Some(ended) = workers.join_next().await {
            done.extend(ended.map_err(|e| CliError::Broken(format!("a worker ended: {e}")))??);
        }
        let ended = Instant::now();
        meter.end().await?;
        // Its connections have nothing more to do, and would tell their commits much later.
        db.pool().close().await;
        let mut used = meter.used().await?;
        reading.pool().close().await;
        // Its workers are part of this process, and nobody makes load for them.
        (used.server_us, used.load_us) = (used.load_us, 0);
        let (ids, latencies): (HashSet<Uuid>, Vec<Duration>) = done.into_iter().unzip();
        let mut run = measure::plain(round, began, ended, latencies, used);
        run.gaps = self.gaps(&ids).await?;
        Ok(run)
    }

    /// The bank's book must hold these payouts and no others.
    async fn gaps(&mut self, made: &HashSet<Uuid>) -> Result<Vec<Gap>, CliError> {
        let (said, place) = self.bank.account(self.place).await?;
        self.place = place;
        let wrong = |id: &&Uuid| said.paid.get(*id) != Some(&1) || !made.contains(*id);
        let every: HashSet<&Uuid> = made.iter().chain(said.paid.keys()).collect();
        let payouts: Vec<Uuid> = every.into_iter().filter(wrong).copied().collect();
        if payouts.is_empty() {
            return Ok(Vec::new());
        }
        let count = payouts.len();
        let what = "the bank's book and the books of the baseline differ";
        Ok(vec![Gap { what, count, payouts: payouts.into_iter().take(SHOWN).collect() }])
    }
}

async fn connect(url: &str) -> Result<Db, CliError> {
    let options = DbOptions {
        application_name: "tallystick bench: call inside lock".into(),
        max_connections: u32::try_from(WORKERS).unwrap_or(u32::MAX),
        lock_timeout: LOCK_TIMEOUT,
        statement_timeout: LOCK_TIMEOUT,
        ..DbOptions::default()
    };
    Ok(Db::connect(url, &options).await?)
}

async fn worker(shop: Arc<Shop>, wire: Wire) -> Result<Vec<(Uuid, Duration)>, CliError> {
    let (wire, mut done) = (Arc::new(Mutex::new(wire)), Vec::new());
    loop {
        let number = shop.next.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        if number >= shop.payouts || began >= shop.until {
            return Ok(done);
        }
        let turn = usize::try_from(number).unwrap_or_default() % shop.accounts.len();
        let (account, id) = (shop.accounts[turn], Uuid::now_v7());
        let (shared, wire) = (shop.clone(), wire.clone());
        let made = shop.db.tx("bench.call_inside_lock", move |conn| {
            let (shop, wire) = (shared.clone(), wire.clone());
            Box::pin(async move {
                let locked = ledger::lock_limited_in_tx(conn, &[account]).await?;
                let mut limit = locked.get(&account).copied().ok_or(PayError::Funds)?;
                if !limit.take(Direction::Debit, AMOUNT_MINOR)? {
                    return Err(PayError::Funds);
                }
                let debit = journal(shop.tenant, id, account, shop.clearing, AMOUNT_MINOR);
                ledger::post_in_tx(conn, &[debit]).await?;
                // Here it is: the lock and the transaction stay open while the bank takes its time.
                let answer = wire.lock().await.post(&shop.path, &id.to_string(), &shop.body).await;
                let answer = answer.map_err(|e| PayError::Bank(e.to_string()))?;
                if matches!(answer.status, 200 | 202) {
                    Ok(())
                } else {
                    Err(PayError::Bank(format!("it answered {}", answer.shown())))
                }
            })
        });
        made.await.map_err(told)?;
        done.push((id, began.elapsed()));
    }
}

fn journal(tenant: Uuid, id: Uuid, from: AccountRef, to: AccountRef, amount_minor: i64) -> NewJournal {
    NewJournal {
        journal_id: id,
        tenant_id: tenant,
        kind: "manual",
        source: id,
        source_text: None,
        ordinal: 0,
        description: "a baseline's payout".into(),
        metadata: None,
        effective_at: None,
        corrects: None,
        entries: vec![
            NewEntry { account: from, direction: Direction::Debit, amount_minor },
            NewEntry { account: to, direction: Direction::Credit, amount_minor },
        ],
        status: None,
    }
}

async fn post(db: &Db, journal: NewJournal) -> Result<(), CliError> {
    let posted = db.tx("bench.fund", move |conn| {
        let journal = journal.clone();
        Box::pin(async move {
            ledger::post_in_tx(conn, &[journal]).await?;
            Ok::<(), PayError>(())
        })
    });
    posted.await.map_err(told)
}

async fn open(
    db: &Db,
    tenant: Uuid,
    name: &str,
    kind: AccountKind,
    minimum_minor: Option<i64>,
) -> Result<AccountRef, CliError> {
    let currency = CURRENCY.parse().map_err(|_| CliError::Broken(format!("{CURRENCY} is no currency")))?;
    let account_id = Uuid::now_v7();
    let new = NewAccount {
        account_id,
        tenant_id: tenant,
        name: name.to_owned(),
        kind,
        currency,
        minimum_minor,
        metadata: None,
    };
    let opened = db.tx("bench.open", move |conn| {
        let new = new.clone();
        Box::pin(
            async move { Ok::<_, PayError>(ledger::open_account_in_tx(conn, &new).await?.account_ref()) },
        )
    });
    opened.await.map_err(told)
}
