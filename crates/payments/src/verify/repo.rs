//! SQL of the checks. Reads only, in the caller's snapshot. What is judged in SQL answers one row: how much was
//! looked at, how much is wrong, and the first ids of it.

use sqlx::PgConnection;
use tallystick_runner::DbError;
use uuid::Uuid;

use super::report::Counted;
use crate::payment::state::PaymentStatus;

/// The amounts of each payment lie in each other.
pub(super) async fn amounts(conn: &mut PgConnection) -> Result<Counted, DbError> {
    Ok(sqlx::query_as!(
        Counted,
        r#"-- verify.amounts
        WITH judged AS (
            SELECT payment_id,
                   NOT (0 <= refunded_minor AND refunded_minor <= captured_minor AND captured_minor <= authorized_minor
                        AND authorized_minor <= amount_minor) AS wrong
              FROM payments.payment
        )
        SELECT count(*) AS "checked!", count(*) FILTER (WHERE wrong) AS "wrong!",
               coalesce((array_agg(payment_id::text ORDER BY payment_id) FILTER (WHERE wrong))[1:100], '{}') AS "ids!"
          FROM judged"#
    )
    .fetch_one(conn)
    .await?)
}

/// Versions 1, 2, 3 … of each payment, along allowed moves, to the status and version that the row holds.
/// `moves` are the allowed ones as `from>to`.
pub(super) async fn versions(conn: &mut PgConnection, moves: &[String]) -> Result<Counted, DbError> {
    Ok(sqlx::query_as!(
        Counted,
        r#"-- verify.versions
        WITH moves AS (
            SELECT object_id, version, status, row_number() OVER story AS place, lag(status) OVER story AS before
              FROM payments.history
            WINDOW story AS (PARTITION BY object_id ORDER BY version)
        ), stories AS (
            SELECT object_id, max(version) AS version, bool_or(version <> place) AS gap,
                   bool_or(CASE WHEN place = 1 THEN status <> 'pending' ELSE before || '>' || status <> ALL ($1) END)
                       AS forbidden,
                   (array_agg(status ORDER BY version DESC))[1] AS status
              FROM moves
             GROUP BY object_id
        ), judged AS (
            SELECT coalesce(p.payment_id, s.object_id) AS id,
                   p.payment_id IS NULL OR s.object_id IS NULL OR s.gap OR s.forbidden
                   OR s.version <> p.version OR s.status <> p.status::text AS wrong
              FROM payments.payment p FULL JOIN stories s ON s.object_id = p.payment_id
        )
        SELECT count(*) AS "checked!", count(*) FILTER (WHERE wrong) AS "wrong!",
               coalesce((array_agg(id::text ORDER BY id) FILTER (WHERE wrong))[1:100], '{}') AS "ids!"
          FROM judged"#,
        moves
    )
    .fetch_one(conn)
    .await?)
}

/// Payments that need work have a dispatch row that comes due, or wait for a person; no dispatch row is about nothing.
/// Pauses are hours at most, so a row that is not due within a quarter of a year never is.
pub(super) async fn open_work(conn: &mut PgConnection) -> Result<Counted, DbError> {
    Ok(sqlx::query_as!(
        Counted,
        r#"-- verify.open_work
        WITH judged AS (
            SELECT coalesce(p.payment_id, d.operation_id) AS id,
                   p.payment_id IS NULL
                   OR (p.needs_row AND (d.operation_id IS NULL OR d.due_at > now() + interval '90 days')) AS wrong
              FROM (SELECT payment_id, attention_code IS NULL AS needs_row
                      FROM payments.payment
                     WHERE status IN ('pending', 'processing', 'unknown')
                    UNION ALL
                    -- Final ones whose row is not removed yet need nothing, but they exist.
                    SELECT payment_id, false
                      FROM payments.payment JOIN payments.dispatch ON operation_id = payment_id
                     WHERE status NOT IN ('pending', 'processing', 'unknown')) p
              FULL JOIN payments.dispatch d ON d.operation_id = p.payment_id
        )
        SELECT count(*) AS "checked!", count(*) FILTER (WHERE wrong) AS "wrong!",
               coalesce((array_agg(id::text ORDER BY id) FILTER (WHERE wrong))[1:100], '{}') AS "ids!"
          FROM judged"#
    )
    .fetch_one(conn)
    .await?)
}

/// Orders have one active payment at most. Looks at the order itself, not at the column that guards it.
pub(super) async fn active_orders(conn: &mut PgConnection) -> Result<Counted, DbError> {
    Ok(sqlx::query_as!(
        Counted,
        r#"-- verify.active_orders
        WITH orders AS (
            SELECT array_agg(payment_id) AS ids
              FROM payments.payment
             WHERE order_id IS NOT NULL AND status NOT IN ('failed', 'canceled')
             GROUP BY tenant_id, order_id
        ), wrong AS (
            SELECT unnest(ids) AS id FROM orders WHERE cardinality(ids) > 1
        )
        SELECT (SELECT count(*) FROM orders) AS "checked!", count(*) AS "wrong!",
               coalesce((array_agg(id::text ORDER BY id))[1:100], '{}') AS "ids!"
          FROM wrong"#
    )
    .fetch_one(conn)
    .await?)
}

/// Inbound events have a known state, an end exactly when the state is one, and are there once. `gateway/event id`.
pub(super) async fn inbound(conn: &mut PgConnection) -> Result<Counted, DbError> {
    Ok(sqlx::query_as!(
        Counted,
        r#"-- verify.inbound
        WITH judged AS (
            SELECT gateway || '/' || event_id AS id,
                   count(*) > 1 OR bool_or(CASE WHEN state IN ('new', 'parked') THEN ended_at IS NOT NULL
                                                WHEN state IN ('applied', 'ignored', 'orphan') THEN ended_at IS NULL
                                                ELSE true END) AS wrong
              FROM payments.inbound_event
             GROUP BY gateway, event_id
        )
        SELECT count(*) AS "checked!", count(*) FILTER (WHERE wrong) AS "wrong!",
               coalesce((array_agg(id ORDER BY id) FILTER (WHERE wrong))[1:100], '{}') AS "ids!"
          FROM judged"#
    )
    .fetch_one(conn)
    .await?)
}

/// A payment that calls for a person names an open break of its own; a break about a payment names one of its tenant.
/// Ids of payments, and of breaks.
pub(super) async fn breaks(conn: &mut PgConnection) -> Result<Counted, DbError> {
    Ok(sqlx::query_as!(
        Counted,
        r#"-- verify.breaks
        WITH judged AS (
            SELECT p.payment_id AS id,
                   b.break_id IS NULL OR b.status <> 'open' OR b.payment_id IS DISTINCT FROM p.payment_id
                   OR b.tenant_id <> p.tenant_id AS wrong
              FROM payments.payment p LEFT JOIN payments.break b ON b.break_id = p.attention_break
             WHERE p.attention_code IS NOT NULL OR p.attention_break IS NOT NULL
            UNION ALL
            SELECT b.break_id, p.payment_id IS NULL OR p.tenant_id <> b.tenant_id
              FROM payments.break b LEFT JOIN payments.payment p ON p.payment_id = b.payment_id
             WHERE b.payment_id IS NOT NULL
        )
        SELECT count(*) AS "checked!", count(*) FILTER (WHERE wrong) AS "wrong!",
               coalesce((array_agg(id::text ORDER BY id) FILTER (WHERE wrong))[1:100], '{}') AS "ids!"
          FROM judged"#
    )
    .fetch_one(conn)
    .await?)
}

/// Which guards of append-only tables are not in place. `tables` by full name; `triggers` name the table that each
/// stands on. Bits of `tgtype`: before 2, delete 8, update 16, truncate 32; statement triggers have no bit.
pub(super) async fn append_only(
    conn: &mut PgConnection,
    role: &str,
    tables: &[String],
    triggers: &[String],
    trigger_tables: &[String],
    bits: &[i32],
) -> Result<Counted, DbError> {
    Ok(sqlx::query_as!(
        Counted,
        r#"-- verify.append_only
        WITH judged (id, wrong) AS (
            SELECT 'trigger ' || w.relation || '.' || w.name,
                   NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t
                                WHERE t.tgrelid = to_regclass(w.relation) AND t.tgname = w.name
                                  AND (t.tgtype & 58) = w.bits AND t.tgenabled IN ('O', 'A') AND t.tgqual IS NULL)
              FROM unnest($3::text[], $4::text[], $5::integer[]) AS w (name, relation, bits)
            UNION ALL
            SELECT 'privilege ' || p.name || ' on ' || t.relation,
                   to_regclass(t.relation) IS NULL OR has_table_privilege($1, to_regclass(t.relation), p.name)
              FROM unnest($2::text[]) AS t (relation)
             CROSS JOIN (VALUES ('DELETE'), ('TRUNCATE'), ('TRIGGER')) AS p (name)
            UNION ALL
            SELECT 'privilege UPDATE on ' || t.relation,
                   to_regclass(t.relation) IS NULL OR has_any_column_privilege($1, to_regclass(t.relation), 'UPDATE')
              FROM unnest($2::text[]) AS t (relation)
        )
        SELECT count(*) AS "checked!", count(*) FILTER (WHERE wrong) AS "wrong!",
               coalesce((array_agg(id ORDER BY id) FILTER (WHERE wrong))[1:100], '{}') AS "ids!"
          FROM judged"#,
        role,
        tables,
        triggers,
        trigger_tables,
        bits
    )
    .fetch_one(conn)
    .await?)
}

/// The parts of a payment that others are held against.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub tenant_id: Uuid,
    pub payment_id: Uuid,
    pub status: PaymentStatus,
    pub currency: String,
    pub authorized_minor: i64,
    pub captured_minor: i64,
    pub gateway: String,
    pub gateway_reference: Option<String>,
}

/// A page of payments by tenant and id.
pub(super) async fn payments(
    conn: &mut PgConnection,
    tenant: Uuid,
    after: Uuid,
    limit: i64,
) -> Result<Vec<Facts>, DbError> {
    Ok(sqlx::query_as!(
        Facts,
        r#"-- verify.payments
        SELECT tenant_id, payment_id, status AS "status: PaymentStatus", currency, authorized_minor, captured_minor,
               gateway, gateway_reference
          FROM payments.payment
         WHERE (tenant_id, payment_id) > ($1, $2)
         ORDER BY tenant_id, payment_id
         LIMIT $3"#,
        tenant,
        after,
        limit
    )
    .fetch_all(conn)
    .await?)
}

/// Payments by id.
pub(super) async fn payments_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Facts>, DbError> {
    Ok(sqlx::query_as!(
        Facts,
        r#"-- verify.payments_by_id
        SELECT tenant_id, payment_id, status AS "status: PaymentStatus", currency, authorized_minor, captured_minor,
               gateway, gateway_reference
          FROM payments.payment
         WHERE payment_id = ANY ($1)"#,
        ids
    )
    .fetch_all(conn)
    .await?)
}

/// Open breaks about payments, of all or of some: (payment, break).
pub(super) async fn open_breaks(
    conn: &mut PgConnection,
    of: Option<&[Uuid]>,
) -> Result<Vec<(Uuid, Uuid)>, DbError> {
    let rows = sqlx::query!(
        r#"-- verify.open_breaks
        SELECT payment_id AS "payment_id!", break_id
          FROM payments.break
         WHERE status = 'open' AND payment_id IS NOT NULL AND ($1::uuid[] IS NULL OR payment_id = ANY ($1))"#,
        of
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.payment_id, row.break_id)).collect())
}

/// The payments of each order that has more than one.
pub(super) async fn orders_of_several(conn: &mut PgConnection) -> Result<Vec<Vec<Uuid>>, DbError> {
    Ok(sqlx::query_scalar!(
        r#"-- verify.orders_of_several
        SELECT array_agg(payment_id ORDER BY payment_id) AS "ids!"
          FROM payments.payment
         WHERE order_id IS NOT NULL
         GROUP BY tenant_id, order_id
        HAVING count(*) > 1"#
    )
    .fetch_all(conn)
    .await?)
}

/// A move that an event must have told.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub object_id: Uuid,
    pub version: i32,
    pub status: String,
    pub at: jiff_sqlx::Timestamp,
    /// The four are absent when the object is.
    pub tenant_id: Option<Uuid>,
    pub payment_id: Option<Uuid>,
    pub amount_minor: Option<i64>,
    pub currency: Option<String>,
}

/// A page of the moves of payments, by object and version. The bound on payments is what follows from the join anyway;
/// it lets a merge join begin at the page and not at the first payment of all.
pub(super) async fn moves(
    conn: &mut PgConnection,
    after: Uuid,
    version: i32,
    limit: i64,
) -> Result<Vec<Move>, DbError> {
    Ok(sqlx::query_as!(
        Move,
        r#"-- verify.moves
        SELECT h.object_id, h.version, h.status, h.at, p.tenant_id AS "tenant_id?", p.payment_id AS "payment_id?",
               p.amount_minor AS "amount_minor?", p.currency AS "currency?"
          FROM payments.history h
          LEFT JOIN payments.payment p ON p.payment_id = h.object_id AND p.payment_id >= $1
         WHERE (h.object_id, h.version) > ($1, $2)
         ORDER BY h.object_id, h.version
         LIMIT $3"#,
        after,
        version,
        limit
    )
    .fetch_all(conn)
    .await?)
}

/// A page of the moves of breaks: opened, then perhaps resolved.
pub(super) async fn break_moves(
    conn: &mut PgConnection,
    after: Uuid,
    version: i32,
    limit: i64,
) -> Result<Vec<Move>, DbError> {
    Ok(sqlx::query_as!(
        Move,
        r#"-- verify.break_moves
        SELECT b.break_id AS "object_id!", m.version AS "version!", m.status AS "status!", m.at AS "at!",
               b.tenant_id AS "tenant_id?", b.payment_id, b.expected_minor AS "amount_minor?", b.currency AS "currency?"
          FROM payments.break b
         CROSS JOIN LATERAL (VALUES (1, 'open', b.created_at), (2, 'resolved', b.resolved_at)) AS m (version, status, at)
         WHERE m.at IS NOT NULL AND b.break_id >= $1 AND (b.break_id, m.version) > ($1, $2)
         ORDER BY b.break_id, m.version
         LIMIT $3"#,
        after,
        version,
        limit
    )
    .fetch_all(conn)
    .await?)
}
