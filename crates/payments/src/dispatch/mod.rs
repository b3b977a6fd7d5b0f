//! Open work on operations, in three phases: claim (transaction) → call (nothing open) → record (transaction).
//!
//! ```text
//!   claim   lease rows that are due; what an earlier worker left without a result becomes `unknown` first;
//!           payouts are debited
//!   call    submit or ask, as `decide` says; no connection is in scope there
//!   record  facts go through the one writer; the dispatch row gets its next due time or is deleted
//! ```
//!
//! What a crash leaves: before the claim commits, nothing; after it, a lease that runs out, and the next claim asks
//! the gateway before it sends anything. Facts are learnt whoever brings them; the fence guards only the dispatch
//! row and the weak news "reply lost".

mod call;
mod claim;
pub(crate) mod decide;
pub(crate) mod record;
pub(crate) mod repo;
mod restore;
mod worker;

pub(crate) use restore::{Walk, restore_step};
pub(crate) use worker::spawn;
