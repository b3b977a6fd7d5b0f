//! The debit at the claim: decided under the account's lock, posted before the first byte.
//!
//! In the transaction of the claim: lock the limited accounts, then (a new statement) sum them, then go through the
//! payouts in the order in which they came due with a running balance. What fits is debited, pending; what does not
//! fit fails with `insufficient_funds` and is never sent. A payout that has its debit already is neither counted again
//! nor refused.

use std::collections::HashSet;

use sqlx::PgConnection;
use tallystick_ledger::{self as ledger, AccountCache, AccountRef, Direction, JournalStatus, LedgerError};
use uuid::Uuid;

use super::repo::PayoutRow;
use crate::history::Evidence;
use crate::journals::payout_debited;
use crate::operation::{Fact, OperationId, OperationKind};
use crate::writer::{self, Booked, Bookings, Learned, WriteError};

/// Debits the payouts that fit, in the given order; answers the facts about those that do not. None of them has its
/// debit yet.
pub(crate) async fn debit_in_tx(
    conn: &mut PgConnection,
    cache: &AccountCache,
    new: &[&PayoutRow],
) -> Result<Vec<Learned>, WriteError> {
    if new.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = new.iter().map(|row| row.account_id).collect();
    let known = ledger::known_accounts_in_tx(conn, cache, &ids).await.map_err(WriteError::Ledger)?;
    let account = |row: &PayoutRow| {
        let found = known.get(&row.account_id).map(|known| known.account);
        found.ok_or(WriteError::Ledger(LedgerError::UnknownAccount(row.account_id)))
    };
    let accounts: HashSet<AccountRef> = new.iter().map(|row| account(row)).collect::<Result<_, _>>()?;
    let accounts: Vec<AccountRef> = accounts.into_iter().collect();
    let mut limited = ledger::lock_limited_in_tx(conn, &accounts).await.map_err(WriteError::Ledger)?;
    let (mut bookings, mut refused) = (Bookings::default(), Vec::new());
    for row in new {
        let fits = match limited.get_mut(&account(row)?) {
            Some(limited) => {
                limited.take(Direction::Debit, row.life.amount_minor).map_err(WriteError::Ledger)?
            }
            None => true,
        };
        if fits {
            bookings.journals.push(debit(row));
        } else {
            refused.push(Learned {
                operation: OperationId { kind: OperationKind::Payout, id: row.life.id },
                fact: Fact::InsufficientFunds,
                evidence: Evidence::Ledger,
            });
        }
    }
    writer::book_in_tx(conn, cache, &bookings).await?;
    Ok(refused)
}

fn debit(row: &PayoutRow) -> Booked {
    let journal = payout_debited::journal(row.life.id, row.account_id, row.life.amount_minor);
    Booked {
        id: payout_debited::journal_id(row.life.id),
        ..Booked::of(&row.life, journal, Some((JournalStatus::Pending, Evidence::Request)))
    }
}
