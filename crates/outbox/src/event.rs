//! Events: how they get in, in the transaction of what they tell about, and how the events of one object are read.

use jiff::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::OutboxError;
use crate::{Cursor, repo};

/// Most events that one [`append_in_tx`] takes.
pub const MAX_EVENTS_PER_APPEND: usize = 10_000;
/// Most bytes of one payload; the table refuses more, too.
pub const MAX_PAYLOAD_BYTES: usize = 262_144;

/// An event to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// What receivers recognise repeats by; unique.
    pub event_id: Uuid,
    /// Whose event it is.
    pub tenant_id: Uuid,
    /// Kind of the object told about.
    pub aggregate: &'static str,
    /// The object told about.
    pub aggregate_id: Uuid,
    /// The object's version after the move: 1, 2, 3 …
    pub version: i32,
    /// Name of the move; the event's type.
    pub kind: String,
    /// The exact bytes that are published.
    pub payload: Vec<u8>,
}

/// An event as a reader of the feed or a sink gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// What receivers recognise repeats by; unique.
    pub event_id: Uuid,
    /// Whose event it is.
    pub tenant_id: Uuid,
    /// Kind of the object told about.
    pub aggregate: String,
    /// The object told about.
    pub aggregate_id: Uuid,
    /// The object's version after the move: 1, 2, 3 …
    pub version: i32,
    /// Name of the move; the event's type.
    pub kind: String,
    /// The exact bytes that are published.
    pub payload: Vec<u8>,
    /// When the writing transaction began, by the database's clock.
    pub created_at: Timestamp,
    /// The position right behind this event.
    pub cursor: Cursor,
}

/// An event of an object, without a place in the feed: it may not be in a window yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// What receivers recognise repeats by; unique.
    pub event_id: Uuid,
    /// Whose event it is.
    pub tenant_id: Uuid,
    /// Kind of the object told about.
    pub aggregate: String,
    /// The object told about.
    pub aggregate_id: Uuid,
    /// The object's version after the move: 1, 2, 3 …
    pub version: i32,
    /// Name of the move; the event's type.
    pub kind: String,
    /// The exact bytes that are published.
    pub payload: Vec<u8>,
    /// When the writing transaction began, by the database's clock.
    pub created_at: Timestamp,
}

/// Writes events in the caller's transaction, one statement for all. They get their places in the slice's order.
///
/// The caller holds the row lock of each object whose version it tells about; that is what keeps the events of one
/// object in order (see the crate's documentation).
///
/// # Errors
/// [`OutboxError::TooManyEvents`] and [`OutboxError::PayloadTooLarge`] before anything is sent;
/// [`OutboxError::Db`] also when today has no partition.
pub async fn append_in_tx(conn: &mut PgConnection, events: &[NewEvent]) -> Result<(), OutboxError> {
    if events.len() > MAX_EVENTS_PER_APPEND {
        return Err(OutboxError::TooManyEvents { found: events.len() });
    }
    if let Some(event) = events.iter().find(|e| e.payload.len() > MAX_PAYLOAD_BYTES) {
        return Err(OutboxError::PayloadTooLarge { event_id: event.event_id, found: event.payload.len() });
    }
    if events.is_empty() {
        return Ok(());
    }
    Ok(repo::append(conn, events).await?)
}

/// The retained events of some objects of one tenant, by object and version. Committed ones only, in a window or not.
///
/// # Errors
/// [`OutboxError::Db`].
pub async fn events_of(
    conn: &mut PgConnection,
    tenant: Uuid,
    aggregate_ids: &[Uuid],
) -> Result<Vec<EventRecord>, OutboxError> {
    if aggregate_ids.is_empty() {
        return Ok(Vec::new());
    }
    Ok(repo::events_of(conn, tenant, aggregate_ids).await?)
}
