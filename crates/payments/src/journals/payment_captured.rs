//! A capture succeeded: the gateway owes us the captured amount.

use tallystick_ledger::Direction;
use uuid::Uuid;

use super::{Account, GATEWAY_RECEIVABLE, Kind, Line, MoneyJournal, SALES};

pub(super) const KIND: Kind = Kind {
    name: "payment_captured",
    when: "a charge or capture succeeded, with the captured amount",
    source: "the capture; for an automatic capture the payment",
    example: || journal(Uuid::nil(), 100),
};

/// The journal of one capture of `amount_minor` minor units.
pub(crate) fn journal(capture: Uuid, amount_minor: i64) -> MoneyJournal {
    MoneyJournal {
        kind: KIND.name,
        source: capture,
        description: "payment captured",
        lines: vec![
            Line { account: Account::System(&GATEWAY_RECEIVABLE), direction: Direction::Debit, amount_minor },
            Line { account: Account::System(&SALES), direction: Direction::Credit, amount_minor },
        ],
    }
}
