//! SQL of schema `outbox`. Transaction ids and snapshots never leave the server.

use std::time::Duration;

use sqlx::PgConnection;
use tallystick_runner::DbError;
use uuid::Uuid;

use crate::event::{EventRecord, NewEvent, StoredEvent};
use crate::{Cursor, Lag};

pub(crate) async fn append(conn: &mut PgConnection, events: &[NewEvent]) -> Result<(), DbError> {
    let ids: Vec<Uuid> = events.iter().map(|e| e.event_id).collect();
    let tenants: Vec<Uuid> = events.iter().map(|e| e.tenant_id).collect();
    let aggregates: Vec<&str> = events.iter().map(|e| e.aggregate).collect();
    let aggregate_ids: Vec<Uuid> = events.iter().map(|e| e.aggregate_id).collect();
    let versions: Vec<i32> = events.iter().map(|e| e.version).collect();
    let kinds: Vec<&str> = events.iter().map(|e| e.kind.as_str()).collect();
    let payloads: Vec<&[u8]> = events.iter().map(|e| e.payload.as_slice()).collect();
    let written = sqlx::query!(
        // The sorted subquery is not merged into the INSERT, so `seq` is drawn in the slice's order.
        "-- outbox.append
        INSERT INTO outbox.event (event_id, tenant_id, aggregate, aggregate_id, version, type, payload)
        SELECT event_id, tenant_id, aggregate, aggregate_id, version, type, payload
          FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::integer[], $6::text[], $7::bytea[])
               WITH ORDINALITY AS t(event_id, tenant_id, aggregate, aggregate_id, version, type, payload, place)
         ORDER BY place",
        &ids,
        &tenants,
        &aggregates as &[&str],
        &aggregate_ids,
        &versions,
        &kinds as &[&str],
        &payloads as &[&[u8]],
    )
    .execute(conn)
    .await?;
    DbError::expect_rows("outbox.append", written.rows_affected(), events.len())
}

pub(crate) async fn make_window(conn: &mut PgConnection) -> Result<i64, DbError> {
    Ok(sqlx::query_scalar!(
        r#"-- outbox.make_window
        SELECT outbox.make_window() AS "events!""#
    )
    .fetch_one(conn)
    .await?)
}

pub(crate) async fn ticker_lag_seconds(conn: &mut PgConnection) -> Result<i64, DbError> {
    Ok(sqlx::query_scalar!(
        r#"-- outbox.ticker_lag_seconds
        WITH last AS MATERIALIZED (
            SELECT CASE WHEN w.epoch = outbox.epoch() THEN w.hi ELSE '1:1:'::pg_snapshot END AS hi
              FROM (SELECT) AS always
              LEFT JOIN (SELECT epoch, hi FROM outbox.window ORDER BY no DESC LIMIT 1) AS w ON true
        ), waiting AS (
            SELECT min(e.created_at) AS at
              FROM outbox.event e
             WHERE e.xid >= (SELECT pg_snapshot_xmax(hi) FROM last)
               AND e.xid < pg_snapshot_xmax(pg_current_snapshot())
               AND e.epoch = outbox.epoch()
            UNION ALL
            SELECT l.at
              FROM last
             CROSS JOIN LATERAL pg_snapshot_xip(last.hi) AS x(xid)
             CROSS JOIN LATERAL (SELECT min(e.created_at) AS at FROM outbox.event e
                                  WHERE e.xid = x.xid AND e.epoch = outbox.epoch()) AS l
        )
        SELECT greatest(0, coalesce(extract(epoch FROM now() - min(at)), 0))::bigint AS "seconds!" FROM waiting"#
    )
    .fetch_one(conn)
    .await?)
}

/// What one look at the feed found.
pub(crate) struct Round {
    /// At most as many as wanted.
    pub events: Vec<StoredEvent>,
    /// Up to where events were looked at; `None` when there is nothing behind the position.
    pub end: Option<Cursor>,
    /// There is more behind `end`.
    pub more: bool,
    /// Number of the newest window; 0 when there is none.
    pub last_window: i64,
    /// Epoch of the window that the position names, if it is retained.
    pub epoch_of_position: Option<i32>,
}

/// Looks at up to `scan` events behind `after` and gives the first `wanted` that are the tenant's.
pub(crate) async fn page(
    conn: &mut PgConnection,
    tenant: Option<Uuid>,
    after: Cursor,
    scan: i64,
    wanted: i64,
) -> Result<Round, DbError> {
    let rows = sqlx::query!(
        r#"-- outbox.page
        SELECT cut AS "cut!", last_window AS "last_window!", epoch_of_position, stop_no, stop_seq, stop_epoch,
               no, epoch, seq, event_id, tenant_id, aggregate, aggregate_id, version, type AS kind, payload, created_at
          FROM outbox.read_page($1, $2, $3, $4, $5)"#,
        after.window,
        after.seq,
        scan,
        tenant as Option<Uuid>,
        wanted,
    )
    .fetch_all(conn)
    .await?;
    let mut round =
        Round { events: Vec::new(), end: None, more: false, last_window: 0, epoch_of_position: None };
    for row in rows {
        round.last_window = row.last_window;
        round.epoch_of_position = row.epoch_of_position;
        if let (Some(window), Some(seq), Some(epoch)) = (row.stop_no, row.stop_seq, row.stop_epoch) {
            round.end = Some(Cursor { window, seq, epoch });
            round.more = row.cut || window < row.last_window;
        }
        let event = (|| {
            Some(StoredEvent {
                event_id: row.event_id?,
                tenant_id: row.tenant_id?,
                aggregate: row.aggregate?,
                aggregate_id: row.aggregate_id?,
                version: row.version?,
                kind: row.kind?,
                payload: row.payload?,
                created_at: row.created_at?.to_jiff(),
                cursor: Cursor { window: row.no?, seq: row.seq?, epoch: row.epoch? },
            })
        })();
        round.events.extend(event);
    }
    Ok(round)
}

pub(crate) async fn events_of(
    conn: &mut PgConnection,
    tenant: Uuid,
    aggregate_ids: &[Uuid],
) -> Result<Vec<EventRecord>, DbError> {
    let rows = sqlx::query!(
        "-- outbox.events_of
        SELECT e.event_id, e.tenant_id, e.aggregate, e.aggregate_id, e.version, e.type AS kind, e.payload, e.created_at
          FROM outbox.event e
         WHERE e.aggregate_id = ANY($2) AND e.tenant_id = $1
         ORDER BY e.aggregate_id, e.version, e.seq",
        tenant,
        aggregate_ids,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| EventRecord {
            event_id: row.event_id,
            tenant_id: row.tenant_id,
            aggregate: row.aggregate,
            aggregate_id: row.aggregate_id,
            version: row.version,
            kind: row.kind,
            payload: row.payload,
            created_at: row.created_at.to_jiff(),
        })
        .collect())
}

/// A lease on a sink and the position read with it.
pub(crate) struct Held {
    pub fence: i64,
    pub position: Cursor,
    /// Time until the lease ends; zero when it has.
    pub left: Duration,
}

pub(crate) struct Sink {
    pub enabled: bool,
    /// The asking process is the last one that held the lease.
    pub ours: bool,
    pub held: Held,
}

fn millis(left: i64) -> Duration {
    Duration::from_millis(u64::try_from(left).unwrap_or(0))
}

pub(crate) async fn sink_read(
    conn: &mut PgConnection,
    name: &str,
    owner: Uuid,
) -> Result<Option<Sink>, DbError> {
    let row = sqlx::query!(
        r#"-- outbox.sink_read
        SELECT enabled, fence, epoch, window_no, seq, coalesce(owner = $2, false) AS "ours!",
               CASE WHEN lease_until > clock_timestamp()
                    THEN floor(extract(epoch FROM lease_until - clock_timestamp()) * 1000)::bigint ELSE 0 END AS "left!"
          FROM outbox.sink
         WHERE name = $1"#,
        name,
        owner,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Sink {
        enabled: row.enabled,
        ours: row.ours,
        held: Held {
            fence: row.fence,
            position: Cursor { window: row.window_no, seq: row.seq, epoch: row.epoch },
            left: millis(row.left),
        },
    }))
}

/// Takes the lease if it is free, renews it if it is ours and lasts. `None`: somebody else was faster, or disabled.
pub(crate) async fn sink_take(
    conn: &mut PgConnection,
    name: &str,
    owner: Uuid,
    lease: Duration,
) -> Result<Option<Held>, DbError> {
    let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    let row = sqlx::query!(
        "-- outbox.sink_take
        INSERT INTO outbox.sink AS s (name, fence, owner, lease_until)
        VALUES ($1, 1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond')
        ON CONFLICT (name) DO UPDATE
           SET fence = CASE WHEN s.owner = excluded.owner AND s.lease_until > clock_timestamp()
                            THEN s.fence ELSE s.fence + 1 END,
               owner = excluded.owner,
               lease_until = clock_timestamp() + $3::bigint * interval '1 millisecond',
               updated_at = now()
         WHERE s.enabled AND (s.owner = excluded.owner OR s.lease_until <= clock_timestamp())
        RETURNING s.fence, s.epoch, s.window_no, s.seq",
        name,
        owner,
        lease_ms,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Held {
        fence: row.fence,
        position: Cursor { window: row.window_no, seq: row.seq, epoch: row.epoch },
        left: lease,
    }))
}

/// Moves the position from where it was read, and renews the lease. Rows met: 0 means that the lease was lost.
pub(crate) async fn sink_advance(
    conn: &mut PgConnection,
    name: &str,
    owner: Uuid,
    held: &Held,
    to: Cursor,
    lease: Duration,
) -> Result<u64, DbError> {
    let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    let done = sqlx::query!(
        "-- outbox.sink_advance
        UPDATE outbox.sink
           SET epoch = $6, window_no = $7, seq = $8, updated_at = now(),
               lease_until = clock_timestamp() + $9::bigint * interval '1 millisecond'
         WHERE name = $1 AND owner = $2 AND fence = $3 AND window_no = $4 AND seq = $5",
        name,
        owner,
        held.fence,
        held.position.window,
        held.position.seq,
        to.epoch,
        to.window,
        to.seq,
        lease_ms,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

pub(crate) async fn lag(conn: &mut PgConnection) -> Result<Vec<Lag>, DbError> {
    Ok(sqlx::query_as!(
        Lag,
        r#"-- outbox.lag
        SELECT s.name AS sink, s.enabled,
               coalesce(l.total - (f.total - f.events), 0) AS "events_behind!",
               greatest(0, coalesce(extract(epoch FROM now() - f.oldest_at), 0))::bigint AS "oldest_unpublished_seconds!"
          FROM outbox.sink s
          LEFT JOIN LATERAL (SELECT w.total, w.events, w.oldest_at FROM outbox.window w
                              WHERE (w.no, w.last_seq) > (s.window_no, s.seq) ORDER BY w.no LIMIT 1) AS f ON true
          LEFT JOIN (SELECT w.total FROM outbox.window w ORDER BY w.no DESC LIMIT 1) AS l ON true
         ORDER BY s.name"#
    )
    .fetch_all(conn)
    .await?)
}

pub(crate) async fn ensure_partitions(conn: &mut PgConnection, days: i32) -> Result<i32, DbError> {
    Ok(sqlx::query_scalar!(
        r#"-- outbox.ensure_partitions
        SELECT outbox.ensure_partitions($1) AS "made!""#,
        days
    )
    .fetch_one(conn)
    .await?)
}

pub(crate) async fn partition_days_left(conn: &mut PgConnection) -> Result<i32, DbError> {
    Ok(sqlx::query_scalar!(
        r#"-- outbox.partition_days_left
        SELECT outbox.partition_days_left() AS "days!""#
    )
    .fetch_one(conn)
    .await?)
}

pub(crate) async fn versions_without_gap(
    conn: &mut PgConnection,
    aggregate: &str,
) -> Result<(u64, Vec<Uuid>), DbError> {
    let row = sqlx::query!(
        r#"-- outbox.versions_without_gap
        WITH object AS (
            SELECT aggregate_id, count(*) AS events, count(DISTINCT version) AS versions, max(version) AS last
              FROM outbox.event
             WHERE aggregate = $1
             GROUP BY aggregate_id
            HAVING min(version) = 1
        )
        SELECT count(*) AS "checked!",
               coalesce(array_agg(aggregate_id ORDER BY aggregate_id)
                        FILTER (WHERE events <> last OR versions <> last), '{}') AS "wrong!"
          FROM object"#,
        aggregate,
    )
    .fetch_one(conn)
    .await?;
    Ok((u64::try_from(row.checked).unwrap_or(0), row.wrong))
}
