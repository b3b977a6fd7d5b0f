//! Deciding about accounts that have a minimum.
//!
//! Lock and sum are two statements in READ COMMITTED. The lock waits for whoever decides about the same account; the
//! sum, a new statement, then sees what they posted. One statement that locks and sums would use the snapshot from
//! before the wait, and two transactions would spend the same money. Accounts are locked in the order of their
//! numbers, so two transactions with the same accounts wait and never deadlock.

use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{Direction, NewJournal, Posted, check, conflict, post_in_tx, repo};
use crate::account::{AccountKind, AccountRef};
use crate::error::LedgerError;

/// A limited account whose row is locked until the transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedAccount {
    /// The account.
    pub account_id: Uuid,
    /// Decides the natural side.
    pub kind: AccountKind,
    /// Least balance that a decision may leave, natural side, in minor units.
    pub minimum_minor: i64,
    /// What is available, natural side, in minor units. [`Self::take`] keeps it running within a batch.
    pub available_minor: i64,
}

impl LimitedAccount {
    /// Moves the running balance by an entry, if that keeps the minimum. An entry that adds is always taken.
    /// `false`: it does not fit, and nothing changed.
    ///
    /// # Errors
    /// [`LedgerError::Overflow`] when the new balance does not fit into 64 bits.
    pub fn take(&mut self, direction: Direction, amount_minor: i64) -> Result<bool, LedgerError> {
        let adds = direction == self.kind.natural_side();
        let change = if adds { Some(amount_minor) } else { amount_minor.checked_neg() };
        self.shift(change.ok_or(LedgerError::Overflow)?)
    }

    fn shift(&mut self, change: i64) -> Result<bool, LedgerError> {
        let then = self.available_minor.checked_add(change).ok_or(LedgerError::Overflow)?;
        let fits = change >= 0 || then >= self.minimum_minor;
        if fits {
            self.available_minor = then;
        }
        Ok(fits)
    }
}

/// Locks those of `accounts` that have a minimum and answers what each has available.
///
/// # Errors
/// [`LedgerError::Db`], [`LedgerError::Overflow`].
pub async fn lock_limited_in_tx(
    conn: &mut PgConnection,
    accounts: &[AccountRef],
) -> Result<HashMap<AccountRef, LimitedAccount>, LedgerError> {
    if accounts.is_empty() {
        return Ok(HashMap::new());
    }
    let locked = repo::lock_limited(conn, accounts).await?;
    if locked.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<i64> = locked.iter().map(|row| row.id).collect();
    let totals = repo::totals(conn, &ids).await?;
    let locked: HashMap<i64, repo::Locked> = locked.into_iter().map(|row| (row.id, row)).collect();
    let mut limited = HashMap::with_capacity(locked.len());
    for account in accounts {
        let Some(row) = locked.get(&account.id) else { continue };
        let (debits, credits) = totals.get(&row.id).copied().unwrap_or((0, 0));
        limited.insert(
            *account,
            LimitedAccount {
                account_id: row.account_id,
                kind: row.kind,
                minimum_minor: row.minimum_minor,
                available_minor: row.kind.balance(debits, credits)?,
            },
        );
    }
    Ok(limited)
}

/// Posts one journal, keeping the minimum of every limited account that it lowers: lock, sum, decide, post.
///
/// A journal that stands already is answered as such whatever the balances are now.
///
/// # Errors
/// [`LedgerError::MinimumBalance`], and those of [`post_in_tx`].
pub async fn post_within_limits_in_tx(
    conn: &mut PgConnection,
    journal: &NewJournal,
) -> Result<Posted, LedgerError> {
    let hash = check::checked_hash(journal)?;
    let mut accounts: Vec<AccountRef> = journal.entries.iter().map(|entry| entry.account).collect();
    accounts.sort_unstable_by_key(|account| account.id);
    accounts.dedup();
    let limited = lock_limited_in_tx(conn, &accounts).await?;
    if !limited.is_empty() {
        // A twin that held the locks has ended by now; it is visible to this new statement.
        let standing = repo::standing(conn, &[(journal, &hash)]).await?;
        if let Some(stands) = standing.into_values().next() {
            return if stands.entries_hash == hash {
                Ok(Posted { journal_id: stands.journal_id, already: true })
            } else {
                Err(conflict(journal))
            };
        }
    }
    for account in accounts {
        let Some(mut state) = limited.get(&account).copied() else { continue };
        let before = state.available_minor;
        let mut change: i64 = 0;
        for entry in journal.entries.iter().filter(|entry| entry.account == account) {
            let adds = entry.direction == state.kind.natural_side();
            let moved = if adds {
                change.checked_add(entry.amount_minor)
            } else {
                change.checked_sub(entry.amount_minor)
            };
            change = moved.ok_or(LedgerError::Overflow)?;
        }
        if !state.shift(change)? {
            return Err(LedgerError::MinimumBalance {
                account_id: state.account_id,
                minimum_minor: state.minimum_minor,
                balance_minor: before,
            });
        }
    }
    let posted = post_in_tx(conn, std::slice::from_ref(journal)).await?;
    Ok(posted[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(kind: AccountKind, minimum_minor: i64, available_minor: i64) -> LimitedAccount {
        LimitedAccount { account_id: Uuid::nil(), kind, minimum_minor, available_minor }
    }

    #[test]
    fn takes_down_to_the_minimum_and_no_further() {
        let mut customer = account(AccountKind::Liability, 0, 1000);
        assert!(customer.take(Direction::Debit, 1000).unwrap());
        assert!(!customer.take(Direction::Debit, 1).unwrap());
        assert!(customer.take(Direction::Credit, 5).unwrap());
        assert_eq!(customer.available_minor, 5);
        let mut till = account(AccountKind::Asset, -10, 0);
        assert!(till.take(Direction::Credit, 10).unwrap());
        assert!(!till.take(Direction::Credit, 1).unwrap());
    }

    #[test]
    fn adding_is_taken_even_below_the_minimum_and_nothing_wraps() {
        let mut customer = account(AccountKind::Liability, 0, -500);
        assert!(customer.take(Direction::Credit, 100).unwrap());
        assert!(!customer.take(Direction::Debit, 1).unwrap());
        assert_eq!(customer.available_minor, -400);
        let mut full = account(AccountKind::Liability, 0, i64::MAX);
        assert!(matches!(full.take(Direction::Credit, 1), Err(LedgerError::Overflow)));
    }
}
