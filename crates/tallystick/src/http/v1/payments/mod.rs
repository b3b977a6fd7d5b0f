//! Payments: money in.

pub mod create;
pub mod get;
pub mod list;
