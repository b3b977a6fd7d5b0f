//! All journals in pages, with their entries and their last status: for a caller that knows what each journal is
//! about and compares the two. Pages that are read in one snapshot fit together.

mod repo;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::LedgerError;
use crate::posting::JournalStatus;

/// A place between two journals in the order of tenant, source, kind and ordinal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalPlace {
    /// Whose journal.
    pub tenant_id: Uuid,
    /// What it is about.
    pub source: Uuid,
    /// Its money event.
    pub kind: String,
    /// Which of several of one kind and source.
    pub ordinal: i16,
}

impl JournalPlace {
    /// Before the first journal.
    #[must_use]
    pub fn start() -> Self {
        Self { tenant_id: Uuid::nil(), source: Uuid::nil(), kind: String::new(), ordinal: -1 }
    }
}

/// A journal in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalDigest {
    /// Where it stands in the order of the pages.
    pub place: JournalPlace,
    /// Its id.
    pub journal_id: Uuid,
    /// Its entries, by line.
    pub entries: Vec<EntryDigest>,
    /// Its last status; settled when nothing was said about it, none for a word that is no status.
    pub status: Option<JournalStatus>,
}

/// An entry in short, as it stands in the table: nothing of it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryDigest {
    /// The account's id; none when the entry names no account.
    pub account_id: Option<Uuid>,
    /// The account's key, when a program made it.
    pub system_key: Option<String>,
    /// `D` or `C`.
    pub direction: String,
    /// Minor units.
    pub amount_minor: i64,
    /// ISO 4217.
    pub currency: String,
}

/// The next `limit` journals behind a place. Fewer than `limit` are the last ones.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn journals(
    conn: &mut PgConnection,
    after: &JournalPlace,
    limit: i64,
) -> Result<Vec<JournalDigest>, LedgerError> {
    repo::journals(conn, after, limit).await
}
