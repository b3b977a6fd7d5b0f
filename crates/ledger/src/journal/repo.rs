//! SQL that shows journals and entries.

use jiff_sqlx::Timestamp as SqlTimestamp;
use serde_json::Value;
use sqlx::PgConnection;
use tallystick_money::format_major;
use uuid::Uuid;

use super::{AccountEntry, Entry, Journal};
use crate::account::{AccountRef, currency_from_column};
use crate::error::LedgerError;
use crate::posting::{Direction, JournalStatus};

struct Head {
    id: i64,
    journal_id: Uuid,
    kind: String,
    source: String,
    status: String,
    description: String,
    metadata: Option<Value>,
    recorded_at: SqlTimestamp,
    effective_at: SqlTimestamp,
    corrects: Option<Uuid>,
}

impl TryFrom<Head> for Journal {
    type Error = LedgerError;

    fn try_from(head: Head) -> Result<Self, LedgerError> {
        Ok(Self {
            journal_id: head.journal_id,
            kind: head.kind,
            source: head.source,
            status: JournalStatus::from_column(&head.status)?,
            description: head.description,
            metadata: head.metadata,
            entries: Vec::new(),
            recorded_at: head.recorded_at.to_jiff(),
            effective_at: head.effective_at.to_jiff(),
            corrects: head.corrects,
        })
    }
}

fn headed(rows: Vec<Head>) -> Result<Vec<(i64, Journal)>, LedgerError> {
    rows.into_iter().map(|head| Ok((head.id, head.try_into()?))).collect()
}

pub(super) async fn by_uuid(
    conn: &mut PgConnection,
    tenant: Uuid,
    journal_id: Uuid,
) -> Result<Vec<(i64, Journal)>, LedgerError> {
    let rows = sqlx::query_as!(
        Head,
        r#"-- ledger.journal_by_uuid
        SELECT j.id, j.journal_id, j.kind, coalesce(j.source_text, j.source::text) AS "source!",
               coalesce((SELECT s.status FROM ledger.journal_status s
                          WHERE s.journal_id = j.id
                          ORDER BY s.status = 'pending'
                          LIMIT 1), 'settled') AS "status!",
               j.description, j.metadata, j.recorded_at, j.effective_at, j.corrects
          FROM ledger.journal j
         WHERE j.journal_id = $1 AND j.tenant_id = $2"#,
        journal_id,
        tenant,
    )
    .fetch_all(conn)
    .await?;
    headed(rows)
}

pub(super) async fn by_source(
    conn: &mut PgConnection,
    tenant: Uuid,
    sources: &[Uuid],
) -> Result<Vec<(i64, Journal)>, LedgerError> {
    let rows = sqlx::query_as!(
        Head,
        r#"-- ledger.journal_by_source
        SELECT j.id, j.journal_id, j.kind, coalesce(j.source_text, j.source::text) AS "source!",
               coalesce((SELECT s.status FROM ledger.journal_status s
                          WHERE s.journal_id = j.id
                          ORDER BY s.status = 'pending'
                          LIMIT 1), 'settled') AS "status!",
               j.description, j.metadata, j.recorded_at, j.effective_at, j.corrects
          FROM ledger.journal j
         WHERE j.tenant_id = $1 AND j.source = ANY($2)
         ORDER BY j.id"#,
        tenant,
        sources,
    )
    .fetch_all(conn)
    .await?;
    headed(rows)
}

/// Entries with their journals' numbers, by journal and line.
pub(super) async fn entries(conn: &mut PgConnection, ids: &[i64]) -> Result<Vec<(i64, Entry)>, LedgerError> {
    let rows = sqlx::query!(
        "-- ledger.journal_entries
        SELECT e.journal_id, a.account_id, a.name, e.direction, e.amount_minor, e.currency
          FROM ledger.entry e JOIN ledger.account a ON a.id = e.account_id
         WHERE e.journal_id = ANY($1)
         ORDER BY e.journal_id, e.line_no",
        ids,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let currency = currency_from_column(&row.currency)?;
            let entry = Entry {
                account_id: row.account_id,
                account_name: row.name,
                direction: Direction::from_column(&row.direction)?,
                amount: format_major(row.amount_minor, currency),
                amount_minor: row.amount_minor,
                currency,
            };
            Ok((row.journal_id, entry))
        })
        .collect()
}

/// Where an entry stands in its account's statement.
pub(super) struct Place {
    mark: i64,
    journal_id: i64,
    line_no: i16,
}

pub(super) async fn place(
    conn: &mut PgConnection,
    account: AccountRef,
    journal_id: Uuid,
    line_no: i16,
) -> Result<Option<Place>, LedgerError> {
    Ok(sqlx::query_as!(
        Place,
        "-- ledger.entry_place
        SELECT e.mark, e.journal_id, e.line_no
          FROM ledger.journal j JOIN ledger.entry e ON e.journal_id = j.id
         WHERE j.journal_id = $1 AND e.line_no = $2 AND e.account_id = $3",
        journal_id,
        line_no,
        account.id,
    )
    .fetch_optional(conn)
    .await?)
}

/// In the order of marks, which the index has: a transaction's entries stand together.
pub(super) async fn account_entries(
    conn: &mut PgConnection,
    account: AccountRef,
    before: Option<Place>,
    limit: i64,
) -> Result<Vec<AccountEntry>, LedgerError> {
    let before = before.unwrap_or(Place { mark: i64::MAX, journal_id: i64::MAX, line_no: i16::MAX });
    let rows = sqlx::query!(
        r#"-- ledger.account_entries
        SELECT j.journal_id, e.line_no, j.kind, coalesce(j.source_text, j.source::text) AS "source!",
               coalesce((SELECT s.status FROM ledger.journal_status s
                          WHERE s.journal_id = j.id
                          ORDER BY s.status = 'pending'
                          LIMIT 1), 'settled') AS "status!",
               j.description, e.direction, e.amount_minor, j.recorded_at, j.effective_at
          FROM ledger.entry e JOIN ledger.journal j ON j.id = e.journal_id
         WHERE e.account_id = $1 AND e.mark <= $2 AND (e.mark, e.journal_id, e.line_no) < ($2, $3, $4)
         ORDER BY e.mark DESC, e.journal_id DESC, e.line_no DESC
         LIMIT $5"#,
        account.id,
        before.mark,
        before.journal_id,
        before.line_no,
        limit,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(AccountEntry {
                journal_id: row.journal_id,
                line_no: row.line_no,
                kind: row.kind,
                source: row.source,
                status: JournalStatus::from_column(&row.status)?,
                description: row.description,
                direction: Direction::from_column(&row.direction)?,
                amount: format_major(row.amount_minor, account.currency),
                amount_minor: row.amount_minor,
                currency: account.currency,
                recorded_at: row.recorded_at.to_jiff(),
                effective_at: row.effective_at.to_jiff(),
            })
        })
        .collect()
}
