//! SQL of the checks. Reads only, in the caller's snapshot. What is judged in SQL answers one row: how much was
//! looked at, how much is wrong, and the first ids of it.

use sqlx::PgConnection;
use tallystick_runner::DbError;
use uuid::Uuid;

use super::edges::Allowed;
use super::facts::{Facts, Of};
use super::report::Counted;
use crate::payment::PaymentStatus;
use crate::payout::PayoutStatus;

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

/// Versions 1, 2, 3 … of each payment and payout, along the moves that its kind allows, to the status and version that
/// the row holds.
pub(super) async fn versions(conn: &mut PgConnection, allowed: &Allowed) -> Result<Counted, DbError> {
    Ok(sqlx::query_as!(
        Counted,
        r#"-- verify.versions
        WITH moves AS (
            SELECT object_id, version, status, row_number() OVER story AS place,
                   coalesce(lag(status) OVER story, '') || '>' || status AS move
              FROM payments.history
            WINDOW story AS (PARTITION BY object_id ORDER BY version)
        ), stories AS (
            SELECT object_id, max(version) AS version, bool_or(version <> place) AS gap, array_agg(move) AS moves,
                   (array_agg(status ORDER BY version DESC))[1] AS status
              FROM moves
             GROUP BY object_id
        ), judged AS (
            SELECT coalesce(o.operation_id, s.object_id) AS id,
                   o.operation_id IS NULL OR s.object_id IS NULL OR s.gap
                   OR NOT s.moves <@ CASE o.kind WHEN 1 THEN $1::text[] ELSE $2::text[] END
                   OR s.version <> o.version OR s.status <> o.status AS wrong
              FROM payments.operation o FULL JOIN stories s ON s.object_id = o.operation_id
        )
        SELECT count(*) AS "checked!", count(*) FILTER (WHERE wrong) AS "wrong!",
               coalesce((array_agg(id::text ORDER BY id) FILTER (WHERE wrong))[1:100], '{}') AS "ids!"
          FROM judged"#,
        &allowed.payments,
        &allowed.payouts
    )
    .fetch_one(conn)
    .await?)
}

/// Operations that need work have a dispatch row of their kind that comes due, or wait for a person; no dispatch row is
/// about nothing. Pauses are hours at most, so a row that is not due within a quarter of a year never is.
pub(super) async fn open_work(conn: &mut PgConnection) -> Result<Counted, DbError> {
    Ok(sqlx::query_as!(
        Counted,
        r#"-- verify.open_work
        WITH judged AS (
            SELECT coalesce(o.operation_id, d.operation_id) AS id,
                   o.operation_id IS NULL
                   OR (o.needs_row AND (d.operation_id IS NULL OR d.due_at > now() + interval '90 days')) AS wrong
              FROM (SELECT operation_id, kind, attention_code IS NULL AS needs_row
                      FROM payments.operation
                     WHERE status IN ('pending', 'processing', 'unknown')
                    UNION ALL
                    -- Final ones whose row is not removed yet need nothing, but they exist.
                    SELECT o.operation_id, o.kind, false
                      FROM payments.operation o JOIN payments.dispatch d ON d.operation_id = o.operation_id
                     WHERE o.status NOT IN ('pending', 'processing', 'unknown')) o
              FULL JOIN payments.dispatch d ON d.operation_id = o.operation_id AND d.kind = o.kind
        )
        SELECT count(*) AS "checked!", count(*) FILTER (WHERE wrong) AS "wrong!",
               coalesce((array_agg(id::text ORDER BY id) FILTER (WHERE wrong))[1:100], '{}') AS "ids!"
          FROM judged"#
    )
    .fetch_one(conn)
    .await?)
}

/// Orders have one active payment at most, references one active payout. Looks at the order or reference itself, not
/// at the column that guards it.
pub(super) async fn active_orders(conn: &mut PgConnection) -> Result<Counted, DbError> {
    Ok(sqlx::query_as!(
        Counted,
        r#"-- verify.active_orders
        WITH active AS (
            SELECT 1 AS kind, tenant_id, order_id AS name, payment_id AS id
              FROM payments.payment
             WHERE order_id IS NOT NULL AND status NOT IN ('failed', 'canceled')
            UNION ALL
            SELECT 2, tenant_id, reference, payout_id
              FROM payments.payout
             WHERE reference IS NOT NULL AND status NOT IN ('failed', 'canceled', 'returned')
        ), named AS (
            SELECT array_agg(id) AS ids FROM active GROUP BY kind, tenant_id, name
        ), wrong AS (
            SELECT unnest(ids) AS id FROM named WHERE cardinality(ids) > 1
        )
        SELECT (SELECT count(*) FROM named) AS "checked!", count(*) AS "wrong!",
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

/// An operation that calls for a person names an open break of its own; a break is about one payment or one payout of
/// its tenant. Ids of operations, and of breaks.
pub(super) async fn breaks(conn: &mut PgConnection) -> Result<Counted, DbError> {
    Ok(sqlx::query_as!(
        Counted,
        r#"-- verify.breaks
        WITH judged AS (
            SELECT o.operation_id AS id,
                   b.break_id IS NULL OR b.status <> 'open' OR b.tenant_id <> o.tenant_id
                   OR CASE o.kind WHEN 1 THEN b.payment_id ELSE b.payout_id END IS DISTINCT FROM o.operation_id AS wrong
              FROM payments.operation o LEFT JOIN payments.break b ON b.break_id = o.attention_break
             WHERE o.attention_code IS NOT NULL OR o.attention_break IS NOT NULL
            UNION ALL
            SELECT b.break_id,
                   num_nonnulls(b.payment_id, b.payout_id) <> 1
                   OR coalesce(p.tenant_id, q.tenant_id) IS DISTINCT FROM b.tenant_id
              FROM payments.break b
              LEFT JOIN payments.payment p ON p.payment_id = b.payment_id
              LEFT JOIN payments.payout q ON q.payout_id = b.payout_id
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

/// A checked select of what operations are held against; `$tail` begins with the statement's conditions. The two tables
/// are read as one, each by the index that fits the conditions: no column of them is computed.
macro_rules! operations {
    ($name:tt, $tail:tt, $($arg:expr),* $(,)?) => {
        sqlx::query!(
            $name + r#"
            SELECT tenant_id AS "tenant_id!", id AS "id!", currency AS "currency!", gateway AS "gateway!", gateway_reference,
                   amount_minor AS "amount_minor!", failure_code, payment_status AS "payment_status?: PaymentStatus",
                   authorized_minor AS "authorized_minor!", captured_minor AS "captured_minor!",
                   payout_status AS "payout_status?: PayoutStatus", account_id
              FROM (SELECT tenant_id, payment_id AS id, currency, gateway, gateway_reference, amount_minor, failure_code,
                           status AS payment_status, authorized_minor, captured_minor,
                           NULL::payments.payout_status AS payout_status, NULL::uuid AS account_id
                      FROM payments.payment
                    UNION ALL
                    SELECT tenant_id, payout_id, currency, gateway, gateway_reference, amount_minor, failure_code,
                           NULL::payments.payment_status, 0::bigint, 0::bigint, status, account_id
                      FROM payments.payout) o "# + $tail,
            $($arg),*
        )
        .map(|r| Facts {
            tenant_id: r.tenant_id,
            id: r.id,
            currency: r.currency,
            gateway: r.gateway,
            gateway_reference: r.gateway_reference,
            of: match r.payment_status {
                Some(status) => Of::Payment {
                    status,
                    authorized_minor: r.authorized_minor,
                    captured_minor: r.captured_minor,
                },
                None => Of::Payout {
                    status: r.payout_status.expect("what is no payment is a payout"),
                    account_id: r.account_id.expect("every payout has an account"),
                    amount_minor: r.amount_minor,
                    failure_code: r.failure_code,
                },
            },
        })
    };
}

/// A page of payments and payouts by tenant and id.
pub(super) async fn operations(
    conn: &mut PgConnection,
    tenant: Uuid,
    after: Uuid,
    limit: i64,
) -> Result<Vec<Facts>, DbError> {
    Ok(operations!(
        "-- verify.operations",
        "WHERE (tenant_id, id) > ($1, $2) ORDER BY tenant_id, id LIMIT $3",
        tenant,
        after,
        limit
    )
    .fetch_all(conn)
    .await?)
}

/// Payments and payouts by id.
pub(super) async fn operations_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Facts>, DbError> {
    Ok(operations!("-- verify.operations_by_id", "WHERE id = ANY ($1)", ids).fetch_all(conn).await?)
}

/// Open breaks about operations, of all or of some: (payment or payout, break).
pub(super) async fn open_breaks(
    conn: &mut PgConnection,
    of: Option<&[Uuid]>,
) -> Result<Vec<(Uuid, Uuid)>, DbError> {
    let rows = sqlx::query!(
        r#"-- verify.open_breaks
        SELECT coalesce(payment_id, payout_id) AS "operation_id!", break_id
          FROM payments.break
         WHERE status = 'open' AND num_nonnulls(payment_id, payout_id) = 1
           AND ($1::uuid[] IS NULL OR payment_id = ANY ($1) OR payout_id = ANY ($1))"#,
        of
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.operation_id, row.break_id)).collect())
}

/// The payments of each order that has more than one, and the payouts of each reference.
pub(super) async fn orders_of_several(conn: &mut PgConnection) -> Result<Vec<Vec<Uuid>>, DbError> {
    Ok(sqlx::query_scalar!(
        r#"-- verify.orders_of_several
        SELECT array_agg(payment_id ORDER BY payment_id) AS "ids!"
          FROM payments.payment
         WHERE order_id IS NOT NULL
         GROUP BY tenant_id, order_id
        HAVING count(*) > 1
        UNION ALL
        SELECT array_agg(payout_id ORDER BY payout_id)
          FROM payments.payout
         WHERE reference IS NOT NULL
         GROUP BY tenant_id, reference
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
    /// The payment that it is about, if it is about one that exists.
    pub payment_id: Option<Uuid>,
    /// The payout that it is about, if it is about one that exists.
    pub payout_id: Option<Uuid>,
    /// The three are absent when the object is.
    pub tenant_id: Option<Uuid>,
    pub amount_minor: Option<i64>,
    pub currency: Option<String>,
}

/// A page of the moves of payments and payouts, by object and version. The bounds on the two are what follows from the
/// joins anyway; they let merge joins begin at the page and not at the first payment of all.
pub(super) async fn moves(
    conn: &mut PgConnection,
    after: Uuid,
    version: i32,
    limit: i64,
) -> Result<Vec<Move>, DbError> {
    Ok(sqlx::query_as!(
        Move,
        r#"-- verify.moves
        SELECT h.object_id, h.version, h.status, h.at, p.payment_id AS "payment_id?", o.payout_id AS "payout_id?",
               coalesce(p.tenant_id, o.tenant_id) AS "tenant_id?", coalesce(p.amount_minor, o.amount_minor) AS "amount_minor?",
               coalesce(p.currency, o.currency) AS "currency?"
          FROM payments.history h
          LEFT JOIN payments.payment p ON p.payment_id = h.object_id AND p.payment_id >= $1
          LEFT JOIN payments.payout o ON o.payout_id = h.object_id AND o.payout_id >= $1
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
        SELECT b.break_id AS "object_id!", m.version AS "version!", m.status AS "status!", m.at AS "at!", b.payment_id,
               b.payout_id, b.tenant_id AS "tenant_id?", b.expected_minor AS "amount_minor?", b.currency AS "currency?"
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
