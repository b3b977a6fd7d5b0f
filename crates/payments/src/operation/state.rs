//! Facts about operations, and what may follow from one. Pure.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use tallystick_gateway::{Approval, Decline, LostCause};
use tallystick_money::Money;
use uuid::Uuid;

use crate::ids::BreakId;
use crate::payment::{Attention, Failure};

/// How far an operation is, as far as sending and asking go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Committed with its gateway key; no byte can have left, or a claim is live.
    Unsent,
    /// It may have left and nobody knows.
    Unknown,
    /// The gateway works on it.
    Acknowledged,
    /// There is nothing to send and nothing to ask.
    Over,
}

/// A status of some kind of operation.
pub trait Status: Copy + Eq + std::fmt::Debug {
    /// What a move means for the ledger, which becomes journals and their statuses.
    type Money: Copy + Eq + std::fmt::Debug;

    /// What is moved to when a submit may have left and its outcome is not known.
    const UNKNOWN: Self;

    /// The word in the API and in SQL.
    fn as_str(self) -> &'static str;
    /// Nothing more happens by itself.
    fn is_final(self) -> bool;
    /// How far it is.
    fn progress(self) -> Progress;
}

/// What was learnt about an operation; never what is assumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A submit may have left and its reply is lost. Weak: it moves nothing but what was pending.
    ReplyLost(LostCause),
    /// The gateway knows the operation and works on it.
    Acknowledged {
        /// The gateway's id, if it gave one.
        reference: Option<String>,
    },
    /// The gateway names an amount that it moved or holds. Compared with ours where it is learnt.
    Approved(Approval),
    /// A definite no.
    Declined(Decline),
    /// The ledger refused the debit of a payout: its account has less than is needed. Nothing was sent.
    InsufficientFunds,
}

impl Fact {
    /// The gateway's id in it.
    pub(crate) fn reference(&self) -> Option<&str> {
        match self {
            Self::Approved(approval) => Some(approval.reference.as_str()),
            Self::Acknowledged { reference } => reference.as_deref(),
            Self::ReplyLost(_) | Self::Declined(_) | Self::InsufficientFunds => None,
        }
        .filter(|reference| !reference.is_empty())
    }

    /// Why an operation failed, when this fact makes it fail: code and text.
    pub(crate) fn failure(&self) -> Option<(&str, &str)> {
        match self {
            Self::Declined(decline) => Some((&decline.code, &decline.message)),
            Self::InsufficientFunds => {
                Some(("insufficient_funds", "the account has less available than this payout needs"))
            }
            Self::ReplyLost(_) | Self::Acknowledged { .. } | Self::Approved(_) => None,
        }
    }

    /// A few words for the history.
    pub(crate) fn detail(&self) -> Option<String> {
        match self {
            Self::ReplyLost(cause) => Some(cause.name().to_owned()),
            other => other.failure().map(|(code, _)| code.to_owned()),
        }
    }
}

/// Why a person is called; becomes a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The gateway names another amount.
    Amount,
    /// The gateway names another currency.
    Currency,
    /// The gateway took or held money for a payment that had failed or been canceled.
    LateCapture,
    /// The bank paid out what had failed or been canceled.
    LatePayout,
}

impl Mismatch {
    /// The code of the object's `attention`.
    pub(crate) fn attention(self) -> &'static str {
        match self {
            Self::Amount => "amount_mismatch",
            Self::Currency => "currency_mismatch",
            Self::LateCapture => "late_capture",
            Self::LatePayout => "late_payout",
        }
    }

    /// The kind of the break.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Amount => "wrong_amount",
            other => other.attention(),
        }
    }

    /// What a person might do.
    pub(crate) fn proposal(self) -> &'static str {
        match self {
            Self::Amount | Self::Currency => {
                "compare with the gateway's records, then book what really moved or have it sent back"
            }
            Self::LateCapture => {
                "refund the customer at the gateway, or book the capture and deliver the order"
            }
            Self::LatePayout => "ask the bank to send it back, or book the payout that really happened",
        }
    }
}

/// What follows from a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition<S: Status> {
    /// The status moves. Everything else that must be written follows from this value. The fact is then learnt once
    /// more from where it led: a payout that came back before its success was told takes two steps.
    Moved {
        /// The new status.
        to: S,
        /// What the ledger is told in the same transaction.
        money: Option<S::Money>,
        /// A person is called as well.
        attention: Option<Mismatch>,
    },
    /// Nothing moves, but a person is called.
    Attention(Mismatch),
    /// Known already, or too weak to move anything.
    NoChange,
}

impl<S: Status> Transition<S> {
    pub(crate) fn to(to: S) -> Self {
        Self::Moved { to, money: None, attention: None }
    }

    pub(crate) fn booked(to: S, money: S::Money) -> Self {
        Self::Moved { to, money: Some(money), attention: None }
    }
}

/// How an approval differs from what was asked for.
pub(crate) fn mismatch(approval: &Approval, asked: Money) -> Option<Mismatch> {
    if approval.currency != asked.currency.code() {
        Some(Mismatch::Currency)
    } else if approval.amount_minor != asked.minor {
        Some(Mismatch::Amount)
    } else {
        None
    }
}

/// Money may have moved, but not what was asked for: nothing is booked until a person has looked.
pub(crate) fn mismatched<S: Status>(status: S, mismatch: Mismatch) -> Transition<S> {
    if status.progress() == Progress::Unsent {
        return Transition::Moved { to: S::UNKNOWN, money: None, attention: Some(mismatch) };
    }
    Transition::Attention(mismatch)
}

/// The columns that every operation's row has.
#[derive(Clone, Debug)]
pub(crate) struct Life<S> {
    pub id: Uuid,
    pub tenant_id: Uuid,
    pub status: S,
    pub version: i32,
    pub currency: String,
    pub amount_minor: i64,
    pub gateway: String,
    pub gateway_reference: Option<String>,
    pub failure_code: Option<String>,
    pub failure_message: Option<String>,
    pub attention_code: Option<String>,
    pub attention_break: Option<Uuid>,
    pub unknown_since: Option<jiff_sqlx::Timestamp>,
    pub created_at: jiff_sqlx::Timestamp,
    pub updated_at: jiff_sqlx::Timestamp,
    pub processed_at: Option<jiff_sqlx::Timestamp>,
}

impl<S: Status> Life<S> {
    /// The amount asked for. The schema holds only amounts and currencies that were parsed before.
    pub(crate) fn money(&self) -> Money {
        Money {
            minor: self.amount_minor,
            currency: self.currency.parse().expect("stored currencies were parsed"),
        }
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        let code = self.failure_code.clone()?;
        Some(Failure { code, message: self.failure_message.clone().unwrap_or_default() })
    }

    pub(crate) fn attention(&self) -> Option<Attention> {
        let (code, id) = self.attention_code.clone().zip(self.attention_break)?;
        Some(Attention { code, break_id: BreakId(id) })
    }

    /// Moves the status; the caller writes history and event.
    pub(crate) fn move_to(&mut self, to: S, fact: &Fact, at: Timestamp) {
        self.status = to;
        self.version += 1;
        self.updated_at = at.to_sqlx();
        self.unknown_since = (to == S::UNKNOWN).then(|| at.to_sqlx());
        self.processed_at = to.is_final().then(|| at.to_sqlx());
        if let Some((code, message)) = fact.failure().filter(|_| to.is_final()) {
            self.failure_code = Some(code.to_owned());
            self.failure_message = Some(message.to_owned());
        }
    }
}
