//! What each module's errors are to a client: one exhaustive match per error.

use std::error::Error;

use tallystick_ledger::LedgerError;
use tallystick_outbox::OutboxError;
use tallystick_payments::bookkeeping::BookError;
use tallystick_payments::ids::{PaymentId, PayoutId};
use tallystick_payments::{CreateError, InboundError, OperationKind};
use tallystick_runner::DbError;
use uuid::Uuid;

use super::{Code, FieldError, Problem};

impl From<DbError> for Problem {
    fn from(error: DbError) -> Self {
        if error.is_transient() {
            tracing::warn!(
                error = tallystick_runner::looper::chain(&error),
                "the database could not do it now"
            );
            return Self::unavailable();
        }
        Self::internal(&error)
    }
}

impl From<CreateError> for Problem {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::IdempotencyMismatch { fields } => mismatch(fields),
            CreateError::InFlight => in_flight(),
            CreateError::OrderConflict { kind, id, field } => conflict(kind, id, field),
            CreateError::UnknownGateway => Self::field("/gateway", "unknown", "is no gateway account"),
            CreateError::PaymentMethodRequired => Self::field("/payment_method", "required", "is required"),
            CreateError::UnknownAccount(_) => Self::not_found(),
            CreateError::AccountCurrency(currency) => Self::field(
                "/currency",
                "account_currency",
                format!("must be that of the account, {currency}"),
            ),
            CreateError::AccountKind => Self::field(
                "/account_id",
                "account_kind",
                "must be a liability, equity or revenue account: a debit raises the others",
            ),
            CreateError::Ledger(error) => error.into(),
            CreateError::Overloaded => Self::overloaded(),
            CreateError::Outbox(error) => error.into(),
            CreateError::Db(error) => error.into(),
        }
    }
}

fn conflict(kind: OperationKind, id: Uuid, field: &'static str) -> Problem {
    let (detail, message) = match kind {
        OperationKind::Charge => {
            ("the order has an active payment that differs", "is another one in the order's active payment")
        }
        OperationKind::Payout => (
            "the reference has an active payout that differs",
            "is another one in the reference's active payout",
        ),
    };
    let problem =
        Problem::new(Code::OrderConflict, detail).with(FieldError::new(field, "order_conflict", message));
    match kind {
        OperationKind::Charge => Problem { payment_id: Some(PaymentId(id)), ..problem },
        OperationKind::Payout => Problem { payout_id: Some(PayoutId(id)), ..problem },
    }
}

fn mismatch(fields: Vec<String>) -> Problem {
    let problem =
        Problem::new(Code::IdempotencyMismatch, "this Idempotency-Key was used with another request");
    let differs = |field| FieldError::new(field, "idempotency_mismatch", "differs from the first request");
    Problem { errors: fields.into_iter().map(differs).collect(), ..problem }
}

fn in_flight() -> Problem {
    Problem::new(Code::IdempotencyInFlight, "a request with this Idempotency-Key is being carried out")
}

impl From<BookError> for Problem {
    fn from(error: BookError) -> Self {
        match error {
            BookError::IdempotencyMismatch { fields } => mismatch(fields),
            BookError::InFlight | BookError::KeyHeld => in_flight(),
            // Handlers that know where the account stands in the request name the place.
            BookError::UnknownAccount(_) => Self::not_found(),
            BookError::Ledger(error) => error.into(),
            BookError::Db(error) => error.into(),
        }
    }
}

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        let text = error.to_string();
        match error {
            LedgerError::Db(error) => error.into(),
            LedgerError::Conflict { .. } => Self::new(Code::JournalConflict, text),
            LedgerError::Unbalanced { .. } => Self::field("/entries", "balance", text),
            LedgerError::TooFewEntries | LedgerError::TooManyEntries => {
                Self::field("/entries", "items", text)
            }
            LedgerError::AmountRange => Self::field("/entries", "range", text),
            LedgerError::MinimumRange => Self::field("/minimum_minor", "range", text),
            LedgerError::UnknownAccount(_) | LedgerError::UnknownJournal(_) => Self::not_found(),
            LedgerError::MinimumBalance { .. } => Self::new(Code::MinimumBalance, text.clone())
                .with(FieldError::new("/entries", "minimum_balance", text)),
            LedgerError::NotReversible { .. } => Self::new(Code::InvalidState, text),
            LedgerError::BadCursor => {
                Self::field("query:cursor", "cursor", "must be a cursor that this list gave out")
            }
            LedgerError::JournalIdTaken(_)
            | LedgerError::AccountTaken(_)
            | LedgerError::Overflow
            | LedgerError::OtherTenant
            | LedgerError::CurrencyMismatch
            | LedgerError::StatusConflict { .. }
            | LedgerError::PendingTooLate { .. }
            | LedgerError::NeverPending { .. }
            | LedgerError::Corrupt { .. } => Self::internal(&error as &(dyn Error + 'static)),
        }
    }
}

impl From<OutboxError> for Problem {
    fn from(error: OutboxError) -> Self {
        match error {
            OutboxError::Db(error) => error.into(),
            OutboxError::Cursor(_) => {
                Self::field("query:after", "cursor", "must be a cursor that this feed gave out")
            }
            OutboxError::TooManyEvents { .. }
            | OutboxError::PayloadTooLarge { .. }
            | OutboxError::LostLease { .. }
            | OutboxError::Sink { .. }
            | OutboxError::Partial { .. } => Self::internal(&error as &(dyn Error + 'static)),
        }
    }
}

impl From<InboundError> for Problem {
    fn from(error: InboundError) -> Self {
        match error {
            InboundError::UnknownGateway => Self::not_found(),
            InboundError::Unverified => Self::bad_signature(),
            InboundError::Malformed(_) => Self::malformed_json("the event cannot be read"),
            InboundError::Full => Self::overloaded(),
            InboundError::Db(error) => error.into(),
        }
    }
}
