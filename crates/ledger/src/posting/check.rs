//! What can be checked about a journal without the database, and the hash that tells a repeat from other content.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use tallystick_money::MAX_MINOR;

use super::{Direction, NewEntry, NewJournal};
use crate::error::LedgerError;

/// Most entries of one journal.
pub const MAX_ENTRIES: usize = 1_000;

/// SHA-256 over the entries in canonical order.
pub(super) type Hash = [u8; 32];

/// Checks number, amounts, tenants and balance of a journal's entries, and hashes them.
pub(super) fn checked_hash(journal: &NewJournal) -> Result<Hash, LedgerError> {
    let entries = &journal.entries;
    if entries.len() < 2 {
        return Err(LedgerError::TooFewEntries);
    }
    if entries.len() > MAX_ENTRIES {
        return Err(LedgerError::TooManyEntries);
    }
    let mut sums = BTreeMap::new();
    for entry in entries {
        if !(1..=MAX_MINOR).contains(&entry.amount_minor) {
            return Err(LedgerError::AmountRange);
        }
        if entry.account.tenant_id != journal.tenant_id {
            return Err(LedgerError::OtherTenant);
        }
        let (debit, credit) = sums.entry(entry.account.currency).or_insert((0_i64, 0_i64));
        let side = match entry.direction {
            Direction::Debit => debit,
            Direction::Credit => credit,
        };
        *side = side.checked_add(entry.amount_minor).ok_or(LedgerError::Overflow)?;
    }
    for (currency, (debit, credit)) in sums {
        if debit != credit {
            return Err(LedgerError::Unbalanced { currency, debit, credit });
        }
    }
    Ok(hash(entries))
}

/// The canonical form is one line `account|currency|direction|amount` per entry, sorted by account, direction and
/// amount, under a first line that names the form. `verify` makes the same text in SQL.
fn hash(entries: &[NewEntry]) -> Hash {
    let mut sorted: Vec<&NewEntry> = entries.iter().collect();
    sorted.sort_unstable_by_key(|entry| (entry.account.id, entry.direction.as_str(), entry.amount_minor));
    let mut text = String::with_capacity(4 + sorted.len() * 32);
    text.push_str("v1\n");
    for entry in sorted {
        let (account, direction) = (&entry.account, entry.direction.as_str());
        writeln!(text, "{}|{}|{direction}|{}", account.id, account.currency, entry.amount_minor)
            .expect("writing into a String cannot fail");
    }
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::account::AccountRef;

    fn entry(id: i64, code: &str, direction: Direction, amount_minor: i64) -> NewEntry {
        let account = AccountRef { id, tenant_id: Uuid::nil(), currency: code.parse().unwrap() };
        NewEntry { account, direction, amount_minor }
    }

    fn journal(entries: Vec<NewEntry>) -> NewJournal {
        NewJournal {
            journal_id: Uuid::nil(),
            tenant_id: Uuid::nil(),
            kind: "manual",
            source: Uuid::nil(),
            source_text: None,
            ordinal: 0,
            description: String::new(),
            metadata: None,
            effective_at: None,
            corrects: None,
            entries,
            status: None,
        }
    }

    use Direction::{Credit, Debit};

    #[test]
    fn names_what_is_wrong() {
        let check = |entries| checked_hash(&journal(entries));
        assert!(matches!(check(vec![]), Err(LedgerError::TooFewEntries)));
        assert!(matches!(check(vec![entry(1, "EUR", Debit, 1)]), Err(LedgerError::TooFewEntries)));
        let many = vec![entry(1, "EUR", Debit, 1); MAX_ENTRIES + 1];
        assert!(matches!(check(many), Err(LedgerError::TooManyEntries)));
        for amount in [0, -5, MAX_MINOR + 1, i64::MIN, i64::MAX] {
            let entries = vec![entry(1, "EUR", Debit, amount), entry(2, "EUR", Credit, amount)];
            assert!(matches!(check(entries), Err(LedgerError::AmountRange)), "{amount}");
        }
        let uneven = check(vec![entry(1, "EUR", Debit, 100), entry(2, "EUR", Credit, 99)]);
        assert!(matches!(uneven, Err(LedgerError::Unbalanced { debit: 100, credit: 99, .. })));
        let two_currencies = check(vec![entry(1, "EUR", Debit, 100), entry(2, "USD", Credit, 100)]);
        assert!(matches!(two_currencies, Err(LedgerError::Unbalanced { debit: 100, credit: 0, .. })));
        let mut foreign = entry(2, "EUR", Credit, 1);
        foreign.account.tenant_id = Uuid::max();
        assert!(matches!(check(vec![entry(1, "EUR", Debit, 1), foreign]), Err(LedgerError::OtherTenant)));
        let largest = vec![entry(1, "EUR", Debit, MAX_MINOR), entry(2, "EUR", Credit, MAX_MINOR)];
        check(largest.into_iter().cycle().take(MAX_ENTRIES).collect()).unwrap();
    }

    proptest! {
        #[test]
        fn the_hash_ignores_the_order_and_nothing_else(
            lines in prop::collection::vec((1_i64..5, any::<bool>(), 1_i64..50), 2..12),
            place in any::<prop::sample::Index>(),
            swap in any::<prop::sample::Index>(),
        ) {
            let entries: Vec<NewEntry> = lines
                .iter()
                .map(|(id, debit, minor)| entry(*id, "EUR", if *debit { Debit } else { Credit }, *minor))
                .collect();
            let mut moved = entries.clone();
            moved.swap(place.index(entries.len()), swap.index(entries.len()));
            prop_assert_eq!(hash(&entries), hash(&moved));
            let at = place.index(entries.len());
            for change in [
                entry(entries[at].account.id + 10, "EUR", entries[at].direction, entries[at].amount_minor),
                entry(entries[at].account.id, "USD", entries[at].direction, entries[at].amount_minor),
                entry(entries[at].account.id, "EUR", entries[at].direction.opposite(), entries[at].amount_minor),
                entry(entries[at].account.id, "EUR", entries[at].direction, entries[at].amount_minor + 1000),
            ] {
                let mut changed = entries.clone();
                changed[at] = change;
                prop_assert_ne!(hash(&entries), hash(&changed));
            }
        }
    }
}
