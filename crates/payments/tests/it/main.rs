//! The engine on a real database, with a scripted gateway whose own book is the witness.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
mod gateway;

mod approval;
mod inbound;
mod orders;
mod payouts;
mod pipeline;
mod plans;
mod recovery;
mod requeue;
mod rights;
