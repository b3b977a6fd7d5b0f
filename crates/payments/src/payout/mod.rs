//! Payouts: money out, debited first and sent once.

pub(crate) mod create;
pub(crate) mod debit;
pub(crate) mod repo;
pub(crate) mod state;
pub(crate) mod view;

pub use repo::PayoutFilter;
pub use state::PayoutStatus;
pub use view::{CreatePayout, Payout};
