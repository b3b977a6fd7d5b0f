//! SQL of the checks. Each answers one row: how much was looked at, and the ids of what does not hold.

use sqlx::PgConnection;

use super::Finding;
use crate::error::LedgerError;

/// The role that programs connect as.
const APP_ROLE: &str = "tallystick_app";

struct Row {
    checked: i64,
    violations: Vec<String>,
}

impl From<Row> for Finding {
    fn from(row: Row) -> Self {
        Self { checked: row.checked.unsigned_abs(), violations: row.violations }
    }
}

pub(super) async fn journals_balanced(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    let row = sqlx::query_as!(
        Row,
        r#"-- ledger.verify_journals_balanced
        WITH by_currency AS (
            SELECT journal_id, count(*) AS entries,
                   sum(CASE direction WHEN 'D' THEN amount_minor ELSE -amount_minor END) AS net
              FROM ledger.entry
             GROUP BY journal_id, currency
        ), by_journal AS (
            SELECT journal_id, sum(entries) AS entries, bool_or(net <> 0) AS uneven FROM by_currency GROUP BY journal_id
        ), judged AS (
            SELECT coalesce(j.journal_id::text, 'entries without journal ' || b.journal_id) AS id,
                   j.id IS NULL OR b.journal_id IS NULL OR b.uneven OR b.entries < 2 OR b.entries <> j.entry_count AS wrong
              FROM ledger.journal j FULL JOIN by_journal b ON b.journal_id = j.id
        )
        SELECT count(*) AS "checked!", coalesce(array_agg(id ORDER BY id) FILTER (WHERE wrong), '{}') AS "violations!"
          FROM judged"#
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

pub(super) async fn trial_balance_zero(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    let row = sqlx::query_as!(
        Row,
        r#"-- ledger.verify_trial_balance_zero
        WITH by_account AS (
            SELECT account_id, currency, sum(CASE direction WHEN 'D' THEN amount_minor ELSE -amount_minor END) AS net
              FROM ledger.entry
             GROUP BY account_id, currency
        ), judged AS (
            SELECT a.tenant_id || '/' || b.currency AS id, sum(b.net) <> 0 AS wrong
              FROM by_account b JOIN ledger.account a ON a.id = b.account_id
             GROUP BY a.tenant_id, b.currency
        )
        SELECT count(*) AS "checked!", coalesce(array_agg(id ORDER BY id) FILTER (WHERE wrong), '{}') AS "violations!"
          FROM judged"#
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

/// Bits of `tgtype`: row 1, before 2, insert 4, delete 8, update 16, truncate 32.
#[expect(clippy::too_many_lines, reason = "one statement that lists every guard")]
pub(super) async fn append_only_in_place(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    let row = sqlx::query_as!(
        Row,
        r#"-- ledger.verify_append_only
        WITH guarded (name) AS (
            VALUES ('journal'), ('entry'), ('journal_status'), ('checkpoint')
        ), tables (name) AS (
            SELECT name FROM guarded UNION ALL VALUES ('pending_journal'), ('account')
        ), triggers (relation, name, kind, function) AS (
            SELECT name, 'append_only', 26, 'ledger.refuse_change()' FROM guarded
            UNION ALL SELECT name, 'no_truncate', 34, 'ledger.refuse_change()' FROM guarded
            UNION ALL VALUES ('journal', 'journal_balanced', 5, 'ledger.assert_journal_balanced()')
        ), keys (relation, name) AS (
            VALUES ('entry', 'entry_pkey'), ('entry', 'entry_check'), ('entry', 'entry_amount_minor_check'),
                   ('entry', 'entry_direction_check'), ('entry', 'entry_journal_id_line_count_fkey'),
                   ('entry', 'entry_account_id_currency_fkey'), ('journal', 'journal_entry_count_check'),
                   ('journal', 'journal_tenant_id_source_kind_ordinal_key'), ('journal_status', 'journal_status_pkey'),
                   ('checkpoint', 'checkpoint_pkey')
        ), privileges (relation, privilege, wrong) AS (
            SELECT t.name, p.name, has_table_privilege($1, 'ledger.' || t.name, p.name)
              FROM tables t CROSS JOIN (VALUES ('DELETE'), ('TRUNCATE'), ('TRIGGER')) AS p (name)
            UNION ALL
            SELECT t.name, 'UPDATE', has_any_column_privilege($1, 'ledger.' || t.name, 'UPDATE')
              FROM tables t WHERE t.name <> 'account'
            UNION ALL
            SELECT t.name, 'INSERT', has_any_column_privilege($1, 'ledger.' || t.name, 'INSERT')
              FROM (VALUES ('journal_status'), ('checkpoint'), ('pending_journal')) AS t (name)
            UNION ALL
            SELECT c.relation || '.' || c.name, 'INSERT', has_column_privilege($1, 'ledger.' || c.relation, c.name, 'INSERT')
              FROM (VALUES ('account', 'id'), ('account', 'mark'), ('account', 'created_at'), ('journal', 'id'),
                           ('journal', 'mark'), ('journal', 'recorded_at'), ('entry', 'mark')) AS c (relation, name)
            UNION ALL
            SELECT 'account.' || a.attname, 'UPDATE', has_column_privilege($1, a.attrelid, a.attnum, 'UPDATE')
              FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = 'ledger.account'::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'metadata'
        ), judged (id, wrong) AS (
            SELECT 'trigger ledger.' || w.relation || '.' || w.name,
                   NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t
                                WHERE t.tgrelid = ('ledger.' || w.relation)::regclass AND t.tgname = w.name
                                  AND t.tgtype = w.kind AND t.tgfoid = w.function::regprocedure
                                  AND t.tgenabled IN ('O', 'A') AND t.tgqual IS NULL)
              FROM triggers w
            UNION ALL
            SELECT 'constraint ledger.' || k.relation || '.' || k.name,
                   NOT EXISTS (SELECT FROM pg_catalog.pg_constraint c
                                WHERE c.conrelid = ('ledger.' || k.relation)::regclass AND c.conname = k.name
                                  AND c.convalidated
                                  AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t
                                                   WHERE t.tgconstraint = c.oid AND t.tgenabled NOT IN ('O', 'A')))
              FROM keys k
            UNION ALL
            SELECT 'privilege ' || p.privilege || ' on ledger.' || p.relation, p.wrong FROM privileges p
            UNION ALL
            SELECT 'index ledger.journal_status_final',
                   NOT EXISTS (SELECT FROM pg_catalog.pg_index i
                                WHERE i.indexrelid = to_regclass('ledger.journal_status_final') AND i.indisunique AND i.indisvalid)
            UNION ALL
            SELECT 'role ' || r.rolname,
                   r.rolsuper OR has_schema_privilege(r.oid, 'ledger', 'CREATE')
                   OR EXISTS (SELECT FROM tables t JOIN pg_catalog.pg_class c ON c.oid = ('ledger.' || t.name)::regclass
                               WHERE pg_has_role(r.oid, c.relowner, 'MEMBER'))
              FROM pg_catalog.pg_roles r WHERE r.rolname = $1
        )
        SELECT count(*) AS "checked!", coalesce(array_agg(id ORDER BY id) FILTER (WHERE wrong), '{}') AS "violations!"
          FROM judged"#,
        APP_ROLE as &str,
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

pub(super) async fn amounts_positive(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    let row = sqlx::query_as!(
        Row,
        r#"-- ledger.verify_amounts_positive
        WITH wrong AS (
            SELECT coalesce(j.journal_id::text, 'entries without journal ' || e.journal_id) || '/' || e.line_no AS id
              FROM ledger.entry e
              LEFT JOIN ledger.account a ON a.id = e.account_id
              LEFT JOIN ledger.journal j ON j.id = e.journal_id
             WHERE e.amount_minor <= 0 OR e.direction NOT IN ('D', 'C') OR a.currency IS DISTINCT FROM e.currency
        )
        SELECT (SELECT count(*) FROM ledger.entry) AS "checked!",
               coalesce((SELECT array_agg(id ORDER BY id) FROM wrong), '{}') AS "violations!""#
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

pub(super) async fn currencies(conn: &mut PgConnection) -> Result<Vec<String>, LedgerError> {
    Ok(sqlx::query_scalar!(
        "-- ledger.verify_currencies
        SELECT DISTINCT currency FROM ledger.account ORDER BY currency"
    )
    .fetch_all(conn)
    .await?)
}

pub(super) async fn minimum_kept(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    let row = sqlx::query_as!(
        Row,
        r#"-- ledger.verify_minimum_kept
        WITH judged AS (
            SELECT a.account_id::text AS id,
                   CASE WHEN a.kind IN ('asset', 'expense') THEN s.net ELSE -s.net END < a.minimum_minor AS wrong
              FROM ledger.account a
             CROSS JOIN LATERAL (SELECT coalesce(sum(CASE e.direction WHEN 'D' THEN e.amount_minor ELSE -e.amount_minor END), 0) AS net
                                   FROM ledger.entry e
                                  WHERE e.account_id = a.id) s
             WHERE a.limited
        )
        SELECT count(*) AS "checked!", coalesce(array_agg(id ORDER BY id) FILTER (WHERE wrong), '{}') AS "violations!"
          FROM judged"#
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

pub(super) async fn failed_sums_zero(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    let row = sqlx::query_as!(
        Row,
        r#"-- ledger.verify_failed_sums_zero
        WITH judged AS (
            SELECT a.account_id::text AS id,
                   sum(CASE e.direction WHEN 'D' THEN e.amount_minor ELSE -e.amount_minor END) <> 0 AS wrong
              FROM ledger.journal_status s
              JOIN ledger.entry e ON e.journal_id = s.journal_id
              JOIN ledger.account a ON a.id = e.account_id
             WHERE s.status = 'failed'
             GROUP BY a.account_id
        )
        SELECT count(*) AS "checked!", coalesce(array_agg(id ORDER BY id) FILTER (WHERE wrong), '{}') AS "violations!"
          FROM judged"#
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

pub(super) async fn pending_table_matches(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    let row = sqlx::query_as!(
        Row,
        r#"-- ledger.verify_pending_table
        WITH expected AS (
            SELECT e.account_id, e.journal_id,
                   coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'D'), 0) AS debits,
                   coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'C'), 0) AS credits
              FROM ledger.journal_status s JOIN ledger.entry e ON e.journal_id = s.journal_id
             WHERE s.status = 'pending'
               AND NOT EXISTS (SELECT FROM ledger.journal_status f
                                WHERE f.journal_id = s.journal_id AND f.status IN ('settled', 'failed'))
             GROUP BY e.account_id, e.journal_id
        ), compared AS (
            SELECT journal_id, (p.debits, p.credits) IS DISTINCT FROM (x.debits, x.credits) AS wrong
              FROM expected x FULL JOIN ledger.pending_journal p USING (account_id, journal_id)
        ), judged AS (
            SELECT coalesce(j.journal_id::text, 'no journal ' || c.journal_id) AS id, bool_or(c.wrong) AS wrong
              FROM compared c LEFT JOIN ledger.journal j ON j.id = c.journal_id
             GROUP BY 1
        )
        SELECT count(*) AS "checked!", coalesce(array_agg(id ORDER BY id) FILTER (WHERE wrong), '{}') AS "violations!"
          FROM judged"#
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

/// Entries are added up between one checkpoint's horizon and the next, then over all of the account's: each entry
/// is read once, and a wrong checkpoint does not make the next one look wrong.
pub(super) async fn checkpoints_match(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    let row = sqlx::query_as!(
        Row,
        r#"-- ledger.verify_checkpoints
        WITH steps AS (
            SELECT account_id, horizon, debits, credits, entries,
                   coalesce(lag(horizon) OVER (PARTITION BY account_id ORDER BY horizon), 0) AS before
              FROM ledger.checkpoint
        ), sums AS (
            SELECT s.account_id, s.horizon, s.debits, s.credits, s.entries,
                   sum(e.debits) OVER above AS sum_debits, sum(e.credits) OVER above AS sum_credits,
                   sum(e.entries) OVER above AS sum_entries
              FROM steps s
             CROSS JOIN LATERAL (SELECT coalesce(sum(amount_minor) FILTER (WHERE direction = 'D'), 0) AS debits,
                                        coalesce(sum(amount_minor) FILTER (WHERE direction = 'C'), 0) AS credits,
                                        count(*) AS entries
                                   FROM ledger.entry
                                  WHERE account_id = s.account_id AND mark >= s.before AND mark < s.horizon) e
            WINDOW above AS (PARTITION BY s.account_id ORDER BY s.horizon)
        ), judged AS (
            SELECT a.account_id || '@' || s.horizon AS id,
                   (s.debits, s.credits, s.entries) IS DISTINCT FROM (s.sum_debits, s.sum_credits, s.sum_entries::bigint) AS wrong
              FROM sums s JOIN ledger.account a ON a.id = s.account_id
        )
        SELECT count(*) AS "checked!", coalesce(array_agg(id ORDER BY id) FILTER (WHERE wrong), '{}') AS "violations!"
          FROM judged"#
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

/// The text that is hashed is the one of `posting/check.rs`.
pub(super) async fn hashes_match(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    let row = sqlx::query_as!(
        Row,
        r#"-- ledger.verify_hashes
        WITH hashed AS (
            SELECT e.journal_id,
                   sha256(convert_to('v1' || chr(10) || string_agg(
                       e.account_id || '|' || e.currency || '|' || e.direction || '|' || e.amount_minor || chr(10), ''
                       ORDER BY e.account_id, e.direction COLLATE "C", e.amount_minor), 'UTF8')) AS hash
              FROM ledger.entry e
             GROUP BY e.journal_id
        ), judged AS (
            SELECT j.journal_id::text AS id, h.hash IS DISTINCT FROM j.entries_hash AS wrong
              FROM ledger.journal j LEFT JOIN hashed h ON h.journal_id = j.id
        )
        SELECT count(*) AS "checked!", coalesce(array_agg(id ORDER BY id) FILTER (WHERE wrong), '{}') AS "violations!"
          FROM judged"#
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}
