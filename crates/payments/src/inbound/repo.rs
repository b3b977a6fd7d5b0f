//! SQL of payments.inbound_event.

use std::time::Duration;

use sqlx::PgConnection;
use tallystick_runner::DbError;
use uuid::Uuid;

use crate::operation::{OperationId, OperationKind};

/// A verified event to store.
#[derive(Clone, Debug)]
pub(crate) struct NewInbound {
    pub gateway: String,
    pub event_id: String,
    pub raw: Vec<u8>,
    pub reference: Option<String>,
}

/// Stores events; those that are known already are left as they are. The caller gave each (gateway, event id) once.
pub(crate) async fn insert(conn: &mut PgConnection, events: &[NewInbound]) -> Result<(), DbError> {
    sqlx::query!(
        "-- inbound.insert
        INSERT INTO payments.inbound_event (gateway, event_id, raw, reference)
        SELECT gateway, event_id, raw, reference
          FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[]) AS t (gateway, event_id, raw, reference)
         ORDER BY gateway, event_id
        ON CONFLICT (gateway, event_id) DO NOTHING",
        &events.iter().map(|e| e.gateway.clone()).collect::<Vec<_>>(),
        &events.iter().map(|e| e.event_id.clone()).collect::<Vec<_>>(),
        &events.iter().map(|e| e.raw.clone()).collect::<Vec<_>>(),
        &events.iter().map(|e| e.reference.clone()).collect::<Vec<_>>() as &[Option<String>],
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// An event that is not ended, locked.
#[derive(Clone, Debug)]
pub(crate) struct OpenInbound {
    pub inbound_id: i64,
    pub gateway: String,
    pub raw: Vec<u8>,
    pub tries: i32,
}

/// Locks the open ones of these events. Those that somebody else applies right now are left to them.
pub(crate) async fn lock_named(
    conn: &mut PgConnection,
    gateways: &[String],
    event_ids: &[String],
) -> Result<Vec<OpenInbound>, DbError> {
    Ok(sqlx::query_as!(
        OpenInbound,
        "-- inbound.lock_named
        SELECT inbound_id, gateway, raw, tries FROM payments.inbound_event
         WHERE (gateway, event_id) IN (SELECT * FROM unnest($1::text[], $2::text[])) AND ended_at IS NULL
         ORDER BY inbound_id FOR UPDATE SKIP LOCKED",
        gateways,
        event_ids
    )
    .fetch_all(conn)
    .await?)
}

/// Locks events that are due.
pub(crate) async fn lock_due(conn: &mut PgConnection, limit: i64) -> Result<Vec<OpenInbound>, DbError> {
    Ok(sqlx::query_as!(
        OpenInbound,
        "-- inbound.lock_due
        SELECT inbound_id, gateway, raw, tries FROM payments.inbound_event
         WHERE ended_at IS NULL AND due_at <= now()
         ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED",
        limit
    )
    .fetch_all(conn)
    .await?)
}

/// Which operations the keys and references of events name: (operation, gateway, reference).
pub(crate) async fn find(
    conn: &mut PgConnection,
    ids: &[Uuid],
    gateways: &[String],
    references: &[String],
) -> Result<Vec<(OperationId, String, Option<String>)>, DbError> {
    let rows = sqlx::query!(
        r#"-- inbound.find
        SELECT operation_id AS "operation_id!", kind AS "kind!", gateway AS "gateway!", gateway_reference
          FROM payments.operation WHERE operation_id = ANY($1)
        UNION
        SELECT o.operation_id, o.kind, o.gateway, o.gateway_reference
          FROM unnest($2::text[], $3::text[]) AS w (gateway, reference)
          JOIN payments.operation o ON o.gateway = w.gateway AND o.gateway_reference = w.reference"#,
        ids,
        gateways,
        references
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .filter_map(|r| {
            let operation = OperationId { kind: OperationKind::of_code(r.kind)?, id: r.operation_id };
            Some((operation, r.gateway, r.gateway_reference))
        })
        .collect())
}

/// What becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub inbound_id: i64,
    /// `applied`, `ignored`, `parked` or `orphan`.
    pub state: &'static str,
    /// For a parked one: when it is tried again.
    pub wait: Option<Duration>,
    pub note: Option<String>,
}

pub(crate) async fn end(conn: &mut PgConnection, ended: &[Ended]) -> Result<(), DbError> {
    if ended.is_empty() {
        return Ok(());
    }
    let micros = |d: &Duration| i64::try_from(d.as_micros()).unwrap_or(i64::MAX);
    let done = sqlx::query!(
        "-- inbound.end
        UPDATE payments.inbound_event e
           SET state = t.state, note = t.note, tries = e.tries + 1,
               ended_at = CASE WHEN t.wait IS NULL THEN now() END,
               due_at = now() + coalesce(t.wait, 0) * interval '1 microsecond'
          FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[]) AS t (inbound_id, state, wait, note)
         WHERE e.inbound_id = t.inbound_id AND e.ended_at IS NULL",
        &ended.iter().map(|e| e.inbound_id).collect::<Vec<_>>(),
        &ended.iter().map(|e| e.state.to_owned()).collect::<Vec<_>>(),
        &ended.iter().map(|e| e.wait.as_ref().map(micros)).collect::<Vec<_>>() as &[Option<i64>],
        &ended.iter().map(|e| e.note.clone()).collect::<Vec<_>>() as &[Option<String>],
    )
    .execute(conn)
    .await?;
    DbError::expect_rows("inbound.end", done.rows_affected(), ended.len())
}

/// Puts one event off whose handling failed, so that it does not hold up those behind it.
pub(crate) async fn put_off(
    conn: &mut PgConnection,
    inbound_id: i64,
    wait: Duration,
    note: &str,
) -> Result<(), DbError> {
    sqlx::query!(
        "-- inbound.put_off
        UPDATE payments.inbound_event
           SET tries = tries + 1, note = $3, due_at = now() + $2::bigint * interval '1 microsecond'
         WHERE inbound_id = $1 AND ended_at IS NULL",
        inbound_id,
        i64::try_from(wait.as_micros()).unwrap_or(i64::MAX),
        note
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Makes parked events of references that became known due now. Never waits for an event that is being applied.
pub(crate) async fn make_due(
    conn: &mut PgConnection,
    references: &[(String, String)],
) -> Result<(), DbError> {
    if references.is_empty() {
        return Ok(());
    }
    let (gateways, references): (Vec<String>, Vec<String>) = references.iter().cloned().unzip();
    sqlx::query!(
        "-- inbound.make_due
        UPDATE payments.inbound_event SET due_at = now()
         WHERE inbound_id IN (
            SELECT e.inbound_id FROM payments.inbound_event e
             WHERE e.state = 'parked'
               AND (e.gateway, e.reference) IN (SELECT * FROM unnest($1::text[], $2::text[]))
               FOR UPDATE SKIP LOCKED)",
        &gateways,
        &references
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// How much of a gateway account is not ended: events (counted up to `most`) and bytes.
pub(crate) async fn open_size(
    conn: &mut PgConnection,
    gateway: &str,
    most: i64,
) -> Result<(i64, i64), DbError> {
    let row = sqlx::query!(
        r#"-- inbound.open_size
        SELECT count(*) AS "events!", coalesce(sum(octet_length(raw)), 0)::bigint AS "bytes!"
          FROM (SELECT raw FROM payments.inbound_event WHERE gateway = $1 AND ended_at IS NULL LIMIT $2) e"#,
        gateway,
        most
    )
    .fetch_one(conn)
    .await?;
    Ok((row.events, row.bytes))
}
