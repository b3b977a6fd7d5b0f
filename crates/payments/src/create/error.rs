//! Why a payment or payout was not created.

use tallystick_ledger::LedgerError;
use tallystick_money::Currency;
use tallystick_runner::{DbError, Fault};
use uuid::Uuid;

use crate::operation::OperationKind;

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
    /// The order or reference has an active payment or payout that differs.
    #[error("there is an active {} with another {field}", kind.object())]
    OrderConflict {
        /// What the order is of.
        kind: OperationKind,
        /// The active payment or payout.
        id: Uuid,
        /// What differs, as a JSON pointer.
        field: &'static str,
    },
    /// No such gateway account.
    #[error("there is no gateway account of this name")]
    UnknownGateway,
    /// No payment method was given and the settings have no default.
    #[error("payment_method is required")]
    PaymentMethodRequired,
    /// The tenant has no such account.
    #[error("there is no account {0}")]
    UnknownAccount(Uuid),
    /// The account is in another currency than the amount.
    #[error("the account is in {0}")]
    AccountCurrency(Currency),
    /// A debit raises the balance of this kind of account, so nothing can be paid out from it.
    #[error("payouts are made from liability, equity and revenue accounts")]
    AccountKind,
    /// The account could not be looked up.
    #[error("the account could not be looked up")]
    Ledger(#[source] LedgerError),
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
            Self::Ledger(error) => error.db(),
            Self::IdempotencyMismatch { .. }
            | Self::InFlight
            | Self::OrderConflict { .. }
            | Self::UnknownGateway
            | Self::PaymentMethodRequired
            | Self::UnknownAccount(_)
            | Self::AccountCurrency(_)
            | Self::AccountKind
            | Self::Overloaded => None,
        }
    }
}
