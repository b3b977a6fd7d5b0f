//! The one writer: everything that is learnt about a payment becomes status, journal, history, event and break
//! here, in one transaction.
//!
//! The worker's reply, the answer to a question, a signed webhook and an expired lease all come this way. Rows are
//! locked in id order, [`PaymentState::learn`](crate::payment::state::PaymentState::learn) is applied to the state
//! *found*, and what it says is written in a handful of statements for the whole batch. A fact that comes twice is
//! no change; a journal that would be written twice is found by its source.
//!
//! Lock order of everybody: inbound event → idempotency key → dispatch row → payment → ledger account.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use tallystick_gateway::{Decline, Stage};
use tallystick_ledger::{self as ledger, AccountCache, LedgerError, NewEntry, NewJournal, SystemAccount};
use tallystick_outbox::{self as outbox, NewEvent, OutboxError};
use tallystick_runner::{DbError, Fault, clock};
use uuid::Uuid;

use crate::breaks::{self, NewBreak};
use crate::events::{self, Told};
use crate::history::repo::NewMove;
use crate::history::{self, Evidence};
use crate::ids::{BreakId, PaymentId, TenantId};
use crate::journals::{self, MoneyJournal};
use crate::payment::repo::{self as payments, PaymentRow, Update};
use crate::payment::state::{Mismatch, MoneyEvent, PaymentFact, PaymentStatus, Transition};

/// A fact about a payment, and how it is known.
#[derive(Clone, Debug)]
pub(crate) struct Learned {
    pub payment: Uuid,
    pub fact: PaymentFact,
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
    /// The rows as they are now, of all payments named in the batch that exist.
    pub rows: HashMap<Uuid, PaymentRow>,
    /// Gateway references that were not known before: (gateway, reference).
    pub new_references: Vec<(String, String)>,
    /// What moved, to be logged once it is committed.
    pub moved: Vec<Moved>,
}

/// What happened, for the log and the figures.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moved {
    Status { payment: Uuid, status: PaymentStatus, evidence: Evidence, event: Uuid },
    Break { payment: Uuid, id: Uuid, kind: &'static str },
}

/// Logs and counts. Called after the commit: a transaction that is run again or rolled back moved nothing.
pub(crate) fn log(moved: &[Moved]) {
    for one in moved {
        match *one {
            Moved::Status { payment, status, evidence, event } => {
                let (status, evidence) = (status.as_str(), evidence.as_str());
                tracing::info!(payment.id = %payment, payment.status = status, evidence, event.id = %event, "payment moved");
                metrics::counter!("tallystick_payment_moves_total", "status" => status, "evidence" => evidence)
                    .increment(1);
            }
            Moved::Break { payment, id, kind } => {
                tracing::warn!(
                    payment.id = %payment, break.id = %id, break.kind = kind,
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
    journals: Vec<(TenantId, String, MoneyJournal, tallystick_money::Currency)>,
    new_references: Vec<(String, String)>,
    moved: Vec<Moved>,
    changed: BTreeSet<Uuid>,
}

/// Learns facts in the caller's transaction. Facts about payments that do not exist are left out.
///
/// `also` names payments that are locked and returned without a fact about them.
pub(crate) async fn learn_in_tx(
    conn: &mut PgConnection,
    accounts: &AccountCache,
    learned: &[Learned],
    also: &[Uuid],
) -> Result<Written, WriteError> {
    let ids: BTreeSet<Uuid> = learned.iter().map(|l| l.payment).chain(also.iter().copied()).collect();
    let ids: Vec<Uuid> = ids.into_iter().collect();
    let found = payments::lock(conn, &ids).await?;
    let versions: HashMap<Uuid, i32> = found.iter().map(|r| (r.payment_id, r.version)).collect();
    let mut rows: HashMap<Uuid, PaymentRow> = found.into_iter().map(|r| (r.payment_id, r)).collect();
    let mut out = Collected::default();
    let at = clock::now();
    for item in learned {
        if let Some(row) = rows.get_mut(&item.payment) {
            apply(row, item, at, &mut out);
        }
    }
    let updates: Vec<Update<'_>> =
        out.changed.iter().map(|id| Update { before: versions[id], after: &rows[id] }).collect();
    payments::update(conn, &updates).await?;
    history::repo::append(conn, &out.moves).await?;
    breaks::repo::open(conn, &out.breaks).await?;
    post(conn, accounts, &out.journals).await?;
    if !out.events.is_empty() {
        outbox::append_in_tx(conn, &out.events).await.map_err(WriteError::Outbox)?;
    }
    Ok(Written { rows, new_references: out.new_references, moved: out.moved })
}

fn apply(row: &mut PaymentRow, item: &Learned, at: Timestamp, out: &mut Collected) {
    let transition = row.state().learn(&item.fact);
    remember_reference(row, &item.fact, at, out);
    match transition {
        Transition::NoChange => {}
        Transition::Attention(mismatch) => call_a_person(row, &item.fact, &mismatch, at, out),
        Transition::Moved { to, money, attention } => {
            move_to(row, item, to, at, out);
            if let Some(MoneyEvent::Captured { amount_minor }) = money {
                row.authorized_minor = row.authorized_minor.max(amount_minor);
                row.captured_minor = amount_minor;
                let journal = journals::payment_captured::journal(row.payment_id, amount_minor);
                out.journals.push((
                    TenantId(row.tenant_id),
                    row.gateway.clone(),
                    journal,
                    row.money().currency,
                ));
            }
            if let Some(mismatch) = attention {
                call_a_person(row, &item.fact, &mismatch, at, out);
            }
        }
    }
}

/// The gateway's id is kept as soon as it is known, whatever else the fact does: from then on nothing is submitted.
fn remember_reference(row: &mut PaymentRow, fact: &PaymentFact, at: Timestamp, out: &mut Collected) {
    let reference = match fact {
        PaymentFact::Approved(approval) => Some(&approval.reference),
        PaymentFact::Acknowledged { reference } => reference.as_ref(),
        PaymentFact::ReplyLost(_) | PaymentFact::Declined(_) => None,
    };
    if let (None, Some(reference)) = (&row.gateway_reference, reference.filter(|r| !r.is_empty())) {
        row.gateway_reference = Some(reference.clone());
        row.updated_at = at.to_sqlx();
        out.new_references.push((row.gateway.clone(), reference.clone()));
        out.changed.insert(row.payment_id);
    }
}

fn move_to(row: &mut PaymentRow, item: &Learned, to: PaymentStatus, at: Timestamp, out: &mut Collected) {
    row.status = to;
    row.version += 1;
    row.updated_at = at.to_sqlx();
    row.unknown_since = (to == PaymentStatus::Unknown).then(|| at.to_sqlx());
    row.processed_at = to.is_final().then(|| at.to_sqlx());
    let detail = match &item.fact {
        PaymentFact::Declined(Decline { code, message }) => {
            row.failure_code = Some(code.clone());
            row.failure_message = Some(message.clone());
            Some(code.clone())
        }
        PaymentFact::Approved(approval) => {
            if approval.stage == Stage::Authorized && to == PaymentStatus::Authorized {
                row.authorized_minor = approval.amount_minor;
            }
            None
        }
        PaymentFact::ReplyLost(cause) => Some(cause.name().to_owned()),
        PaymentFact::Acknowledged { .. } => None,
    };
    out.changed.insert(row.payment_id);
    out.moves.push(NewMove {
        object: row.payment_id,
        version: row.version,
        status: to.as_str(),
        at,
        evidence: item.evidence,
        detail,
    });
    let told = Told {
        tenant: TenantId(row.tenant_id),
        status: to.as_str(),
        amount: row.money(),
        version: row.version,
        at,
    };
    let event = events::of_payment(PaymentId(row.payment_id), &told);
    let (payment, evidence) = (row.payment_id, item.evidence);
    out.moved.push(Moved::Status { payment, status: to, evidence, event: event.event_id });
    out.events.push(event);
}

fn call_a_person(
    row: &mut PaymentRow,
    fact: &PaymentFact,
    mismatch: &Mismatch,
    at: Timestamp,
    out: &mut Collected,
) {
    let (code, kind, proposal) = match mismatch {
        Mismatch::Amount => (
            "amount_mismatch",
            "wrong_amount",
            "compare with the gateway's records, then book what was really taken or refund it",
        ),
        Mismatch::Currency => (
            "currency_mismatch",
            "currency_mismatch",
            "compare with the gateway's records, then book what was really taken or refund it",
        ),
        Mismatch::LateCapture => (
            "late_capture",
            "late_capture",
            "refund the customer at the gateway, or book the capture and deliver the order",
        ),
    };
    let (actual_minor, actual_currency) = match fact {
        PaymentFact::Approved(approval) => (Some(approval.amount_minor), Some(approval.currency.clone())),
        PaymentFact::Acknowledged { .. } | PaymentFact::ReplyLost(_) | PaymentFact::Declined(_) => {
            (None, None)
        }
    };
    let break_id = Uuid::now_v7();
    row.attention_code = Some(code.to_owned());
    row.attention_break = Some(break_id);
    row.updated_at = at.to_sqlx();
    out.changed.insert(row.payment_id);
    out.breaks.push(NewBreak {
        break_id,
        tenant_id: row.tenant_id,
        kind,
        payment_id: row.payment_id,
        gateway: row.gateway.clone(),
        gateway_reference: row.gateway_reference.clone(),
        currency: row.currency.clone(),
        expected_minor: row.amount_minor,
        actual_minor,
        actual_currency,
        proposal,
        at,
    });
    let told = Told { tenant: TenantId(row.tenant_id), status: "open", amount: row.money(), version: 1, at };
    out.events.push(events::of_break(BreakId(break_id), Some(PaymentId(row.payment_id)), &told));
    out.moved.push(Moved::Break { payment: row.payment_id, id: break_id, kind });
}

async fn post(
    conn: &mut PgConnection,
    cache: &AccountCache,
    journals: &[(TenantId, String, MoneyJournal, tallystick_money::Currency)],
) -> Result<(), WriteError> {
    if journals.is_empty() {
        return Ok(());
    }
    let key = |gateway: &str, name: &str| format!("{gateway}/{name}");
    let mut wanted = HashMap::new();
    for (tenant, gateway, journal, currency) in journals {
        for line in &journal.lines {
            wanted.entry((tenant.0, key(gateway, line.account.name), *currency)).or_insert(line.account);
        }
    }
    let wanted: Vec<SystemAccount> = wanted
        .into_iter()
        .map(|((tenant_id, key, currency), account)| SystemAccount {
            tenant_id,
            key,
            name: account.name,
            kind: account.kind,
            currency,
        })
        .collect();
    let accounts = ledger::system_accounts_in_tx(conn, cache, &wanted).await.map_err(WriteError::Ledger)?;
    let new: Vec<NewJournal> = journals
        .iter()
        .map(|(tenant, gateway, journal, currency)| NewJournal {
            journal_id: Uuid::now_v7(),
            tenant_id: tenant.0,
            kind: journal.kind,
            source: journal.source,
            source_text: None,
            ordinal: 0,
            description: journal.description.into(),
            metadata: None,
            effective_at: None,
            corrects: None,
            entries: journal
                .lines
                .iter()
                .map(|line| NewEntry {
                    account: accounts[&(tenant.0, key(gateway, line.account.name), *currency)],
                    direction: line.direction,
                    amount_minor: line.amount_minor,
                })
                .collect(),
            status: None,
        })
        .collect();
    ledger::post_in_tx(conn, &new).await.map_err(WriteError::Ledger)?;
    Ok(())
}
