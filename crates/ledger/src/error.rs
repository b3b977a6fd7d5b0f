//! What may go wrong in the ledger.

use sqlx::postgres::PgDatabaseError;
use tallystick_money::Currency;
use tallystick_runner::{DbError, Fault};
use uuid::Uuid;

use crate::JournalStatus;

/// Why the ledger refused something, or could not do it.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The database.
    #[error(transparent)]
    Db(DbError),
    /// A journal of this kind and source stands already, with other entries.
    #[error("a `{kind}` journal of source {source_id} stands already with other entries")]
    Conflict {
        /// Kind of the journal.
        kind: String,
        /// Its source.
        source_id: Uuid,
    },
    /// The journal's id stands already under another source.
    #[error("journal id {0} is taken by another journal")]
    JournalIdTaken(Uuid),
    /// Debits and credits of one currency differ.
    #[error("debits {debit} and credits {credit} in {currency} are not equal")]
    Unbalanced {
        /// The currency that does not balance.
        currency: Currency,
        /// Sum of debits, in minor units.
        debit: i64,
        /// Sum of credits, in minor units.
        credit: i64,
    },
    /// A journal has at least two entries.
    #[error("a journal has at least two entries")]
    TooFewEntries,
    /// A journal has at most [`crate::MAX_ENTRIES`] entries.
    #[error("a journal has at most {} entries", crate::MAX_ENTRIES)]
    TooManyEntries,
    /// An amount is not between 1 and 10^15 minor units.
    #[error("an entry's amount must be between 1 and {} minor units", tallystick_money::MAX_MINOR)]
    AmountRange,
    /// A sum does not fit into 64 bits. Nothing wraps; nothing was written.
    #[error("a sum of minor units does not fit into 64 bits")]
    Overflow,
    /// A minimum balance is not between -10^15 and 0 minor units.
    #[error("a minimum balance must be between -{} and 0 minor units", tallystick_money::MAX_MINOR)]
    MinimumRange,
    /// The tenant has no account with this id.
    #[error("there is no account {0}")]
    UnknownAccount(Uuid),
    /// An account with this id stands already.
    #[error("account id {0} is taken")]
    AccountTaken(Uuid),
    /// The tenant has no journal with this id.
    #[error("there is no journal {0}")]
    UnknownJournal(Uuid),
    /// An entry names an account of another tenant than its journal's.
    #[error("an entry is on an account of another tenant than its journal's")]
    OtherTenant,
    /// The database knows no account that fits an entry's handle in id and currency.
    #[error("an entry's account handle does not fit the database in id and currency")]
    CurrencyMismatch,
    /// The journal would take a limited account below its minimum.
    #[error("account {account_id} has {balance_minor} available and must keep {minimum_minor}")]
    MinimumBalance {
        /// The account.
        account_id: Uuid,
        /// Its minimum, natural side, in minor units.
        minimum_minor: i64,
        /// What was available before the journal, natural side, in minor units.
        balance_minor: i64,
    },
    /// A pending or failed journal is not reversed: its own way of ending does that.
    #[error("journal {journal_id} is {} and cannot be reversed", status.as_str())]
    NotReversible {
        /// The journal.
        journal_id: Uuid,
        /// Its status.
        status: JournalStatus,
    },
    /// A final status contradicts the one that stands.
    #[error("the journal's final status stands already and is another one: {journal_id}")]
    StatusConflict {
        /// The journal.
        journal_id: Uuid,
    },
    /// A journal can be pending only from the transaction that posts it.
    #[error("the journal is posted already and cannot become pending: {journal_id}")]
    PendingTooLate {
        /// The journal.
        journal_id: Uuid,
    },
    /// A journal that was never pending counts as settled and cannot fail; a correcting journal undoes it.
    #[error("the journal was never pending and cannot fail: {journal_id}")]
    NeverPending {
        /// The journal.
        journal_id: Uuid,
    },
    /// A cursor that no page gave out.
    #[error("the cursor is none that was given out")]
    BadCursor,
    /// A row holds what this program does not understand.
    #[error("a row of the ledger holds a {what} that is not known")]
    Corrupt {
        /// The thing that was not understood.
        what: &'static str,
    },
}

impl LedgerError {
    /// How loud it is: a refusal is the caller's affair, a fault is ours.
    #[must_use]
    pub fn severity(&self) -> tracing::Level {
        match self {
            Self::Db(error) if error.is_transient() => tracing::Level::WARN,
            Self::Db(_)
            | Self::Conflict { .. }
            | Self::JournalIdTaken(_)
            | Self::Overflow
            | Self::OtherTenant
            | Self::CurrencyMismatch
            | Self::StatusConflict { .. }
            | Self::PendingTooLate { .. }
            | Self::NeverPending { .. }
            | Self::Corrupt { .. } => tracing::Level::ERROR,
            Self::Unbalanced { .. }
            | Self::TooFewEntries
            | Self::TooManyEntries
            | Self::AmountRange
            | Self::MinimumRange
            | Self::UnknownAccount(_)
            | Self::AccountTaken(_)
            | Self::UnknownJournal(_)
            | Self::MinimumBalance { .. }
            | Self::NotReversible { .. }
            | Self::BadCursor => tracing::Level::INFO,
        }
    }
}

impl From<DbError> for LedgerError {
    /// Constraints and codes that have a meaning of their own become it.
    fn from(error: DbError) -> Self {
        match error.constraint() {
            Some("entry_account_id_currency_fkey") => return Self::CurrencyMismatch,
            Some("journal_status_final") => {
                return detail(&error)
                    .map_or(Self::Db(error), |journal_id| Self::StatusConflict { journal_id });
            }
            Some("journal_status_pending_first") => {
                return detail(&error)
                    .map_or(Self::Db(error), |journal_id| Self::PendingTooLate { journal_id });
            }
            Some("journal_status_failed_after_pending") => {
                return detail(&error)
                    .map_or(Self::Db(error), |journal_id| Self::NeverPending { journal_id });
            }
            Some("journal_status_journal") => {
                return detail(&error).map_or(Self::Db(error), Self::UnknownJournal);
            }
            _ => {}
        }
        // numeric_value_out_of_range: sums are numeric in the database and cast to 64 bits on the way out.
        if error.code().as_deref() == Some("22003") { Self::Overflow } else { Self::Db(error) }
    }
}

/// The id that `ledger.set_status` puts into the detail of its errors.
fn detail(error: &DbError) -> Option<Uuid> {
    let DbError::Sql(sql) = error else { return None };
    let database = sql.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    database.detail()?.parse().ok()
}

impl From<sqlx::Error> for LedgerError {
    fn from(error: sqlx::Error) -> Self {
        DbError::from(error).into()
    }
}

impl Fault for LedgerError {
    fn db(&self) -> Option<&DbError> {
        match self {
            Self::Db(error) => Some(error),
            _ => None,
        }
    }
}
