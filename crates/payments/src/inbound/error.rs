//! Why a webhook was not taken.

use tallystick_runner::DbError;

/// Why a webhook was not taken; nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum InboundError {
    /// No such gateway account.
    #[error("there is no gateway account of this name")]
    UnknownGateway,
    /// The signature does not hold.
    #[error("the signature does not hold")]
    Unverified,
    /// Verified, but no event.
    #[error("the event cannot be read: {0}")]
    Malformed(String),
    /// Too much is parked or waiting; the sender keeps it and tries again.
    #[error("too many events wait")]
    Full,
    /// The database is away.
    #[error(transparent)]
    Db(#[from] DbError),
}
