//! What operations of every kind have in common: how far they are, what may be learnt about them, and what follows.
//!
//! A charge takes money in, a payout sends it out. Both go through one dispatch, one claim, one call and one record;
//! they differ in their states (`state.rs` of each), their journals and the request to the gateway. Pure but for the
//! rows that it carries.

pub(crate) mod columns;
mod state;

use tallystick_gateway::{self as gateway, Submit};
use tallystick_money::Money;
use uuid::Uuid;

pub(crate) use state::{Fact, Life, Mismatch, Progress, Status, Transition, mismatch, mismatched};

use crate::payment::Capture;
use crate::payment::repo::PaymentRow;
use crate::payout::repo::PayoutRow;

/// What kind of operation something is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperationKind {
    /// The charge of a payment; its id and gateway key are the payment's id.
    Charge,
    /// A payout; its gateway key is its id.
    Payout,
}

impl OperationKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Charge, Self::Payout];

    /// The number in SQL.
    pub(crate) fn code(self) -> i16 {
        match self {
            Self::Charge => 1,
            Self::Payout => 2,
        }
    }

    /// The kind of a number in SQL; none for one that a later version wrote.
    pub(crate) fn of_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The object that the operation is shown as: `payment`, `payout`.
    #[must_use]
    pub fn object(self) -> &'static str {
        match self {
            Self::Charge => "payment",
            Self::Payout => "payout",
        }
    }
}

/// Which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OperationId {
    pub kind: OperationKind,
    pub id: Uuid,
}

/// An operation as stored.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Charge(PaymentRow),
    Payout(PayoutRow),
}

impl Operation {
    pub(crate) fn named(&self) -> OperationId {
        match self {
            Self::Charge(row) => OperationId { kind: OperationKind::Charge, id: row.life.id },
            Self::Payout(row) => OperationId { kind: OperationKind::Payout, id: row.life.id },
        }
    }

    /// How far it is.
    pub(crate) fn progress(&self) -> Progress {
        match self {
            Self::Charge(row) => row.life.status.progress(),
            Self::Payout(row) => row.life.status.progress(),
        }
    }

    /// The word of its status.
    pub(crate) fn status(&self) -> &'static str {
        match self {
            Self::Charge(row) => row.life.status.as_str(),
            Self::Payout(row) => row.life.status.as_str(),
        }
    }

    /// The gateway account that it goes to.
    pub(crate) fn gateway(&self) -> &str {
        match self {
            Self::Charge(row) => &row.life.gateway,
            Self::Payout(row) => &row.life.gateway,
        }
    }

    /// The gateway gave us its id: it knows the operation.
    pub(crate) fn has_reference(&self) -> bool {
        match self {
            Self::Charge(row) => row.life.gateway_reference.is_some(),
            Self::Payout(row) => row.life.gateway_reference.is_some(),
        }
    }

    /// A person was called and has not decided yet.
    pub(crate) fn awaits_person(&self) -> bool {
        match self {
            Self::Charge(row) => row.life.attention_code.is_some(),
            Self::Payout(row) => row.life.attention_code.is_some(),
        }
    }

    /// The client wants it canceled.
    pub(crate) fn cancel_requested(&self) -> bool {
        match self {
            Self::Charge(row) => row.cancel_requested_at.is_some(),
            Self::Payout(_) => false,
        }
    }

    /// The gateway key: committed with the row, never made again.
    pub(crate) fn key(&self) -> String {
        self.named().id.to_string()
    }

    /// What is sent.
    pub(crate) fn submit(&self) -> Submit {
        let (amount, operation): (Money, gateway::Operation) = match self {
            Self::Charge(row) => (
                row.life.money(),
                gateway::Operation::Charge {
                    payment_method: row.payment_method.clone(),
                    capture: row.capture() == Capture::Automatic,
                },
            ),
            Self::Payout(row) => {
                (row.life.money(), gateway::Operation::Payout { destination: row.destination.clone() })
            }
        };
        Submit { key: self.key(), amount, operation }
    }
}
