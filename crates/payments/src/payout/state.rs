//! The life of a payout as a type: what we learn, and what follows from it. Pure; does no I/O.
//!
//! [`PayoutState::learn`] is total. The debit is booked at the claim, before the first byte; from then on each end has
//! its own booking: settled, reversed after a definite no, returned after success. A lost reply is never a no.
//! Edges: `docs/state-machines.md`, generated from this file.

use serde::{Deserialize, Serialize};
use tallystick_gateway::{Approval, Stage};
use tallystick_money::Money;
use utoipa::ToSchema;

use crate::operation::{Fact, Mismatch, Progress, Status, Transition};

/// The public status of a payout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "payments.payout_status", rename_all = "snake_case")]
pub enum PayoutStatus {
    /// Waits for somebody's consent; there is no work on it yet.
    RequiresApproval,
    /// Committed with its gateway key; no byte can have left, or a claim is live.
    Pending,
    /// The bank acknowledged it; the result comes later.
    Processing,
    /// It may have left and nobody knows. Only evidence ends this.
    Unknown,
    /// The money has left.
    Succeeded,
    /// It did not and will not happen: the bank said no, or the account had not enough.
    Failed,
    /// Given up before money moved.
    Canceled,
    /// The money had left and the bank sent it back.
    Returned,
}

impl PayoutStatus {
    /// Every status, in the order of the life.
    pub const ALL: [Self; 8] = [
        Self::RequiresApproval,
        Self::Pending,
        Self::Processing,
        Self::Unknown,
        Self::Succeeded,
        Self::Failed,
        Self::Canceled,
        Self::Returned,
    ];

    /// The word in the API and in SQL.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequiresApproval => "requires_approval",
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Unknown => "unknown",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Returned => "returned",
        }
    }

    /// Nothing more happens by our doing. A success may still come back.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled | Self::Returned)
    }

    /// The payout still needs work: a submit or a question.
    #[must_use]
    pub fn needs_work(self) -> bool {
        self.progress() != Progress::Over
    }
}

impl Status for PayoutStatus {
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
            Self::RequiresApproval | Self::Succeeded | Self::Failed | Self::Canceled | Self::Returned => {
                Progress::Over
            }
        }
    }
}

/// What a move of a payout means for the ledger. The debit itself is posted at the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoneyEvent {
    /// The debit is for good.
    Settled,
    /// The payout did not happen: the debit is undone.
    Reversed,
    /// The money came back.
    Returned,
}

/// The parts of a payout that decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayoutState {
    /// Where it stands.
    pub status: PayoutStatus,
    /// What was asked for.
    pub amount: Money,
    /// A person was called already.
    pub attention: bool,
}

type Next = Transition<PayoutStatus>;

impl PayoutState {
    /// What follows from a fact. Total: every status meets every fact.
    #[must_use]
    pub fn learn(&self, fact: &Fact) -> Next {
        // Money may have moved otherwise than was asked, and a person was called: until they have decided, no later
        // word of the bank books anything, and above all none gives the money back to the account.
        if self.attention {
            return Next::NoChange;
        }
        match fact {
            Fact::ReplyLost(_) if self.status == PayoutStatus::Pending => Next::to(PayoutStatus::Unknown),
            Fact::ReplyLost(_) => Next::NoChange,
            Fact::Acknowledged { .. } => match self.status {
                PayoutStatus::Pending | PayoutStatus::Unknown => Next::to(PayoutStatus::Processing),
                _ => Next::NoChange,
            },
            Fact::Approved(approval) => self.approved(approval),
            Fact::Declined(_) => self.declined(),
            // Decided in the transaction of the first claim; later its debit stands.
            Fact::InsufficientFunds if self.status == PayoutStatus::Pending => Next::to(PayoutStatus::Failed),
            Fact::InsufficientFunds => Next::NoChange,
        }
    }

    fn approved(&self, approval: &Approval) -> Next {
        let returned = match approval.stage {
            Stage::Paid => false,
            Stage::Returned => true,
            // A word about a charge proves nothing about a payout.
            Stage::Authorized | Stage::Captured => return Next::NoChange,
        };
        match self.status {
            // Sent without consent, or although the bank had said no: money left that nobody holds.
            PayoutStatus::RequiresApproval | PayoutStatus::Failed | PayoutStatus::Canceled => {
                Next::Attention(Mismatch::LatePayout)
            }
            // Whatever comes after the return is old: it absorbs everything.
            PayoutStatus::Returned => Next::NoChange,
            status => match crate::operation::mismatch(approval, self.amount) {
                Some(mismatch) => crate::operation::mismatched(status, mismatch),
                None if status == PayoutStatus::Succeeded && returned => {
                    Next::booked(PayoutStatus::Returned, MoneyEvent::Returned)
                }
                None if status == PayoutStatus::Succeeded => Next::NoChange,
                // Came back, so it had left: first the one, then (learnt again) the other.
                None => Next::booked(PayoutStatus::Succeeded, MoneyEvent::Settled),
            },
        }
    }

    fn declined(&self) -> Next {
        match self.status {
            PayoutStatus::Pending | PayoutStatus::Processing | PayoutStatus::Unknown => {
                Next::booked(PayoutStatus::Failed, MoneyEvent::Reversed)
            }
            // A bank that says no after it has paid sends the money back.
            PayoutStatus::Succeeded => Next::booked(PayoutStatus::Returned, MoneyEvent::Returned),
            PayoutStatus::RequiresApproval
            | PayoutStatus::Failed
            | PayoutStatus::Canceled
            | PayoutStatus::Returned => Next::NoChange,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystick_gateway::{Decline, LostCause};

    fn state(status: PayoutStatus, attention: bool) -> PayoutState {
        PayoutState { status, amount: Money { minor: 100, currency: "EUR".parse().unwrap() }, attention }
    }

    fn told(stage: Stage, amount_minor: i64, currency: &str) -> Fact {
        Fact::Approved(Approval { reference: "r".into(), stage, amount_minor, currency: currency.into() })
    }

    fn no() -> Fact {
        Fact::Declined(Decline { code: "account_closed".into(), message: String::new() })
    }

    fn facts() -> Vec<Fact> {
        vec![
            Fact::ReplyLost(LostCause::Timeout),
            Fact::Acknowledged { reference: None },
            told(Stage::Paid, 100, "EUR"),
            told(Stage::Returned, 100, "EUR"),
            told(Stage::Paid, 99, "EUR"),
            told(Stage::Returned, 100, "USD"),
            told(Stage::Captured, 100, "EUR"),
            no(),
            Fact::InsufficientFunds,
        ]
    }

    /// Learns a fact as the writer does: again from where it led.
    fn all_steps(mut state: PayoutState, fact: &Fact) -> (PayoutState, Vec<PayoutStatus>, Vec<MoneyEvent>) {
        let (mut path, mut booked) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            match state.learn(fact) {
                Transition::Moved { to, money, attention } => {
                    path.push(to);
                    booked.extend(money);
                    state.status = to;
                    state.attention |= attention.is_some();
                }
                Transition::Attention(_) => state.attention = true,
                Transition::NoChange => return (state, path, booked),
            }
        }
        panic!("{fact:?} never comes to an end");
    }

    #[test]
    fn a_lost_reply_is_never_a_no_and_nothing_goes_back_to_pending() {
        for status in PayoutStatus::ALL {
            for fact in facts() {
                let (after, path, _) = all_steps(state(status, false), &fact);
                assert!(!path.contains(&PayoutStatus::Pending));
                let refused = matches!(fact, Fact::Declined(_) | Fact::InsufficientFunds);
                assert_eq!(
                    path.contains(&PayoutStatus::Failed),
                    refused && path.len() == 1 && status.needs_work() && after.status == PayoutStatus::Failed,
                    "{status:?} {fact:?}"
                );
                if matches!(fact, Fact::ReplyLost(_)) {
                    assert!(path.is_empty() || status == PayoutStatus::Pending);
                }
                assert!(status != PayoutStatus::Processing || !path.contains(&PayoutStatus::Unknown));
            }
        }
    }

    #[test]
    fn each_end_has_its_own_booking() {
        use PayoutStatus::{Failed, Pending, Processing, Returned, Succeeded, Unknown};
        for open in [Pending, Processing, Unknown] {
            let ends = [
                (told(Stage::Paid, 100, "EUR"), Succeeded, vec![MoneyEvent::Settled]),
                (
                    told(Stage::Returned, 100, "EUR"),
                    Returned,
                    vec![MoneyEvent::Settled, MoneyEvent::Returned],
                ),
                (no(), Failed, vec![MoneyEvent::Reversed]),
            ];
            for (fact, end, booked) in ends {
                let (after, _, found) = all_steps(state(open, false), &fact);
                assert_eq!((after.status, found), (end, booked), "{open:?} {fact:?}");
            }
        }
        // The bank says no after success, which is a return, and a return ends everything.
        let (after, path, booked) = all_steps(state(Succeeded, false), &no());
        assert_eq!((after.status, path, booked), (Returned, vec![Returned], vec![MoneyEvent::Returned]));
        for fact in facts() {
            assert_eq!(state(Returned, false).learn(&fact), Transition::NoChange, "{fact:?}");
        }
    }

    #[test]
    fn an_account_without_funds_books_nothing() {
        let (after, _, booked) = all_steps(state(PayoutStatus::Pending, false), &Fact::InsufficientFunds);
        assert_eq!((after.status, booked.len()), (PayoutStatus::Failed, 0));
        for status in [PayoutStatus::Unknown, PayoutStatus::Processing, PayoutStatus::Succeeded] {
            assert_eq!(state(status, false).learn(&Fact::InsufficientFunds), Transition::NoChange);
        }
    }

    #[test]
    fn what_is_paid_after_a_no_or_in_another_amount_calls_a_person_and_books_nothing() {
        for status in [PayoutStatus::Failed, PayoutStatus::Canceled, PayoutStatus::RequiresApproval] {
            for stage in [Stage::Paid, Stage::Returned] {
                let next = state(status, false).learn(&told(stage, 100, "EUR"));
                assert_eq!(next, Transition::Attention(Mismatch::LatePayout));
            }
        }
        for status in
            [PayoutStatus::Pending, PayoutStatus::Processing, PayoutStatus::Unknown, PayoutStatus::Succeeded]
        {
            for (fact, why) in [
                (told(Stage::Paid, 99, "EUR"), Mismatch::Amount),
                (told(Stage::Paid, 100, "USD"), Mismatch::Currency),
            ] {
                let (after, _, booked) = all_steps(state(status, false), &fact);
                assert!(after.attention && booked.is_empty(), "{status:?} {why:?}");
                assert_eq!(
                    after.status == PayoutStatus::Unknown,
                    matches!(status, PayoutStatus::Pending | PayoutStatus::Unknown)
                );
            }
        }
    }

    #[test]
    fn nothing_moves_while_a_person_is_called() {
        for status in PayoutStatus::ALL {
            for fact in facts() {
                assert_eq!(state(status, true).learn(&fact), Transition::NoChange, "{status:?} {fact:?}");
            }
        }
    }

    #[test]
    fn a_fact_that_comes_twice_changes_nothing_the_second_time() {
        for status in PayoutStatus::ALL {
            for fact in facts() {
                let (after, _, _) = all_steps(state(status, false), &fact);
                assert_eq!(after.learn(&fact), Transition::NoChange, "{status:?} {fact:?}");
            }
        }
    }
}
