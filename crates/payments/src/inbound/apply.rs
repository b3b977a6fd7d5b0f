//! Second transaction: what stored events mean for our operations.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sqlx::PgConnection;
use tallystick_gateway::{Approval, Report, ReportKind};
use tallystick_runner::{StepError, StepReport, looper};
use uuid::Uuid;

use super::repo::{self, Ended, OpenInbound};
use crate::dispatch::decide::News;
use crate::dispatch::record::{self, Item, Recorded};
use crate::engine::Inner;
use crate::history::Evidence;
use crate::operation::{Fact, OperationId};
use crate::writer::WriteError;

/// Events of one transaction.
const BATCH: i64 = 100;
/// When an event of an operation that does not exist yet is tried again.
const PARKED: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
    Duration::from_secs(3_600),
];
const PARKED_LATER: Duration = Duration::from_secs(86_400);
/// After these tries (the short ones, then daily for 30 days) an event belongs to nobody.
const PARKED_TRIES: i32 = 35;
/// An event whose handling fails by itself waits this long at first, ten times that later.
const FAILED: Duration = Duration::from_secs(6);

/// Which events to lock.
#[derive(Clone)]
enum Which {
    Named(Arc<Vec<(String, String)>>),
    Due(i64),
}

/// Applies events that were just stored. What fails is left to the loop.
pub(super) async fn apply_named(inner: &Arc<Inner>, names: Vec<(String, String)>) {
    if let Err(error) = transaction(inner, Which::Named(Arc::new(names))).await {
        tracing::warn!(
            error = looper::chain(&error),
            "stored webhooks could not be applied at once: the loop will"
        );
    }
}

/// Step of the loop: events that are due, those that failed or were parked.
pub(crate) async fn due_step(inner: &Arc<Inner>) -> Result<StepReport, StepError> {
    match transaction(inner, Which::Due(BATCH)).await {
        Ok((done, _)) => Ok(StepReport { done: done as u64, more: i64::try_from(done) == Ok(BATCH) }),
        Err(error) => {
            tracing::warn!(
                error = looper::chain(&error),
                "a batch of webhooks was refused: the first is tried alone"
            );
            alone(inner).await
        }
    }
}

/// One bad event must not hold up the others: the oldest is tried alone and put off when it fails again.
async fn alone(inner: &Arc<Inner>) -> Result<StepReport, StepError> {
    let Err(error) = transaction(inner, Which::Due(1)).await else {
        return Ok(StepReport { done: 1, more: true });
    };
    let note: String = looper::chain(&error).chars().take(300).collect();
    let put_off = inner
        .db
        .tx("inbound.put_off", move |conn| {
            let note = note.clone();
            Box::pin(async move {
                if let Some(event) = repo::lock_due(conn, 1).await?.first() {
                    let wait = if event.tries < 3 { FAILED } else { FAILED * 10 };
                    repo::put_off(conn, event.inbound_id, wait, &note).await?;
                }
                Ok::<_, tallystick_runner::DbError>(())
            })
        })
        .await;
    put_off?;
    Err(StepError::Retry(looper::chain(&error)))
}

async fn transaction(inner: &Arc<Inner>, which: Which) -> Result<(usize, Recorded), WriteError> {
    let inner2 = inner.clone();
    let (done, recorded) = inner
        .db
        .tx("inbound.apply", move |conn| {
            let (inner, which) = (inner2.clone(), which.clone());
            Box::pin(async move { apply_in_tx(conn, &inner, &which).await })
        })
        .await?;
    record::committed(inner, &recorded);
    Ok((done, recorded))
}

async fn apply_in_tx(
    conn: &mut PgConnection,
    inner: &Inner,
    which: &Which,
) -> Result<(usize, Recorded), WriteError> {
    let events = match which {
        Which::Named(names) => {
            let (gateways, ids): (Vec<String>, Vec<String>) = names.iter().cloned().unzip();
            repo::lock_named(conn, &gateways, &ids).await?
        }
        Which::Due(limit) => repo::lock_due(conn, *limit).await?,
    };
    if events.is_empty() {
        return Ok((0, Recorded::default()));
    }
    let read: Vec<(&OpenInbound, Vec<Report>)> = events.iter().map(|e| (e, read(inner, e))).collect();
    let owners = Owners::find(conn, &read).await?;
    let mut items = Vec::new();
    let mut ended = Vec::new();
    for (event, reports) in &read {
        ended.push(sort(event, reports, &owners, &mut items));
    }
    let recorded = record::record_in_tx(conn, inner, &items).await?;
    repo::end(conn, &ended).await?;
    Ok((events.len(), recorded))
}

/// Bytes that were stored were read once before; an adapter that changed since may fail now, and the event is kept.
fn read(inner: &Inner, event: &OpenInbound) -> Vec<Report> {
    let Some(gateway) = inner.gateways.get(&event.gateway) else { return Vec::new() };
    gateway.read_webhook(&Bytes::copy_from_slice(&event.raw)).unwrap_or_default()
}

/// Whose operations the reports name: by our key first, then by the gateway's id, of the same gateway account only.
struct Owners {
    by_key: HashMap<Uuid, (OperationId, String)>,
    by_reference: HashMap<(String, String), OperationId>,
}

impl Owners {
    async fn find(conn: &mut PgConnection, read: &[(&OpenInbound, Vec<Report>)]) -> Result<Self, WriteError> {
        let (mut ids, mut gateways, mut references) = (Vec::new(), Vec::new(), Vec::new());
        for (event, reports) in read {
            for report in reports {
                ids.extend(key_of(report));
                if let Some(reference) = &report.reference {
                    gateways.push(event.gateway.clone());
                    references.push(reference.clone());
                }
            }
        }
        let mut owners = Self { by_key: HashMap::new(), by_reference: HashMap::new() };
        for (operation, gateway, reference) in repo::find(conn, &ids, &gateways, &references).await? {
            if let Some(reference) = reference {
                owners.by_reference.insert((gateway.clone(), reference), operation);
            }
            owners.by_key.insert(operation.id, (operation, gateway));
        }
        Ok(owners)
    }

    fn of(&self, gateway: &str, report: &Report) -> Option<OperationId> {
        let by_key = key_of(report).and_then(|id| self.by_key.get(&id)).filter(|(_, owner)| owner == gateway);
        by_key.map(|(operation, _)| *operation).or_else(|| {
            let reference = report.reference.clone()?;
            self.by_reference.get(&(gateway.to_owned(), reference)).copied()
        })
    }
}

/// The key of a charge is the payment's id, that of a payout its own.
fn key_of(report: &Report) -> Option<Uuid> {
    report.key.as_deref().and_then(|key| Uuid::parse_str(key).ok())
}

fn sort(event: &OpenInbound, reports: &[Report], owners: &Owners, items: &mut Vec<Item>) -> Ended {
    let end = |state, wait, note: Option<&str>| Ended {
        inbound_id: event.inbound_id,
        state,
        wait,
        note: note.map(str::to_owned),
    };
    let mut homeless = false;
    let mut applied = false;
    for report in reports {
        let Some(fact) = fact_of(report) else { continue };
        match owners.of(&event.gateway, report) {
            Some(operation) => {
                applied = true;
                let news = News::Fact(fact);
                items.push(Item { operation, fence: None, news, evidence: Evidence::Webhook, attempt: None });
            }
            None => homeless = true,
        }
    }
    match (applied, homeless) {
        // What names nobody yet is kept even when a part could be applied: applying that part again changes nothing.
        (_, true) if event.tries >= PARKED_TRIES => {
            end("orphan", None, Some("no operation of ours for 30 days"))
        }
        (_, true) => {
            let tries = usize::try_from(event.tries).unwrap_or(0);
            let wait = PARKED.get(tries).copied().unwrap_or(PARKED_LATER);
            end("parked", Some(wait), Some("names no operation of ours yet"))
        }
        (true, false) => end("applied", None, None),
        (false, false) => end("ignored", None, Some("a kind that changes nothing here")),
    }
}

fn fact_of(report: &Report) -> Option<Fact> {
    match &report.kind {
        ReportKind::Approved { stage, amount_minor, currency } => Some(Fact::Approved(Approval {
            // A report without the gateway's id still tells what happened; our key names the operation.
            reference: report.reference.clone().unwrap_or_default(),
            stage: *stage,
            amount_minor: *amount_minor,
            currency: currency.clone(),
        })),
        ReportKind::Declined(decline) => Some(Fact::Declined(decline.clone())),
        ReportKind::Pending => Some(Fact::Acknowledged { reference: report.reference.clone() }),
        ReportKind::Other(_) => None,
    }
}
