//! SQL of payments.payment.

use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use tallystick_runner::DbError;
use uuid::Uuid;

use super::state::{PaymentState, PaymentStatus};
use super::view::{Capture, Payment};
use crate::ids::{PaymentId, TenantId};
use crate::operation::Life;
use crate::operation::columns::{Changed, Update};

/// A row as stored. Private to the crate: outside it is a [`Payment`].
#[derive(Clone, Debug)]
pub(crate) struct PaymentRow {
    pub life: Life<PaymentStatus>,
    pub authorized_minor: i64,
    pub captured_minor: i64,
    pub refunded_minor: i64,
    pub capture: String,
    pub description: Option<String>,
    pub metadata: Option<String>,
    pub order_id: Option<String>,
    pub payment_method: String,
    pub cancel_requested_at: Option<jiff_sqlx::Timestamp>,
    pub webhook_url: Option<String>,
}

impl PaymentRow {
    pub(crate) fn capture(&self) -> Capture {
        if self.capture == Capture::Manual.as_str() { Capture::Manual } else { Capture::Automatic }
    }

    /// The parts that decide.
    pub(crate) fn state(&self) -> PaymentState {
        PaymentState {
            status: self.life.status,
            amount: self.life.money(),
            capture: self.capture(),
            attention: self.life.attention_code.is_some(),
        }
    }

    pub(crate) fn into_view(self) -> Payment {
        let (money, capture, life) = (self.life.money(), self.capture(), self.life);
        Payment {
            payment_id: PaymentId(life.id),
            status: life.status,
            amount: money.major(),
            amount_minor: money.minor,
            currency: money.currency,
            authorized_minor: self.authorized_minor,
            captured_minor: self.captured_minor,
            refunded_minor: self.refunded_minor,
            capture,
            description: self.description,
            // Stored as compact JSON that we wrote ourselves.
            metadata: self.metadata.and_then(|text| serde_json::from_str(&text).ok()),
            order_id: self.order_id,
            payment_method: self.payment_method,
            failure: life.failure(),
            attention: life.attention(),
            gateway: life.gateway,
            gateway_reference: life.gateway_reference,
            unknown_since: life.unknown_since.map(jiff_sqlx::Timestamp::to_jiff),
            cancel_requested_at: self.cancel_requested_at.map(jiff_sqlx::Timestamp::to_jiff),
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
            SELECT payment_id, tenant_id, status AS "status: PaymentStatus", version, currency, amount_minor,
                   authorized_minor, captured_minor, refunded_minor, capture, description, metadata, order_id,
                   payment_method, gateway, gateway_reference, failure_code, failure_message, attention_code,
                   attention_break, unknown_since, cancel_requested_at, webhook_url, created_at, updated_at,
                   processed_at
              FROM payments.payment "# + $tail,
            $($arg),*
        )
        .map(|r| PaymentRow {
            life: Life {
                id: r.payment_id,
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
            authorized_minor: r.authorized_minor,
            captured_minor: r.captured_minor,
            refunded_minor: r.refunded_minor,
            capture: r.capture,
            description: r.description,
            metadata: r.metadata,
            order_id: r.order_id,
            payment_method: r.payment_method,
            cancel_requested_at: r.cancel_requested_at,
            webhook_url: r.webhook_url,
        })
    };
}

/// Columns of new rows, in the form that `unnest` takes them.
#[derive(Default)]
struct Columns {
    payment_id: Vec<Uuid>,
    tenant_id: Vec<Uuid>,
    currency: Vec<String>,
    amount_minor: Vec<i64>,
    capture: Vec<String>,
    description: Vec<Option<String>>,
    metadata: Vec<Option<String>>,
    order_id: Vec<Option<String>>,
    payment_method: Vec<String>,
    gateway: Vec<String>,
    webhook_url: Vec<Option<String>>,
    created_at: Vec<jiff_sqlx::Timestamp>,
}

impl Columns {
    fn of(rows: &[Payment], tenants: &[TenantId]) -> Self {
        let mut c = Self::default();
        for (row, tenant) in rows.iter().zip(tenants) {
            c.payment_id.push(row.payment_id.0);
            c.tenant_id.push(tenant.0);
            c.currency.push(row.currency.code().to_owned());
            c.amount_minor.push(row.amount_minor);
            c.capture.push(row.capture.as_str().to_owned());
            c.description.push(row.description.clone());
            c.metadata.push(row.metadata.as_ref().map(serde_json::Value::to_string));
            c.order_id.push(row.order_id.clone());
            c.payment_method.push(row.payment_method.clone());
            c.gateway.push(row.gateway.clone());
            c.webhook_url.push(row.webhook_url.clone());
            c.created_at.push(row.created_at.to_sqlx());
        }
        c
    }
}

/// Inserts pending payments and returns those that were inserted; the others met an active payment of their order.
pub(crate) async fn insert(
    conn: &mut PgConnection,
    rows: &[Payment],
    tenants: &[TenantId],
) -> Result<Vec<Uuid>, DbError> {
    let c = Columns::of(rows, tenants);
    Ok(sqlx::query_scalar!(
        r#"-- payment.insert
        INSERT INTO payments.payment (payment_id, tenant_id, currency, amount_minor, capture, description, metadata,
                                      order_id, active_order, payment_method, gateway, webhook_url,
                                      created_at, updated_at)
        SELECT payment_id, tenant_id, currency, amount_minor, capture, description, metadata,
               order_id, order_id, payment_method, gateway, webhook_url, created_at, created_at
          FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[],
                      $8::text[], $9::text[], $10::text[], $11::text[], $12::timestamptz[])
            AS t (payment_id, tenant_id, currency, amount_minor, capture, description, metadata,
                  order_id, payment_method, gateway, webhook_url, created_at)
        -- Two batches meet orders in the same sequence, so they wait for each other and never in a circle.
         ORDER BY tenant_id, order_id, payment_id
        ON CONFLICT (tenant_id, active_order) DO NOTHING
        RETURNING payment_id"#,
        &c.payment_id,
        &c.tenant_id,
        &c.currency,
        &c.amount_minor,
        &c.capture,
        &c.description as &[Option<String>],
        &c.metadata as &[Option<String>],
        &c.order_id as &[Option<String>],
        &c.payment_method,
        &c.gateway,
        &c.webhook_url as &[Option<String>],
        &c.created_at as &[jiff_sqlx::Timestamp],
    )
    .fetch_all(conn)
    .await?)
}

/// The active payments of orders.
pub(crate) async fn active_of_orders(
    conn: &mut PgConnection,
    tenants: &[Uuid],
    orders: &[String],
) -> Result<Vec<PaymentRow>, DbError> {
    Ok(select!(
        "-- payment.active_of_orders",
        "WHERE (tenant_id, active_order) IN (SELECT * FROM unnest($1::uuid[], $2::text[]))",
        tenants,
        orders
    )
    .fetch_all(conn)
    .await?)
}

/// One payment of a tenant.
pub(crate) async fn get(
    conn: &mut PgConnection,
    tenant: Uuid,
    id: Uuid,
) -> Result<Option<PaymentRow>, DbError> {
    Ok(select!("-- payment.get", "WHERE payment_id = $1 AND tenant_id = $2", id, tenant)
        .fetch_optional(conn)
        .await?)
}

/// What a list is narrowed to.
#[derive(Clone, Debug, Default)]
pub struct PaymentFilter {
    /// Only this status.
    pub status: Option<PaymentStatus>,
    /// Only this order.
    pub order_id: Option<String>,
    /// Only this gateway account.
    pub gateway: Option<String>,
}

/// A page of a tenant's payments, newest first.
pub(crate) async fn list(
    conn: &mut PgConnection,
    tenant: Uuid,
    filter: &PaymentFilter,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Vec<PaymentRow>, DbError> {
    Ok(select!(
        "-- payment.list",
        "WHERE tenant_id = $1 AND payment_id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
           AND ($3::payments.payment_status IS NULL OR status = $3)
           AND ($4::text IS NULL OR order_id = $4)
           AND ($5::text IS NULL OR gateway = $5)
         ORDER BY payment_id DESC LIMIT $6",
        tenant,
        before,
        filter.status as Option<PaymentStatus>,
        filter.order_id,
        filter.gateway,
        limit
    )
    .fetch_all(conn)
    .await?)
}

/// Rows by id, without a lock.
pub(crate) async fn by_ids(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<PaymentRow>, DbError> {
    Ok(select!("-- payment.by_ids", "WHERE payment_id = ANY($1)", ids).fetch_all(conn).await?)
}

/// Rows by id, locked in id order: the order that everyone locks payments in.
pub(crate) async fn lock(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<PaymentRow>, DbError> {
    Ok(select!("-- payment.lock", "WHERE payment_id = ANY($1) ORDER BY payment_id FOR NO KEY UPDATE", ids)
        .fetch_all(conn)
        .await?)
}

/// Of the payments waited for, those that have left `pending`.
pub(crate) async fn left_pending(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<PaymentRow>, DbError> {
    Ok(select!("-- payment.left_pending", "WHERE payment_id = ANY($1) AND status <> 'pending'", ids)
        .fetch_all(conn)
        .await?)
}

/// Writes changed rows. Each was locked before, so a row that is not met is a fault and not a race.
pub(crate) async fn update(
    conn: &mut PgConnection,
    updates: &[Update<'_, PaymentRow>],
) -> Result<(), DbError> {
    if updates.is_empty() {
        return Ok(());
    }
    let c = Changed::of(updates, |row| &row.life);
    let done = sqlx::query!(
        "-- payment.update
        UPDATE payments.payment p
           SET status = t.status, version = t.version,
               authorized_minor = t.authorized_minor, captured_minor = t.captured_minor,
               gateway_reference = t.gateway_reference, failure_code = t.failure_code,
               failure_message = t.failure_message, attention_code = t.attention_code,
               attention_break = t.attention_break, unknown_since = t.unknown_since,
               updated_at = t.updated_at, processed_at = t.processed_at,
               active_order = CASE WHEN t.status IN ('failed', 'canceled') THEN NULL ELSE p.order_id END
          FROM unnest($1::uuid[], $2::integer[], $3::payments.payment_status[], $4::integer[], $5::bigint[],
                      $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::uuid[],
                      $12::timestamptz[], $13::timestamptz[], $14::timestamptz[])
            AS t (payment_id, before, status, version, authorized_minor, captured_minor, gateway_reference,
                  failure_code, failure_message, attention_code, attention_break, unknown_since, updated_at,
                  processed_at)
         WHERE p.payment_id = t.payment_id AND p.version = t.before",
        &c.id,
        &c.before,
        &c.status as &[PaymentStatus],
        &c.version,
        &updates.iter().map(|u| u.after.authorized_minor).collect::<Vec<_>>(),
        &updates.iter().map(|u| u.after.captured_minor).collect::<Vec<_>>(),
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
    DbError::expect_rows("payment.update", done.rows_affected(), updates.len())
}
