//! SQL of the monitoring figures.

use sqlx::PgConnection;
use tallystick_runner::DbError;

use super::Gauges;

/// Unknown operations are found through their dispatch rows: no index of the money table contains a status.
pub(super) async fn read(conn: &mut PgConnection) -> Result<Gauges, DbError> {
    let row = sqlx::query!(
        r#"-- gauges.read
        WITH open AS MATERIALIZED (SELECT operation_id, due_at FROM payments.dispatch LIMIT 100000),
        lost AS (
            SELECT p.unknown_since FROM open o JOIN payments.operation p ON p.operation_id = o.operation_id
             WHERE p.status = 'unknown' LIMIT 10000
        )
        SELECT (SELECT count(*) FROM lost) AS "unknown_count!",
               (SELECT coalesce(extract(epoch FROM now() - min(unknown_since)), 0)::bigint FROM lost) AS "unknown_oldest!",
               (SELECT count(*) FROM open) AS "open_operations!",
               (SELECT greatest(coalesce(extract(epoch FROM now() - min(due_at)), 0)::bigint, 0) FROM open) AS "due_oldest!",
               (SELECT count(*) FROM (SELECT 1 FROM payments.inbound_event WHERE ended_at IS NULL LIMIT 100000) i) AS "inbound_open!",
               (SELECT count(*) FROM (SELECT 1 FROM payments.break WHERE status = 'open' LIMIT 10000) b) AS "breaks_open!",
               (SELECT coalesce(extract(epoch FROM now() - min(xact_start)), 0)::bigint FROM pg_stat_activity
                 WHERE backend_xid IS NOT NULL) AS "horizon_age!""#
    )
    .fetch_one(conn)
    .await?;
    Ok(Gauges {
        unknown_count: row.unknown_count,
        unknown_oldest_seconds: row.unknown_oldest,
        open_operations: row.open_operations,
        due_oldest_seconds: row.due_oldest,
        inbound_open: row.inbound_open,
        breaks_open: row.breaks_open,
        partition_days_left: 0,
        horizon_age_seconds: row.horizon_age,
    })
}
