//! What every part of the product that touches PostgreSQL needs, and nothing about money:
//! named transactions, loops, back-off, shutdown, and the marks that order rows across transactions.
//!
//! - [`Db::tx`] is the only way to open a transaction.
//! - [`looper`] drives idempotent steps without input; timers and messages only wake them.
//! - [`cluster`] refuses to work on a database that was copied from elsewhere.
//! - [`pooler`] refuses a connection that mixes up prepared statements.
//! - [`figures`] reads what PostgreSQL counts about itself, for measurements.
//! - [`failpoint!`] is compiled to nothing unless the feature `failpoints` is on (tests only).

pub mod backoff;
pub mod clock;
pub mod cluster;
mod db;
mod error;
pub mod failpoint;
pub mod figures;
pub mod lifecycle;
pub mod looper;
pub mod pooler;
mod repo;

pub use db::{Db, DbOptions, TxFuture};
pub use error::{DbError, Fault};
pub use lifecycle::Shutdown;
pub use looper::{Pace, StepError, StepReport};

/// Migrations of SQL schema `runner`; the first to run.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();
