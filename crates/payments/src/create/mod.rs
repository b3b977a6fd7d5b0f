//! Creating operations, payments and payouts alike: requests that come together share one transaction.
//!
//! In order: idempotency keys (insert first) → rows (one active per order or reference) → dispatch rows, history, events.
//! The answer's bytes are made before the commit and stored with the key, so a repeat gets the same bytes whoever
//! serves it. When a batch is refused as a whole, its requests are tried alone: a request that waits for its twin in
//! another process must not hold up strangers.

mod error;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use sqlx::PgConnection;
use tallystick_money::Money;
use tallystick_outbox as outbox;
use tallystick_runner::{DbError, Fault, Shutdown};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

pub use error::CreateError;

use crate::batch;
use crate::dispatch::repo as dispatch;
use crate::engine::{Answer, Inner};
use crate::events::{self, Told};
use crate::history::Evidence;
use crate::history::repo::{self as history, NewMove};
use crate::idempotency::Fingerprint;
use crate::idempotency::repo::{self as idempotency, NewKey, Stored};
use crate::ids::TenantId;
use crate::operation::{OperationId, OperationKind};

/// What is created: a payment or a payout as its first answer shows it.
pub(crate) trait Created: Clone + Serialize + Send + Sync + 'static {
    /// Its kind of operation.
    const KIND: OperationKind;
    /// The route template: scope of the idempotency keys.
    const ROUTE: &'static str;
    /// Name of the transaction.
    const TX: &'static str;

    fn id(&self) -> Uuid;
    fn gateway(&self) -> &str;
    /// The word of the status that it begins with.
    fn status(&self) -> &'static str;
    /// It is to be worked on at once.
    fn needs_work(&self) -> bool;
    fn money(&self) -> Money;
    fn created_at(&self) -> Timestamp;
    /// The client's order or reference, of which there is one active at most.
    fn order(&self) -> Option<&str>;
    /// The field in which this request differs from its order's active object so that it is not the same intent.
    fn conflict(&self, active: &Self) -> Option<&'static str>;

    /// Inserts rows; answers the ids of those that met no active one of their order.
    fn insert(
        conn: &mut PgConnection,
        rows: &[Self],
        tenants: &[TenantId],
    ) -> impl Future<Output = Result<Vec<Uuid>, DbError>> + Send;

    /// The active ones of orders, each with its tenant.
    fn active(
        conn: &mut PgConnection,
        tenants: &[Uuid],
        orders: &[String],
    ) -> impl Future<Output = Result<Vec<(Uuid, Self)>, DbError>> + Send;
}

/// Transactions of creations at once.
const WRITERS: usize = 4;
/// Most creations of one transaction.
const MAX_BATCH: usize = 64;
/// How often a request whose order's object just ended is tried again.
const ORDER_RACES: usize = 3;

/// A request on its way to the writer.
pub(crate) struct Job<T> {
    request: Arc<Request<T>>,
    reply: oneshot::Sender<Result<Answer, CreateError>>,
}

/// A request with everything that its rows need.
struct Request<T> {
    tenant: TenantId,
    key: String,
    fingerprint: Fingerprint,
    object: T,
    body: Bytes,
}

type Outcomes = Vec<Result<Answer, CreateError>>;

/// Hands a checked request to the writer and waits for its answer.
pub(crate) async fn create<T: Created>(
    writer: &Sender<Job<T>>,
    tenant: TenantId,
    key: &str,
    object: T,
    fingerprint: Fingerprint,
) -> Result<Answer, CreateError> {
    let body = serde_json::to_vec(&object).expect("a view always serializes").into();
    let request = Arc::new(Request { tenant, key: key.to_owned(), fingerprint, object, body });
    let (reply, answer) = oneshot::channel();
    writer.try_send(Job { request, reply }).map_err(|_| CreateError::Overloaded)?;
    // The writer answers every job that it took; it goes away only with the process.
    answer.await.unwrap_or(Err(CreateError::Overloaded))
}

/// Starts the writer. It ends when the last sender is gone and everything that it took is answered.
pub(crate) fn spawn<T: Created>(inner: &Arc<Inner>, mut inbox: Receiver<Job<T>>, shutdown: &Shutdown) {
    let (inner, stop) = (Arc::downgrade(inner), shutdown.clone());
    shutdown.spawn(async move {
        let writers = Arc::new(Semaphore::new(WRITERS));
        let mut waiting: VecDeque<Job<T>> = VecDeque::new();
        loop {
            let first = match waiting.pop_front() {
                Some(job) => job,
                None => tokio::select! {
                    job = inbox.recv() => match job { Some(job) => job, None => break },
                    // Requests are drained by the server before it lets its tasks stop.
                    () = stop.stopping() => match inbox.try_recv() { Ok(job) => job, Err(_) => break },
                },
            };
            let Some(inner) = inner.upgrade() else { break };
            let writer = writers.clone().acquire_owned().await.expect("the semaphore is never closed");
            let patience = batch::patience(inner.settings.create_linger, &writers, WRITERS);
            let mut taken = batch::collect(first, &mut inbox, MAX_BATCH, patience).await;
            taken.extend(waiting.drain(..));
            let jobs = one_per_key(taken, &mut waiting);
            tokio::spawn(async move {
                write(&inner, jobs).await;
                drop(writer);
            });
        }
        let _ = writers.acquire_many(u32::try_from(WRITERS).unwrap_or(1)).await;
    });
}

/// A key that comes twice in a batch would meet itself; its twin goes into the next batch and replays there.
fn one_per_key<T>(jobs: Vec<Job<T>>, waiting: &mut VecDeque<Job<T>>) -> Vec<Job<T>> {
    let mut seen = HashSet::new();
    let (now, later): (Vec<_>, Vec<_>) =
        jobs.into_iter().partition(|j| seen.insert((j.request.tenant, j.request.key.clone())));
    waiting.extend(later);
    now
}

async fn write<T: Created>(inner: &Arc<Inner>, jobs: Vec<Job<T>>) {
    metrics::histogram!("tallystick_create_batch_size").record(u32::try_from(jobs.len()).unwrap_or(u32::MAX));
    let (requests, replies): (Vec<_>, Vec<_>) = jobs.into_iter().map(|j| (j.request, j.reply)).unzip();
    match transaction(inner, requests.clone()).await {
        Ok(outcomes) => {
            inner.wake_dispatch.notify_one();
            for (reply, outcome) in replies.into_iter().zip(outcomes) {
                // A client that hung up finds its object under the same key.
                let _ = reply.send(outcome);
            }
        }
        Err(error) if requests.len() == 1 => {
            for reply in replies {
                let _ = reply.send(Err(alone(&error)));
            }
        }
        Err(error) => {
            tracing::warn!(
                error = tallystick_runner::looper::chain(&error),
                requests = requests.len(),
                "a batch of creations was refused: each is tried alone"
            );
            let singles = requests.into_iter().zip(replies).map(|(request, reply)| {
                let inner = inner.clone();
                tokio::spawn(async move {
                    let outcome = match transaction(&inner, vec![request]).await {
                        Ok(mut outcomes) => outcomes.pop().unwrap_or(Err(CreateError::Overloaded)),
                        Err(error) => Err(alone(&error)),
                    };
                    inner.wake_dispatch.notify_one();
                    let _ = reply.send(outcome);
                })
            });
            for single in singles.collect::<Vec<_>>() {
                let _ = single.await;
            }
        }
    }
}

/// What a request is told that failed by itself. Waiting too long for a lock means waiting for its twin.
fn alone(error: &CreateError) -> CreateError {
    match error.db() {
        Some(db) if db.is_lock_timeout() => CreateError::InFlight,
        _ => CreateError::Db(copy(error)),
    }
}

/// The error belongs to one request only; its cause was logged with the batch.
fn copy(error: &CreateError) -> DbError {
    match error.db() {
        Some(DbError::RowCount { what, found, expected }) => {
            DbError::RowCount { what, found: *found, expected: *expected }
        }
        Some(db) if db.is_transient() => DbError::Unavailable(sqlx::Error::WorkerCrashed),
        _ => DbError::Sql(sqlx::Error::Protocol(tallystick_runner::looper::chain(error))),
    }
}

async fn transaction<T: Created>(
    inner: &Arc<Inner>,
    requests: Vec<Arc<Request<T>>>,
) -> Result<Outcomes, CreateError> {
    inner
        .db
        .tx(T::TX, move |conn| {
            let requests = requests.clone();
            Box::pin(async move { create_in_tx(conn, &requests).await })
        })
        .await
}

async fn create_in_tx<T: Created>(
    conn: &mut PgConnection,
    requests: &[Arc<Request<T>>],
) -> Result<Outcomes, CreateError> {
    let keys: Vec<NewKey<'_>> = requests
        .iter()
        .map(|r| NewKey {
            tenant: r.tenant.0,
            key: &r.key,
            fingerprint: &r.fingerprint,
            status: 202,
            body: &r.body,
            operation: Some(r.object.id()),
        })
        .collect();
    let free: HashSet<(Uuid, String)> =
        idempotency::insert(conn, T::ROUTE, &keys).await?.into_iter().collect();
    let (first, repeated): (Vec<_>, Vec<_>) =
        requests.iter().partition(|r| free.contains(&(r.tenant.0, r.key.clone())));
    let mut outcomes = HashMap::new();
    replay(conn, &repeated, &mut outcomes).await?;
    insert(conn, first, &mut outcomes).await?;
    Ok(requests
        .iter()
        .map(|r| outcomes.remove(&r.object.id()).unwrap_or(Err(CreateError::InFlight)))
        .collect())
}

type ById = HashMap<Uuid, Result<Answer, CreateError>>;

async fn replay<T: Created>(
    conn: &mut PgConnection,
    requests: &[&Arc<Request<T>>],
    out: &mut ById,
) -> Result<(), CreateError> {
    if requests.is_empty() {
        return Ok(());
    }
    let tenants: Vec<Uuid> = requests.iter().map(|r| r.tenant.0).collect();
    let keys: Vec<String> = requests.iter().map(|r| r.key.clone()).collect();
    let mut stored: HashMap<(Uuid, String), Stored> = idempotency::stored(conn, T::ROUTE, &tenants, &keys)
        .await?
        .into_iter()
        .map(|s| ((s.tenant_id, s.key.clone()), s))
        .collect();
    for request in requests {
        // Gone between the two statements: its retention ended just now. The client may simply try again.
        let outcome = match stored.remove(&(request.tenant.0, request.key.clone())) {
            None => Err(CreateError::InFlight),
            Some(s) if s.fingerprint != request.fingerprint.whole => {
                Err(CreateError::IdempotencyMismatch { fields: request.fingerprint.differing(&s.fields) })
            }
            Some(s) => Ok(Answer {
                status: 200,
                body: s.body.into(),
                replayed: true,
                existing: false,
                id: s.operation_id.unwrap_or_default(),
            }),
        };
        out.insert(request.object.id(), outcome);
    }
    Ok(())
}

async fn insert<T: Created>(
    conn: &mut PgConnection,
    mut open: Vec<&Arc<Request<T>>>,
    out: &mut ById,
) -> Result<(), CreateError> {
    let mut created: Vec<&Arc<Request<T>>> = Vec::with_capacity(open.len());
    for _ in 0..=ORDER_RACES {
        if open.is_empty() {
            break;
        }
        let objects: Vec<T> = open.iter().map(|r| r.object.clone()).collect();
        let tenants: Vec<TenantId> = open.iter().map(|r| r.tenant).collect();
        let inserted: HashSet<Uuid> = T::insert(conn, &objects, &tenants).await?.into_iter().collect();
        let (new, blocked): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|r| inserted.contains(&r.object.id()));
        created.extend(new);
        open = existing(conn, blocked, out).await?;
    }
    // The order's object ended again and again while we looked: very unlikely, and harmless to try later.
    for request in open {
        idempotency::free(conn, T::ROUTE, request.tenant.0, &request.key).await?;
        out.insert(request.object.id(), Err(CreateError::InFlight));
    }
    open_work(conn, &created).await?;
    for request in created {
        let answer = Answer {
            status: 202,
            body: request.body.clone(),
            replayed: false,
            existing: false,
            id: request.object.id(),
        };
        out.insert(request.object.id(), Ok(answer));
    }
    Ok(())
}

/// Answers requests whose order has an active object; returns those whose object ended in the meantime.
async fn existing<'a, T: Created>(
    conn: &mut PgConnection,
    blocked: Vec<&'a Arc<Request<T>>>,
    out: &mut ById,
) -> Result<Vec<&'a Arc<Request<T>>>, CreateError> {
    if blocked.is_empty() {
        return Ok(blocked);
    }
    let order = |r: &Request<T>| r.object.order().unwrap_or_default().to_owned();
    let tenants: Vec<Uuid> = blocked.iter().map(|r| r.tenant.0).collect();
    let orders: Vec<String> = blocked.iter().map(|r| order(r)).collect();
    let found: HashMap<(Uuid, String), T> = T::active(conn, &tenants, &orders)
        .await?
        .into_iter()
        .map(|(tenant, active)| ((tenant, active.order().unwrap_or_default().to_owned()), active))
        .collect();
    let mut ended = Vec::new();
    for request in blocked {
        let Some(active) = found.get(&(request.tenant.0, order(request))) else {
            ended.push(request);
            continue;
        };
        let outcome = match request.object.conflict(active) {
            Some(field) => {
                idempotency::free(conn, T::ROUTE, request.tenant.0, &request.key).await?;
                Err(CreateError::OrderConflict { kind: T::KIND, id: active.id(), field })
            }
            None => {
                let body: Bytes = serde_json::to_vec(active).expect("a view always serializes").into();
                let id = active.id();
                idempotency::answer(conn, T::ROUTE, request.tenant.0, &request.key, 200, &body, id).await?;
                Ok(Answer { status: 200, body, replayed: false, existing: true, id })
            }
        };
        out.insert(request.object.id(), outcome);
    }
    Ok(ended)
}

async fn open_work<T: Created>(
    conn: &mut PgConnection,
    created: &[&Arc<Request<T>>],
) -> Result<(), CreateError> {
    if created.is_empty() {
        return Ok(());
    }
    let (ids, gateways): (Vec<Uuid>, Vec<String>) = (created.iter())
        .filter(|r| r.object.needs_work())
        .map(|r| (r.object.id(), r.object.gateway().to_owned()))
        .unzip();
    if !ids.is_empty() {
        dispatch::insert(conn, T::KIND, &ids, &gateways).await?;
    }
    let moves: Vec<NewMove> = created
        .iter()
        .map(|r| NewMove {
            object: r.object.id(),
            version: 1,
            status: r.object.status(),
            at: r.object.created_at(),
            evidence: Evidence::Request,
            detail: None,
        })
        .collect();
    history::append(conn, &moves).await?;
    let told: Vec<outbox::NewEvent> = created
        .iter()
        .map(|r| {
            let (status, amount, at) = (r.object.status(), r.object.money(), r.object.created_at());
            let told = Told { tenant: r.tenant, status, amount, version: 1, at };
            events::of_operation(OperationId { kind: T::KIND, id: r.object.id() }, &told)
        })
        .collect();
    outbox::append_in_tx(conn, &told).await.map_err(CreateError::Outbox)
}
