#![doc = include_str!("../README.md")]

mod cursor;
mod error;
mod event;
mod feed;
mod partitions;
mod relay;
mod repo;
pub mod sinks;
pub mod survey;
mod ticker;
pub mod verify;

pub use cursor::Cursor;
pub use error::{CursorError, OutboxError, SinkError};
pub use event::{
    EventRecord, MAX_EVENTS_PER_APPEND, MAX_PAYLOAD_BYTES, NewEvent, StoredEvent, append_in_tx, events_of,
};
pub use feed::{MAX_PAGE, Page, page};
pub use partitions::{MAX_DAYS_AHEAD, ensure_partitions, partition_days_left};
pub use relay::{Lag, lag, relay_step};
pub use sinks::EventSink;
pub use ticker::{tick, ticker_lag_seconds};

/// Migrations of SQL schema `outbox`; they run after those of `runner`.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();
