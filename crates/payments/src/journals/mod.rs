//! Money events and their journals: one file per kind, listed in [`ALL`].
//!
//! A journal's source is the operation, so the same event asked for twice finds the first journal.
//! Pure: names accounts by what they are for; the writer finds them in the ledger.

use tallystick_ledger::{AccountKind, Direction};
use uuid::Uuid;

pub(crate) mod payment_captured;
pub(crate) mod payout_debited;
pub(crate) mod payout_returned;
pub(crate) mod payout_reversed;

/// An account that the product keeps per tenant, gateway account and currency, made on first use.
#[derive(Debug, PartialEq, Eq)]
pub struct SystemAccountName {
    /// As in the trial balance.
    pub name: &'static str,
    /// Its kind, which gives its natural side.
    pub kind: AccountKind,
}

/// What the gateway owes us: taken, not yet paid out to our bank.
pub static GATEWAY_RECEIVABLE: SystemAccountName =
    SystemAccountName { name: "gateway_receivable", kind: AccountKind::Asset };
/// What was sold.
pub static SALES: SystemAccountName = SystemAccountName { name: "sales", kind: AccountKind::Revenue };
/// What our bank account for payouts has given out, with what it will give out.
pub static PAYOUT_BANK: SystemAccountName =
    SystemAccountName { name: "payout_bank", kind: AccountKind::Asset };

/// An account of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// One that the product keeps.
    System(&'static SystemAccountName),
    /// One that a person opened, by its id.
    Customer(Uuid),
}

/// One line of a journal to be.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// Which account.
    pub account: Account,
    /// Which side.
    pub direction: Direction,
    /// Minor units, positive.
    pub amount_minor: i64,
}

/// A journal to be, before its accounts are looked up.
#[derive(Debug, PartialEq, Eq)]
pub struct MoneyJournal {
    /// Its kind; with the source it is written once.
    pub kind: &'static str,
    /// The operation that it is about.
    pub source: Uuid,
    /// For people.
    pub description: &'static str,
    /// Its lines, balanced.
    pub lines: Vec<Line>,
}

/// How a kind is described in `docs/money-events.md`.
pub(crate) struct Kind {
    /// The kind.
    pub name: &'static str,
    /// When it is written.
    pub when: &'static str,
    /// What its source is.
    pub source: &'static str,
    /// An example of 100 minor units.
    pub example: fn() -> MoneyJournal,
}

/// Every kind of journal that the product writes by itself. A new one is a file beside this and a line here.
pub(crate) const ALL: &[Kind] =
    &[payment_captured::KIND, payout_debited::KIND, payout_reversed::KIND, payout_returned::KIND];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_balances() {
        for kind in ALL {
            let journal = (kind.example)();
            let sum: i64 = journal
                .lines
                .iter()
                .map(|l| if l.direction == Direction::Debit { l.amount_minor } else { -l.amount_minor })
                .sum();
            assert_eq!((sum, journal.kind), (0, kind.name));
            assert!(journal.lines.len() >= 2 && journal.lines.iter().all(|l| l.amount_minor > 0));
        }
    }
}
