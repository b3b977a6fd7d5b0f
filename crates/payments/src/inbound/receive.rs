//! First transaction: verify, store, acknowledge. Requests that come together share it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tallystick_gateway::{WebhookError, WebhookMessage};
use tallystick_runner::{DbError, Shutdown, clock, looper};
use tokio::sync::mpsc::Receiver;
use tokio::sync::{Semaphore, oneshot};

use super::apply;
use super::error::InboundError;
use super::repo::{self, NewInbound};
use crate::batch;
use crate::engine::Inner;

/// Events of one gateway account that may wait at once; beyond it the sender keeps them.
const MAX_OPEN_EVENTS: i64 = 100_000;
/// Bytes of one gateway account that may wait at once: 1 GiB.
const MAX_OPEN_BYTES: i64 = 1 << 30;
/// How long the size of what waits is believed.
const SIZE_BELIEVED: Duration = Duration::from_secs(5);
/// Most events of one transaction.
const MAX_BATCH: usize = 256;
/// Batches at once.
const WRITERS: usize = 2;

/// An event on its way to being stored.
pub(crate) struct Job {
    event: NewInbound,
    reply: oneshot::Sender<Result<(), InboundError>>,
}

/// What waits per gateway account, as last looked up.
#[derive(Debug, Default)]
pub(crate) struct Sizes(Mutex<HashMap<String, (Instant, bool)>>);

/// Verifies an event and returns once it is stored.
pub(crate) async fn receive(
    inner: &Arc<Inner>,
    gateway: &str,
    message: WebhookMessage<'_>,
) -> Result<(), InboundError> {
    let adapter = inner.gateways.get(gateway).ok_or(InboundError::UnknownGateway)?;
    let counted = |result: &'static str| {
        metrics::counter!("tallystick_inbound_events_total", "gateway" => gateway.to_owned(), "result" => result).increment(1);
    };
    if let Err(error) = adapter.verify_webhook(message, clock::now().as_second()) {
        counted("unverified");
        return Err(match error {
            WebhookError::Unverified => InboundError::Unverified,
            WebhookError::Malformed(reason) => InboundError::Malformed(reason),
        });
    }
    let body = Bytes::copy_from_slice(message.body);
    let reports = adapter.read_webhook(&body).map_err(|error| {
        counted("malformed");
        InboundError::Malformed(error.to_string())
    })?;
    if is_full(inner, gateway).await? {
        counted("full");
        return Err(InboundError::Full);
    }
    let event = NewInbound {
        gateway: gateway.to_owned(),
        event_id: message.id.unwrap_or_default().to_owned(),
        raw: body.to_vec(),
        reference: reports.into_iter().find_map(|r| r.reference),
    };
    let (reply, stored) = oneshot::channel();
    inner.inbound.try_send(Job { event, reply }).map_err(|_| InboundError::Full)?;
    let result = stored.await.unwrap_or(Err(InboundError::Full));
    counted(if result.is_ok() { "stored" } else { "failed" });
    result
}

async fn is_full(inner: &Inner, gateway: &str) -> Result<bool, DbError> {
    let known = inner.inbound_sizes.0.lock().expect("no panic while held").get(gateway).copied();
    if let Some((at, full)) = known
        && at.elapsed() < SIZE_BELIEVED
    {
        return Ok(full);
    }
    let mut conn = inner.db.conn().await?;
    let (events, bytes) = repo::open_size(&mut conn, gateway, MAX_OPEN_EVENTS).await?;
    let full = events >= MAX_OPEN_EVENTS || bytes >= MAX_OPEN_BYTES;
    inner
        .inbound_sizes
        .0
        .lock()
        .expect("no panic while held")
        .insert(gateway.to_owned(), (Instant::now(), full));
    Ok(full)
}

/// Starts the writer of received events.
pub(crate) fn spawn(inner: &Arc<Inner>, mut inbox: Receiver<Job>, shutdown: &Shutdown) {
    let (inner, stop) = (Arc::downgrade(inner), shutdown.clone());
    shutdown.spawn(async move {
        let writers = Arc::new(Semaphore::new(WRITERS));
        loop {
            let first = tokio::select! {
                job = inbox.recv() => match job { Some(job) => job, None => break },
                () = stop.stopping() => match inbox.try_recv() { Ok(job) => job, Err(_) => break },
            };
            let Some(inner) = inner.upgrade() else { break };
            let writer = writers.clone().acquire_owned().await.expect("the semaphore is never closed");
            let patience = batch::patience(inner.settings.create_linger, &writers, WRITERS);
            let jobs = batch::collect(first, &mut inbox, MAX_BATCH, patience).await;
            tokio::spawn(async move {
                store_and_apply(&inner, jobs).await;
                drop(writer);
            });
        }
        let _ = writers.acquire_many(u32::try_from(WRITERS).unwrap_or(1)).await;
    });
}

/// Stores a batch and applies it. When it is refused as a whole its events are stored alone, so that one that cannot
/// be stored does not hold up the others.
async fn store_and_apply(inner: &Arc<Inner>, jobs: Vec<Job>) {
    match store(inner, &jobs).await {
        Ok(()) => {
            let names = names(&jobs);
            jobs.into_iter().for_each(|job| answer(job, true));
            apply::apply_named(inner, names).await;
        }
        Err(error) if error.is_transient() || jobs.len() == 1 => {
            tracing::warn!(
                error = looper::chain(&error),
                events = jobs.len(),
                "webhooks could not be stored: their sender will try again"
            );
            jobs.into_iter().for_each(|job| answer(job, false));
        }
        Err(_) => {
            for job in jobs {
                Box::pin(store_and_apply(inner, vec![job])).await;
            }
        }
    }
}

fn names(jobs: &[Job]) -> Vec<(String, String)> {
    let names: HashSet<(String, String)> =
        jobs.iter().map(|j| (j.event.gateway.clone(), j.event.event_id.clone())).collect();
    names.into_iter().collect()
}

fn answer(job: Job, stored: bool) {
    let unavailable = || InboundError::Db(DbError::Unavailable(sqlx::Error::WorkerCrashed));
    // A sender that hung up sends the event again.
    let _ = job.reply.send(if stored { Ok(()) } else { Err(unavailable()) });
}

async fn store(inner: &Inner, jobs: &[Job]) -> Result<(), DbError> {
    // The same event twice in a batch is one row.
    let mut seen = HashSet::new();
    let events: Vec<NewInbound> = jobs
        .iter()
        .filter(|j| seen.insert((j.event.gateway.clone(), j.event.event_id.clone())))
        .map(|j| j.event.clone())
        .collect();
    inner
        .db
        .tx("inbound.store", move |conn| {
            let events = events.clone();
            Box::pin(async move { repo::insert(conn, &events).await })
        })
        .await
}
