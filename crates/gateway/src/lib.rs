//! The edge to card gateways and banks: what may be said to one, what it may answer, and who said a webhook.
//!
//! An answer from the world is a value, never an error that `?` could turn into a failure: see [`Outcome`] and
//! [`Answer`]. This crate opens sockets and knows no SQL; it knows neither the ledger nor the outbox.
//!
//! A new gateway is one file in `adapters/` and one line in [`adapters::ALL`]; the conformance suite in
//! `tests/conformance.rs` runs over that list.

pub mod adapters;
mod contract;
pub mod http;
pub mod signature;
pub mod text;

pub use contract::{
    Answer, Approval, Capability, Decline, Gateway, LostCause, NotSentCause, Operation, Outcome, Replay,
    Report, ReportKind, Stage, Submit, WebhookError, WebhookMessage,
};
