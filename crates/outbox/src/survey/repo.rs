//! SQL of the survey.

use jiff::Timestamp;
use sqlx::PgConnection;
use tallystick_runner::DbError;

use super::{EventDigest, EventPlace};

pub(super) async fn events(
    conn: &mut PgConnection,
    aggregate: &str,
    after: EventPlace,
    limit: i64,
) -> Result<Vec<EventDigest>, DbError> {
    let rows = sqlx::query!(
        "-- outbox.survey_events
        SELECT aggregate_id, version, seq, event_id, tenant_id, type AS kind, payload
          FROM outbox.event
         WHERE aggregate = $1 AND (aggregate_id, version, seq) > ($2, $3, $4)
         ORDER BY aggregate_id, version, seq
         LIMIT $5",
        aggregate,
        after.aggregate_id,
        after.version,
        after.seq,
        limit
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| EventDigest {
            place: EventPlace { aggregate_id: row.aggregate_id, version: row.version, seq: row.seq },
            event_id: row.event_id,
            tenant_id: row.tenant_id,
            kind: row.kind,
            payload: row.payload,
        })
        .collect())
}

pub(super) async fn retained_since(conn: &mut PgConnection) -> Result<Option<Timestamp>, DbError> {
    let since = sqlx::query_scalar!(
        r#"-- outbox.survey_retained_since
        SELECT min(oldest_at) AS "since?"
          FROM outbox.window
         WHERE NOT EXISTS (SELECT FROM outbox.window WHERE no = 1)"#
    )
    .fetch_one(conn)
    .await?;
    Ok(since.map(jiff_sqlx::Timestamp::to_jiff))
}
