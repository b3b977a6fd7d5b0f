//! The ticker: turns committed events into windows.
//!
//! Any number of processes may tick at the same time; the window's number lets one of them through. A tick that finds
//! nothing new writes nothing.

use sqlx::PgConnection;
use tallystick_runner::{Db, StepReport};

use crate::error::OutboxError;
use crate::repo;

/// One step of the ticker: makes the next window if there is at least one event for it. `done` counts its events.
///
/// It never asks to be run again at once: windows that follow each other without a pause would be many and small.
///
/// # Errors
/// [`OutboxError::Db`].
pub async fn tick(db: &Db) -> Result<StepReport, OutboxError> {
    let mut conn = db.conn().await?;
    let events = repo::make_window(&mut conn).await?;
    Ok(StepReport { done: u64::try_from(events).unwrap_or(0), more: false })
}

/// Age in seconds of the oldest committed event that is in no window yet; 0 when there is none. It grows when no
/// ticker runs.
///
/// # Errors
/// [`OutboxError::Db`].
pub async fn ticker_lag_seconds(conn: &mut PgConnection) -> Result<i64, OutboxError> {
    Ok(repo::ticker_lag_seconds(conn).await?)
}
