//! SQL of payments.idempotency.

use std::time::Duration;

use sqlx::PgConnection;
use tallystick_runner::DbError;
use uuid::Uuid;

use super::Fingerprint;

/// A key about to be used, with the answer that it will give.
#[derive(Clone, Debug)]
pub(crate) struct NewKey<'a> {
    pub tenant: Uuid,
    pub key: &'a str,
    pub fingerprint: &'a Fingerprint,
    pub status: i16,
    pub body: &'a [u8],
    pub operation: Option<Uuid>,
}

/// Inserts keys of one route in (tenant, key) order and returns those that were free. A key that another transaction
/// is about to commit is waited for.
pub(crate) async fn insert(
    conn: &mut PgConnection,
    route: &'static str,
    keys: &[NewKey<'_>],
) -> Result<Vec<(Uuid, String)>, DbError> {
    let rows = sqlx::query!(
        r#"-- idempotency.insert
        INSERT INTO payments.idempotency (tenant_id, route, key, fingerprint, fields, status, body, operation_id)
        SELECT tenant_id, $8, key, fingerprint, fields, status, body, operation_id
          FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::text[], $5::smallint[], $6::bytea[], $7::uuid[])
            AS t (tenant_id, key, fingerprint, fields, status, body, operation_id)
         -- Two batches meet the same keys in the same sequence, so they never wait in a circle.
         ORDER BY tenant_id, key
        ON CONFLICT (tenant_id, route, key) DO NOTHING
        RETURNING tenant_id, key"#,
        &keys.iter().map(|k| k.tenant).collect::<Vec<_>>(),
        &keys.iter().map(|k| k.key.to_owned()).collect::<Vec<_>>(),
        &keys.iter().map(|k| k.fingerprint.whole.clone()).collect::<Vec<_>>(),
        &keys.iter().map(|k| k.fingerprint.fields.clone()).collect::<Vec<_>>(),
        &keys.iter().map(|k| k.status).collect::<Vec<_>>(),
        &keys.iter().map(|k| k.body.to_vec()).collect::<Vec<_>>(),
        &keys.iter().map(|k| k.operation).collect::<Vec<_>>() as &[Option<Uuid>],
        route,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|r| (r.tenant_id, r.key)).collect())
}

/// A stored answer.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub tenant_id: Uuid,
    pub key: String,
    pub fingerprint: Vec<u8>,
    pub fields: String,
    pub body: Vec<u8>,
    pub operation_id: Option<Uuid>,
}

/// What is stored under keys of one route.
pub(crate) async fn stored(
    conn: &mut PgConnection,
    route: &'static str,
    tenants: &[Uuid],
    keys: &[String],
) -> Result<Vec<Stored>, DbError> {
    Ok(sqlx::query_as!(
        Stored,
        "-- idempotency.stored
        SELECT tenant_id, key, fingerprint, fields, body, operation_id FROM payments.idempotency
         WHERE route = $1 AND (tenant_id, key) IN (SELECT * FROM unnest($2::uuid[], $3::text[]))",
        route,
        tenants,
        keys
    )
    .fetch_all(conn)
    .await?)
}

/// Gives a key of this transaction the answer that was not known when it was inserted.
pub(crate) async fn answer(
    conn: &mut PgConnection,
    route: &'static str,
    tenant: Uuid,
    key: &str,
    status: u16,
    body: &[u8],
    operation: Uuid,
) -> Result<(), DbError> {
    let done = sqlx::query!(
        "-- idempotency.answer
        UPDATE payments.idempotency SET status = $4, body = $5, operation_id = $6
         WHERE tenant_id = $1 AND route = $2 AND key = $3",
        tenant,
        route,
        key,
        i16::try_from(status).unwrap_or(200),
        body,
        operation
    )
    .execute(conn)
    .await?;
    DbError::expect_rows("idempotency.answer", done.rows_affected(), 1)
}

/// Frees a key of this transaction: its request was refused, and refusals are not stored.
pub(crate) async fn free(
    conn: &mut PgConnection,
    route: &'static str,
    tenant: Uuid,
    key: &str,
) -> Result<(), DbError> {
    let done = sqlx::query!(
        "-- idempotency.free
        DELETE FROM payments.idempotency WHERE tenant_id = $1 AND route = $2 AND key = $3",
        tenant,
        route,
        key
    )
    .execute(conn)
    .await?;
    DbError::expect_rows("idempotency.free", done.rows_affected(), 1)
}

/// Deletes keys past their retention, some at a time; never one whose operation is not final.
pub(crate) async fn expire(conn: &mut PgConnection, retention: Duration, limit: i64) -> Result<u64, DbError> {
    let seconds = i64::try_from(retention.as_secs()).unwrap_or(i64::MAX);
    let done = sqlx::query!(
        "-- idempotency.expire
        DELETE FROM payments.idempotency WHERE ctid = ANY (ARRAY (
            SELECT i.ctid FROM payments.idempotency i
             WHERE i.created_at < now() - $1::bigint * interval '1 second'
               AND NOT EXISTS (SELECT 1 FROM payments.operation o
                                WHERE o.operation_id = i.operation_id
                                  AND o.status NOT IN ('succeeded', 'failed', 'canceled', 'returned'))
             LIMIT $2))",
        seconds,
        limit
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
