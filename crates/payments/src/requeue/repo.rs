//! SQL of giving operations their work again, and of the payouts that an operator sees.

use sqlx::PgConnection;
use tallystick_runner::DbError;
use uuid::Uuid;

use super::{ListFilter, ListedPayout, Work};
use crate::ids::PayoutId;
use crate::operation::OperationId;
use crate::payout::PayoutStatus;

/// Makes lost rows again; answers those that it made. They are as the restorer makes them: possibly sent, and their
/// keys are retained since the operation's creation.
pub(super) async fn make_again(
    conn: &mut PgConnection,
    missing: &[OperationId],
) -> Result<Vec<Uuid>, DbError> {
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    Ok(sqlx::query_scalar!(
        "-- requeue.make_again
        INSERT INTO payments.dispatch (operation_id, kind, gateway, due_at, started, fence, first_claimed_at)
        -- The fence begins above every one that the lost row can have had: a worker of that row holds nothing.
        SELECT o.operation_id, o.kind, o.gateway, now(), 1,
               (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, o.created_at
          FROM payments.operation o
         WHERE o.operation_id = ANY ($1)
         -- Two that insert the same rows wait for each other and never in a circle.
         ORDER BY o.operation_id
        ON CONFLICT (operation_id) DO NOTHING
        RETURNING operation_id",
        &missing.iter().map(|operation| operation.id).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?)
}

/// Makes rows due. They were locked before and nobody works on them; what is due already keeps its place.
pub(super) async fn make_due(conn: &mut PgConnection, ids: &[Uuid]) -> Result<(), DbError> {
    if ids.is_empty() {
        return Ok(());
    }
    let done = sqlx::query!(
        "-- requeue.make_due
        UPDATE payments.dispatch SET due_at = least(due_at, now()) WHERE operation_id = ANY ($1)",
        ids
    )
    .execute(conn)
    .await?;
    DbError::expect_rows("requeue.make_due", done.rows_affected(), ids.len())
}

/// What a look found.
pub(super) struct Lost {
    pub seen: i64,
    /// Operations that need work and have none, by id.
    pub lost: Vec<Uuid>,
    /// The last operation looked at; none when it was the last of all.
    pub end: Option<Uuid>,
}

/// Looks at some operations behind `after`, by id.
pub(super) async fn lost(conn: &mut PgConnection, after: Uuid, limit: i64) -> Result<Lost, DbError> {
    Ok(sqlx::query_as!(
        Lost,
        r#"-- requeue.lost
        WITH page AS MATERIALIZED (
            SELECT operation_id, status FROM payments.operation
             WHERE operation_id > $1 ORDER BY operation_id LIMIT $2
        )
        SELECT (SELECT count(*) FROM page) AS "seen!",
               ARRAY (SELECT p.operation_id FROM page p
                       WHERE p.status IN ('pending', 'processing', 'unknown')
                         AND NOT EXISTS (SELECT FROM payments.dispatch d WHERE d.operation_id = p.operation_id)
                       ORDER BY p.operation_id) AS "lost!",
               (SELECT operation_id FROM page ORDER BY operation_id OFFSET $2::bigint - 1) AS "end?""#,
        after,
        limit
    )
    .fetch_one(conn)
    .await?)
}

/// The payout that ends a page behind `after`; none when the page is the last one.
pub(super) async fn page_end(
    conn: &mut PgConnection,
    after: Uuid,
    rows: i64,
) -> Result<Option<Uuid>, DbError> {
    Ok(sqlx::query_scalar!(
        "-- requeue.page_end
        SELECT payout_id FROM payments.payout WHERE payout_id > $1 ORDER BY payout_id OFFSET $2::bigint - 1 LIMIT 1",
        after,
        rows
    )
    .fetch_optional(conn)
    .await?)
}

/// Payouts behind `after` and up to `end`, if there is one, oldest first.
pub(super) async fn payouts(
    conn: &mut PgConnection,
    filter: &ListFilter,
    after: Uuid,
    end: Option<Uuid>,
    limit: i64,
) -> Result<Vec<ListedPayout>, DbError> {
    Ok(sqlx::query!(
        r#"-- requeue.payouts
        SELECT p.payout_id, t.name, p.status AS "status: PayoutStatus", p.amount_minor, p.currency, p.reference, p.gateway,
               p.attention_code, p.created_at, extract(epoch FROM now() - p.created_at)::bigint AS "age_seconds!",
               d.started > d.finished AND d.due_at > now() AS "leased?", d.due_at > now() AS "later?"
          FROM payments.payout p
          JOIN payments.tenant t ON t.tenant_id = p.tenant_id
          LEFT JOIN payments.dispatch d ON d.operation_id = p.payout_id
         WHERE p.payout_id > $1
           AND p.payout_id <= coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
           AND ($3::uuid IS NULL OR p.tenant_id = $3)
           AND ($4::payments.payout_status IS NULL OR p.status = $4)
           AND (NOT $5::boolean OR (d.operation_id IS NULL AND p.status IN ('pending', 'processing', 'unknown')))
         ORDER BY p.payout_id LIMIT $6"#,
        after,
        end,
        filter.tenant.map(|tenant| tenant.0),
        filter.status as Option<PayoutStatus>,
        filter.without_work,
        limit
    )
    .map(|r| ListedPayout {
        payout_id: PayoutId(r.payout_id),
        tenant: r.name,
        status: r.status,
        amount_minor: r.amount_minor,
        currency: r.currency,
        reference: r.reference,
        gateway: r.gateway,
        attention: r.attention_code,
        work: r.later.map(|later| match (r.leased.unwrap_or(false), later) {
            (true, _) => Work::Leased,
            (false, true) => Work::Waits,
            (false, false) => Work::Due,
        }),
        created_at: r.created_at.to_jiff(),
        age_seconds: r.age_seconds,
    })
    .fetch_all(conn)
    .await?)
}
