//! Webhooks from gateways: verified, stored, acknowledged; then applied.
//!
//! ```text
//!   first transaction    insert the verified bytes, one row per (gateway, event id); the sender gets its 2xx
//!   second transaction   lock the row, learn, write state + journal + event, end the row: all together
//! ```
//! A delivery that comes again finds its row. One whose handling failed, or that names an operation which does not
//! exist yet, stays and is tried again by a loop. An event names an operation by our key first, then by the
//! gateway's id; the tenant is the operation's, never a field of the event.

mod apply;
mod error;
mod receive;
pub(crate) mod repo;

pub(crate) use apply::due_step;
pub use error::InboundError;
pub(crate) use receive::{Job, Sizes, receive, spawn};
