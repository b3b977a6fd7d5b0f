//! Phase one: lease due work and debit the payouts in it, in one short transaction.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::PgConnection;
use tallystick_gateway::LostCause;
use tallystick_ledger as ledger;
use tallystick_runner::{Fault as _, looper};
use uuid::Uuid;

use super::decide::{self, Act, Standing};
use super::repo::{self, ClaimedRow};
use crate::engine::Inner;
use crate::history::Evidence;
use crate::journals::payout_debited;
use crate::operation::{Fact, Operation, OperationId, OperationKind, Progress};
use crate::payment::repo as payments;
use crate::payout::debit;
use crate::payout::repo as payouts;
use crate::writer::{self, Learned, Moved, WriteError};

/// An operation that cannot be claimed by itself is looked at again after this.
const POISON_WAIT: Duration = Duration::from_secs(60);

/// A leased operation and what to do about it. Holding one gives the right to call until its lease ends.
#[derive(Debug)]
pub(super) struct Work {
    pub operation: Operation,
    pub fence: i64,
    pub act: Act,
    /// A submit with this key may have had an effect already.
    pub lost_before: bool,
    /// This process's clock before the claim was sent; the lease began later.
    pub claimed_at: Instant,
}

/// Leases up to `limit` operations; `alone` takes one of those whose workers keep dying.
pub(super) async fn claim(inner: &Arc<Inner>, limit: i64, alone: bool) -> Result<Vec<Work>, WriteError> {
    match transaction(inner, limit, alone).await {
        // One operation whose debit cannot be booked must not hold up the others: the first is tried by itself.
        Err(error) if !error.db().is_some_and(tallystick_runner::DbError::is_transient) => {
            tracing::warn!(
                error = looper::chain(&error),
                "a claim was refused: the first operation is tried alone"
            );
            match transaction(inner, 1, alone).await {
                Err(error) if !error.db().is_some_and(tallystick_runner::DbError::is_transient) => {
                    put_off(inner, alone, &error).await?;
                    Err(error)
                }
                other => other,
            }
        }
        other => other,
    }
}

async fn put_off(inner: &Arc<Inner>, alone: bool, error: &WriteError) -> Result<(), WriteError> {
    let id = inner
        .db
        .tx("dispatch.put_off", move |conn| {
            Box::pin(async move { repo::put_off_first(conn, alone, POISON_WAIT).await })
        })
        .await?;
    if let Some(id) = id {
        metrics::counter!("tallystick_operations_set_apart_total").increment(1);
        tracing::error!(
            operation.id = %id, error = looper::chain(error),
            "this operation cannot be claimed and is put off; nothing was sent"
        );
    }
    Ok(())
}

/// The rows of one claim: those that are worked on, in the order in which they came due.
type Standings = Vec<(ClaimedRow, Operation)>;

async fn transaction(inner: &Arc<Inner>, limit: i64, alone: bool) -> Result<Vec<Work>, WriteError> {
    tallystick_runner::failpoint!("before_claim");
    let claimed_at = Instant::now();
    let inner2 = inner.clone();
    let (rows, moved) = inner
        .db
        .tx("dispatch.claim", move |conn| {
            let inner = inner2.clone();
            Box::pin(async move {
                let lease = inner.settings.lease;
                let claimed = if alone {
                    repo::claim_alone(conn, lease).await?
                } else {
                    repo::claim(conn, limit, lease).await?
                };
                claim_in_tx(conn, &inner, claimed).await
            })
        })
        .await?;
    tallystick_runner::failpoint!("after_claim");
    writer::log(&moved);
    Ok(to_work(inner, rows, claimed_at))
}

async fn claim_in_tx(
    conn: &mut PgConnection,
    inner: &Inner,
    mut claimed: Vec<ClaimedRow>,
) -> Result<(Standings, Vec<Moved>), WriteError> {
    if claimed.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut rows = load(conn, &claimed).await?;
    let debited = debited(conn, &claimed, &rows).await?;
    for row in &mut claimed {
        // The debit commits with the claim, before the first byte: without it nothing can have been sent.
        let never_sent = matches!(rows.get(&row.operation_id), Some(Operation::Payout(payout))
            if payout.life.status.needs_work() && !debited.contains(&row.operation_id) && row.is_again());
        row.unrecorded &= !never_sent;
    }
    let mut learned = vanished(&claimed, &rows);
    let refused = debit(conn, inner, &claimed, &rows, &debited, &learned).await?;
    learned.extend(refused);
    let mut moved = Vec::new();
    if !learned.is_empty() {
        let written = writer::learn_in_tx(conn, &inner.accounts, &learned, &[]).await?;
        rows.extend(written.rows);
        moved = written.moved;
    }
    // What needs no work any more: refused just now, or left over from a repair by hand.
    let over = |id: &Uuid| rows.get(id).is_none_or(|row| row.progress() == Progress::Over);
    let idle: Vec<Uuid> = claimed.iter().map(|c| c.operation_id).filter(over).collect();
    repo::delete(conn, &idle).await?;
    rows.retain(|_, row| row.progress() != Progress::Over);
    let standings = claimed.into_iter().filter_map(|c| rows.remove(&c.operation_id).map(|row| (c, row)));
    Ok((standings.collect(), moved))
}

/// The operations of the leased rows, without locks: the dispatch rows are locked, and everybody takes those first.
async fn load(
    conn: &mut PgConnection,
    claimed: &[ClaimedRow],
) -> Result<HashMap<Uuid, Operation>, WriteError> {
    let of = |kind| -> Vec<Uuid> {
        claimed.iter().filter_map(ClaimedRow::operation).filter(|o| o.kind == kind).map(|o| o.id).collect()
    };
    let mut rows = HashMap::with_capacity(claimed.len());
    let charges = of(OperationKind::Charge);
    if !charges.is_empty() {
        let found = payments::by_ids(conn, &charges).await?;
        rows.extend(found.into_iter().map(|row| (row.life.id, Operation::Charge(row))));
    }
    let sent = of(OperationKind::Payout);
    if !sent.is_empty() {
        let found = payouts::by_ids(conn, &sent).await?;
        rows.extend(found.into_iter().map(|row| (row.life.id, Operation::Payout(row))));
    }
    Ok(rows)
}

/// The payouts among these whose debit stands. One that was never claimed has none; one that was acknowledged or lost
/// has had it since its claim.
async fn debited(
    conn: &mut PgConnection,
    claimed: &[ClaimedRow],
    rows: &HashMap<Uuid, Operation>,
) -> Result<HashSet<Uuid>, WriteError> {
    let in_doubt =
        |c: &&ClaimedRow| c.is_again() && matches!(rows.get(&c.operation_id), Some(Operation::Payout(_)));
    let ids: Vec<Uuid> =
        claimed.iter().filter(in_doubt).map(|c| payout_debited::journal_id(c.operation_id)).collect();
    ledger::standing_in_tx(conn, &ids).await.map_err(WriteError::Ledger)
}

/// Where an earlier claim of something unsent left no result, its worker may have sent it: that is learnt before
/// anything else happens.
fn vanished(claimed: &[ClaimedRow], rows: &HashMap<Uuid, Operation>) -> Vec<Learned> {
    let unsent = |id: OperationId| rows.get(&id.id).is_some_and(|row| row.progress() == Progress::Unsent);
    claimed
        .iter()
        .filter(|c| c.unrecorded)
        .filter_map(ClaimedRow::operation)
        .filter(|operation| unsent(*operation))
        .map(|operation| Learned {
            operation,
            fact: Fact::ReplyLost(LostCause::WorkerGone),
            evidence: Evidence::Expiry,
        })
        .collect()
}

/// Debits the payouts that are about to be sent for the first time; answers the facts about those that lack funds.
async fn debit(
    conn: &mut PgConnection,
    inner: &Inner,
    claimed: &[ClaimedRow],
    rows: &HashMap<Uuid, Operation>,
    debited: &HashSet<Uuid>,
    vanished: &[Learned],
) -> Result<Vec<Learned>, WriteError> {
    let vanished: HashSet<Uuid> = vanished.iter().map(|l| l.operation.id).collect();
    let due: Vec<_> = claimed
        .iter()
        .filter(|c| !debited.contains(&c.operation_id) && !vanished.contains(&c.operation_id))
        .filter_map(|c| match rows.get(&c.operation_id)? {
            // Without its gateway account it is not sent, so it is not debited either.
            Operation::Payout(row)
                if act(inner, c, &rows[&c.operation_id], Duration::ZERO) == Some(Act::Submit) =>
            {
                Some(row)
            }
            _ => None,
        })
        .collect();
    debit::debit_in_tx(conn, &inner.accounts, &due).await
}

/// What is to be done about a claimed operation; none without its gateway account.
fn act(inner: &Inner, claimed: &ClaimedRow, operation: &Operation, passed: Duration) -> Option<Act> {
    let gateway = inner.gateways.get(operation.gateway())?;
    let standing = standing(claimed, operation, passed);
    Some(decide::act(&standing, gateway.capability(), inner.settings.key_retention_margin))
}

fn standing(claimed: &ClaimedRow, operation: &Operation, passed: Duration) -> Standing {
    Standing {
        progress: operation.progress(),
        has_reference: operation.has_reference(),
        cancel_requested: operation.cancel_requested(),
        unrecorded: claimed.unrecorded,
        cleared: claimed.cleared,
        age: claimed.age() + passed,
    }
}

fn to_work(inner: &Inner, rows: Standings, claimed_at: Instant) -> Vec<Work> {
    let mut work = Vec::with_capacity(rows.len());
    for (row, operation) in rows {
        let passed = claimed_at.elapsed();
        // Without its gateway account nothing can be sent or asked; the call says so.
        let act = act(inner, &row, &operation, passed).unwrap_or(Act::Ask);
        let (gateway, margin) =
            (inner.gateways.get(operation.gateway()), inner.settings.key_retention_margin);
        let standing = standing(&row, &operation, passed);
        if gateway.is_some_and(|g| decide::is_stranded(&standing, g.capability(), margin)) {
            tracing::warn!(
                operation.kind = operation.named().kind.object(), operation.id = %operation.named().id,
                operation.status = operation.status(),
                "this key may not be sent again: it is only asked about, and a person may have to resolve it"
            );
        }
        let lost_before = operation.progress() != Progress::Unsent;
        work.push(Work { operation, fence: row.fence, act, lost_before, claimed_at });
    }
    work
}
