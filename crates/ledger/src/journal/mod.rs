//! Journals and entries as they are shown.

mod repo;

use std::collections::HashMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;
use tallystick_money::Currency;
use uuid::Uuid;

use crate::error::LedgerError;
use crate::page::Page;
use crate::posting::{Direction, JournalStatus};

/// A journal with its entries.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Journal {
    /// Its id.
    pub journal_id: Uuid,
    /// The money event.
    pub kind: String,
    /// What happened: the client's own text, or an id.
    pub source: String,
    /// Its last status; settled when nothing was said.
    pub status: JournalStatus,
    /// For people.
    pub description: String,
    /// The client's own words.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
    /// Its lines in order.
    pub entries: Vec<Entry>,
    /// When it was posted.
    #[schema(value_type = String, format = DateTime)]
    pub recorded_at: Timestamp,
    /// Business time.
    #[schema(value_type = String, format = DateTime)]
    pub effective_at: Timestamp,
    /// The journal that it corrects.
    pub corrects: Option<Uuid>,
}

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Entry {
    /// The account moved.
    pub account_id: Uuid,
    /// Its name.
    pub account_name: String,
    /// Debit or credit.
    pub direction: Direction,
    /// Decimal in major units, with the currency's digits.
    pub amount: String,
    /// The same in minor units.
    pub amount_minor: i64,
    /// ISO 4217 code.
    #[schema(value_type = String)]
    pub currency: Currency,
}

/// One line of an account's statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct AccountEntry {
    /// Its journal.
    pub journal_id: Uuid,
    /// Its line in the journal, from 1.
    pub line_no: i16,
    /// The journal's money event.
    pub kind: String,
    /// What happened: the client's own text, or an id.
    pub source: String,
    /// The journal's last status.
    pub status: JournalStatus,
    /// The journal's description.
    pub description: String,
    /// Debit or credit.
    pub direction: Direction,
    /// Decimal in major units, with the currency's digits.
    pub amount: String,
    /// The same in minor units.
    pub amount_minor: i64,
    /// ISO 4217 code.
    #[schema(value_type = String)]
    pub currency: Currency,
    /// When the journal was posted.
    #[schema(value_type = String, format = DateTime)]
    pub recorded_at: Timestamp,
    /// Business time.
    #[schema(value_type = String, format = DateTime)]
    pub effective_at: Timestamp,
}

/// One journal of the tenant.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn journal(
    conn: &mut PgConnection,
    tenant: Uuid,
    journal_id: Uuid,
) -> Result<Option<Journal>, LedgerError> {
    let heads = repo::by_uuid(conn, tenant, journal_id).await?;
    Ok(with_entries(conn, heads).await?.pop())
}

/// The tenant's journals of these sources, of every kind, oldest first.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn journals_of(
    conn: &mut PgConnection,
    tenant: Uuid,
    sources: &[Uuid],
) -> Result<Vec<Journal>, LedgerError> {
    let heads = repo::by_source(conn, tenant, sources).await?;
    with_entries(conn, heads).await
}

async fn with_entries(
    conn: &mut PgConnection,
    heads: Vec<(i64, Journal)>,
) -> Result<Vec<Journal>, LedgerError> {
    let ids: Vec<i64> = heads.iter().map(|(id, _)| *id).collect();
    let mut lines: HashMap<i64, Vec<Entry>> = HashMap::with_capacity(ids.len());
    if !ids.is_empty() {
        for (id, entry) in repo::entries(conn, &ids).await? {
            lines.entry(id).or_default().push(entry);
        }
    }
    Ok(heads
        .into_iter()
        .map(|(id, head)| Journal { entries: lines.remove(&id).unwrap_or_default(), ..head })
        .collect())
}

/// A page of an account's entries, newest transaction first. `None` when the tenant has no such account.
///
/// # Errors
/// [`LedgerError::BadCursor`] when `cursor` is none that a page of this account gave out.
pub async fn account_entries(
    conn: &mut PgConnection,
    tenant: Uuid,
    account_id: Uuid,
    cursor: Option<&str>,
    limit: i64,
) -> Result<Option<Page<AccountEntry>>, LedgerError> {
    let Some(account) = crate::account::account(conn, tenant, account_id).await? else { return Ok(None) };
    let before = match cursor {
        Some(text) => {
            let (journal_id, line_no) = text.split_once('.').ok_or(LedgerError::BadCursor)?;
            let journal_id = journal_id.parse().map_err(|_| LedgerError::BadCursor)?;
            let line_no = line_no.parse().map_err(|_| LedgerError::BadCursor)?;
            let place = repo::place(conn, account.account_ref(), journal_id, line_no).await?;
            Some(place.ok_or(LedgerError::BadCursor)?)
        }
        None => None,
    };
    let found = repo::account_entries(conn, account.account_ref(), before, limit.saturating_add(1)).await?;
    Ok(Some(Page::cut(found, limit, |entry| format!("{}.{}", entry.journal_id, entry.line_no))))
}
