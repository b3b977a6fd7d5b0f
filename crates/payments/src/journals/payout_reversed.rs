//! A payout did not happen: the debit is undone by the opposite journal, and both are failed together.

use tallystick_ledger::Direction;
use uuid::Uuid;

use super::{Account, Kind, Line, MoneyJournal, PAYOUT_BANK};

pub(super) const KIND: Kind = Kind {
    name: "payout_reversed",
    when: "the bank refused a payout for good; failed from its beginning, as the debit is from then on",
    source: "the payout",
    example: || journal(Uuid::nil(), Uuid::nil(), 100),
};

/// The opposite of the debit.
pub(crate) fn journal(payout: Uuid, account: Uuid, amount_minor: i64) -> MoneyJournal {
    MoneyJournal {
        kind: KIND.name,
        source: payout,
        description: "payout reversed",
        lines: vec![
            Line { account: Account::System(&PAYOUT_BANK), direction: Direction::Debit, amount_minor },
            Line { account: Account::Customer(account), direction: Direction::Credit, amount_minor },
        ],
    }
}
