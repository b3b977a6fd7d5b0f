//! The table of background loops. Each is an idempotent step without input; any number of processes may run them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tallystick_ledger as ledger;
use tallystick_outbox::{self as outbox, EventSink, OutboxError};
use tallystick_runner::{Pace, Shutdown, StepError, StepReport, looper};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::engine::Inner;
use crate::{dispatch, gauges, idempotency, inbound};

const INBOUND: Duration = Duration::from_secs(1);
const RESTORE: Duration = Duration::from_secs(60);
const PARTITIONS: Duration = Duration::from_secs(3_600);
const CHECKPOINTS: Duration = Duration::from_secs(10);
const EXPIRE: Duration = Duration::from_secs(300);
const WATCH: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(15);
const RELAY: Duration = Duration::from_millis(50);
/// How long a sink's position is held by one process.
const RELAY_LEASE: Duration = Duration::from_secs(30);

/// Days that outbox partitions are made ahead.
pub const PARTITION_DAYS: i32 = 7;
/// How long an idempotency key is kept: longer than any gateway recognises a key.
pub const IDEMPOTENCY_RETENTION: Duration = Duration::from_secs(30 * 86_400);
/// Accounts looked at per checkpoint step, and entries above the last checkpoint that are worth a new one.
const CHECKPOINT_PAGE: i64 = 500;
const CHECKPOINT_ENTRIES: i64 = 1_000;
const EXPIRE_BATCH: i64 = 5_000;
/// An unknown outcome older than this is told as a warning.
const UNKNOWN_ALERT_SECONDS: i64 = 15 * 60;
/// A write transaction older than this holds back checkpoints and is told as a warning.
const HORIZON_ALERT_SECONDS: i64 = 5;

/// Starts one loop; when it cannot go on the process is told to stop.
fn start<F, Fut>(inner: &Arc<Inner>, shutdown: &Shutdown, name: &'static str, period: Duration, step: F)
where
    F: Fn(Arc<Inner>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<StepReport, StepError>> + Send + 'static,
{
    let (inner, stop) = (inner.clone(), shutdown.clone());
    shutdown.spawn(async move {
        let pace = Pace { name, period, wake: Arc::new(Notify::new()) };
        if let Err(reason) = looper::run(pace, stop, || step(inner.clone())).await {
            inner.fail(format!("loop {name}: {reason}"));
        }
    });
}

/// The loops of the sweep role: repair, tidy, watch.
pub(crate) fn spawn_sweep(inner: &Arc<Inner>, shutdown: &Shutdown) {
    start(inner, shutdown, "inbound", INBOUND, |inner| async move { inbound::due_step(&inner).await });
    start(inner, shutdown, "restore", RESTORE, |inner| async move { dispatch::restore_step(&inner).await });
    start(inner, shutdown, "partitions", PARTITIONS, |inner| async move { partitions(&inner).await });
    start(inner, shutdown, "idempotency", EXPIRE, |inner| async move { expire(&inner).await });
    start(inner, shutdown, "watch", WATCH, |inner| async move { watch(&inner).await });
    let place = Arc::new(AtomicI64::new(0));
    start(inner, shutdown, "checkpoints", CHECKPOINTS, move |inner| {
        let place = place.clone();
        async move { checkpoints(&inner, &place).await }
    });
}

/// The loops of the relay role: the ticker, and one relay per sink.
pub(crate) fn spawn_relay(inner: &Arc<Inner>, shutdown: &Shutdown, sinks: Vec<Arc<dyn EventSink>>) {
    start(
        inner,
        shutdown,
        "ticker",
        TICK,
        |inner| async move { outbox::tick(&inner.db).await.map_err(retry) },
    );
    let owner = Uuid::now_v7();
    for sink in sinks {
        start(inner, shutdown, "relay", RELAY, move |inner| {
            let sink = sink.clone();
            async move { outbox::relay_step(&inner.db, sink.as_ref(), owner, RELAY_LEASE).await.map_err(retry) }
        });
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used as a function value in map_err")]
fn retry(error: OutboxError) -> StepError {
    StepError::Retry(looper::chain(&error))
}

async fn partitions(inner: &Inner) -> Result<StepReport, StepError> {
    let made = outbox::ensure_partitions(&inner.db, PARTITION_DAYS).await.map_err(retry)?;
    Ok(StepReport { done: u64::try_from(made).unwrap_or(0), more: false })
}

async fn checkpoints(inner: &Inner, place: &AtomicI64) -> Result<StepReport, StepError> {
    let mut conn = inner.db.conn().await?;
    let after = place.load(Ordering::Relaxed);
    let (next, made) = ledger::checkpoint_step(&mut conn, after, CHECKPOINT_PAGE, CHECKPOINT_ENTRIES)
        .await
        .map_err(|e| StepError::Retry(looper::chain(&e)))?;
    place.store(next, Ordering::Relaxed);
    Ok(StepReport { done: made, more: next != 0 })
}

async fn expire(inner: &Inner) -> Result<StepReport, StepError> {
    let mut conn = inner.db.conn().await?;
    let done = idempotency::repo::expire(&mut conn, IDEMPOTENCY_RETENTION, EXPIRE_BATCH).await?;
    Ok(StepReport { done, more: i64::try_from(done).is_ok_and(|d| d == EXPIRE_BATCH) })
}

/// Tells people what needs them. Moves nothing.
async fn watch(inner: &Inner) -> Result<StepReport, StepError> {
    let gauges = gauges::read(&inner.db).await?;
    if gauges.unknown_oldest_seconds > UNKNOWN_ALERT_SECONDS {
        tracing::warn!(
            unknown.count = gauges.unknown_count,
            unknown.oldest_seconds = gauges.unknown_oldest_seconds,
            "payments have been unknown for a long time: is the gateway answering? They stay unknown until there is evidence"
        );
    }
    if gauges.horizon_age_seconds > HORIZON_ALERT_SECONDS {
        tracing::warn!(
            horizon.age_seconds = gauges.horizon_age_seconds,
            "a write transaction has been open for long: it holds back ledger checkpoints of the whole cluster"
        );
    }
    Ok(StepReport { done: 1, more: false })
}
