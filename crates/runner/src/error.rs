//! Database errors, sorted by what a caller may do about them.

/// What went wrong while talking to PostgreSQL.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// The server could not be reached, or no connection became free in time. Nothing was done.
    #[error("the database is not reachable")]
    Unavailable(#[source] sqlx::Error),
    /// The connection broke while a commit was under way: it may or may not have happened.
    /// The caller reads again by a unique key before it acts.
    #[error("the connection was lost during a commit, whose outcome is not known")]
    CommitUnknown(#[source] sqlx::Error),
    /// A guarded update did not meet exactly the rows that it must have met.
    #[error("{what}: {found} rows instead of {expected}")]
    RowCount {
        /// The statement's name.
        what: &'static str,
        /// Rows met.
        found: u64,
        /// Rows that had to be met.
        expected: u64,
    },
    /// Anything else that the driver or the server said.
    #[error("the database refused a statement")]
    Sql(#[source] sqlx::Error),
}

impl From<sqlx::Error> for DbError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        match &error {
            E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed => {
                Self::Unavailable(error)
            }
            // 57P01..03: shutting down or starting up; 53300: too many connections.
            E::Database(db)
                if matches!(db.code().as_deref(), Some("57P01" | "57P02" | "57P03" | "53300")) =>
            {
                Self::Unavailable(error)
            }
            _ => Self::Sql(error),
        }
    }
}

impl DbError {
    fn database(&self) -> Option<&dyn sqlx::error::DatabaseError> {
        match self {
            Self::Sql(error) | Self::Unavailable(error) | Self::CommitUnknown(error) => {
                error.as_database_error()
            }
            Self::RowCount { .. } => None,
        }
    }

    /// SQLSTATE, where the server gave one.
    #[must_use]
    pub fn code(&self) -> Option<String> {
        self.database().and_then(|db| db.code()).map(std::borrow::Cow::into_owned)
    }

    /// Name of the constraint that refused a row.
    #[must_use]
    pub fn constraint(&self) -> Option<&str> {
        self.database().and_then(|db| db.constraint())
    }

    /// The server's own message, for checks that raise one. Never shown to clients.
    #[must_use]
    pub fn server_message(&self) -> Option<&str> {
        self.database().map(|db| db.message())
    }

    /// A deadlock or serialization failure: the same transaction may simply be run again.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self.code().as_deref(), Some("40001" | "40P01"))
    }

    /// A lock was not granted within `lock_timeout`.
    #[must_use]
    pub fn is_lock_timeout(&self) -> bool {
        self.code().as_deref() == Some("55P03")
    }

    /// Nothing is wrong with the rows: the same work may go through later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::CommitUnknown(_) => true,
            Self::RowCount { .. } => false,
            // 57014: statement timeout; 53xxx: out of disk, memory or connections.
            Self::Sql(_) => {
                self.is_conflict()
                    || self.is_lock_timeout()
                    || self.code().is_some_and(|code| code == "57014" || code.starts_with("53"))
            }
        }
    }

    /// Fails unless a guarded statement met exactly `expected` rows.
    ///
    /// # Errors
    /// [`DbError::RowCount`].
    pub fn expect_rows(what: &'static str, found: u64, expected: usize) -> Result<(), Self> {
        let expected = expected as u64;
        if found == expected { Ok(()) } else { Err(Self::RowCount { what, found, expected }) }
    }
}

/// An error that a transaction's body may end with. It can hold a database error, which decides about retries.
pub trait Fault: From<DbError> + Send + 'static {
    /// The database error inside, if there is one.
    fn db(&self) -> Option<&DbError>;
}

impl Fault for DbError {
    fn db(&self) -> Option<&DbError> {
        Some(self)
    }
}
