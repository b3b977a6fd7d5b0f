//! Accounts of the ledger.

pub mod balance;
pub mod entries;
pub mod get;
pub mod list;
pub mod open;
