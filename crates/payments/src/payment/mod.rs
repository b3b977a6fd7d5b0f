//! Payments: money in.

pub(crate) mod create;
pub(crate) mod repo;
pub(crate) mod state;
pub(crate) mod view;
pub(crate) mod wait;

pub use repo::PaymentFilter;
pub use state::PaymentStatus;
pub use view::{Attempt, Attention, Capture, CreatePayment, Failure, HistoryRow, Payment};
