//! Daily partitions of the event table, made ahead. Days are UTC days.
//!
//! Without a partition for today no event, hence no payment, can be written. So they are made when migrating, at
//! start and by a loop, a week ahead; a process with less than two days left should not call itself ready.

use tallystick_runner::Db;

use crate::error::OutboxError;
use crate::repo;

/// Most days ahead that partitions are made for.
pub const MAX_DAYS_AHEAD: i32 = 60;

/// Makes the missing partitions of today and the `days` days after it; gives how many it made. Safe to call from any
/// number of processes at once; readers and writers of events do not wait for it.
///
/// # Errors
/// [`OutboxError::Db`]; a lock that was not granted within two seconds is transient.
pub async fn ensure_partitions(db: &Db, days: i32) -> Result<i32, OutboxError> {
    let mut conn = db.conn().await?;
    Ok(repo::ensure_partitions(&mut conn, days.clamp(0, MAX_DAYS_AHEAD)).await?)
}

/// For how many whole days after today events can be written; -1 when even today has no partition.
///
/// # Errors
/// [`OutboxError::Db`].
pub async fn partition_days_left(db: &Db) -> Result<i32, OutboxError> {
    let mut conn = db.conn().await?;
    Ok(repo::partition_days_left(&mut conn).await?)
}
