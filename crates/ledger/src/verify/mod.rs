//! Checks of the whole ledger against itself, in plain SQL over the entries.
//!
//! Each check reads in the caller's transaction; several of them agree with each other when that transaction is
//! REPEATABLE READ. They write nothing, lock nothing, and read everything: minutes on a large ledger. Each is
//! independent of what the others check: sums are of entries, never of checkpoints.

mod repo;

use sqlx::PgConnection;

use crate::account::currency_from_column;
use crate::error::LedgerError;

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Things looked at.
    pub checked: u64,
    /// What does not hold, by id, sorted.
    pub violations: Vec<String>,
}

impl Finding {
    /// Nothing is wrong.
    #[must_use]
    pub fn held(&self) -> bool {
        self.violations.is_empty()
    }
}

/// Every journal has all of its entries, at least two, and balances in each currency. Ids of journals.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn journals_balanced(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    repo::journals_balanced(conn).await
}

/// Debits and credits of each tenant are equal in each currency. `tenant/currency`.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn trial_balance_zero(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    repo::trial_balance_zero(conn).await
}

/// The triggers, keys and missing privileges that make the ledger append-only are in place. Names of what is not.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn append_only_in_place(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    repo::append_only_in_place(conn).await
}

/// Every entry has a positive amount, a direction, and the currency of its account; every currency is known.
/// `journal/line` of entries, codes of currencies.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn amounts_positive(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    let mut finding = repo::amounts_positive(conn).await?;
    for code in repo::currencies(conn).await? {
        finding.checked += 1;
        if currency_from_column(&code).is_err() {
            finding.violations.push(code);
        }
    }
    Ok(finding)
}

/// No limited account is below its minimum. Ids of accounts.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn minimum_kept(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    repo::minimum_kept(conn).await
}

/// Failed journals add to zero on each account. Ids of accounts.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn failed_sums_zero(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    repo::failed_sums_zero(conn).await
}

/// The table of open pending journals is what the statuses say. Ids of journals.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn pending_table_matches(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    repo::pending_table_matches(conn).await
}

/// Every checkpoint is the sum of the entries below its horizon. `account@horizon`.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn checkpoints_match(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    repo::checkpoints_match(conn).await
}

/// Every journal's hash is that of its entries: finds entries that were exchanged in a way that still balances.
/// Ids of journals.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn hashes_match(conn: &mut PgConnection) -> Result<Finding, LedgerError> {
    repo::hashes_match(conn).await
}
