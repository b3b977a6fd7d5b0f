//! The life of a payment as a type: what we learn, and what follows from it. Pure; does no I/O.
//!
//! [`PaymentState::learn`] is total: a fact cannot be refused. A repeat changes nothing, a fact that contradicts
//! what is held opens a break and moves nothing. There is no fact "retries exhausted": running out of tries
//! raises an alert and cannot move money. Edges: `docs/state-machines.md`, generated from this file.

use serde::{Deserialize, Serialize};
use tallystick_gateway::{Approval, Decline, LostCause, Stage};
use tallystick_money::Money;
use utoipa::ToSchema;

use super::view::Capture;

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
        matches!(self, Self::Pending | Self::Processing | Self::Unknown)
    }
}

/// What was learnt about the charge of a payment; never what is assumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaymentFact {
    /// A submit may have left and its reply is lost. Weak: it moves nothing but `pending`.
    ReplyLost(LostCause),
    /// The gateway knows the charge and works on it.
    Acknowledged {
        /// The gateway's id, if it gave one.
        reference: Option<String>,
    },
    /// The gateway names an amount that it holds or took. Compared with ours here.
    Approved(Approval),
    /// A definite no.
    Declined(Decline),
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
    /// The gateway's id, once known.
    pub reference: Option<String>,
    /// A person was called already.
    pub attention: bool,
}

/// The money event of a move, which becomes a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoneyEvent {
    /// The amount was taken.
    Captured {
        /// Minor units.
        amount_minor: i64,
    },
}

/// Why a person is called; becomes a break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The gateway names another amount.
    Amount,
    /// The gateway names another currency.
    Currency,
    /// The gateway took or held money for a payment that had failed or been canceled.
    LateCapture,
}

/// What follows from a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The status moves. Everything else that must be written follows from this value.
    Moved {
        /// The new status.
        to: PaymentStatus,
        /// The journal to write in the same transaction.
        money: Option<MoneyEvent>,
        /// A person is called as well.
        attention: Option<Mismatch>,
    },
    /// Nothing moves, but a person is called.
    Attention(Mismatch),
    /// Known already, or too weak to move anything.
    NoChange,
}

impl Transition {
    fn to(to: PaymentStatus) -> Self {
        Self::Moved { to, money: None, attention: None }
    }
}

impl PaymentState {
    /// What follows from a fact. Total: every status meets every fact.
    #[must_use]
    pub fn learn(&self, fact: &PaymentFact) -> Transition {
        // Money may have moved otherwise than was asked, and a person was called: until they have decided, no later
        // word of the gateway books anything, and above all none frees the order for another charge.
        if self.attention {
            return Transition::NoChange;
        }
        match fact {
            PaymentFact::ReplyLost(_) => match self.status {
                PaymentStatus::Pending => Transition::to(PaymentStatus::Unknown),
                PaymentStatus::Processing
                | PaymentStatus::Unknown
                | PaymentStatus::Authorized
                | PaymentStatus::Succeeded
                | PaymentStatus::Failed
                | PaymentStatus::Canceled => Transition::NoChange,
            },
            PaymentFact::Acknowledged { .. } => self.acknowledged(),
            PaymentFact::Approved(approval) => self.approved(approval),
            PaymentFact::Declined(_) => self.declined(),
        }
    }

    fn acknowledged(&self) -> Transition {
        match self.status {
            PaymentStatus::Pending | PaymentStatus::Unknown => Transition::to(PaymentStatus::Processing),
            PaymentStatus::Processing
            | PaymentStatus::Authorized
            | PaymentStatus::Succeeded
            | PaymentStatus::Failed
            | PaymentStatus::Canceled => Transition::NoChange,
        }
    }

    fn declined(&self) -> Transition {
        match self.status {
            PaymentStatus::Pending | PaymentStatus::Processing | PaymentStatus::Unknown => {
                Transition::to(PaymentStatus::Failed)
            }
            // A late "no" never beats money that was held or taken.
            PaymentStatus::Authorized
            | PaymentStatus::Succeeded
            | PaymentStatus::Failed
            | PaymentStatus::Canceled => Transition::NoChange,
        }
    }

    fn approved(&self, approval: &Approval) -> Transition {
        match self.status {
            PaymentStatus::Failed | PaymentStatus::Canceled => Transition::Attention(Mismatch::LateCapture),
            _ if approval.currency != self.amount.currency.code() => self.mismatched(Mismatch::Currency),
            _ if approval.amount_minor != self.amount.minor => self.mismatched(Mismatch::Amount),
            PaymentStatus::Succeeded => Transition::NoChange,
            PaymentStatus::Pending
            | PaymentStatus::Processing
            | PaymentStatus::Unknown
            | PaymentStatus::Authorized => self.approved_as_asked(approval.stage),
        }
    }

    fn approved_as_asked(&self, stage: Stage) -> Transition {
        match (stage, self.capture) {
            (Stage::Captured, _) => Transition::Moved {
                to: PaymentStatus::Succeeded,
                money: Some(MoneyEvent::Captured { amount_minor: self.amount.minor }),
                attention: None,
            },
            (Stage::Authorized, Capture::Manual) if self.status != PaymentStatus::Authorized => {
                Transition::to(PaymentStatus::Authorized)
            }
            (Stage::Authorized, Capture::Manual) => Transition::NoChange,
            // Held on the way to being taken: the gateway has it and works on it.
            (Stage::Authorized, Capture::Automatic) => self.acknowledged(),
        }
    }

    /// Money may have moved, but not what was asked for: no journal until a person has looked.
    fn mismatched(&self, mismatch: Mismatch) -> Transition {
        if self.status == PaymentStatus::Pending {
            return Transition::Moved { to: PaymentStatus::Unknown, money: None, attention: Some(mismatch) };
        }
        Transition::Attention(mismatch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystick_gateway::Approval;

    fn state(status: PaymentStatus, attention: bool) -> PaymentState {
        let amount = Money { minor: 100, currency: "EUR".parse().unwrap() };
        PaymentState { status, amount, capture: Capture::Automatic, reference: None, attention }
    }

    fn captured(amount_minor: i64, currency: &str) -> PaymentFact {
        let approval = Approval {
            reference: "r".into(),
            stage: Stage::Captured,
            amount_minor,
            currency: currency.into(),
        };
        PaymentFact::Approved(approval)
    }

    fn facts() -> Vec<PaymentFact> {
        vec![
            PaymentFact::ReplyLost(LostCause::Timeout),
            PaymentFact::Acknowledged { reference: Some("r".into()) },
            captured(100, "EUR"),
            captured(1, "EUR"),
            captured(100, "USD"),
            PaymentFact::Declined(Decline { code: "no".into(), message: String::new() }),
        ]
    }

    #[test]
    fn a_lost_reply_is_never_a_decline_and_nothing_goes_back_to_pending() {
        for status in PaymentStatus::ALL {
            for fact in facts() {
                if let Transition::Moved { to, .. } = state(status, false).learn(&fact) {
                    assert_ne!(to, PaymentStatus::Pending);
                    assert!(!status.is_final(), "{status:?} moved to {to:?} by {fact:?}");
                    let declined = matches!(fact, PaymentFact::Declined(_));
                    assert_eq!(to == PaymentStatus::Failed, declined, "{fact:?}");
                    assert!(status != PaymentStatus::Processing || to != PaymentStatus::Unknown);
                }
            }
        }
    }

    /// C037: a "no" that comes late never beats money that was taken.
    #[test]
    fn c037_late_failure_after_success_changes_nothing() {
        let no = PaymentFact::Declined(Decline { code: "no".into(), message: String::new() });
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
