//! The moves that statuses may make, written down once more: history is held against these tables and not against the
//! code that wrote it.

use crate::operation::Status;
use crate::payment::PaymentStatus;
use crate::payout::PayoutStatus;

/// Where a payment begins, and where each of its statuses may lead.
const PAYMENTS: (&[PaymentStatus], [(PaymentStatus, &[PaymentStatus]); 7]) = {
    use PaymentStatus::{Authorized, Canceled, Failed, Pending, Processing, Succeeded, Unknown};
    let edges: [(PaymentStatus, &[PaymentStatus]); 7] = [
        (Pending, &[Processing, Unknown, Authorized, Succeeded, Failed, Canceled]),
        (Processing, &[Authorized, Succeeded, Failed, Canceled]),
        (Unknown, &[Processing, Authorized, Succeeded, Failed, Canceled]),
        (Authorized, &[Succeeded, Canceled]),
        (Succeeded, &[]),
        (Failed, &[]),
        (Canceled, &[]),
    ];
    (&[Pending], edges)
};

/// Where a payout begins, and where each of its statuses may lead.
const PAYOUTS: (&[PayoutStatus], [(PayoutStatus, &[PayoutStatus]); 8]) = {
    use PayoutStatus::{
        Canceled, Failed, Pending, Processing, RequiresApproval, Returned, Succeeded, Unknown,
    };
    let edges: [(PayoutStatus, &[PayoutStatus]); 8] = [
        (RequiresApproval, &[Pending, Canceled]),
        (Pending, &[Processing, Unknown, Succeeded, Failed, Canceled]),
        (Processing, &[Succeeded, Failed]),
        (Unknown, &[Processing, Succeeded, Failed]),
        (Succeeded, &[Returned]),
        (Failed, &[]),
        (Canceled, &[]),
        (Returned, &[]),
    ];
    (&[Pending, RequiresApproval], edges)
};

/// Every allowed move of each kind as `from>to`; a beginning comes from nothing.
#[derive(Debug)]
pub(super) struct Allowed {
    pub payments: Vec<String>,
    pub payouts: Vec<String>,
}

pub(super) fn allowed() -> Allowed {
    Allowed { payments: moves(PAYMENTS.0, &PAYMENTS.1), payouts: moves(PAYOUTS.0, &PAYOUTS.1) }
}

fn moves<S: Status>(first: &[S], edges: &[(S, &[S])]) -> Vec<String> {
    let made = |from: &str, to: &S| format!("{from}>{}", to.as_str());
    let later = edges.iter().flat_map(|(from, to)| to.iter().map(move |to| made(from.as_str(), to)));
    first.iter().map(|to| made("", to)).chain(later).collect()
}

#[cfg(test)]
mod tests {
    use tallystick_gateway::{Approval, Decline, LostCause, Stage};
    use tallystick_money::Money;

    use super::*;
    use crate::operation::{Fact, Transition};
    use crate::payment::Capture;
    use crate::payment::state::PaymentState;
    use crate::payout::state::PayoutState;

    fn amount() -> Money {
        Money { minor: 500, currency: "EUR".parse().unwrap() }
    }

    fn facts() -> Vec<Fact> {
        let approved = |stage, amount_minor, currency: &str| {
            Fact::Approved(Approval { reference: "r".into(), stage, amount_minor, currency: currency.into() })
        };
        let mut facts = vec![
            Fact::ReplyLost(LostCause::Timeout),
            Fact::Acknowledged { reference: None },
            Fact::Declined(Decline { code: "no".into(), message: String::new() }),
            Fact::InsufficientFunds,
        ];
        for stage in [Stage::Authorized, Stage::Captured, Stage::Paid, Stage::Returned] {
            facts.extend([
                approved(stage, 500, "EUR"),
                approved(stage, 501, "EUR"),
                approved(stage, 500, "USD"),
            ]);
        }
        facts
    }

    /// How many moves there are, after each was found in the table.
    fn made<S: Status>(
        allowed: &[String],
        all: &[S],
        learn: impl Fn(S, bool, &Fact) -> Transition<S>,
    ) -> usize {
        let mut moves = 0;
        for (status, attention) in all.iter().flat_map(|status| [(*status, false), (*status, true)]) {
            for fact in facts() {
                if let Transition::Moved { to, .. } = learn(status, attention, &fact) {
                    moves += 1;
                    let made = format!("{}>{}", status.as_str(), to.as_str());
                    assert!(allowed.contains(&made), "{made} by {fact:?}");
                }
            }
        }
        moves
    }

    #[test]
    fn every_move_that_the_engine_can_make_is_in_the_table() {
        let allowed = allowed();
        for capture in [Capture::Automatic, Capture::Manual] {
            let learn = |status, attention, fact: &Fact| {
                PaymentState { status, amount: amount(), capture, attention }.learn(fact)
            };
            let moves = made(&allowed.payments, &PaymentStatus::ALL, learn);
            assert!(moves > 10, "{moves}");
        }
        let learn =
            |status, attention, fact: &Fact| PayoutState { status, amount: amount(), attention }.learn(fact);
        let moves = made(&allowed.payouts, &PayoutStatus::ALL, learn);
        assert!(moves > 10, "{moves}");
    }

    #[test]
    fn each_status_has_its_row_and_kinds_are_not_mixed_up() {
        assert_eq!(PAYMENTS.1.map(|(from, _)| from), PaymentStatus::ALL);
        let mut of_payouts = PAYOUTS.1.map(|(from, _)| from.as_str());
        let mut all = PayoutStatus::ALL.map(PayoutStatus::as_str);
        of_payouts.sort_unstable();
        all.sort_unstable();
        assert_eq!(of_payouts, all);
        let allowed = allowed();
        let has = |moves: &[String], made: &str| moves.iter().any(|m| m == made);
        for of_payouts in [">requires_approval", "requires_approval>pending", "succeeded>returned"] {
            assert!(has(&allowed.payouts, of_payouts) && !has(&allowed.payments, of_payouts), "{of_payouts}");
        }
        for of_payments in ["pending>authorized", "unknown>canceled", "processing>canceled"] {
            assert!(
                has(&allowed.payments, of_payments) && !has(&allowed.payouts, of_payments),
                "{of_payments}"
            );
        }
        assert!(has(&allowed.payments, ">pending") && has(&allowed.payouts, ">pending"));
    }
}
