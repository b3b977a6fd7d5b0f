//! Creating a payout: its defaults, its account, its fingerprint, and what makes two references the same intent.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use sqlx::PgConnection;
use tallystick_ledger::{self as ledger, Direction, LedgerError};
use tallystick_money::Money;
use tallystick_runner::{DbError, clock};
use uuid::Uuid;

use super::repo;
use super::state::PayoutStatus;
use super::view::{CreatePayout, Payout};
use crate::create::{self, CreateError, Created};
use crate::engine::{Answer, Inner};
use crate::idempotency::Fingerprint;
use crate::ids::{PayoutId, TenantId};
use crate::operation::OperationKind;
use crate::tenants;

const PATH: &str = "/api/v1/payouts";

/// Creates a payout, or answers as before. Whether the account has enough is found when it is debited.
///
/// Where the tenant asks for approval it waits for that, without a dispatch row: nothing can claim it.
pub(crate) async fn create(
    inner: &Arc<Inner>,
    tenant: TenantId,
    key: &str,
    request: CreatePayout,
) -> Result<Answer, CreateError> {
    check_account(inner, tenant, request.account_id, request.amount).await?;
    let approval = tenants::payout_approval(&inner.db, &inner.believed, tenant).await?;
    let payout = prepare(inner, request, approval)?;
    let fingerprint = fingerprint(&payout);
    create::create(&inner.payout_writer, tenant, key, payout, fingerprint).await
}

/// What never changes about an account is checked here, mostly from memory; accounts are never removed.
async fn check_account(inner: &Inner, tenant: TenantId, id: Uuid, amount: Money) -> Result<(), CreateError> {
    let mut conn = inner.db.conn().await?;
    let known = ledger::known_accounts_in_tx(&mut conn, &inner.accounts, &[id]).await.map_err(of_ledger)?;
    let known = known.get(&id).filter(|known| known.account.tenant_id() == tenant.0);
    let known = known.ok_or(CreateError::UnknownAccount(id))?;
    if known.account.currency() != amount.currency {
        return Err(CreateError::AccountCurrency(known.account.currency()));
    }
    if known.kind.natural_side() == Direction::Debit {
        return Err(CreateError::AccountKind);
    }
    Ok(())
}

fn of_ledger(error: LedgerError) -> CreateError {
    match error {
        LedgerError::Db(error) => CreateError::Db(error),
        other => CreateError::Ledger(other),
    }
}

fn prepare(inner: &Inner, request: CreatePayout, approval: bool) -> Result<Payout, CreateError> {
    let gateway = request.gateway.unwrap_or_else(|| inner.settings.default_gateway.clone());
    if !inner.gateways.contains_key(&gateway) {
        return Err(CreateError::UnknownGateway);
    }
    let now = clock::now();
    Ok(Payout {
        payout_id: PayoutId::new(),
        status: if approval { PayoutStatus::RequiresApproval } else { PayoutStatus::Pending },
        account_id: request.account_id,
        destination: request.destination,
        amount: request.amount.major(),
        amount_minor: request.amount.minor,
        currency: request.amount.currency,
        reference: request.reference,
        description: request.description,
        metadata: request.metadata,
        batch_id: None,
        gateway,
        gateway_reference: None,
        failure: None,
        attention: None,
        unknown_since: None,
        webhook_url: request.webhook_url,
        created_at: now,
        updated_at: now,
        processed_at: None,
        version: 1,
    })
}

fn fingerprint(payout: &Payout) -> Fingerprint {
    Fingerprint::of(
        PATH,
        &[
            ("/account_id", json!(payout.account_id)),
            ("/destination", json!(payout.destination)),
            ("/amount_minor", json!(payout.amount_minor)),
            ("/currency", json!(payout.currency)),
            ("/reference", json!(payout.reference)),
            ("/description", json!(payout.description)),
            ("/metadata", json!(payout.metadata)),
            ("/gateway", json!(payout.gateway)),
            ("/webhook_url", json!(payout.webhook_url)),
        ],
    )
}

impl Created for Payout {
    const KIND: OperationKind = OperationKind::Payout;
    const ROUTE: &'static str = "POST /api/v1/payouts";
    const TX: &'static str = "payout.create";

    fn id(&self) -> Uuid {
        self.payout_id.0
    }

    fn gateway(&self) -> &str {
        &self.gateway
    }

    fn status(&self) -> &'static str {
        self.status.as_str()
    }

    fn needs_work(&self) -> bool {
        self.status.needs_work()
    }

    fn money(&self) -> Money {
        Money { minor: self.amount_minor, currency: self.currency }
    }

    fn created_at(&self) -> Timestamp {
        self.created_at
    }

    fn order(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    fn conflict(&self, active: &Self) -> Option<&'static str> {
        if self.account_id != active.account_id {
            Some("/account_id")
        } else if self.destination != active.destination {
            Some("/destination")
        } else if self.currency != active.currency {
            Some("/currency")
        } else if self.amount_minor != active.amount_minor {
            Some("/amount_minor")
        } else {
            None
        }
    }

    async fn insert(
        conn: &mut PgConnection,
        rows: &[Self],
        tenants: &[TenantId],
    ) -> Result<Vec<Uuid>, DbError> {
        repo::insert(conn, rows, tenants).await
    }

    async fn active(
        conn: &mut PgConnection,
        tenants: &[Uuid],
        orders: &[String],
    ) -> Result<Vec<(Uuid, Self)>, DbError> {
        let rows = repo::active_of_references(conn, tenants, orders).await?;
        Ok(rows.into_iter().map(|row| (row.life.tenant_id, row.into_view())).collect())
    }
}
