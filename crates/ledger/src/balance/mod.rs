//! Balances: sums of entries, kept short by checkpoints.
//!
//! A balance is the account's last checkpoint plus the entries with a mark at or above its horizon, read in one
//! statement, hence in one snapshot. Whoever makes a checkpoint needs no lock: everything below a horizon is decided.
//!
//! `pending` is the sum over journals whose last status is pending; `settled = balance - pending`. A failed journal
//! and its mirror add to zero, because both become failed in one transaction. `available = balance - held`.
//!
//! As of an instant T (`recorded_at <= T`): `recorded_at` is the start of the writing transaction, so a transaction
//! that began before T and is still open may yet add to it. The answer is `complete` when no such transaction was
//! open in this database, which is asked first and therefore means something in READ COMMITTED only.

mod repo;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::PgConnection;
use tallystick_money::Currency;
use uuid::Uuid;

use crate::account::AccountKind;
use crate::error::LedgerError;

/// Balance of an account, all amounts in minor units with the kind's natural side positive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Balance {
    /// The account.
    pub account_id: Uuid,
    /// ISO 4217 code.
    #[schema(value_type = String)]
    pub currency: Currency,
    /// Sum of all entries.
    pub balance_minor: i64,
    /// Sum of the entries whose journal may still be undone.
    pub pending_minor: i64,
    /// `balance_minor` without `pending_minor`.
    pub settled_minor: i64,
    /// Reserved by holds; there are none yet.
    pub held_minor: i64,
    /// `balance_minor` without `held_minor`.
    pub available_minor: i64,
    /// The instant that it is the balance of.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// `false`: a transaction that began before `at` may still add to it.
    pub complete: bool,
}

/// All accounts of a tenant in one currency, whose debits and credits are equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct TrialBalance {
    /// ISO 4217 code.
    #[schema(value_type = String)]
    pub currency: Currency,
    /// Sum of all debits, in minor units.
    pub debits_minor: i64,
    /// Sum of all credits, in minor units.
    pub credits_minor: i64,
    /// The instant that it is true of.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// `false`: a transaction that began before `at` may still add to it.
    pub complete: bool,
    /// The accounts by name.
    pub accounts: Vec<TrialBalanceRow>,
}

/// One account of a trial balance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct TrialBalanceRow {
    /// The account.
    pub account_id: Uuid,
    /// For people.
    pub name: String,
    /// Decides the natural side.
    pub kind: AccountKind,
    /// Sum of its debits, in minor units.
    pub debits_minor: i64,
    /// Sum of its credits, in minor units.
    pub credits_minor: i64,
    /// Its balance, natural side positive, in minor units.
    pub balance_minor: i64,
}

/// The instant that is asked about, and whether what was recorded before it is decided.
async fn instant(conn: &mut PgConnection, at: Option<Timestamp>) -> Result<(Timestamp, bool), LedgerError> {
    Ok(match at {
        // Before the sums, as a statement of its own: a transaction that ends in between is then in the sums.
        Some(at) => (at, repo::decided_before(conn).await?.is_some_and(|decided| at < decided)),
        // The balance now is what this snapshot holds; nothing is missing from it.
        None => (repo::now(conn).await?, true),
    })
}

/// Balance of an account of the tenant, now or as of an instant; `None` when the tenant has no such account.
///
/// # Errors
/// [`LedgerError::Overflow`] when a sum does not fit into 64 bits.
pub async fn balance(
    conn: &mut PgConnection,
    tenant: Uuid,
    account_id: Uuid,
    at: Option<Timestamp>,
) -> Result<Option<Balance>, LedgerError> {
    let (instant, complete) = instant(conn, at).await?;
    let sums = match at {
        None => repo::sums(conn, tenant, account_id).await?,
        Some(at) => repo::sums_at(conn, tenant, account_id, at).await?,
    };
    let Some(sums) = sums else { return Ok(None) };
    let balance_minor = sums.kind.balance(sums.debits, sums.credits)?;
    let pending_minor = sums.kind.balance(sums.pending_debits, sums.pending_credits)?;
    Ok(Some(Balance {
        account_id,
        currency: sums.currency,
        balance_minor,
        pending_minor,
        settled_minor: balance_minor.checked_sub(pending_minor).ok_or(LedgerError::Overflow)?,
        held_minor: 0,
        available_minor: balance_minor,
        at: instant,
        complete,
    }))
}

/// Debits and credits of all accounts of the tenant in a currency, now or as of an instant, in one snapshot.
///
/// # Errors
/// [`LedgerError::Overflow`] when a sum does not fit into 64 bits.
pub async fn trial_balance(
    conn: &mut PgConnection,
    tenant: Uuid,
    currency: Currency,
    at: Option<Timestamp>,
) -> Result<TrialBalance, LedgerError> {
    let (instant, complete) = instant(conn, at).await?;
    let accounts = match at {
        None => repo::trial(conn, tenant, currency).await?,
        Some(at) => repo::trial_at(conn, tenant, currency, at).await?,
    };
    let sum = |side: fn(&TrialBalanceRow) -> i64| {
        accounts.iter().map(side).try_fold(0_i64, i64::checked_add).ok_or(LedgerError::Overflow)
    };
    Ok(TrialBalance {
        currency,
        debits_minor: sum(|row| row.debits_minor)?,
        credits_minor: sum(|row| row.credits_minor)?,
        at: instant,
        complete,
        accounts,
    })
}

/// One step of the checkpoint loop: of the `page` accounts that follow number `after`, those with more than
/// `threshold` decided entries above their last checkpoint get a new one.
///
/// Answers where the next step goes on (0 after the last page) and how many checkpoints were made. Needs no
/// transaction; two processes that do the same do no harm.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn checkpoint_step(
    conn: &mut PgConnection,
    after: i64,
    page: i64,
    threshold: i64,
) -> Result<(i64, u64), LedgerError> {
    let ids = repo::checkpoint_page(conn, after, page).await?;
    let full = i64::try_from(ids.len()).is_ok_and(|found| found >= page);
    let next = if full { ids.last().copied().unwrap_or(0) } else { 0 };
    let mut made = 0;
    for account in repo::checkpoint_due(conn, &ids, threshold).await? {
        if repo::make_checkpoint(conn, account).await? {
            made += 1;
        }
    }
    Ok((next, made))
}
