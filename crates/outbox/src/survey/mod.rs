//! All retained events of one kind of object in pages, by object: for a caller that knows which moves there were and
//! compares the two. Pages that are read in one snapshot fit together.

mod repo;

use jiff::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::OutboxError;

/// A place between two events in the order of object, version and seq.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventPlace {
    /// The object told about.
    pub aggregate_id: Uuid,
    /// Its version after the move.
    pub version: i32,
    /// Order among several of one version, which there should not be.
    pub seq: i64,
}

impl EventPlace {
    /// Before the first event.
    #[must_use]
    pub fn start() -> Self {
        Self { aggregate_id: Uuid::nil(), version: 0, seq: 0 }
    }
}

/// An event in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDigest {
    /// Where it stands in the order of the pages.
    pub place: EventPlace,
    /// What receivers recognise repeats by.
    pub event_id: Uuid,
    /// Whose event it is.
    pub tenant_id: Uuid,
    /// Its type.
    pub kind: String,
    /// The exact bytes that are published.
    pub payload: Vec<u8>,
}

/// The next `limit` events of one kind of object behind a place. Fewer than `limit` are the last ones.
///
/// # Errors
/// [`OutboxError::Db`].
pub async fn events(
    conn: &mut PgConnection,
    aggregate: &str,
    after: EventPlace,
    limit: i64,
) -> Result<Vec<EventDigest>, OutboxError> {
    Ok(repo::events(conn, aggregate, after, limit).await?)
}

/// From when on every event is retained, by the database's clock; `None`: none was ever dropped. Events go away
/// together with the windows that lead to them, so the first window is there as long as all events are.
///
/// # Errors
/// [`OutboxError::Db`].
pub async fn retained_since(conn: &mut PgConnection) -> Result<Option<Timestamp>, OutboxError> {
    Ok(repo::retained_since(conn).await?)
}
