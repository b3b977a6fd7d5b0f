//! Payouts: money out.

pub mod create;
pub mod get;
pub mod list;
