//! A payout that had been paid came back: the money is the customer's again.

use tallystick_ledger::Direction;
use uuid::Uuid;

use super::{Account, Kind, Line, MoneyJournal, PAYOUT_BANK};

pub(super) const KIND: Kind = Kind {
    name: "payout_returned",
    when: "the bank sent back a payout that it had paid",
    source: "the payout",
    example: || journal(Uuid::nil(), Uuid::nil(), 100),
};

/// What came back, to the account that it was taken from.
pub(crate) fn journal(payout: Uuid, account: Uuid, amount_minor: i64) -> MoneyJournal {
    MoneyJournal {
        kind: KIND.name,
        source: payout,
        description: "payout returned",
        lines: vec![
            Line { account: Account::System(&PAYOUT_BANK), direction: Direction::Debit, amount_minor },
            Line { account: Account::Customer(account), direction: Direction::Credit, amount_minor },
        ],
    }
}
