//! The moves that a payment's status may make, written down once more: history is held against this table and not
//! against the code that wrote it.

use crate::payment::state::PaymentStatus::{
    self, Authorized, Canceled, Failed, Pending, Processing, Succeeded, Unknown,
};

/// Where each status may lead.
const EDGES: [(PaymentStatus, &[PaymentStatus]); 7] = [
    (Pending, &[Processing, Unknown, Authorized, Succeeded, Failed, Canceled]),
    (Processing, &[Authorized, Succeeded, Failed, Canceled]),
    (Unknown, &[Processing, Authorized, Succeeded, Failed, Canceled]),
    (Authorized, &[Succeeded, Canceled]),
    (Succeeded, &[]),
    (Failed, &[]),
    (Canceled, &[]),
];

/// Every allowed move as `from>to`.
pub(super) fn allowed() -> Vec<String> {
    EDGES
        .iter()
        .flat_map(|(from, to)| to.iter().map(|to| format!("{}>{}", from.as_str(), to.as_str())))
        .collect()
}

#[cfg(test)]
mod tests {
    use tallystick_gateway::{Approval, Decline, LostCause, Stage};
    use tallystick_money::Money;

    use super::*;
    use crate::operation::{Fact, Transition};
    use crate::payment::Capture;
    use crate::payment::state::PaymentState;

    #[test]
    fn every_move_that_the_engine_can_make_is_in_the_table() {
        let amount = Money { minor: 500, currency: "EUR".parse().unwrap() };
        let approved = |stage, amount_minor, currency: &str| {
            Fact::Approved(Approval { reference: "r".into(), stage, amount_minor, currency: currency.into() })
        };
        let facts = [
            Fact::ReplyLost(LostCause::Timeout),
            Fact::Acknowledged { reference: None },
            Fact::Declined(Decline { code: "no".into(), message: String::new() }),
            approved(Stage::Authorized, 500, "EUR"),
            approved(Stage::Captured, 500, "EUR"),
            approved(Stage::Captured, 501, "EUR"),
            approved(Stage::Captured, 500, "USD"),
        ];
        let allowed = allowed();
        let mut moves = 0;
        for status in PaymentStatus::ALL {
            for capture in [Capture::Automatic, Capture::Manual] {
                for attention in [false, true] {
                    let state = PaymentState { status, amount, capture, attention };
                    for fact in &facts {
                        if let Transition::Moved { to, .. } = state.learn(fact) {
                            moves += 1;
                            let made = format!("{}>{}", status.as_str(), to.as_str());
                            assert!(allowed.contains(&made), "{made} by {fact:?}");
                        }
                    }
                }
            }
        }
        assert!(moves > 20, "{moves}");
    }
}
