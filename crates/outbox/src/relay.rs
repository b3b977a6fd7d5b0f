//! The relay: hands the feed to a sink, batch by batch, and remembers how far the sink has confirmed.
//!
//! One process at a time works for a sink, under a lease with a fence; the position is moved only by whoever holds
//! the fence, and only on from where it was read. Nothing is open while the sink is called. After a crash, a pause
//! longer than the lease or a failure, events that were not confirmed come again, in the same order: a later event of
//! an object never reaches a sink for the first time before an earlier one.

use std::time::{Duration, Instant};

use sqlx::PgConnection;
use tallystick_runner::{Db, StepReport};
use uuid::Uuid;

use crate::error::{OutboxError, SinkError};
use crate::event::StoredEvent;
use crate::feed::{Page, page};
use crate::sinks::EventSink;
use crate::{Cursor, repo};

/// Events handed to a sink at once.
const BATCH: i64 = 500;

/// One step for one sink: takes or keeps the lease, publishes one batch, moves the position over what was confirmed.
/// `owner` names this process. Does nothing while another process holds the lease or the sink is disabled.
///
/// # Errors
/// [`OutboxError::Sink`] or [`OutboxError::Partial`] when the sink did not confirm everything (the position stands
/// behind what it did confirm), [`OutboxError::LostLease`] when another process took over meanwhile.
pub async fn relay_step(
    db: &Db,
    sink: &dyn EventSink,
    owner: Uuid,
    lease: Duration,
) -> Result<StepReport, OutboxError> {
    let name = sink.name();
    // Measured from before the lease was read, so that our end of it comes before the database's.
    let started = Instant::now();
    let Some((held, batch)) = take(db, name, owner, lease).await? else {
        return Ok(StepReport::default());
    };
    if batch.events.is_empty() {
        if batch.next != held.position {
            advance(db, name, owner, &held, batch.next, lease).await?;
        }
        return Ok(StepReport::default());
    }
    let left = held.left.saturating_sub(started.elapsed());
    let (confirmed, failure) = publish(sink, &batch.events, left).await;
    metrics::counter!("tallystick_outbox_published_total", "sink" => name).increment(confirmed as u64);
    let whole = confirmed == batch.events.len();
    let reached =
        if whole { Some(batch.next) } else { confirmed.checked_sub(1).map(|last| batch.events[last].cursor) };
    if let Some(reached) = reached {
        advance(db, name, owner, &held, reached, lease).await?;
    }
    match failure {
        Some(source) => Err(OutboxError::Sink { sink: name, source }),
        None if whole => Ok(StepReport {
            done: confirmed as u64,
            more: i64::try_from(confirmed).is_ok_and(|confirmed| confirmed >= BATCH),
        }),
        None => Err(OutboxError::Partial { sink: name, confirmed, of: batch.events.len() }),
    }
}

/// The lease and the batch behind the sink's position. `None`: not ours to do.
async fn take(
    db: &Db,
    name: &'static str,
    owner: Uuid,
    lease: Duration,
) -> Result<Option<(repo::Held, Page)>, OutboxError> {
    let mut conn = db.conn().await?;
    // Keeping a lease that lasts needs no write, so that an idle relay writes twice per lease at most.
    let held = match repo::sink_read(&mut conn, name, owner).await? {
        Some(sink) if !sink.enabled => return Ok(None),
        Some(sink) if sink.ours && sink.held.left >= lease / 2 => sink.held,
        Some(sink) if !sink.ours && !sink.held.left.is_zero() => return Ok(None),
        _ => match repo::sink_take(&mut conn, name, owner, lease).await? {
            Some(held) => held,
            None => return Ok(None),
        },
    };
    let batch = page(&mut conn, None, held.position, BATCH).await?;
    Ok(Some((held, batch)))
}

/// Calls the sink while the lease lasts. No connection is in scope here.
async fn publish(sink: &dyn EventSink, events: &[StoredEvent], left: Duration) -> (usize, Option<SinkError>) {
    match tokio::time::timeout(left, sink.publish(events)).await {
        Ok(Ok(confirmed)) => (confirmed.min(events.len()), None),
        Ok(Err(error)) => (0, Some(error)),
        Err(_) => (0, Some(SinkError::Timeout(left))),
    }
}

async fn advance(
    db: &Db,
    name: &'static str,
    owner: Uuid,
    held: &repo::Held,
    to: Cursor,
    lease: Duration,
) -> Result<(), OutboxError> {
    let mut conn = db.conn().await?;
    match repo::sink_advance(&mut conn, name, owner, held, to, lease).await? {
        0 => Err(OutboxError::LostLease { sink: name }),
        _ => Ok(()),
    }
}

/// How far one sink is behind. For metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The sink's name.
    pub sink: String,
    /// A disabled sink falls behind until it is enabled again.
    pub enabled: bool,
    /// Events in windows that the sink has not confirmed; a window that is partly confirmed counts in full.
    pub events_behind: i64,
    /// Age in seconds of the oldest event in the first such window; 0 when the sink is up to date.
    pub oldest_unpublished_seconds: i64,
}

/// How far each sink is behind what is in windows. What is not yet in one: [`crate::ticker_lag_seconds`].
///
/// # Errors
/// [`OutboxError::Db`].
pub async fn lag(conn: &mut PgConnection) -> Result<Vec<Lag>, OutboxError> {
    Ok(repo::lag(conn).await?)
}
