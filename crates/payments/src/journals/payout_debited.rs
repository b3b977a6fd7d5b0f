//! A payout was claimed: the money is taken from the customer's account before the bank hears of it.
//!
//! Pending until the bank has paid (settled) or refused (failed, with its reversal).

use tallystick_ledger::Direction;
use uuid::Uuid;

use super::{Account, Kind, Line, MoneyJournal, PAYOUT_BANK};

pub(super) const KIND: Kind = Kind {
    name: "payout_debited",
    when: "a payout was claimed for the first time, before the first byte; pending, then settled or failed",
    source: "the payout",
    example: || journal(Uuid::nil(), Uuid::nil(), 100),
};

/// The debit of `amount_minor` minor units from `account`.
pub(crate) fn journal(payout: Uuid, account: Uuid, amount_minor: i64) -> MoneyJournal {
    MoneyJournal {
        kind: KIND.name,
        source: payout,
        description: "payout debited",
        lines: vec![
            Line { account: Account::Customer(account), direction: Direction::Debit, amount_minor },
            Line { account: Account::System(&PAYOUT_BANK), direction: Direction::Credit, amount_minor },
        ],
    }
}

/// The journal's id, the payout's own: its status is said without looking it up.
pub(crate) fn journal_id(payout: Uuid) -> Uuid {
    payout
}
