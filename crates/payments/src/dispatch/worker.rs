//! The tasks behind the dispatch role: one claims, many call, one collects and records.
//!
//! A permit stands for one operation from before its claim until its result is committed, so the calls in flight,
//! the memory and the results that wait to be written are bounded by the same number.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tallystick_runner::backoff::Backoff;
use tallystick_runner::{Shutdown, StepError, looper};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::call::call;
use super::claim::{self, Work};
use super::decide::News;
use super::record::{self, Item};
use crate::batch;
use crate::engine::Inner;
use crate::history::Evidence;
use crate::writer::WriteError;

/// A result on its way to the recorder; the permit is freed once it is committed.
struct Arrived {
    item: Item,
    permit: OwnedSemaphorePermit,
}

/// Every so many looks for work also take one of the operations whose workers keep dying.
const ALONE_EVERY: u32 = 16;
/// Record transactions at once. More only wait for each other's locks.
const RECORDERS: usize = 2;
/// How often a lock wait or a short outage is tried again before the lease is left to run out.
const TRANSIENT: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
/// How long a batch that fails is kept trying: its leases are over by then and its operations will be asked about.
const GIVE_UP_LEASES: u32 = 2;
/// An operation that cannot be recorded by itself is looked at again after this.
const POISON_WAIT: Duration = Duration::from_secs(60);

/// Starts the role.
pub(crate) fn spawn(inner: &Arc<Inner>, shutdown: &Shutdown) {
    let permits = Arc::new(Semaphore::new(inner.settings.max_in_flight));
    let (results, inbox) = mpsc::channel(inner.settings.max_in_flight);
    shutdown.spawn(recorder(inner.clone(), inbox));
    let (inner, stop) = (inner.clone(), shutdown.clone());
    shutdown.spawn(async move {
        let pace =
            looper::Pace { name: "dispatch", period: inner.settings.poll, wake: inner.wake_dispatch.clone() };
        let looks = std::sync::atomic::AtomicU32::new(0);
        // While there are any, one is taken at each look: after a row of kills there may be hundreds.
        let found_alone = std::sync::atomic::AtomicBool::new(false);
        let step = || async {
            let look = looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let alone =
                look.is_multiple_of(ALONE_EVERY) || found_alone.load(std::sync::atomic::Ordering::Relaxed);
            step(&inner, &permits, &results, &stop, alone.then_some(&found_alone)).await
        };
        if let Err(reason) = looper::run(pace, stop.clone(), step).await {
            inner.fail(reason);
        }
    });
}

async fn step(
    inner: &Arc<Inner>,
    permits: &Arc<Semaphore>,
    results: &Sender<Arrived>,
    shutdown: &Shutdown,
    alone: Option<&std::sync::atomic::AtomicBool>,
) -> Result<looper::StepReport, StepError> {
    let mut held = vec![tokio::select! {
        permit = permits.clone().acquire_owned() => permit.expect("the semaphore is never closed"),
        () = shutdown.stopping() => return Ok(looper::StepReport::default()),
    }];
    while held.len() < inner.settings.batch {
        let Ok(permit) = permits.clone().try_acquire_owned() else { break };
        held.push(permit);
    }
    let limit = i64::try_from(held.len()).unwrap_or(1);
    let mut work = claim::claim(inner, limit, false).await.map_err(retry)?;
    let mut more = work.len() == held.len();
    if let Some(found) = alone.filter(|_| !more) {
        let one = claim::claim(inner, 1, true).await.map_err(retry)?;
        found.store(!one.is_empty(), std::sync::atomic::Ordering::Relaxed);
        more = !one.is_empty();
        work.extend(one);
    }
    let done = work.len() as u64;
    metrics::histogram!("tallystick_claim_batch_size").record(u32::try_from(work.len()).unwrap_or(u32::MAX));
    for one in work {
        let permit = held.pop().expect("no more work than permits is claimed");
        start(inner, results, shutdown, one, permit);
    }
    Ok(looper::StepReport { done, more })
}

fn retry(error: WriteError) -> StepError {
    StepError::Retry(looper::chain(&error))
}

fn start(
    inner: &Arc<Inner>,
    results: &Sender<Arrived>,
    shutdown: &Shutdown,
    work: Work,
    permit: OwnedSemaphorePermit,
) {
    let (inner, results, stop) = (inner.clone(), results.clone(), shutdown.clone());
    shutdown.spawn(async move {
        let item = if stop.is_stopping() {
            // Claimed just as the process began to stop: somebody else may begin at once.
            Some(Item::held(&work, News::HandedBack, Evidence::Reply, None))
        } else {
            metrics::gauge!("tallystick_calls_in_flight").increment(1);
            let item = call(&inner, &work).await;
            metrics::gauge!("tallystick_calls_in_flight").decrement(1);
            item
        };
        if let Some(item) = item {
            // The recorder lives until the last sender is gone.
            if results.send(Arrived { item, permit }).await.is_err() {
                tracing::error!(operation.id = %work.operation.named().id, "the recorder is gone: the lease will run out");
            }
        }
    });
}

async fn recorder(inner: Arc<Inner>, mut inbox: Receiver<Arrived>) {
    let writers = Arc::new(Semaphore::new(RECORDERS));
    while let Some(first) = inbox.recv().await {
        let writer = writers.clone().acquire_owned().await.expect("the semaphore is never closed");
        let patience = batch::patience(inner.settings.record_linger, &writers, RECORDERS);
        let batch = batch::collect(first, &mut inbox, inner.settings.batch, patience).await;
        let inner = inner.clone();
        tokio::spawn(async move {
            let (items, permits): (Vec<Item>, Vec<OwnedSemaphorePermit>) =
                batch.into_iter().map(|r| (r.item, r.permit)).unzip();
            metrics::histogram!("tallystick_record_batch_size")
                .record(u32::try_from(items.len()).unwrap_or(u32::MAX));
            record_all(&inner, items).await;
            tallystick_runner::failpoint!("after_record");
            drop((permits, writer));
        });
    }
    // Wait for the batches that are still being written.
    let _ = writers.acquire_many(u32::try_from(RECORDERS).unwrap_or(1)).await;
}

/// Records a batch; when it cannot be recorded as a whole its items are tried one by one, so that one bad row does
/// not hold up the others.
async fn record_all(inner: &Arc<Inner>, items: Vec<Item>) {
    let Err(error) = record_with_patience(inner, &items).await else { return };
    if items.len() > 1 {
        tracing::warn!(
            error = looper::chain(&error),
            items = items.len(),
            "a batch was refused: its items are recorded alone"
        );
        for item in items {
            if let Err(error) = record_with_patience(inner, std::slice::from_ref(&item)).await {
                set_apart(inner, &item, &error).await;
            }
        }
    } else if let Some(item) = items.first() {
        set_apart(inner, item, &error).await;
    }
}

async fn record_with_patience(inner: &Arc<Inner>, items: &[Item]) -> Result<(), WriteError> {
    use tallystick_runner::Fault as _;
    let give_up = Instant::now() + inner.settings.lease * GIVE_UP_LEASES;
    let mut tries = 0;
    loop {
        match record::record(inner, items.to_vec()).await {
            Ok(_) => return Ok(()),
            Err(error)
                if error.db().is_some_and(tallystick_runner::DbError::is_transient)
                    && Instant::now() < give_up =>
            {
                tries += 1;
                metrics::counter!("tallystick_record_retries_total").increment(1);
                tokio::time::sleep(TRANSIENT.half_jitter(tries)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// One operation whose result cannot be written: told loudly and looked at again later, which asks the gateway.
async fn set_apart(inner: &Arc<Inner>, item: &Item, error: &WriteError) {
    metrics::counter!("tallystick_operations_set_apart_total").increment(1);
    tracing::error!(
        operation.id = %item.operation.id, error = looper::chain(error),
        "this result cannot be recorded; nothing is lost at the gateway, which will be asked again"
    );
    let (Some(fence), id) = (item.fence, item.operation.id) else { return };
    let postponed = inner
        .db
        .tx("dispatch.set_apart", move |conn| {
            Box::pin(async move {
                // The result stays unrecorded, so the next claim counts it as possibly sent.
                super::repo::delay(conn, id, fence, POISON_WAIT).await
            })
        })
        .await;
    if let Err(error) = postponed {
        tracing::warn!(operation.id = %item.operation.id, error = looper::chain(&error), "could not be postponed: its lease will run out");
    }
}
