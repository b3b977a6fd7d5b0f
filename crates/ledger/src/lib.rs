#![doc = include_str!("../README.md")]

mod account;
mod balance;
mod error;
mod journal;
mod page;
mod posting;
pub mod survey;
pub mod verify;

pub use account::{
    Account, AccountCache, AccountKind, AccountRef, KnownAccount, NewAccount, SystemAccount, SystemAccounts,
    account, accounts, accounts_by_uuid_in_tx, known_accounts_in_tx, open_account_in_tx,
    system_accounts_in_tx,
};
pub use balance::{Balance, TrialBalance, TrialBalanceRow, balance, checkpoint_step, trial_balance};
pub use error::LedgerError;
pub use journal::{AccountEntry, Entry, Journal, account_entries, journal, journals_of};
pub use page::Page;
pub use posting::{
    Direction, JournalStatus, LimitedAccount, MAX_ENTRIES, NewEntry, NewJournal, Posted, lock_limited_in_tx,
    post_in_tx, post_within_limits_in_tx, reverse_in_tx, set_status_in_tx, standing_in_tx,
};

/// Migrations of SQL schema `ledger`. They run after those of schema `runner`, as the owning role.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();
