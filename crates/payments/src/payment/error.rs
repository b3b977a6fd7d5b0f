//! Why a payment was not created.

use tallystick_runner::{DbError, Fault};

use crate::ids::PaymentId;

/// Why a request to create something was not carried out. Nothing was stored in any case but `Db` with an unknown commit.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The key was used with another request. Names what differs, as JSON pointers or `path`.
    #[error("this Idempotency-Key was used with another request")]
    IdempotencyMismatch {
        /// What differs.
        fields: Vec<String>,
    },
    /// A request with the same key is being carried out right now.
    #[error("a request with this Idempotency-Key is being carried out")]
    InFlight,
    /// The order has an active payment that differs.
    #[error("the order has an active payment with another {field}")]
    OrderConflict {
        /// The active payment.
        payment_id: PaymentId,
        /// What differs, as a JSON pointer.
        field: &'static str,
    },
    /// No such gateway account.
    #[error("there is no gateway account of this name")]
    UnknownGateway,
    /// No payment method was given and the settings have no default.
    #[error("payment_method is required")]
    PaymentMethodRequired,
    /// Too much work at once; nothing was stored.
    #[error("the server is busy")]
    Overloaded,
    /// The event of the creation was refused.
    #[error("an event was refused")]
    Outbox(#[source] tallystick_outbox::OutboxError),
    /// The database is away or refused.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl Fault for CreateError {
    fn db(&self) -> Option<&DbError> {
        match self {
            Self::Db(error) => Some(error),
            Self::Outbox(error) => error.db(),
            Self::IdempotencyMismatch { .. }
            | Self::InFlight
            | Self::OrderConflict { .. }
            | Self::UnknownGateway
            | Self::PaymentMethodRequired
            | Self::Overloaded => None,
        }
    }
}
