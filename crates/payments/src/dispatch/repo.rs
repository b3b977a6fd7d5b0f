//! SQL of payments.dispatch. Times are the database's own.

use std::time::Duration;

use sqlx::PgConnection;
use tallystick_runner::DbError;
use uuid::Uuid;

use crate::operation::{OperationId, OperationKind};

/// A row that this claim leased.
#[derive(Clone, Debug)]
pub(crate) struct ClaimedRow {
    pub operation_id: Uuid,
    /// The number of its kind.
    pub kind: i16,
    pub fence: i64,
    /// The claim before left no result.
    pub unrecorded: bool,
    pub cleared: bool,
    /// Microseconds since the first claim.
    pub age_us: i64,
}

impl ClaimedRow {
    /// Which operation it is about. Only kinds that this version knows are claimed.
    pub(crate) fn operation(&self) -> Option<OperationId> {
        Some(OperationId { kind: OperationKind::of_code(self.kind)?, id: self.operation_id })
    }

    /// Whether somebody may have worked on it before.
    pub(crate) fn is_again(&self) -> bool {
        self.fence > 1
    }

    pub(crate) fn age(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.age_us).unwrap_or(0))
    }
}

/// The kinds that this version knows. Rows of others are left to the processes of a later one.
fn known_kinds() -> Vec<i16> {
    OperationKind::ALL.map(OperationKind::code).to_vec()
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// New work, due at once. The caller has inserted the operations in the same transaction.
pub(crate) async fn insert(
    conn: &mut PgConnection,
    kind: OperationKind,
    ids: &[Uuid],
    gateways: &[String],
) -> Result<(), DbError> {
    let done = sqlx::query!(
        "-- dispatch.insert
        INSERT INTO payments.dispatch (operation_id, kind, gateway, due_at)
        SELECT id, $3, gateway, now() FROM unnest($1::uuid[], $2::text[]) AS t (id, gateway)",
        ids,
        gateways,
        kind.code()
    )
    .execute(conn)
    .await?;
    DbError::expect_rows("dispatch.insert", done.rows_affected(), ids.len())
}

/// Leases rows that are due and answers them in the order in which they came due. Rows whose workers died twice in a
/// row are left to [`claim_alone`].
///
/// The picked rows are found again by their place (ctid), so the plan cannot flip to scanning the table.
pub(crate) async fn claim(
    conn: &mut PgConnection,
    limit: i64,
    lease: Duration,
) -> Result<Vec<ClaimedRow>, DbError> {
    Ok(sqlx::query_as!(
        ClaimedRow,
        r#"-- dispatch.claim
        WITH pick AS MATERIALIZED (
            SELECT ctid AS place, operation_id, due_at FROM payments.dispatch
             WHERE due_at <= now() AND crashes < 2 AND kind = ANY ($3)
             ORDER BY due_at, operation_id LIMIT $1
               FOR NO KEY UPDATE SKIP LOCKED
        ), leased AS (
            UPDATE payments.dispatch d
               SET due_at = now() + $2::bigint * interval '1 microsecond',
                   started = d.started + 1,
                   finished = d.started,
                   crashes = CASE WHEN d.started > d.finished THEN d.crashes + 1 ELSE d.crashes END,
                   cleared = d.cleared AND d.started = d.finished,
                   fence = d.fence + 1,
                   first_claimed_at = coalesce(d.first_claimed_at, now())
             WHERE d.ctid = ANY (ARRAY (SELECT place FROM pick))
            RETURNING d.operation_id, d.kind, d.fence, d.crashes > 0 AS unrecorded, d.cleared,
                      (extract(epoch FROM now() - d.first_claimed_at) * 1000000)::bigint AS age_us
        )
        SELECT l.operation_id AS "operation_id!", l.kind AS "kind!", l.fence AS "fence!",
               l.unrecorded AS "unrecorded!", l.cleared AS "cleared!", l.age_us AS "age_us!"
          FROM leased l JOIN pick p ON p.operation_id = l.operation_id
         ORDER BY p.due_at, p.operation_id"#,
        limit,
        micros(lease),
        &known_kinds(),
    )
    .fetch_all(conn)
    .await?)
}

/// Leases one row whose workers died twice in a row or more, with a longer lease each time: it may be what kills them.
pub(crate) async fn claim_alone(
    conn: &mut PgConnection,
    lease: Duration,
) -> Result<Vec<ClaimedRow>, DbError> {
    Ok(sqlx::query_as!(
        ClaimedRow,
        r#"-- dispatch.claim_alone
        WITH pick AS MATERIALIZED (
            SELECT ctid AS place FROM payments.dispatch
             WHERE due_at <= now() AND crashes >= 2 AND kind = ANY ($2)
             ORDER BY due_at, operation_id LIMIT 1
               FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE payments.dispatch d
           SET due_at = now() + $1::bigint * interval '1 microsecond' * least(d.crashes, 20),
               started = d.started + 1,
               finished = d.started,
               crashes = CASE WHEN d.started > d.finished THEN d.crashes + 1 ELSE d.crashes END,
               cleared = d.cleared AND d.started = d.finished,
               fence = d.fence + 1,
               first_claimed_at = coalesce(d.first_claimed_at, now())
         WHERE d.ctid = ANY (ARRAY (SELECT place FROM pick))
        RETURNING d.operation_id, d.kind, d.fence, d.crashes > 0 AS "unrecorded!", d.cleared,
                  (extract(epoch FROM now() - d.first_claimed_at) * 1000000)::bigint AS "age_us!""#,
        micros(lease),
        &known_kinds(),
    )
    .fetch_all(conn)
    .await?)
}

/// Puts the row off that a claim would take first, without claiming it; answers which.
pub(crate) async fn put_off_first(
    conn: &mut PgConnection,
    alone: bool,
    wait: Duration,
) -> Result<Option<Uuid>, DbError> {
    Ok(sqlx::query_scalar!(
        "-- dispatch.put_off_first
        WITH pick AS MATERIALIZED (
            SELECT ctid AS place FROM payments.dispatch
             WHERE due_at <= now() AND (crashes >= 2) = $1 AND kind = ANY ($3)
             ORDER BY due_at, operation_id LIMIT 1
               FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE payments.dispatch d SET due_at = now() + $2::bigint * interval '1 microsecond'
         WHERE d.ctid = ANY (ARRAY (SELECT place FROM pick))
        RETURNING d.operation_id",
        alone,
        micros(wait),
        &known_kinds(),
    )
    .fetch_optional(conn)
    .await?)
}

/// A row as it stands, locked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DispatchRow {
    pub operation_id: Uuid,
    pub fence: i64,
    /// Somebody works on it now.
    pub leased: bool,
    pub cleared: bool,
    pub tries: i32,
}

/// Locks rows in id order; before the operations, as everybody does.
pub(crate) async fn lock(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<DispatchRow>, DbError> {
    Ok(sqlx::query_as!(
        DispatchRow,
        r#"-- dispatch.lock
        SELECT operation_id, fence, started > finished AND due_at > now() AS "leased!", cleared, tries
          FROM payments.dispatch WHERE operation_id = ANY($1) ORDER BY operation_id FOR UPDATE"#,
        ids
    )
    .fetch_all(conn)
    .await?)
}

/// Removes rows whose operation needs no more work. They were locked before.
pub(crate) async fn delete(conn: &mut PgConnection, ids: &[Uuid]) -> Result<(), DbError> {
    if ids.is_empty() {
        return Ok(());
    }
    let done = sqlx::query!(
        "-- dispatch.delete
        DELETE FROM payments.dispatch WHERE operation_id = ANY($1)",
        ids
    )
    .execute(conn)
    .await?;
    DbError::expect_rows("dispatch.delete", done.rows_affected(), ids.len())
}

/// When a row is looked at again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Postpone {
    pub operation_id: Uuid,
    pub fence: i64,
    pub wait: Duration,
    pub cleared: bool,
    pub tries: i32,
}

/// Ends leases: the results of these claims are recorded.
pub(crate) async fn postpone(conn: &mut PgConnection, rows: &[Postpone]) -> Result<(), DbError> {
    if rows.is_empty() {
        return Ok(());
    }
    let done = sqlx::query!(
        "-- dispatch.postpone
        UPDATE payments.dispatch d
           SET due_at = now() + t.wait * interval '1 microsecond', finished = d.started, crashes = 0,
               cleared = t.cleared, tries = t.tries
          FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::boolean[], $5::integer[])
            AS t (operation_id, fence, wait, cleared, tries)
         WHERE d.operation_id = t.operation_id AND d.fence = t.fence",
        &rows.iter().map(|r| r.operation_id).collect::<Vec<_>>(),
        &rows.iter().map(|r| r.fence).collect::<Vec<_>>(),
        &rows.iter().map(|r| micros(r.wait)).collect::<Vec<_>>(),
        &rows.iter().map(|r| r.cleared).collect::<Vec<_>>(),
        &rows.iter().map(|r| r.tries).collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    DbError::expect_rows("dispatch.postpone", done.rows_affected(), rows.len())
}

/// Makes lost rows again from operations that need work, those behind `after` by id. A row made again counts as
/// possibly sent: `started` is ahead of `finished`, and the key retention counts from the operation's creation.
pub(crate) async fn restore(conn: &mut PgConnection, after: Uuid, limit: i64) -> Result<Restored, DbError> {
    let row = sqlx::query!(
        r#"-- dispatch.restore
        WITH page AS MATERIALIZED (
            SELECT operation_id, kind, status, gateway, created_at FROM payments.operation
             WHERE operation_id > $1 AND created_at < now() - interval '10 s'
             ORDER BY operation_id LIMIT $2
        ), made AS (
            INSERT INTO payments.dispatch (operation_id, kind, gateway, due_at, started, fence, first_claimed_at)
            -- The fence begins above every one that the lost row can have had: a worker of that row holds nothing.
            SELECT o.operation_id, o.kind, o.gateway, now(), 1,
                   (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, o.created_at
              FROM page o
             WHERE o.status IN ('pending', 'processing', 'unknown')
               AND NOT EXISTS (SELECT 1 FROM payments.dispatch d WHERE d.operation_id = o.operation_id)
            ON CONFLICT (operation_id) DO NOTHING
            RETURNING 1
        )
        SELECT (SELECT count(*) FROM page) AS "seen!", (SELECT count(*) FROM made) AS "made!",
               (SELECT operation_id FROM page ORDER BY operation_id DESC LIMIT 1) AS "last?""#,
        after,
        limit
    )
    .fetch_one(conn)
    .await?;
    Ok(Restored { seen: row.seen, made: row.made, last: row.last })
}

/// What a step of the restorer did.
pub(crate) struct Restored {
    pub seen: i64,
    pub made: i64,
    /// The last operation looked at.
    pub last: Option<Uuid>,
}

/// Moves the end of a lease without recording a result.
pub(crate) async fn delay(
    conn: &mut PgConnection,
    id: Uuid,
    fence: i64,
    wait: Duration,
) -> Result<(), DbError> {
    sqlx::query!(
        "-- dispatch.delay
        UPDATE payments.dispatch SET due_at = now() + $3::bigint * interval '1 microsecond'
         WHERE operation_id = $1 AND fence = $2",
        id,
        fence,
        micros(wait)
    )
    .execute(conn)
    .await?;
    Ok(())
}
