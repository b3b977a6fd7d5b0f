//! Phase one: lease due work, in one short transaction.

use std::collections::HashMap;
use std::time::Instant;

use sqlx::PgConnection;
use tallystick_gateway::LostCause;
use uuid::Uuid;

use super::decide::{self, Act, Standing};
use super::repo::{self, ClaimedRow};
use crate::engine::Inner;
use crate::history::Evidence;
use crate::payment::repo::{self as payments, PaymentRow};
use crate::payment::state::{PaymentFact, PaymentStatus};
use crate::writer::{self, Learned, Moved, WriteError};

/// A leased operation and what to do about it. Holding one gives the right to call until its lease ends.
#[derive(Debug)]
pub(super) struct Work {
    pub payment: PaymentRow,
    pub fence: i64,
    pub act: Act,
    /// A submit with this key may have had an effect already.
    pub lost_before: bool,
    /// This process's clock before the claim was sent; the lease began later.
    pub claimed_at: Instant,
}

/// Leases up to `limit` operations; `alone` takes one of those whose workers keep dying.
pub(super) async fn claim(inner: &Inner, limit: i64, alone: bool) -> Result<Vec<Work>, WriteError> {
    tallystick_runner::failpoint!("before_claim");
    let claimed_at = Instant::now();
    let (lease, accounts) = (inner.settings.lease, inner.accounts.clone());
    let (claimed, rows, moved) = inner
        .db
        .tx("dispatch.claim", move |conn| {
            let accounts = accounts.clone();
            Box::pin(async move {
                let claimed = if alone {
                    repo::claim_alone(conn, lease).await?
                } else {
                    repo::claim(conn, limit, lease).await?
                };
                let (rows, moved) = standing_rows(conn, &accounts, &claimed).await?;
                Ok::<_, WriteError>((claimed, rows, moved))
            })
        })
        .await?;
    tallystick_runner::failpoint!("after_claim");
    writer::log(&moved);
    Ok(to_work(inner, claimed, rows, claimed_at))
}

/// The payments of the leased rows. Where an earlier claim of a pending one left no result, its worker may have
/// sent something: that is learnt before anything else happens.
async fn standing_rows(
    conn: &mut PgConnection,
    accounts: &tallystick_ledger::AccountCache,
    claimed: &[ClaimedRow],
) -> Result<(HashMap<Uuid, PaymentRow>, Vec<Moved>), WriteError> {
    if claimed.is_empty() {
        return Ok((HashMap::new(), Vec::new()));
    }
    let ids: Vec<Uuid> = claimed.iter().map(|c| c.operation_id).collect();
    let mut rows: HashMap<Uuid, PaymentRow> =
        payments::by_ids(conn, &ids).await?.into_iter().map(|r| (r.payment_id, r)).collect();
    let gone: Vec<Learned> = claimed
        .iter()
        .filter(|c| c.unrecorded)
        .filter(|c| rows.get(&c.operation_id).is_some_and(|r| r.status == PaymentStatus::Pending))
        .map(|c| Learned {
            payment: c.operation_id,
            fact: PaymentFact::ReplyLost(LostCause::WorkerGone),
            evidence: Evidence::Expiry,
        })
        .collect();
    let mut moved = Vec::new();
    if !gone.is_empty() {
        let written = writer::learn_in_tx(conn, accounts, &gone, &[]).await?;
        rows.extend(written.rows);
        moved = written.moved;
    }
    // A row without an open payment has nothing to do; it can only be left over from a repair by hand.
    let idle: Vec<Uuid> =
        ids.into_iter().filter(|id| rows.get(id).is_none_or(|r| !r.status.needs_work())).collect();
    repo::delete(conn, &idle).await?;
    rows.retain(|_, row| row.status.needs_work());
    Ok((rows, moved))
}

fn to_work(
    inner: &Inner,
    claimed: Vec<ClaimedRow>,
    mut rows: HashMap<Uuid, PaymentRow>,
    claimed_at: Instant,
) -> Vec<Work> {
    let mut work = Vec::with_capacity(claimed.len());
    for row in claimed {
        let Some(payment) = rows.remove(&row.operation_id) else { continue };
        let standing = Standing {
            status: payment.status,
            has_reference: payment.gateway_reference.is_some(),
            cancel_requested: payment.cancel_requested_at.is_some(),
            unrecorded: row.unrecorded,
            cleared: row.cleared,
            age: row.age() + claimed_at.elapsed(),
        };
        // Without its gateway account nothing can be sent or asked; the call says so.
        let (gateway, margin) = (inner.gateways.get(&payment.gateway), inner.settings.key_retention_margin);
        let act = gateway.map_or(Act::Ask, |g| decide::act(&standing, g.capability(), margin));
        if gateway.is_some_and(|g| decide::is_stranded(&standing, g.capability(), margin)) {
            tracing::warn!(
                payment.id = %payment.payment_id, payment.status = payment.status.as_str(),
                "this payment's key may not be sent again: it is only asked about, and a person may have to resolve it"
            );
        }
        let lost_before = payment.status != PaymentStatus::Pending;
        work.push(Work { payment, fence: row.fence, act, lost_before, claimed_at });
    }
    work
}
