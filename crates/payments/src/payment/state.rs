//! The life of a payment as a type: what we learn, and what follows from it. Pure; does no I/O.
//!
//! [`PaymentState::learn`] is total: a fact cannot be refused. A repeat changes nothing, a fact that contradicts
//! what is held opens a break and moves nothing. There is no fact "retries exhausted": running out of tries
//! raises an alert and cannot move money. Edges: `docs/state-machines.md`, generated from this file.

use serde::{Deserialize, Serialize};
use tallystick_gateway::{Approval, Stage};
use tallystick_money::Money;
use utoipa::ToSchema;

use super::view::Capture;
use crate::operation::{self, Fact, Mismatch, Progress, Status, Transition};

/// The public status of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "payments.payment_status", rename_all = "lowercase")]
pub enum PaymentStatus {
    /// Committed with its gateway key; no byte can have left, or a claim is live.
    Pending,
    /// The gateway acknowledged it; the result comes later.
    Processing,
    /// It may have left and nobody knows. Only evidence ends this.
    Unknown,
    /// The amount is held, not taken.
    Authorized,
    /// The money was taken.
    Succeeded,
    /// The gateway said no; nothing else leads here.
    Failed,
    /// Given up before money moved.
    Canceled,
}

impl PaymentStatus {
    /// Every status, in the order of the life.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Processing,
        Self::Unknown,
        Self::Authorized,
        Self::Succeeded,
        Self::Failed,
        Self::Canceled,
    ];

    /// The word in the API and in SQL.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Unknown => "unknown",
            Self::Authorized => "authorized",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }

    /// Nothing more happens by itself.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }

    /// The charge still needs work: a submit or a question.
    #[must_use]
    pub fn needs_work(self) -> bool {
        self.progress() != Progress::Over
    }
}

impl Status for PaymentStatus {
    type Money = MoneyEvent;

    const UNKNOWN: Self = Self::Unknown;

    fn as_str(self) -> &'static str {
        self.as_str()
    }

    fn is_final(self) -> bool {
        self.is_final()
    }

    fn progress(self) -> Progress {
        match self {
            Self::Pending => Progress::Unsent,
            Self::Unknown => Progress::Unknown,
            Self::Processing => Progress::Acknowledged,
            Self::Authorized | Self::Succeeded | Self::Failed | Self::Canceled => Progress::Over,
        }
    }
}

/// What a move of a payment means for the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoneyEvent {
    /// The amount was taken.
    Captured {
        /// Minor units.
        amount_minor: i64,
    },
}

/// The parts of a payment that decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentState {
    /// Where it stands.
    pub status: PaymentStatus,
    /// What was asked for.
    pub amount: Money,
    /// When the money is taken.
    pub capture: Capture,
    /// A person was called already.
    pub attention: bool,
}

type Next = Transition<PaymentStatus>;

impl PaymentState {
    /// What follows from a fact. Total: every status meets every fact.
    #[must_use]
    pub fn learn(&self, fact: &Fact) -> Next {
        // Money may have moved otherwise than was asked, and a person was called: until they have decided, no later
        // word of the gateway books anything, and above all none frees the order for another charge.
        if self.attention {
            return Next::NoChange;
        }
        match fact {
            Fact::ReplyLost(_) => match self.status {
                PaymentStatus::Pending => Next::to(PaymentStatus::Unknown),
                PaymentStatus::Processing
                | PaymentStatus::Unknown
                | PaymentStatus::Authorized
                | PaymentStatus::Succeeded
                | PaymentStatus::Failed
                | PaymentStatus::Canceled => Next::NoChange,
            },
            Fact::Acknowledged { .. } => self.acknowledged(),
            Fact::Approved(approval) => self.approved(approval),
            Fact::Declined(_) => self.declined(),
            // Only a debit can lack funds.
            Fact::InsufficientFunds => Next::NoChange,
        }
    }

    fn acknowledged(&self) -> Next {
        match self.status {
            PaymentStatus::Pending | PaymentStatus::Unknown => Next::to(PaymentStatus::Processing),
            PaymentStatus::Processing
            | PaymentStatus::Authorized
            | PaymentStatus::Succeeded
            | PaymentStatus::Failed
            | PaymentStatus::Canceled => Next::NoChange,
        }
    }

    fn declined(&self) -> Next {
        match self.status {
            PaymentStatus::Pending | PaymentStatus::Processing | PaymentStatus::Unknown => {
                Next::to(PaymentStatus::Failed)
            }
            // A late "no" never beats money that was held or taken.
            PaymentStatus::Authorized
            | PaymentStatus::Succeeded
            | PaymentStatus::Failed
            | PaymentStatus::Canceled => Next::NoChange,
        }
    }

    fn approved(&self, approval: &Approval) -> Next {
        // A word about a payout proves nothing about a charge.
        if matches!(approval.stage, Stage::Paid | Stage::Returned) {
            return Next::NoChange;
        }
        if matches!(self.status, PaymentStatus::Failed | PaymentStatus::Canceled) {
            return Next::Attention(Mismatch::LateCapture);
        }
        if let Some(mismatch) = operation::mismatch(approval, self.amount) {
            return operation::mismatched(self.status, mismatch);
        }
        match self.status {
            PaymentStatus::Succeeded | PaymentStatus::Failed | PaymentStatus::Canceled => Next::NoChange,
            PaymentStatus::Pending
            | PaymentStatus::Processing
            | PaymentStatus::Unknown
            | PaymentStatus::Authorized => self.approved_as_asked(approval.stage),
        }
    }

    fn approved_as_asked(&self, stage: Stage) -> Next {
        match (stage, self.capture) {
            (Stage::Captured, _) => Next::booked(
                PaymentStatus::Succeeded,
                MoneyEvent::Captured { amount_minor: self.amount.minor },
            ),
            (Stage::Authorized, Capture::Manual) if self.status != PaymentStatus::Authorized => {
                Next::to(PaymentStatus::Authorized)
            }
            (Stage::Authorized, Capture::Manual) => Next::NoChange,
            // Held on the way to being taken: the gateway has it and works on it.
            (Stage::Authorized, Capture::Automatic) => self.acknowledged(),
            (Stage::Paid | Stage::Returned, _) => Next::NoChange,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystick_gateway::{Decline, LostCause};

    fn state(status: PaymentStatus, attention: bool) -> PaymentState {
        let amount = Money { minor: 100, currency: "EUR".parse().unwrap() };
        PaymentState { status, amount, capture: Capture::Automatic, attention }
    }

    fn captured(amount_minor: i64, currency: &str) -> Fact {
        let approval = Approval {
            reference: "r".into(),
            stage: Stage::Captured,
            amount_minor,
            currency: currency.into(),
        };
        Fact::Approved(approval)
    }

    fn facts() -> Vec<Fact> {
        vec![
            Fact::ReplyLost(LostCause::Timeout),
            Fact::Acknowledged { reference: Some("r".into()) },
            captured(100, "EUR"),
            captured(1, "EUR"),
            captured(100, "USD"),
            Fact::Declined(Decline { code: "no".into(), message: String::new() }),
        ]
    }

    #[test]
    fn a_lost_reply_is_never_a_decline_and_nothing_goes_back_to_pending() {
        for status in PaymentStatus::ALL {
            for fact in facts() {
                if let Transition::Moved { to, .. } = state(status, false).learn(&fact) {
                    assert_ne!(to, PaymentStatus::Pending);
                    assert!(!status.is_final(), "{status:?} moved to {to:?} by {fact:?}");
                    let declined = matches!(fact, Fact::Declined(_));
                    assert_eq!(to == PaymentStatus::Failed, declined, "{fact:?}");
                    assert!(status != PaymentStatus::Processing || to != PaymentStatus::Unknown);
                }
            }
        }
    }

    /// C037: a "no" that comes late never beats money that was taken.
    #[test]
    fn c037_late_failure_after_success_changes_nothing() {
        let no = Fact::Declined(Decline { code: "no".into(), message: String::new() });
        for status in [PaymentStatus::Succeeded, PaymentStatus::Authorized] {
            assert_eq!(state(status, false).learn(&no), Transition::NoChange);
        }
    }

    #[test]
    fn money_is_booked_once_and_only_for_what_was_asked() {
        for status in PaymentStatus::ALL {
            for fact in facts() {
                let moved = state(status, false).learn(&fact);
                let books = matches!(moved, Transition::Moved { money: Some(_), .. });
                let expected = fact == captured(100, "EUR")
                    && (status.needs_work() || status == PaymentStatus::Authorized);
                assert_eq!(books, expected, "{status:?} {fact:?}");
            }
        }
    }

    /// A charge of another amount may have happened: a late "no" must not free the order, nor a late "yes" book it.
    #[test]
    fn nothing_moves_while_a_person_is_called() {
        for status in PaymentStatus::ALL {
            for fact in facts() {
                assert_eq!(state(status, true).learn(&fact), Transition::NoChange, "{status:?} {fact:?}");
            }
        }
    }

    #[test]
    fn learning_a_fact_twice_changes_nothing_the_second_time() {
        for status in PaymentStatus::ALL {
            for fact in facts() {
                let (after, called) = match state(status, false).learn(&fact) {
                    Transition::Moved { to, attention, .. } => (to, attention.is_some()),
                    Transition::Attention(_) => (status, true),
                    Transition::NoChange => continue,
                };
                assert_eq!(state(after, called).learn(&fact), Transition::NoChange, "{status:?} {fact:?}");
            }
        }
    }
}
