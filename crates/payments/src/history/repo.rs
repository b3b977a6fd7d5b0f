//! SQL of payments.history and payments.attempt.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use tallystick_runner::DbError;
use uuid::Uuid;

use super::Evidence;
use crate::payment::{Attempt, HistoryRow};

/// A move to record.
pub(crate) struct NewMove {
    pub object: Uuid,
    pub version: i32,
    pub status: &'static str,
    pub at: Timestamp,
    pub evidence: Evidence,
    pub detail: Option<String>,
}

pub(crate) async fn append(conn: &mut PgConnection, moves: &[NewMove]) -> Result<(), DbError> {
    if moves.is_empty() {
        return Ok(());
    }
    let done = sqlx::query!(
        "-- history.append
        INSERT INTO payments.history (object_id, version, status, at, evidence, detail)
        SELECT * FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::timestamptz[], $5::text[], $6::text[])",
        &moves.iter().map(|m| m.object).collect::<Vec<_>>(),
        &moves.iter().map(|m| m.version).collect::<Vec<_>>(),
        &moves.iter().map(|m| m.status.to_owned()).collect::<Vec<_>>(),
        &moves.iter().map(|m| m.at.to_sqlx()).collect::<Vec<_>>() as &[jiff_sqlx::Timestamp],
        &moves.iter().map(|m| m.evidence.as_str().to_owned()).collect::<Vec<_>>(),
        &moves.iter().map(|m| m.detail.clone()).collect::<Vec<_>>() as &[Option<String>],
    )
    .execute(conn)
    .await?;
    DbError::expect_rows("history.append", done.rows_affected(), moves.len())
}

pub(crate) async fn of(conn: &mut PgConnection, object: Uuid) -> Result<Vec<HistoryRow>, DbError> {
    let rows = sqlx::query!(
        "-- history.of
        SELECT version, status, at, evidence FROM payments.history WHERE object_id = $1 ORDER BY version",
        object
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| HistoryRow {
            version: r.version,
            status: r.status,
            at: r.at.to_jiff(),
            evidence: r.evidence,
        })
        .collect())
}

/// A call to record.
#[derive(Clone, Debug)]
pub(crate) struct NewAttempt {
    pub operation: Uuid,
    pub fence: i64,
    pub action: &'static str,
    pub at: Timestamp,
    pub duration_ms: i32,
    pub outcome: &'static str,
    pub detail: Option<String>,
}

/// Appends calls; the same call recorded twice stays one.
pub(crate) async fn append_attempts(conn: &mut PgConnection, attempts: &[NewAttempt]) -> Result<(), DbError> {
    if attempts.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "-- history.append_attempts
        INSERT INTO payments.attempt (operation_id, fence, action, at, duration_ms, outcome, detail)
        SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::timestamptz[], $5::integer[], $6::text[], $7::text[])
        ON CONFLICT (operation_id, fence) DO NOTHING",
        &attempts.iter().map(|a| a.operation).collect::<Vec<_>>(),
        &attempts.iter().map(|a| a.fence).collect::<Vec<_>>(),
        &attempts.iter().map(|a| a.action.to_owned()).collect::<Vec<_>>(),
        &attempts.iter().map(|a| a.at.to_sqlx()).collect::<Vec<_>>() as &[jiff_sqlx::Timestamp],
        &attempts.iter().map(|a| a.duration_ms).collect::<Vec<_>>(),
        &attempts.iter().map(|a| a.outcome.to_owned()).collect::<Vec<_>>(),
        &attempts.iter().map(|a| a.detail.clone()).collect::<Vec<_>>() as &[Option<String>],
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(crate) async fn attempts_of(conn: &mut PgConnection, operation: Uuid) -> Result<Vec<Attempt>, DbError> {
    let rows = sqlx::query!(
        "-- history.attempts_of
        SELECT action, at, duration_ms, outcome, detail
          FROM payments.attempt WHERE operation_id = $1 ORDER BY fence",
        operation
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| Attempt {
            action: r.action,
            at: r.at.to_jiff(),
            duration_ms: r.duration_ms,
            outcome: r.outcome,
            detail: r.detail,
        })
        .collect())
}
