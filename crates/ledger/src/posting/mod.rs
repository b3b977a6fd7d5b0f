//! Posting: the only writer of journals, entries and statuses.
//!
//! - A journal and its entries are inserted by one statement for a whole batch; the database checks at commit that
//!   each journal is full and balanced. What can be checked without the database is checked here first.
//! - A journal whose (tenant, kind, source, ordinal) stands already is not posted again. With the same entries it is
//!   `already`, with others it is a [`LedgerError::Conflict`], never "the first one found". A twin that is just being
//!   posted by another transaction is waited for.
//! - Locks: journals in the order of their sources, then accounts in the order of their numbers, and only limited
//!   ones ([`lock_limited_in_tx`]). Accounts without a limit are never locked exclusively.
//! - All of it runs in the caller's transaction, in READ COMMITTED. Nothing is written when an error is returned and
//!   the caller rolls back.

mod check;
mod limits;
mod repo;
mod reverse;

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

pub use self::check::MAX_ENTRIES;
pub use self::limits::{LimitedAccount, lock_limited_in_tx, post_within_limits_in_tx};
pub use self::reverse::reverse_in_tx;
use crate::account::AccountRef;
use crate::error::LedgerError;

/// Journals per statement; larger batches are cut.
const MAX_BATCH: usize = 1_000;

/// Side of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub enum Direction {
    /// Debit, `D`.
    #[serde(rename = "D")]
    Debit,
    /// Credit, `C`.
    #[serde(rename = "C")]
    Credit,
}

impl Direction {
    /// `D` or `C`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debit => "D",
            Self::Credit => "C",
        }
    }

    /// The other side.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Self::Debit => Self::Credit,
            Self::Credit => Self::Debit,
        }
    }

    pub(crate) fn from_column(text: &str) -> Result<Self, LedgerError> {
        match text {
            "D" => Ok(Self::Debit),
            "C" => Ok(Self::Credit),
            _ => Err(LedgerError::Corrupt { what: "direction" }),
        }
    }
}

/// Is a journal's money there for good?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JournalStatus {
    /// May still be undone. Said only in the transaction that posts the journal.
    Pending,
    /// For good. A journal without any status counts as settled.
    Settled,
    /// Undone: the mirrored journal was posted, and both are failed.
    Failed,
}

impl JournalStatus {
    /// The status's name, as in the database and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Settled => "settled",
            Self::Failed => "failed",
        }
    }

    pub(crate) fn from_column(text: &str) -> Result<Self, LedgerError> {
        [Self::Pending, Self::Settled, Self::Failed]
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or(LedgerError::Corrupt { what: "status of a journal" })
    }
}

/// One line of a journal to be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// The account to move.
    pub account: AccountRef,
    /// Debit or credit.
    pub direction: Direction,
    /// 1 to 10^15 minor units of the account's currency.
    pub amount_minor: i64,
}

/// A journal to be posted.
#[derive(Clone, Debug)]
pub struct NewJournal {
    /// Its id, if it is not posted already.
    pub journal_id: Uuid,
    /// Whose money; all accounts are this tenant's.
    pub tenant_id: Uuid,
    /// The money event.
    pub kind: &'static str,
    /// What happened.
    pub source: Uuid,
    /// The client's own text, where `source` was made from one.
    pub source_text: Option<String>,
    /// Tells several journals of one kind and source apart; 0 for most, never negative.
    pub ordinal: i16,
    /// For people.
    pub description: String,
    /// The client's own words.
    pub metadata: Option<Value>,
    /// Business time; `None` = when it is recorded.
    pub effective_at: Option<Timestamp>,
    /// The journal that this one corrects.
    pub corrects: Option<Uuid>,
    /// 2 to 1,000 lines that balance in each currency.
    pub entries: Vec<NewEntry>,
    /// Its first status and the evidence for it; `None` counts as settled.
    pub status: Option<(JournalStatus, String)>,
}

/// What became of a journal that was to be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The id under which the journal stands; another than was asked for when it stood already.
    pub journal_id: Uuid,
    /// It stood already, with the same entries. Nothing was written, its statuses included.
    pub already: bool,
}

/// What makes a journal unique.
type SourceKey = (Uuid, &'static str, Uuid, i16);

fn key(journal: &NewJournal) -> SourceKey {
    (journal.tenant_id, journal.kind, journal.source, journal.ordinal)
}

fn conflict(journal: &NewJournal) -> LedgerError {
    LedgerError::Conflict { kind: journal.kind.to_owned(), source_id: journal.source }
}

/// Posts journals, many in few statements. The answers are in the order of `journals`.
///
/// # Errors
/// [`LedgerError::TooFewEntries`], [`LedgerError::TooManyEntries`], [`LedgerError::AmountRange`],
/// [`LedgerError::OtherTenant`], [`LedgerError::Overflow`] and [`LedgerError::Unbalanced`] before anything is written;
/// [`LedgerError::Conflict`] when a source stands already with other entries.
pub async fn post_in_tx(
    conn: &mut PgConnection,
    journals: &[NewJournal],
) -> Result<Vec<Posted>, LedgerError> {
    let hashes = journals.iter().map(check::checked_hash).collect::<Result<Vec<_>, _>>()?;
    // The same source twice in one batch: the first one counts.
    let mut first_of: HashMap<SourceKey, usize> = HashMap::with_capacity(journals.len());
    let mut firsts = Vec::with_capacity(journals.len());
    let mut ids = HashSet::with_capacity(journals.len());
    for (place, journal) in journals.iter().enumerate() {
        let first = *first_of.entry(key(journal)).or_insert(place);
        if first != place {
            if hashes[first] != hashes[place] {
                return Err(conflict(journal));
            }
        } else if ids.insert(journal.journal_id) {
            firsts.push(place);
        } else {
            return Err(LedgerError::JournalIdTaken(journal.journal_id));
        }
    }
    // The order of sources is the lock order between two batches with the same sources.
    firsts.sort_unstable_by_key(|place| key(&journals[*place]));
    let mut posted: HashMap<SourceKey, Posted> = HashMap::with_capacity(firsts.len());
    for batch in firsts.chunks(MAX_BATCH) {
        let batch: Vec<_> = batch.iter().map(|place| (&journals[*place], &hashes[*place])).collect();
        post_batch(conn, &batch, &mut posted).await?;
    }
    Ok(journals
        .iter()
        .enumerate()
        .map(|(place, journal)| {
            let key = key(journal);
            let found = posted[&key];
            Posted { already: found.already || first_of[&key] != place, ..found }
        })
        .collect())
}

async fn post_batch(
    conn: &mut PgConnection,
    batch: &[(&NewJournal, &check::Hash)],
    posted: &mut HashMap<SourceKey, Posted>,
) -> Result<(), LedgerError> {
    let made = repo::insert(conn, batch).await?;
    let standing: Vec<_> =
        batch.iter().filter(|(journal, _)| !made.contains(&journal.journal_id)).copied().collect();
    if !standing.is_empty() {
        let found = repo::standing(conn, &standing).await?;
        for (journal, hash) in &standing {
            // In nobody's way by its source, so it was by its id.
            let stands = found.get(&key(journal)).ok_or(LedgerError::JournalIdTaken(journal.journal_id))?;
            if stands.entries_hash != hash.as_slice() {
                return Err(conflict(journal));
            }
            posted.insert(key(journal), Posted { journal_id: stands.journal_id, already: true });
        }
    }
    let mut statuses = Vec::new();
    for (journal, _) in batch.iter().filter(|(journal, _)| made.contains(&journal.journal_id)) {
        posted.insert(key(journal), Posted { journal_id: journal.journal_id, already: false });
        if let Some((status, evidence)) = &journal.status {
            statuses.push((journal.journal_id, *status, evidence.as_str()));
        }
    }
    if !statuses.is_empty() {
        repo::set_status(conn, &statuses).await?;
    }
    Ok(())
}

/// Those of these journals that stand, by id.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn standing_in_tx(conn: &mut PgConnection, ids: &[Uuid]) -> Result<HashSet<Uuid>, LedgerError> {
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    repo::standing_ids(conn, ids).await
}

/// Says statuses of journals, with the evidence for each (not empty).
///
/// A status that stands already is no change.
///
/// # Errors
/// [`LedgerError::StatusConflict`] when the other final status stands, [`LedgerError::PendingTooLate`],
/// [`LedgerError::UnknownJournal`].
pub async fn set_status_in_tx(
    conn: &mut PgConnection,
    changes: &[(Uuid, JournalStatus, String)],
) -> Result<(), LedgerError> {
    if changes.is_empty() {
        return Ok(());
    }
    let changes: Vec<_> =
        changes.iter().map(|(id, status, evidence)| (*id, *status, evidence.as_str())).collect();
    repo::set_status(conn, &changes).await
}
