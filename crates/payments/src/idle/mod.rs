//! Is there anything that still moves by itself? What `tallystick wait --idle` waits for.
//!
//! Open is: work on an operation, and a webhook that is stored and not yet looked at. Not open is what waits for a
//! person (`attention`, or an unknown outcome whose key the gateway has forgotten) and what waits for somebody else
//! (parked events).
//!
//! [`is_idle`] is one cheap query over the open work. An operation whose dispatch row was lost is not in it; [`open`]
//! reads all operations and finds those, too.

mod repo;

use std::time::Duration;

use serde::Serialize;
use tallystick_runner::{Db, DbError};
use uuid::Uuid;

/// Most ids that are listed; the counts are of all.
pub const LISTED: i64 = 20;

/// What is still open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Open {
    /// How many operations.
    pub operations: i64,
    /// The first [`LISTED`] of them, oldest first.
    pub operation_ids: Vec<Uuid>,
    /// How many stored inbound events.
    pub inbound: i64,
    /// The first [`LISTED`] of them as `gateway/event id`, oldest first.
    pub inbound_ids: Vec<String>,
}

impl Open {
    /// Nothing is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations == 0 && self.inbound == 0
    }
}

/// Is no work open, as far as a cheap look can tell? `key_retention` is how long gateways recognise a key; an unknown
/// outcome that is older waits for a person.
///
/// # Errors
/// [`DbError`].
pub async fn is_idle(db: &Db, key_retention: Duration) -> Result<bool, DbError> {
    repo::is_idle(&mut *db.conn().await?, key_retention).await
}

/// All that is open, operations without a dispatch row included. Reads every payment and payout.
///
/// # Errors
/// [`DbError`].
pub async fn open(db: &Db, key_retention: Duration) -> Result<Open, DbError> {
    db.snapshot("idle.open", move |conn| Box::pin(async move { repo::open(conn, key_retention).await })).await
}
