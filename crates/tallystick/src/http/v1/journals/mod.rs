//! Journals of the ledger.

pub mod get;
pub mod post;
pub mod reverse;
