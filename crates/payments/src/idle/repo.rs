//! SQL of the look for open work.

use std::time::Duration;

use sqlx::PgConnection;
use tallystick_runner::DbError;

use super::{LISTED, Open};

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Dispatch rows are few, and each operation is found by its id.
pub(super) async fn is_idle(conn: &mut PgConnection, key_retention: Duration) -> Result<bool, DbError> {
    Ok(sqlx::query_scalar!(
        r#"-- idle.is_idle
        SELECT NOT EXISTS (
                   SELECT FROM payments.dispatch d LEFT JOIN payments.operation p ON p.operation_id = d.operation_id
                    WHERE p.attention_code IS NULL
                      AND NOT coalesce(p.status IN ('pending', 'unknown')
                                       AND d.first_claimed_at < now() - $1::bigint * interval '1 microsecond', false))
               AND NOT EXISTS (
                   SELECT FROM payments.inbound_event WHERE ended_at IS NULL AND state = 'new') AS "idle!""#,
        micros(key_retention)
    )
    .fetch_one(conn)
    .await?)
}

pub(super) async fn open(conn: &mut PgConnection, key_retention: Duration) -> Result<Open, DbError> {
    Ok(sqlx::query_as!(
        Open,
        r#"-- idle.open
        WITH operations AS MATERIALIZED (
            SELECT coalesce(p.operation_id, d.operation_id) AS id
              FROM (SELECT operation_id, status, attention_code
                      FROM payments.operation
                     WHERE status IN ('pending', 'processing', 'unknown')
                    UNION ALL
                    SELECT o.operation_id, o.status, o.attention_code
                      FROM payments.operation o JOIN payments.dispatch d ON d.operation_id = o.operation_id
                     WHERE o.status NOT IN ('pending', 'processing', 'unknown')) p
              FULL JOIN payments.dispatch d ON d.operation_id = p.operation_id
             WHERE p.attention_code IS NULL
               AND NOT coalesce(p.status IN ('pending', 'unknown')
                                AND d.first_claimed_at < now() - $1::bigint * interval '1 microsecond', false)
        ), inbound AS MATERIALIZED (
            SELECT inbound_id, gateway || '/' || event_id AS id
              FROM payments.inbound_event
             WHERE ended_at IS NULL AND state = 'new'
        )
        SELECT (SELECT count(*) FROM operations) AS "operations!",
               ARRAY (SELECT id FROM operations ORDER BY id LIMIT $2) AS "operation_ids!",
               (SELECT count(*) FROM inbound) AS "inbound!",
               ARRAY (SELECT id FROM inbound ORDER BY inbound_id LIMIT $2) AS "inbound_ids!""#,
        micros(key_retention),
        LISTED
    )
    .fetch_one(conn)
    .await?)
}
