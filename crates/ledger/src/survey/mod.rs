//! All journals in pages, with their lines in one line of text each: for a caller that knows what each journal is
//! about and compares the two. Pages that are read in one snapshot fit together.

mod repo;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::LedgerError;

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
    /// Its entries as [`line()`] writes them, sorted as text.
    pub lines: Vec<String>,
    /// Its last status is settled, or nothing was said about it.
    pub settled: bool,
}

/// An entry as text. `account` is the key of a system account, else the account's id; `direction` `D` or `C`.
#[must_use]
pub fn line(account: &str, direction: crate::Direction, amount_minor: i64, currency: &str) -> String {
    format!("{account} {} {amount_minor} {currency}", direction.as_str())
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
