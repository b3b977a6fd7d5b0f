//! SQL of payments.payout.

use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use tallystick_runner::DbError;
use uuid::Uuid;

use super::state::{PayoutState, PayoutStatus};
use super::view::Payout;
use crate::ids::{PayoutId, TenantId};
use crate::operation::Life;
use crate::operation::columns::{Changed, Update};

/// A row as stored. Private to the crate: outside it is a [`Payout`].
#[derive(Clone, Debug)]
pub(crate) struct PayoutRow {
    pub life: Life<PayoutStatus>,
    pub account_id: Uuid,
    pub destination: String,
    pub reference: Option<String>,
    pub description: Option<String>,
    pub metadata: Option<String>,
    pub batch_id: Option<Uuid>,
    pub webhook_url: Option<String>,
}

impl PayoutRow {
    /// The parts that decide.
    pub(crate) fn state(&self) -> PayoutState {
        PayoutState {
            status: self.life.status,
            amount: self.life.money(),
            attention: self.life.attention_code.is_some(),
        }
    }

    pub(crate) fn into_view(self) -> Payout {
        let (money, life) = (self.life.money(), self.life);
        Payout {
            payout_id: PayoutId(life.id),
            status: life.status,
            account_id: self.account_id,
            destination: self.destination,
            amount: money.major(),
            amount_minor: money.minor,
            currency: money.currency,
            reference: self.reference,
            description: self.description,
            // Stored as compact JSON that we wrote ourselves.
            metadata: self.metadata.and_then(|text| serde_json::from_str(&text).ok()),
            batch_id: self.batch_id,
            failure: life.failure(),
            attention: life.attention(),
            gateway: life.gateway,
            gateway_reference: life.gateway_reference,
            unknown_since: life.unknown_since.map(jiff_sqlx::Timestamp::to_jiff),
            webhook_url: self.webhook_url,
            created_at: life.created_at.to_jiff(),
            updated_at: life.updated_at.to_jiff(),
            processed_at: life.processed_at.map(jiff_sqlx::Timestamp::to_jiff),
            version: life.version,
        }
    }
}

/// A checked select of whole rows; `$tail` begins with the statement's conditions.
macro_rules! select {
    ($name:tt, $tail:tt, $($arg:expr),* $(,)?) => {
        sqlx::query!(
            $name + r#"
            SELECT payout_id, tenant_id, status AS "status: PayoutStatus", version, account_id, destination, currency,
                   amount_minor, reference, description, metadata, batch_id, gateway, gateway_reference, failure_code,
                   failure_message, attention_code, attention_break, unknown_since, webhook_url, created_at, updated_at,
                   processed_at
              FROM payments.payout "# + $tail,
            $($arg),*
        )
        .map(|r| PayoutRow {
            life: Life {
                id: r.payout_id,
                tenant_id: r.tenant_id,
                status: r.status,
                version: r.version,
                currency: r.currency,
                amount_minor: r.amount_minor,
                gateway: r.gateway,
                gateway_reference: r.gateway_reference,
                failure_code: r.failure_code,
                failure_message: r.failure_message,
                attention_code: r.attention_code,
                attention_break: r.attention_break,
                unknown_since: r.unknown_since,
                created_at: r.created_at,
                updated_at: r.updated_at,
                processed_at: r.processed_at,
            },
            account_id: r.account_id,
            destination: r.destination,
            reference: r.reference,
            description: r.description,
            metadata: r.metadata,
            batch_id: r.batch_id,
            webhook_url: r.webhook_url,
        })
    };
}

/// Columns of new rows, in the form that `unnest` takes them.
#[derive(Default)]
struct Columns {
    payout_id: Vec<Uuid>,
    tenant_id: Vec<Uuid>,
    status: Vec<PayoutStatus>,
    account_id: Vec<Uuid>,
    destination: Vec<String>,
    currency: Vec<String>,
    amount_minor: Vec<i64>,
    reference: Vec<Option<String>>,
    description: Vec<Option<String>>,
    metadata: Vec<Option<String>>,
    gateway: Vec<String>,
    webhook_url: Vec<Option<String>>,
    created_at: Vec<jiff_sqlx::Timestamp>,
}

impl Columns {
    fn of(rows: &[Payout], tenants: &[TenantId]) -> Self {
        let mut c = Self::default();
        for (row, tenant) in rows.iter().zip(tenants) {
            c.payout_id.push(row.payout_id.0);
            c.tenant_id.push(tenant.0);
            c.status.push(row.status);
            c.account_id.push(row.account_id);
            c.destination.push(row.destination.clone());
            c.currency.push(row.currency.code().to_owned());
            c.amount_minor.push(row.amount_minor);
            c.reference.push(row.reference.clone());
            c.description.push(row.description.clone());
            c.metadata.push(row.metadata.as_ref().map(serde_json::Value::to_string));
            c.gateway.push(row.gateway.clone());
            c.webhook_url.push(row.webhook_url.clone());
            c.created_at.push(row.created_at.to_sqlx());
        }
        c
    }
}

/// Inserts payouts and returns those that were inserted; the others met an active payout of their reference.
pub(crate) async fn insert(
    conn: &mut PgConnection,
    rows: &[Payout],
    tenants: &[TenantId],
) -> Result<Vec<Uuid>, DbError> {
    let c = Columns::of(rows, tenants);
    Ok(sqlx::query_scalar!(
        r#"-- payout.insert
        INSERT INTO payments.payout (payout_id, tenant_id, status, account_id, destination, currency, amount_minor,
                                     reference, active_reference, description, metadata, gateway, webhook_url,
                                     created_at, updated_at)
        SELECT payout_id, tenant_id, status, account_id, destination, currency, amount_minor,
               reference, reference, description, metadata, gateway, webhook_url, created_at, created_at
          FROM unnest($1::uuid[], $2::uuid[], $3::payments.payout_status[], $4::uuid[], $5::text[], $6::text[],
                      $7::bigint[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::timestamptz[])
            AS t (payout_id, tenant_id, status, account_id, destination, currency, amount_minor, reference,
                  description, metadata, gateway, webhook_url, created_at)
        -- Two batches meet references in the same sequence, so they wait for each other and never in a circle.
         ORDER BY tenant_id, reference, payout_id
        ON CONFLICT (tenant_id, active_reference) WHERE active_reference IS NOT NULL DO NOTHING
        RETURNING payout_id"#,
        &c.payout_id,
        &c.tenant_id,
        &c.status as &[PayoutStatus],
        &c.account_id,
        &c.destination,
        &c.currency,
        &c.amount_minor,
        &c.reference as &[Option<String>],
        &c.description as &[Option<String>],
        &c.metadata as &[Option<String>],
        &c.gateway,
        &c.webhook_url as &[Option<String>],
        &c.created_at as &[jiff_sqlx::Timestamp],
    )
    .fetch_all(conn)
    .await?)
}

/// The active payouts of references.
pub(crate) async fn active_of_references(
    conn: &mut PgConnection,
    tenants: &[Uuid],
    references: &[String],
) -> Result<Vec<PayoutRow>, DbError> {
    Ok(select!(
        "-- payout.active_of_references",
        "WHERE (tenant_id, active_reference) IN (SELECT * FROM unnest($1::uuid[], $2::text[]))",
        tenants,
        references
    )
    .fetch_all(conn)
    .await?)
}

/// One payout of a tenant.
pub(crate) async fn get(
    conn: &mut PgConnection,
    tenant: Uuid,
    id: Uuid,
) -> Result<Option<PayoutRow>, DbError> {
    Ok(select!("-- payout.get", "WHERE payout_id = $1 AND tenant_id = $2", id, tenant)
        .fetch_optional(conn)
        .await?)
}

/// What a list is narrowed to.
#[derive(Clone, Debug, Default)]
pub struct PayoutFilter {
    /// Only this status.
    pub status: Option<PayoutStatus>,
    /// Only this reference.
    pub reference: Option<String>,
    /// Only from this account.
    pub account_id: Option<Uuid>,
    /// Only this gateway account.
    pub gateway: Option<String>,
}

/// A page of a tenant's payouts, newest first.
pub(crate) async fn list(
    conn: &mut PgConnection,
    tenant: Uuid,
    filter: &PayoutFilter,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Vec<PayoutRow>, DbError> {
    Ok(select!(
        "-- payout.list",
        "WHERE tenant_id = $1 AND payout_id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
           AND ($3::payments.payout_status IS NULL OR status = $3)
           AND ($4::text IS NULL OR reference = $4)
           AND ($5::uuid IS NULL OR account_id = $5)
           AND ($6::text IS NULL OR gateway = $6)
         ORDER BY payout_id DESC LIMIT $7",
        tenant,
        before,
        filter.status as Option<PayoutStatus>,
        filter.reference,
        filter.account_id,
        filter.gateway,
        limit
    )
    .fetch_all(conn)
    .await?)
}

/// Rows by id, without a lock.
pub(crate) async fn by_ids(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<PayoutRow>, DbError> {
    Ok(select!("-- payout.by_ids", "WHERE payout_id = ANY($1)", ids).fetch_all(conn).await?)
}

/// Rows by id, locked in id order: the order that everyone locks payouts in, after payments.
pub(crate) async fn lock(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<PayoutRow>, DbError> {
    Ok(select!("-- payout.lock", "WHERE payout_id = ANY($1) ORDER BY payout_id FOR NO KEY UPDATE", ids)
        .fetch_all(conn)
        .await?)
}

/// Writes changed rows. Each was locked before, so a row that is not met is a fault and not a race.
pub(crate) async fn update(
    conn: &mut PgConnection,
    updates: &[Update<'_, PayoutRow>],
) -> Result<(), DbError> {
    if updates.is_empty() {
        return Ok(());
    }
    let c = Changed::of(updates, |row| &row.life);
    let done = sqlx::query!(
        "-- payout.update
        UPDATE payments.payout p
           SET status = t.status, version = t.version,
               gateway_reference = t.gateway_reference, failure_code = t.failure_code,
               failure_message = t.failure_message, attention_code = t.attention_code,
               attention_break = t.attention_break, unknown_since = t.unknown_since,
               updated_at = t.updated_at, processed_at = t.processed_at,
               active_reference = CASE WHEN t.status IN ('failed', 'canceled', 'returned') THEN NULL ELSE p.reference END
          FROM unnest($1::uuid[], $2::integer[], $3::payments.payout_status[], $4::integer[], $5::text[], $6::text[],
                      $7::text[], $8::text[], $9::uuid[], $10::timestamptz[], $11::timestamptz[], $12::timestamptz[])
            AS t (payout_id, before, status, version, gateway_reference, failure_code, failure_message, attention_code,
                  attention_break, unknown_since, updated_at, processed_at)
         WHERE p.payout_id = t.payout_id AND p.version = t.before",
        &c.id,
        &c.before,
        &c.status as &[PayoutStatus],
        &c.version,
        &c.gateway_reference as &[Option<String>],
        &c.failure_code as &[Option<String>],
        &c.failure_message as &[Option<String>],
        &c.attention_code as &[Option<String>],
        &c.attention_break as &[Option<Uuid>],
        &c.unknown_since as &[Option<jiff_sqlx::Timestamp>],
        &c.updated_at as &[jiff_sqlx::Timestamp],
        &c.processed_at as &[Option<jiff_sqlx::Timestamp>],
    )
    .execute(conn)
    .await?;
    DbError::expect_rows("payout.update", done.rows_affected(), updates.len())
}
