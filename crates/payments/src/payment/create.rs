//! Creating payments: requests that come together share one transaction.
//!
//! In order: idempotency keys (insert first) → payments (one active per order) → dispatch rows, history, events.
//! The answer's bytes are made before the commit and stored with the key, so a repeat gets the same bytes whoever
//! serves it. When a batch is refused as a whole, its requests are tried alone: a request that waits for its twin in
//! another process must not hold up strangers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use sqlx::PgConnection;
use tallystick_outbox as outbox;
use tallystick_runner::{DbError, Fault, Shutdown, clock};
use tokio::sync::mpsc::Receiver;
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

use super::error::CreateError;
use super::repo;
use super::state::PaymentStatus;
use super::view::{CreatePayment, Payment};
use crate::batch;
use crate::dispatch::{OperationKind, repo as dispatch};
use crate::engine::{Answer, Inner};
use crate::events::{self, Told};
use crate::history::Evidence;
use crate::history::repo::{self as history, NewMove};
use crate::idempotency::Fingerprint;
use crate::idempotency::repo::{self as idempotency, NewKey, Stored};
use crate::ids::{PaymentId, TenantId};

/// The route template: scope of the idempotency keys.
const ROUTE: &str = "POST /api/v1/payments";
const PATH: &str = "/api/v1/payments";
/// Transactions of creations at once.
const WRITERS: usize = 4;
/// Most creations of one transaction.
const MAX_BATCH: usize = 64;
/// How often a request whose order's payment just ended is tried again.
const ORDER_RACES: usize = 3;

/// A request on its way to the writer.
pub(crate) struct Job {
    request: Arc<Request>,
    reply: oneshot::Sender<Result<Answer, CreateError>>,
}

/// A request with everything that its rows need.
struct Request {
    tenant: TenantId,
    key: String,
    fingerprint: Fingerprint,
    payment: Payment,
    body: Bytes,
}

type Outcomes = Vec<Result<Answer, CreateError>>;

/// Hands a request to the writer and waits for its answer.
pub(crate) async fn create(
    inner: &Arc<Inner>,
    tenant: TenantId,
    key: &str,
    request: CreatePayment,
) -> Result<Answer, CreateError> {
    let request = Arc::new(prepare(inner, tenant, key, request)?);
    let (reply, answer) = oneshot::channel();
    inner.creates.try_send(Job { request, reply }).map_err(|_| CreateError::Overloaded)?;
    // The writer answers every job that it took; it goes away only with the process.
    answer.await.unwrap_or(Err(CreateError::Overloaded))
}

fn prepare(
    inner: &Inner,
    tenant: TenantId,
    key: &str,
    request: CreatePayment,
) -> Result<Request, CreateError> {
    let gateway = request.gateway.unwrap_or_else(|| inner.settings.default_gateway.clone());
    if !inner.gateways.contains_key(&gateway) {
        return Err(CreateError::UnknownGateway);
    }
    let payment_method = request
        .payment_method
        .or_else(|| inner.settings.default_payment_method.clone())
        .ok_or(CreateError::PaymentMethodRequired)?;
    let now = clock::now();
    let payment = Payment {
        payment_id: PaymentId::new(),
        status: PaymentStatus::Pending,
        amount: request.amount.major(),
        amount_minor: request.amount.minor,
        currency: request.amount.currency,
        authorized_minor: 0,
        captured_minor: 0,
        refunded_minor: 0,
        capture: request.capture,
        description: request.description,
        metadata: request.metadata,
        order_id: request.order_id,
        payment_method,
        gateway,
        gateway_reference: None,
        failure: None,
        attention: None,
        unknown_since: None,
        cancel_requested_at: None,
        webhook_url: request.webhook_url,
        created_at: now,
        updated_at: now,
        processed_at: None,
        version: 1,
    };
    let fingerprint = Fingerprint::of(
        PATH,
        &[
            ("/amount_minor", json!(payment.amount_minor)),
            ("/currency", json!(payment.currency)),
            ("/description", json!(payment.description)),
            ("/metadata", json!(payment.metadata)),
            ("/order_id", json!(payment.order_id)),
            ("/payment_method", json!(payment.payment_method)),
            ("/gateway", json!(payment.gateway)),
            ("/capture", json!(payment.capture)),
            ("/webhook_url", json!(payment.webhook_url)),
        ],
    );
    let body = serde_json::to_vec(&payment).expect("a payment always serializes").into();
    Ok(Request { tenant, key: key.to_owned(), fingerprint, payment, body })
}

/// Starts the writer. It ends when the last sender is gone and everything that it took is answered.
pub(crate) fn spawn(inner: &Arc<Inner>, mut inbox: Receiver<Job>, shutdown: &Shutdown) {
    let (inner, stop) = (Arc::downgrade(inner), shutdown.clone());
    shutdown.spawn(async move {
        let writers = Arc::new(Semaphore::new(WRITERS));
        let mut waiting: VecDeque<Job> = VecDeque::new();
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
            let mut taken = batch::collect(first, &mut inbox, MAX_BATCH, inner.settings.create_linger).await;
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
fn one_per_key(jobs: Vec<Job>, waiting: &mut VecDeque<Job>) -> Vec<Job> {
    let mut seen = HashSet::new();
    let (now, later): (Vec<Job>, Vec<Job>) =
        jobs.into_iter().partition(|j| seen.insert((j.request.tenant, j.request.key.clone())));
    waiting.extend(later);
    now
}

async fn write(inner: &Arc<Inner>, jobs: Vec<Job>) {
    metrics::histogram!("tallystick_create_batch_size").record(u32::try_from(jobs.len()).unwrap_or(u32::MAX));
    let (requests, replies): (Vec<_>, Vec<_>) = jobs.into_iter().map(|j| (j.request, j.reply)).unzip();
    match transaction(inner, requests.clone()).await {
        Ok(outcomes) => {
            inner.wake_dispatch.notify_one();
            for (reply, outcome) in replies.into_iter().zip(outcomes) {
                // A client that hung up finds its payment under the same key.
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

async fn transaction(inner: &Arc<Inner>, requests: Vec<Arc<Request>>) -> Result<Outcomes, CreateError> {
    inner
        .db
        .tx("payment.create", move |conn| {
            let requests = requests.clone();
            Box::pin(async move { create_in_tx(conn, &requests).await })
        })
        .await
}

async fn create_in_tx(conn: &mut PgConnection, requests: &[Arc<Request>]) -> Result<Outcomes, CreateError> {
    let keys: Vec<NewKey<'_>> = requests
        .iter()
        .map(|r| NewKey {
            tenant: r.tenant.0,
            key: &r.key,
            fingerprint: &r.fingerprint,
            status: 202,
            body: &r.body,
            operation: Some(r.payment.payment_id.0),
        })
        .collect();
    let free: HashSet<(Uuid, String)> = idempotency::insert(conn, ROUTE, &keys).await?.into_iter().collect();
    let (first, repeated): (Vec<&Arc<Request>>, Vec<&Arc<Request>>) =
        requests.iter().partition(|r| free.contains(&(r.tenant.0, r.key.clone())));
    let mut outcomes = HashMap::new();
    replay(conn, &repeated, &mut outcomes).await?;
    insert(conn, first, &mut outcomes).await?;
    Ok(requests
        .iter()
        .map(|r| outcomes.remove(&r.payment.payment_id).unwrap_or(Err(CreateError::InFlight)))
        .collect())
}

type ById = HashMap<PaymentId, Result<Answer, CreateError>>;

async fn replay(
    conn: &mut PgConnection,
    requests: &[&Arc<Request>],
    out: &mut ById,
) -> Result<(), CreateError> {
    if requests.is_empty() {
        return Ok(());
    }
    let tenants: Vec<Uuid> = requests.iter().map(|r| r.tenant.0).collect();
    let keys: Vec<String> = requests.iter().map(|r| r.key.clone()).collect();
    let mut stored: HashMap<(Uuid, String), Stored> = idempotency::stored(conn, ROUTE, &tenants, &keys)
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
        out.insert(request.payment.payment_id, outcome);
    }
    Ok(())
}

async fn insert(
    conn: &mut PgConnection,
    mut open: Vec<&Arc<Request>>,
    out: &mut ById,
) -> Result<(), CreateError> {
    let mut created: Vec<&Arc<Request>> = Vec::with_capacity(open.len());
    for _ in 0..=ORDER_RACES {
        if open.is_empty() {
            break;
        }
        let payments: Vec<Payment> = open.iter().map(|r| r.payment.clone()).collect();
        let tenants: Vec<TenantId> = open.iter().map(|r| r.tenant).collect();
        let inserted: HashSet<Uuid> = repo::insert(conn, &payments, &tenants).await?.into_iter().collect();
        let (new, blocked): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|r| inserted.contains(&r.payment.payment_id.0));
        created.extend(new);
        open = existing(conn, blocked, out).await?;
    }
    // The order's payment ended again and again while we looked: very unlikely, and harmless to try later.
    for request in open {
        idempotency::free(conn, ROUTE, request.tenant.0, &request.key).await?;
        out.insert(request.payment.payment_id, Err(CreateError::InFlight));
    }
    open_work(conn, &created).await?;
    for request in created {
        let answer = Answer {
            status: 202,
            body: request.body.clone(),
            replayed: false,
            existing: false,
            id: request.payment.payment_id.0,
        };
        out.insert(request.payment.payment_id, Ok(answer));
    }
    Ok(())
}

/// Answers requests whose order has an active payment; returns those whose payment ended in the meantime.
async fn existing<'a>(
    conn: &mut PgConnection,
    blocked: Vec<&'a Arc<Request>>,
    out: &mut ById,
) -> Result<Vec<&'a Arc<Request>>, CreateError> {
    if blocked.is_empty() {
        return Ok(blocked);
    }
    let order = |r: &Request| r.payment.order_id.clone().unwrap_or_default();
    let tenants: Vec<Uuid> = blocked.iter().map(|r| r.tenant.0).collect();
    let orders: Vec<String> = blocked.iter().map(|r| order(r)).collect();
    let found: HashMap<(Uuid, String), Payment> = repo::active_of_orders(conn, &tenants, &orders)
        .await?
        .into_iter()
        .map(|row| ((row.tenant_id, row.order_id.clone().unwrap_or_default()), row.into_view()))
        .collect();
    let mut ended = Vec::new();
    for request in blocked {
        let Some(active) = found.get(&(request.tenant.0, order(request))) else {
            ended.push(request);
            continue;
        };
        let outcome = match conflict(&request.payment, active) {
            Some(field) => {
                idempotency::free(conn, ROUTE, request.tenant.0, &request.key).await?;
                Err(CreateError::OrderConflict { payment_id: active.payment_id, field })
            }
            None => {
                let body: Bytes = serde_json::to_vec(active).expect("a payment always serializes").into();
                let id = active.payment_id.0;
                idempotency::answer(conn, ROUTE, request.tenant.0, &request.key, 200, &body, id).await?;
                Ok(Answer { status: 200, body, replayed: false, existing: true, id })
            }
        };
        out.insert(request.payment.payment_id, outcome);
    }
    Ok(ended)
}

/// The field in which a request differs from the order's active payment so that it cannot be the same intent.
fn conflict(asked: &Payment, active: &Payment) -> Option<&'static str> {
    if asked.currency != active.currency {
        Some("/currency")
    } else if asked.amount_minor != active.amount_minor {
        Some("/amount_minor")
    } else if asked.capture != active.capture {
        Some("/capture")
    } else {
        None
    }
}

async fn open_work(conn: &mut PgConnection, created: &[&Arc<Request>]) -> Result<(), CreateError> {
    if created.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = created.iter().map(|r| r.payment.payment_id.0).collect();
    let gateways: Vec<String> = created.iter().map(|r| r.payment.gateway.clone()).collect();
    dispatch::insert(conn, OperationKind::Charge, &ids, &gateways).await?;
    let pending = PaymentStatus::Pending.as_str();
    let moves: Vec<NewMove> = created
        .iter()
        .map(|r| NewMove {
            object: r.payment.payment_id.0,
            version: 1,
            status: pending,
            at: r.payment.created_at,
            evidence: Evidence::Request,
            detail: None,
        })
        .collect();
    history::append(conn, &moves).await?;
    let told: Vec<outbox::NewEvent> = created
        .iter()
        .map(|r| {
            let amount =
                tallystick_money::Money { minor: r.payment.amount_minor, currency: r.payment.currency };
            let at = r.payment.created_at;
            let told = Told { tenant: r.tenant, status: pending, amount, version: 1, at };
            events::of_payment(r.payment.payment_id, &told)
        })
        .collect();
    outbox::append_in_tx(conn, &told).await.map_err(CreateError::Outbox)
}
