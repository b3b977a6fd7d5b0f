//! The one writer: everything that is learnt about an operation becomes status, journal, history, event and break
//! here, in one transaction.
//!
//! The worker's reply, the answer to a question, a signed webhook, an expired lease and an account without funds all
//! come this way. Rows are locked in id order, `learn` of their state is applied to the state *found*, and what it
//! says is written in a handful of statements for the whole batch. A fact that comes twice is no change; a journal
//! that would be written twice is found by its source.
//!
//! Lock order of everybody: inbound event → idempotency key → dispatch row → payment → payout → ledger account.

mod booking;
mod subject;

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use tallystick_ledger::{AccountCache, LedgerError};
use tallystick_outbox::{self as outbox, NewEvent, OutboxError};
use tallystick_runner::{DbError, Fault, clock};
use uuid::Uuid;

pub(crate) use booking::{Booked, Bookings, write as book_in_tx};

use crate::breaks::{self, NewBreak};
use crate::events::{self, Told};
use crate::history::repo::NewMove;
use crate::history::{self, Evidence};
use crate::ids::{BreakId, TenantId};
use crate::operation::columns::Update;
use crate::operation::{Fact, Mismatch, Operation, OperationId, OperationKind, Status, Transition};
use crate::payment::repo::{self as payments, PaymentRow};
use crate::payout::repo::{self as payouts, PayoutRow};
use subject::Subject;

/// A fact leads at most this far: settled, then returned, then nothing.
const MOST_STEPS: usize = 3;

/// A fact about an operation, and how it is known.
#[derive(Clone, Debug)]
pub(crate) struct Learned {
    pub operation: OperationId,
    pub fact: Fact,
    pub evidence: Evidence,
}

/// Why a batch of facts could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error("a journal was refused")]
    Ledger(#[source] LedgerError),
    #[error("an event was refused")]
    Outbox(#[source] OutboxError),
}

impl Fault for WriteError {
    fn db(&self) -> Option<&DbError> {
        match self {
            Self::Db(error) => Some(error),
            Self::Ledger(error) => error.db(),
            Self::Outbox(error) => error.db(),
        }
    }
}

/// What a batch of facts left behind.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The rows as they are now, of all operations named in the batch that exist.
    pub rows: HashMap<Uuid, Operation>,
    /// Gateway references that were not known before: (gateway, reference).
    pub new_references: Vec<(String, String)>,
    /// What moved, to be logged once it is committed.
    pub moved: Vec<Moved>,
}

/// What happened, for the log and the figures.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moved {
    Status { operation: OperationId, status: &'static str, evidence: Evidence, event: Uuid },
    Break { operation: OperationId, id: Uuid, kind: &'static str },
}

impl Moved {
    /// The operation whose status moved.
    pub(crate) fn status_of(&self) -> Option<Uuid> {
        match self {
            Self::Status { operation, .. } => Some(operation.id),
            Self::Break { .. } => None,
        }
    }
}

/// Logs and counts. Called after the commit: a transaction that is run again or rolled back moved nothing.
pub(crate) fn log(moved: &[Moved]) {
    for one in moved {
        match *one {
            Moved::Status { operation, status, evidence, event } => {
                let evidence = evidence.as_str();
                match operation.kind {
                    OperationKind::Charge => {
                        tracing::info!(payment.id = %operation.id, payment.status = status, evidence, event.id = %event, "payment moved");
                        metrics::counter!("tallystick_payment_moves_total", "status" => status, "evidence" => evidence)
                            .increment(1);
                    }
                    OperationKind::Payout => {
                        tracing::info!(payout.id = %operation.id, payout.status = status, evidence, event.id = %event, "payout moved");
                        metrics::counter!("tallystick_payout_moves_total", "status" => status, "evidence" => evidence)
                            .increment(1);
                    }
                }
            }
            Moved::Break { operation, id, kind } => {
                tracing::warn!(
                    operation.kind = operation.kind.object(), operation.id = %operation.id, break.id = %id, break.kind = kind,
                    "the gateway contradicts what we hold: a person must look; no money was booked"
                );
                metrics::counter!("tallystick_breaks_total", "kind" => kind).increment(1);
            }
        }
    }
}

/// Everything that the moves of one batch add, collected before it is written.
#[derive(Default)]
struct Collected {
    moves: Vec<NewMove>,
    events: Vec<NewEvent>,
    breaks: Vec<NewBreak>,
    bookings: Bookings,
    new_references: Vec<(String, String)>,
    moved: Vec<Moved>,
    changed: BTreeSet<Uuid>,
}

/// Learns facts in the caller's transaction. Facts about operations that do not exist are left out.
///
/// `also` names operations that are locked and returned without a fact about them.
pub(crate) async fn learn_in_tx(
    conn: &mut PgConnection,
    accounts: &AccountCache,
    learned: &[Learned],
    also: &[OperationId],
) -> Result<Written, WriteError> {
    let named: BTreeSet<OperationId> =
        learned.iter().map(|l| l.operation).chain(also.iter().copied()).collect();
    let of = |kind| -> Vec<Uuid> { named.iter().filter(|o| o.kind == kind).map(|o| o.id).collect() };
    let mut payments = lock_payments(conn, &of(OperationKind::Charge)).await?;
    let mut payouts = lock_payouts(conn, &of(OperationKind::Payout)).await?;
    let versions: HashMap<Uuid, i32> = (payments.values().map(|r| (r.life.id, r.life.version)))
        .chain(payouts.values().map(|r| (r.life.id, r.life.version)))
        .collect();
    let mut out = Collected::default();
    let at = clock::now();
    for item in learned {
        match item.operation.kind {
            OperationKind::Charge => {
                if let Some(row) = payments.get_mut(&item.operation.id) {
                    apply(row, item, at, &mut out);
                }
            }
            OperationKind::Payout => {
                if let Some(row) = payouts.get_mut(&item.operation.id) {
                    apply(row, item, at, &mut out);
                }
            }
        }
    }
    payments::update(conn, &updates(&payments, &versions, &out.changed)).await?;
    payouts::update(conn, &updates(&payouts, &versions, &out.changed)).await?;
    history::repo::append(conn, &out.moves).await?;
    breaks::repo::open(conn, &out.breaks).await?;
    booking::write(conn, accounts, &out.bookings).await?;
    if !out.events.is_empty() {
        outbox::append_in_tx(conn, &out.events).await.map_err(WriteError::Outbox)?;
    }
    let rows = (payments.into_iter().map(|(id, row)| (id, Operation::Charge(row))))
        .chain(payouts.into_iter().map(|(id, row)| (id, Operation::Payout(row))))
        .collect();
    Ok(Written { rows, new_references: out.new_references, moved: out.moved })
}

async fn lock_payments(
    conn: &mut PgConnection,
    ids: &[Uuid],
) -> Result<HashMap<Uuid, PaymentRow>, WriteError> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    Ok(payments::lock(conn, ids).await?.into_iter().map(|row| (row.life.id, row)).collect())
}

async fn lock_payouts(conn: &mut PgConnection, ids: &[Uuid]) -> Result<HashMap<Uuid, PayoutRow>, WriteError> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    Ok(payouts::lock(conn, ids).await?.into_iter().map(|row| (row.life.id, row)).collect())
}

fn updates<'a, R>(
    rows: &'a HashMap<Uuid, R>,
    versions: &HashMap<Uuid, i32>,
    changed: &BTreeSet<Uuid>,
) -> Vec<Update<'a, R>> {
    changed.iter().filter_map(|id| Some(Update { before: versions[id], after: rows.get(id)? })).collect()
}

fn apply<R: Subject>(row: &mut R, item: &Learned, at: Timestamp, out: &mut Collected) {
    remember_reference(row, &item.fact, at, out);
    for _ in 0..MOST_STEPS {
        match row.learn(&item.fact) {
            Transition::NoChange => break,
            Transition::Attention(mismatch) => call_a_person(row, item, mismatch, at, out),
            Transition::Moved { to, money, attention } => {
                move_to(row, item, to, at, out);
                if let Some(money) = money {
                    row.book(money, item.evidence, &mut out.bookings);
                }
                if let Some(mismatch) = attention {
                    call_a_person(row, item, mismatch, at, out);
                }
            }
        }
    }
}

/// The gateway's id is kept as soon as it is known, whatever else the fact does: from then on nothing is submitted.
fn remember_reference<R: Subject>(row: &mut R, fact: &Fact, at: Timestamp, out: &mut Collected) {
    let life = row.life_mut();
    if let (None, Some(reference)) = (&life.gateway_reference, fact.reference()) {
        life.gateway_reference = Some(reference.to_owned());
        life.updated_at = at.to_sqlx();
        out.new_references.push((life.gateway.clone(), reference.to_owned()));
        out.changed.insert(life.id);
    }
}

fn move_to<R: Subject>(row: &mut R, item: &Learned, to: R::Status, at: Timestamp, out: &mut Collected) {
    row.life_mut().move_to(to, &item.fact, at);
    row.moved(&item.fact);
    let life = row.life();
    out.changed.insert(life.id);
    out.moves.push(NewMove {
        object: life.id,
        version: life.version,
        status: to.as_str(),
        at,
        evidence: item.evidence,
        detail: item.fact.detail(),
    });
    let told = Told {
        tenant: TenantId(life.tenant_id),
        status: to.as_str(),
        amount: life.money(),
        version: life.version,
        at,
    };
    let event = events::of_operation(item.operation, &told);
    let (operation, evidence) = (item.operation, item.evidence);
    out.moved.push(Moved::Status { operation, status: to.as_str(), evidence, event: event.event_id });
    out.events.push(event);
}

fn call_a_person<R: Subject>(
    row: &mut R,
    item: &Learned,
    mismatch: Mismatch,
    at: Timestamp,
    out: &mut Collected,
) {
    let (actual_minor, actual_currency) = match &item.fact {
        Fact::Approved(approval) => (Some(approval.amount_minor), Some(approval.currency.clone())),
        Fact::Acknowledged { .. } | Fact::ReplyLost(_) | Fact::Declined(_) | Fact::InsufficientFunds => {
            (None, None)
        }
    };
    let (break_id, kind, operation) = (Uuid::now_v7(), mismatch.kind(), item.operation);
    let life = row.life_mut();
    life.attention_code = Some(mismatch.attention().to_owned());
    life.attention_break = Some(break_id);
    life.updated_at = at.to_sqlx();
    out.changed.insert(life.id);
    out.breaks.push(NewBreak {
        break_id,
        tenant_id: life.tenant_id,
        kind,
        operation,
        gateway: life.gateway.clone(),
        gateway_reference: life.gateway_reference.clone(),
        currency: life.currency.clone(),
        expected_minor: life.amount_minor,
        actual_minor,
        actual_currency,
        proposal: mismatch.proposal(),
        at,
    });
    let told =
        Told { tenant: TenantId(life.tenant_id), status: "open", amount: life.money(), version: 1, at };
    out.events.push(events::of_break(BreakId(break_id), operation, &told));
    out.moved.push(Moved::Break { operation, id: break_id, kind });
}
