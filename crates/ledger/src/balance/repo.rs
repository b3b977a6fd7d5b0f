//! SQL of balances, trial balances and checkpoints.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use tallystick_money::Currency;
use uuid::Uuid;

use super::TrialBalanceRow;
use crate::account::{AccountKind, currency_from_column};
use crate::error::LedgerError;

/// The database's time.
pub(super) async fn now(conn: &mut PgConnection) -> Result<Timestamp, LedgerError> {
    let now = sqlx::query_scalar!(
        r#"-- ledger.now
        SELECT statement_timestamp() AS "now!""#
    )
    .fetch_one(conn)
    .await?;
    Ok(now.to_jiff())
}

/// Everything recorded before it is decided; `None` when that cannot be said.
///
/// A session that is in a transaction holds the lock on its virtual transaction id, which everybody may see; when
/// that transaction began is hidden where the session belongs to a role that the asking one is no member of. Such a
/// session only counts when it could write here. Of a prepared transaction nobody knows when it began.
pub(super) async fn decided_before(conn: &mut PgConnection) -> Result<Option<Timestamp>, LedgerError> {
    let decided = sqlx::query_scalar!(
        r#"-- ledger.decided_before
        WITH open AS (
            SELECT s.xact_start
              FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity s ON s.pid = l.pid
             WHERE l.locktype = 'virtualxid' AND l.virtualxid = l.virtualtransaction
               AND s.datname = current_database() AND s.pid <> pg_backend_pid()
               AND (s.xact_start IS NOT NULL
                    OR has_any_column_privilege(s.usesysid, 'ledger.journal', 'INSERT')
                    OR pg_has_role(s.usesysid, 'tallystick_app', 'MEMBER'))
        )
        SELECT CASE WHEN EXISTS (SELECT FROM open WHERE xact_start IS NULL)
                      OR EXISTS (SELECT FROM pg_catalog.pg_prepared_xacts x WHERE x.database = current_database())
                    THEN NULL
                    ELSE least(statement_timestamp(), (SELECT min(xact_start) FROM open))
               END AS decided_before"#
    )
    .fetch_one(conn)
    .await?;
    Ok(decided.map(jiff_sqlx::Timestamp::to_jiff))
}

/// Sums of one account, in minor units.
pub(super) struct Sums {
    pub kind: AccountKind,
    pub currency: Currency,
    pub debits: i64,
    pub credits: i64,
    pub pending_debits: i64,
    pub pending_credits: i64,
}

struct SumsRow {
    kind: String,
    currency: String,
    debits: i64,
    credits: i64,
    pending_debits: i64,
    pending_credits: i64,
}

impl TryFrom<SumsRow> for Sums {
    type Error = LedgerError;

    fn try_from(row: SumsRow) -> Result<Self, LedgerError> {
        Ok(Self {
            kind: AccountKind::from_column(&row.kind)?,
            currency: currency_from_column(&row.currency)?,
            debits: row.debits,
            credits: row.credits,
            pending_debits: row.pending_debits,
            pending_credits: row.pending_credits,
        })
    }
}

pub(super) async fn sums(
    conn: &mut PgConnection,
    tenant: Uuid,
    account_id: Uuid,
) -> Result<Option<Sums>, LedgerError> {
    let row = sqlx::query_as!(
        SumsRow,
        r#"-- ledger.balance
        SELECT a.kind, a.currency, t.debits::bigint AS "debits!", t.credits::bigint AS "credits!",
               p.debits::bigint AS "pending_debits!", p.credits::bigint AS "pending_credits!"
          FROM ledger.account a
          JOIN ledger.account_total t ON t.id = a.id
         CROSS JOIN LATERAL (SELECT coalesce(sum(o.debits), 0) AS debits, coalesce(sum(o.credits), 0) AS credits
                               FROM ledger.pending_journal o
                              WHERE o.account_id = a.id) p
         WHERE a.account_id = $1 AND a.tenant_id = $2"#,
        account_id,
        tenant,
    )
    .fetch_optional(conn)
    .await?;
    row.map(Sums::try_from).transpose()
}

/// A checkpoint is of use when all of its entries were recorded by then. Pending by then is what is open now and
/// what became final since, if it was posted by then.
pub(super) async fn sums_at(
    conn: &mut PgConnection,
    tenant: Uuid,
    account_id: Uuid,
    at: Timestamp,
) -> Result<Option<Sums>, LedgerError> {
    let row = sqlx::query_as!(
        SumsRow,
        r#"-- ledger.balance_at
        SELECT a.kind, a.currency,
               (coalesce(last.debits, 0) + fresh.debits)::bigint AS "debits!",
               (coalesce(last.credits, 0) + fresh.credits)::bigint AS "credits!",
               open.debits::bigint AS "pending_debits!", open.credits::bigint AS "pending_credits!"
          FROM ledger.account a
          LEFT JOIN LATERAL (SELECT c.horizon, c.debits, c.credits
                               FROM ledger.checkpoint c
                              WHERE c.account_id = a.id AND c.made_at <= $3
                              ORDER BY c.horizon DESC
                              LIMIT 1) last ON true
         CROSS JOIN LATERAL (SELECT coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'D'), 0) AS debits,
                                    coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'C'), 0) AS credits
                               FROM ledger.entry e JOIN ledger.journal j ON j.id = e.journal_id
                              WHERE e.account_id = a.id AND e.mark >= coalesce(last.horizon, 0)
                                AND j.recorded_at <= $3) fresh
         CROSS JOIN LATERAL (SELECT coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'D'), 0) AS debits,
                                    coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'C'), 0) AS credits
                               FROM (SELECT o.journal_id FROM ledger.pending_journal o WHERE o.account_id = a.id
                                     UNION
                                     SELECT f.journal_id
                                       FROM ledger.journal_status f
                                      WHERE f.status IN ('settled', 'failed') AND f.at > $3) candidate
                               JOIN ledger.journal_status s ON s.journal_id = candidate.journal_id
                                                           AND s.status = 'pending' AND s.at <= $3
                               JOIN ledger.entry e ON e.journal_id = candidate.journal_id
                              WHERE e.account_id = a.id) open
         WHERE a.account_id = $1 AND a.tenant_id = $2"#,
        account_id,
        tenant,
        at.to_sqlx() as jiff_sqlx::Timestamp,
    )
    .fetch_optional(conn)
    .await?;
    row.map(Sums::try_from).transpose()
}

struct TrialRow {
    account_id: Uuid,
    name: String,
    kind: String,
    debits: i64,
    credits: i64,
}

impl TryFrom<TrialRow> for TrialBalanceRow {
    type Error = LedgerError;

    fn try_from(row: TrialRow) -> Result<Self, LedgerError> {
        let kind = AccountKind::from_column(&row.kind)?;
        Ok(Self {
            account_id: row.account_id,
            name: row.name,
            kind,
            debits_minor: row.debits,
            credits_minor: row.credits,
            balance_minor: kind.balance(row.debits, row.credits)?,
        })
    }
}

pub(super) async fn trial(
    conn: &mut PgConnection,
    tenant: Uuid,
    currency: Currency,
) -> Result<Vec<TrialBalanceRow>, LedgerError> {
    let rows = sqlx::query_as!(
        TrialRow,
        r#"-- ledger.trial_balance
        SELECT a.account_id, a.name, a.kind, t.debits::bigint AS "debits!", t.credits::bigint AS "credits!"
          FROM ledger.account a JOIN ledger.account_total t ON t.id = a.id
         WHERE a.tenant_id = $1 AND a.currency = $2
         ORDER BY a.name, a.id"#,
        tenant,
        currency.code(),
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(TrialBalanceRow::try_from).collect()
}

pub(super) async fn trial_at(
    conn: &mut PgConnection,
    tenant: Uuid,
    currency: Currency,
    at: Timestamp,
) -> Result<Vec<TrialBalanceRow>, LedgerError> {
    let rows = sqlx::query_as!(
        TrialRow,
        r#"-- ledger.trial_balance_at
        SELECT a.account_id, a.name, a.kind,
               (coalesce(last.debits, 0) + fresh.debits)::bigint AS "debits!",
               (coalesce(last.credits, 0) + fresh.credits)::bigint AS "credits!"
          FROM ledger.account a
          LEFT JOIN LATERAL (SELECT c.horizon, c.debits, c.credits
                               FROM ledger.checkpoint c
                              WHERE c.account_id = a.id AND c.made_at <= $3
                              ORDER BY c.horizon DESC
                              LIMIT 1) last ON true
         CROSS JOIN LATERAL (SELECT coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'D'), 0) AS debits,
                                    coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'C'), 0) AS credits
                               FROM ledger.entry e JOIN ledger.journal j ON j.id = e.journal_id
                              WHERE e.account_id = a.id AND e.mark >= coalesce(last.horizon, 0)
                                AND j.recorded_at <= $3) fresh
         WHERE a.tenant_id = $1 AND a.currency = $2
         ORDER BY a.name, a.id"#,
        tenant,
        currency.code(),
        at.to_sqlx() as jiff_sqlx::Timestamp,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(TrialBalanceRow::try_from).collect()
}

pub(super) async fn checkpoint_page(
    conn: &mut PgConnection,
    after: i64,
    page: i64,
) -> Result<Vec<i64>, LedgerError> {
    Ok(sqlx::query_scalar!(
        "-- ledger.checkpoint_page
        SELECT id FROM ledger.account WHERE id > $1 ORDER BY id LIMIT $2",
        after,
        page,
    )
    .fetch_all(conn)
    .await?)
}

/// Counts no further than the threshold, and only what a checkpoint could take in now.
pub(super) async fn checkpoint_due(
    conn: &mut PgConnection,
    ids: &[i64],
    threshold: i64,
) -> Result<Vec<i64>, LedgerError> {
    Ok(sqlx::query_scalar!(
        r#"-- ledger.checkpoint_due
        SELECT a.id AS "id!"
          FROM unnest($1::bigint[]) AS a (id)
          LEFT JOIN LATERAL (SELECT c.horizon
                               FROM ledger.checkpoint c
                              WHERE c.account_id = a.id
                              ORDER BY c.horizon DESC
                              LIMIT 1) last ON true
         CROSS JOIN LATERAL (SELECT count(*) AS entries
                               FROM (SELECT
                                       FROM ledger.entry e
                                      WHERE e.account_id = a.id AND e.mark >= coalesce(last.horizon, 0)
                                        AND e.mark < (SELECT runner.horizon())
                                      LIMIT $2::bigint + 1) above) fresh
         WHERE fresh.entries > $2::bigint
         ORDER BY a.id"#,
        ids,
        threshold,
    )
    .fetch_all(conn)
    .await?)
}

pub(super) async fn make_checkpoint(conn: &mut PgConnection, account: i64) -> Result<bool, LedgerError> {
    Ok(sqlx::query_scalar!(
        r#"-- ledger.checkpoint_make
        SELECT ledger.make_checkpoint($1) AS "made!""#,
        account,
    )
    .fetch_one(conn)
    .await?)
}
