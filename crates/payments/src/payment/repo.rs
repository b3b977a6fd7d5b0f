//! SQL of payments.payment.

use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use tallystick_money::Money;
use tallystick_runner::DbError;
use uuid::Uuid;

use super::state::{PaymentState, PaymentStatus};
use super::view::{Attention, Capture, Failure, Payment};
use crate::ids::{BreakId, PaymentId, TenantId};

/// A row as stored. Private to the crate: outside it is a [`Payment`].
#[derive(Clone, Debug)]
pub(crate) struct PaymentRow {
    pub payment_id: Uuid,
    pub tenant_id: Uuid,
    pub status: PaymentStatus,
    pub version: i32,
    pub currency: String,
    pub amount_minor: i64,
    pub authorized_minor: i64,
    pub captured_minor: i64,
    pub refunded_minor: i64,
    pub capture: String,
    pub description: Option<String>,
    pub metadata: Option<String>,
    pub order_id: Option<String>,
    pub payment_method: String,
    pub gateway: String,
    pub gateway_reference: Option<String>,
    pub failure_code: Option<String>,
    pub failure_message: Option<String>,
    pub attention_code: Option<String>,
    pub attention_break: Option<Uuid>,
    pub unknown_since: Option<jiff_sqlx::Timestamp>,
    pub cancel_requested_at: Option<jiff_sqlx::Timestamp>,
    pub webhook_url: Option<String>,
    pub created_at: jiff_sqlx::Timestamp,
    pub updated_at: jiff_sqlx::Timestamp,
    pub processed_at: Option<jiff_sqlx::Timestamp>,
}

impl PaymentRow {
    /// The amount asked for. The schema holds only amounts and currencies that were parsed before.
    pub(crate) fn money(&self) -> Money {
        Money {
            minor: self.amount_minor,
            currency: self.currency.parse().expect("stored currencies were parsed"),
        }
    }

    pub(crate) fn capture(&self) -> Capture {
        if self.capture == Capture::Manual.as_str() { Capture::Manual } else { Capture::Automatic }
    }

    /// The parts that decide.
    pub(crate) fn state(&self) -> PaymentState {
        PaymentState {
            status: self.status,
            amount: self.money(),
            capture: self.capture(),
            reference: self.gateway_reference.clone(),
            attention: self.attention_code.is_some(),
        }
    }

    pub(crate) fn into_view(self) -> Payment {
        let money = self.money();
        let capture = self.capture();
        Payment {
            payment_id: PaymentId(self.payment_id),
            status: self.status,
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
            gateway: self.gateway,
            gateway_reference: self.gateway_reference,
            failure: self
                .failure_code
                .map(|code| Failure { code, message: self.failure_message.unwrap_or_default() }),
            attention: self
                .attention_code
                .zip(self.attention_break)
                .map(|(code, id)| Attention { code, break_id: BreakId(id) }),
            unknown_since: self.unknown_since.map(jiff_sqlx::Timestamp::to_jiff),
            cancel_requested_at: self.cancel_requested_at.map(jiff_sqlx::Timestamp::to_jiff),
            webhook_url: self.webhook_url,
            created_at: self.created_at.to_jiff(),
            updated_at: self.updated_at.to_jiff(),
            processed_at: self.processed_at.map(jiff_sqlx::Timestamp::to_jiff),
            version: self.version,
        }
    }
}

/// A checked select of whole rows; `$tail` begins with the statement's conditions.
macro_rules! select {
    ($name:tt, $tail:tt, $($arg:expr),* $(,)?) => {
        sqlx::query_as!(
            PaymentRow,
            $name + r#"
            SELECT payment_id, tenant_id, status AS "status: PaymentStatus", version, currency, amount_minor,
                   authorized_minor, captured_minor, refunded_minor, capture, description, metadata, order_id,
                   payment_method, gateway, gateway_reference, failure_code, failure_message, attention_code,
                   attention_break, unknown_since, cancel_requested_at, webhook_url, created_at, updated_at,
                   processed_at
              FROM payments.payment "# + $tail,
            $($arg),*
        )
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

/// Which payments the keys and references of inbound events name: (payment, gateway, reference).
pub(crate) async fn find(
    conn: &mut PgConnection,
    ids: &[Uuid],
    gateways: &[String],
    references: &[String],
) -> Result<Vec<(Uuid, String, Option<String>)>, DbError> {
    let rows = sqlx::query!(
        r#"-- payment.find
        SELECT payment_id AS "payment_id!", gateway AS "gateway!", gateway_reference
          FROM payments.payment WHERE payment_id = ANY($1)
        UNION
        SELECT payment_id, gateway, gateway_reference
          FROM payments.payment
         WHERE (gateway, gateway_reference) IN (SELECT * FROM unnest($2::text[], $3::text[]))"#,
        ids,
        gateways,
        references
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|r| (r.payment_id, r.gateway, r.gateway_reference)).collect())
}

/// A row's new values, guarded by the version it was read with.
pub(crate) struct Update<'a> {
    pub before: i32,
    pub after: &'a PaymentRow,
}

/// Writes changed rows. Each was locked before, so a row that is not met is a fault and not a race.
pub(crate) async fn update(conn: &mut PgConnection, updates: &[Update<'_>]) -> Result<(), DbError> {
    if updates.is_empty() {
        return Ok(());
    }
    let col = |f: fn(&PaymentRow) -> i64| updates.iter().map(|u| f(u.after)).collect::<Vec<i64>>();
    let text = |f: fn(&PaymentRow) -> &Option<String>| {
        updates.iter().map(|u| f(u.after).clone()).collect::<Vec<_>>()
    };
    let time = |f: fn(&PaymentRow) -> Option<jiff_sqlx::Timestamp>| {
        updates.iter().map(|u| f(u.after)).collect::<Vec<Option<jiff_sqlx::Timestamp>>>()
    };
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
        &updates.iter().map(|u| u.after.payment_id).collect::<Vec<_>>(),
        &updates.iter().map(|u| u.before).collect::<Vec<_>>(),
        &updates.iter().map(|u| u.after.status).collect::<Vec<_>>() as &[PaymentStatus],
        &updates.iter().map(|u| u.after.version).collect::<Vec<_>>(),
        &col(|r| r.authorized_minor),
        &col(|r| r.captured_minor),
        &text(|r| &r.gateway_reference) as &[Option<String>],
        &text(|r| &r.failure_code) as &[Option<String>],
        &text(|r| &r.failure_message) as &[Option<String>],
        &text(|r| &r.attention_code) as &[Option<String>],
        &updates.iter().map(|u| u.after.attention_break).collect::<Vec<_>>() as &[Option<Uuid>],
        &time(|r| r.unknown_since) as &[Option<jiff_sqlx::Timestamp>],
        &updates.iter().map(|u| u.after.updated_at).collect::<Vec<_>>() as &[jiff_sqlx::Timestamp],
        &time(|r| r.processed_at) as &[Option<jiff_sqlx::Timestamp>],
    )
    .execute(conn)
    .await?;
    DbError::expect_rows("payment.update", done.rows_affected(), updates.len())
}
