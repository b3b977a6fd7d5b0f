//! Figures for monitoring that live in the database. Each is one look at an index; nothing is counted at large.

use tallystick_runner::{Db, DbError};

mod repo;

/// Plain numbers; the metrics page names and describes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Payments and payouts whose outcome is not known (counted up to 10,000).
    pub unknown_count: i64,
    /// Age of the oldest of them, in seconds.
    pub unknown_oldest_seconds: i64,
    /// Operations with open work (counted up to 100,000).
    pub open_operations: i64,
    /// How long the oldest due operation has been due, in seconds; 0 when none is.
    pub due_oldest_seconds: i64,
    /// Inbound events that wait (counted up to 100,000).
    pub inbound_open: i64,
    /// Breaks that are open (counted up to 10,000).
    pub breaks_open: i64,
    /// Whole days for which the outbox has partitions.
    pub partition_days_left: i64,
    /// Age of the oldest write transaction of the cluster, in seconds: it holds back checkpoints.
    pub horizon_age_seconds: i64,
}

/// Reads them all.
pub(crate) async fn read(db: &Db) -> Result<Gauges, DbError> {
    let mut gauges = repo::read(&mut *db.conn().await?).await?;
    gauges.partition_days_left =
        tallystick_outbox::partition_days_left(db).await.map(i64::from).unwrap_or_default();
    Ok(gauges)
}
