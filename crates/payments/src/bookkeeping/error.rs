//! Why a request about the ledger was not carried out.

use tallystick_ledger::LedgerError;
use tallystick_runner::{DbError, Fault};
use uuid::Uuid;

/// Why a request about the ledger was not carried out; nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// The key was used with another request. Names what differs, as JSON pointers or `path`.
    #[error("this Idempotency-Key was used with another request")]
    IdempotencyMismatch {
        /// What differs.
        fields: Vec<String>,
    },
    /// A request with the same key is being carried out right now.
    #[error("a request with this Idempotency-Key is being carried out")]
    InFlight,
    /// The key's row is locked by a request that takes long; becomes `InFlight` outside.
    #[error("the idempotency key is held")]
    KeyHeld,
    /// No such account of this tenant.
    #[error("there is no account {0}")]
    UnknownAccount(Uuid),
    /// The ledger refused.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The database is away or refused.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl Fault for BookError {
    fn db(&self) -> Option<&DbError> {
        match self {
            Self::Db(error) => Some(error),
            Self::Ledger(error) => error.db(),
            Self::IdempotencyMismatch { .. } | Self::InFlight | Self::KeyHeld | Self::UnknownAccount(_) => {
                None
            }
        }
    }
}
