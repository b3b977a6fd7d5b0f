//! Accounts: opened by people, or made by a program on first use (system accounts).
//!
//! A system account is inserted with `ON CONFLICT DO NOTHING` in the caller's transaction, in key order, so that
//! two transactions that need the same new accounts wait for each other and never deadlock. The cache of handles
//! keeps only rows whose mark lies below the horizon: those are committed for good. A row that the caller's own
//! transaction inserted may still be rolled back, and a cached handle of it would name nothing.

mod repo;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use tallystick_money::{Currency, MAX_MINOR};
use uuid::Uuid;

use crate::error::LedgerError;
use crate::page::Page;
use crate::posting::Direction;

/// Most handles that a cache keeps. Beyond it accounts are looked up each time: slower, never wrong.
const MAX_CACHED: usize = 100_000;

/// Kind of an account; it decides which side of the balance is positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccountKind {
    /// What we own. Debits add.
    Asset,
    /// What we owe. Credits add.
    Liability,
    /// What is the owners'. Credits add.
    Equity,
    /// What we earn. Credits add.
    Revenue,
    /// What we spend. Debits add.
    Expense,
}

impl AccountKind {
    /// The kind's name, as in the database and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asset => "asset",
            Self::Liability => "liability",
            Self::Equity => "equity",
            Self::Revenue => "revenue",
            Self::Expense => "expense",
        }
    }

    /// The direction that adds to an account of this kind.
    #[must_use]
    pub fn natural_side(self) -> Direction {
        match self {
            Self::Asset | Self::Expense => Direction::Debit,
            Self::Liability | Self::Equity | Self::Revenue => Direction::Credit,
        }
    }

    /// The balance with the natural side positive, in minor units.
    ///
    /// # Errors
    /// [`LedgerError::Overflow`] when it does not fit into 64 bits.
    pub fn balance(self, debits: i64, credits: i64) -> Result<i64, LedgerError> {
        match self.natural_side() {
            Direction::Debit => debits.checked_sub(credits),
            Direction::Credit => credits.checked_sub(debits),
        }
        .ok_or(LedgerError::Overflow)
    }

    pub(crate) fn from_column(text: &str) -> Result<Self, LedgerError> {
        [Self::Asset, Self::Liability, Self::Equity, Self::Revenue, Self::Expense]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or(LedgerError::Corrupt { what: "kind of account" })
    }
}

pub(crate) fn currency_from_column(text: &str) -> Result<Currency, LedgerError> {
    text.parse().map_err(|_| LedgerError::Corrupt { what: "currency" })
}

/// Handle of an account, for entries. Only the ledger makes them; the number inside never leaves the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AccountRef {
    pub(crate) id: i64,
    pub(crate) tenant_id: Uuid,
    pub(crate) currency: Currency,
}

impl AccountRef {
    /// The account's currency.
    #[must_use]
    pub fn currency(&self) -> Currency {
        self.currency
    }

    /// The tenant that the account belongs to.
    #[must_use]
    pub fn tenant_id(&self) -> Uuid {
        self.tenant_id
    }
}

/// An account to be opened.
#[derive(Clone, Debug)]
pub struct NewAccount {
    /// Its id.
    pub account_id: Uuid,
    /// Whose account.
    pub tenant_id: Uuid,
    /// For people; not empty.
    pub name: String,
    /// Decides the natural side.
    pub kind: AccountKind,
    /// Fixed for ever.
    pub currency: Currency,
    /// Least balance that a decision may leave, natural side, in minor units, not above 0. `None`: no limit.
    pub minimum_minor: Option<i64>,
    /// The client's own words.
    pub metadata: Option<Value>,
}

/// An account that a program makes on first use, one per tenant, key and currency.
#[derive(Clone, Debug)]
pub struct SystemAccount {
    /// Whose account.
    pub tenant_id: Uuid,
    /// What tells it apart, such as `gateway/sales`.
    pub key: String,
    /// For people.
    pub name: &'static str,
    /// Decides the natural side.
    pub kind: AccountKind,
    /// Fixed for ever.
    pub currency: Currency,
}

/// An account as it is shown.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Account {
    /// Its id.
    pub account_id: Uuid,
    /// For people.
    pub name: String,
    /// Decides the natural side.
    pub kind: AccountKind,
    /// ISO 4217 code.
    #[schema(value_type = String)]
    pub currency: Currency,
    /// Least balance that a decision may leave, natural side, in minor units; `null` = no limit.
    pub minimum_minor: Option<i64>,
    /// The client's own words.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
    /// When it was opened.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[serde(skip)]
    #[schema(ignore)]
    handle: AccountRef,
}

impl Account {
    /// The handle for entries.
    #[must_use]
    pub fn account_ref(&self) -> AccountRef {
        self.handle
    }
}

impl From<&Account> for AccountRef {
    fn from(account: &Account) -> Self {
        account.handle
    }
}

/// Handles of system accounts by tenant, key and currency.
pub type SystemAccounts = HashMap<(Uuid, String, Currency), AccountRef>;

/// What never changes about an account that a person opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownAccount {
    /// The handle for entries, with tenant and currency.
    pub account: AccountRef,
    /// Decides the natural side.
    pub kind: AccountKind,
}

/// Handles of accounts that are committed for good; one per process, cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct AccountCache(Arc<RwLock<Held>>);

#[derive(Debug, Default)]
struct Held {
    system: SystemAccounts,
    known: HashMap<Uuid, KnownAccount>,
}

impl AccountCache {
    fn get(&self, keys: &HashSet<(Uuid, String, Currency)>) -> SystemAccounts {
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().filter_map(|key| held.system.get(key).map(|handle| (key.clone(), *handle))).collect()
    }

    fn put(&self, found: SystemAccounts) {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if held.system.len().saturating_add(found.len()) <= MAX_CACHED {
            held.system.extend(found);
        }
    }

    /// What is remembered about an account; asks nobody.
    #[must_use]
    pub fn remembered(&self, id: Uuid) -> Option<KnownAccount> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).known.get(&id).copied()
    }

    fn known(&self, ids: &HashSet<Uuid>) -> HashMap<Uuid, KnownAccount> {
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        ids.iter().filter_map(|id| held.known.get(id).map(|known| (*id, *known))).collect()
    }

    fn put_known(&self, found: HashMap<Uuid, KnownAccount>) {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if held.known.len().saturating_add(found.len()) <= MAX_CACHED {
            held.known.extend(found);
        }
    }
}

/// Opens an account.
///
/// # Errors
/// [`LedgerError::AccountTaken`] when the id stands already, [`LedgerError::MinimumRange`].
pub async fn open_account_in_tx(conn: &mut PgConnection, new: &NewAccount) -> Result<Account, LedgerError> {
    if new.minimum_minor.is_some_and(|minimum| !(-MAX_MINOR..=0).contains(&minimum)) {
        return Err(LedgerError::MinimumRange);
    }
    repo::open(conn, new).await?.ok_or(LedgerError::AccountTaken(new.account_id))
}

/// Handles of the wanted system accounts; those that are missing are made.
///
/// Works in READ COMMITTED: an account that another transaction is just making is waited for, then found.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn system_accounts_in_tx(
    conn: &mut PgConnection,
    cache: &AccountCache,
    wanted: &[SystemAccount],
) -> Result<SystemAccounts, LedgerError> {
    let mut by_key = HashMap::with_capacity(wanted.len());
    for account in wanted {
        by_key.entry((account.tenant_id, account.key.clone(), account.currency)).or_insert(account);
    }
    let keys: HashSet<_> = by_key.keys().cloned().collect();
    let mut handles = cache.get(&keys);
    let missing = |handles: &SystemAccounts| -> Vec<&SystemAccount> {
        by_key.iter().filter(|(key, _)| !handles.contains_key(*key)).map(|(_, account)| *account).collect()
    };
    if handles.len() < keys.len() {
        find(conn, cache, &missing(&handles), &mut handles).await?;
    }
    if handles.len() < keys.len() {
        let mut new = missing(&handles);
        new.sort_by(|a, b| (a.tenant_id, &a.key, a.currency).cmp(&(b.tenant_id, &b.key, b.currency)));
        repo::make_system(conn, &new).await?;
        // A new statement: it also sees what the insert found in its way and waited for.
        find(conn, cache, &new, &mut handles).await?;
    }
    Ok(handles)
}

async fn find(
    conn: &mut PgConnection,
    cache: &AccountCache,
    wanted: &[&SystemAccount],
    handles: &mut SystemAccounts,
) -> Result<(), LedgerError> {
    let found = repo::system(conn, wanted).await?;
    cache.put(found.iter().filter(|row| row.decided).map(|row| (row.key.clone(), row.handle)).collect());
    handles.extend(found.into_iter().map(|row| (row.key, row.handle)));
    Ok(())
}

/// What never changes about these accounts, of whatever tenant; ids that name none are left out.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn known_accounts_in_tx(
    conn: &mut PgConnection,
    cache: &AccountCache,
    ids: &[Uuid],
) -> Result<HashMap<Uuid, KnownAccount>, LedgerError> {
    let ids: HashSet<Uuid> = ids.iter().copied().collect();
    let mut known = cache.known(&ids);
    let missing: Vec<Uuid> = ids.into_iter().filter(|id| !known.contains_key(id)).collect();
    if !missing.is_empty() {
        let found = repo::known(conn, &missing).await?;
        cache.put_known(
            found.iter().filter(|row| row.decided).map(|row| (row.account_id, row.known)).collect(),
        );
        known.extend(found.into_iter().map(|row| (row.account_id, row.known)));
    }
    Ok(known)
}

/// The tenant's accounts among `ids`; others are left out.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn accounts_by_uuid_in_tx(
    conn: &mut PgConnection,
    tenant: Uuid,
    ids: &[Uuid],
) -> Result<HashMap<Uuid, Account>, LedgerError> {
    let found = repo::by_uuid(conn, tenant, ids).await?;
    Ok(found.into_iter().map(|account| (account.account_id, account)).collect())
}

/// One account of the tenant.
///
/// # Errors
/// [`LedgerError::Db`].
pub async fn account(
    conn: &mut PgConnection,
    tenant: Uuid,
    account_id: Uuid,
) -> Result<Option<Account>, LedgerError> {
    Ok(repo::by_uuid(conn, tenant, &[account_id]).await?.pop())
}

/// A page of the tenant's accounts, newest first.
///
/// # Errors
/// [`LedgerError::BadCursor`] when `cursor` is none that a page of this tenant gave out.
pub async fn accounts(
    conn: &mut PgConnection,
    tenant: Uuid,
    cursor: Option<&str>,
    limit: i64,
) -> Result<Page<Account>, LedgerError> {
    let before = match cursor {
        Some(text) => {
            let last = text.parse().map_err(|_| LedgerError::BadCursor)?;
            let last = account(conn, tenant, last).await?.ok_or(LedgerError::BadCursor)?;
            Some(last.handle.id)
        }
        None => None,
    };
    let found = repo::page(conn, tenant, before, limit.saturating_add(1)).await?;
    Ok(Page::cut(found, limit, |account| account.account_id.to_string()))
}
