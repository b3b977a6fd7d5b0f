//! The payment engine: states, use cases, the work that is open, and the one writer.
//!
//! [`engine::Engine`] is what the API and the command line use. Inside, a folder per noun: `payment`, `dispatch`
//! (claim → call → record), `writer` (state + journal + history + event in one transaction), `inbound` (webhooks of
//! gateways), `idempotency`, `bookkeeping` (accounts and manual journals), `breaks`, `tenants`. SQL stands only in
//! files called `repo.rs`; `state.rs`, `decide.rs` and `journals/` are pure.

mod batch;
pub mod bookkeeping;
pub mod breaks;
mod create;
mod dispatch;
pub mod docs;
pub mod engine;
mod events;
pub mod gauges;
mod history;
mod idempotency;
pub mod idle;
pub mod ids;
mod inbound;
mod journals;
mod loops;
pub mod migrate;
mod operation;
pub mod payment;
pub mod payout;
pub mod requeue;
pub mod settings;
pub mod tenants;
pub mod verify;
mod writer;

pub use create::CreateError;
pub use engine::{Answer, Engine};
pub use inbound::InboundError;
pub use operation::OperationKind;
pub use settings::{Settings, SettingsError};

/// Migrations of SQL schema `payments`; the last to run.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();
