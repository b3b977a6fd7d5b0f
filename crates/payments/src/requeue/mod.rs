//! Giving operations their work again: always right, whoever asks for it and how often.
//!
//! A dispatch row only says that there is work; the payment or payout is the truth. So a row that was lost is made
//! again as the restorer makes it (it counts as possibly sent, and its fence begins above every earlier one), a row
//! that waits is made due, and one that somebody works on is left alone. The next claim does the rest: it knows a
//! payout whose debit does not stand as unsent and asks about everything else before it sends a byte.
//!
//! Locks as everywhere: dispatch rows first, in the order of their ids; operations are only read. Who comes between
//! (another requeue, the restorer, a creation) inserts the same row, and one of them wins.

mod repo;

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use sqlx::PgConnection;
use tallystick_runner::{Db, DbError};
use uuid::Uuid;

use crate::dispatch::repo::{self as dispatch, DispatchRow};
use crate::ids::{PayoutId, TenantId};
use crate::operation::{Operation, OperationId, Progress};
use crate::payment::repo as payments;
use crate::payout::PayoutStatus;
use crate::payout::repo as payouts;

/// Operations that one transaction looks at, at most.
const PAGE: usize = 1_000;
/// Payouts that one statement of a list goes through.
const LIST_PAGE: i64 = 10_000;

/// What became of one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its dispatch row was lost and is there again, due now.
    MadeAgain,
    /// Its dispatch row was there, and is due now.
    MadeDue,
    /// Somebody works on it, or has given it its work just now.
    InWork,
    /// It needs no work: it is final, or waits for an approval.
    NothingToDo,
    /// There is no payment and no payout of this id.
    UnknownId,
}

/// One id with what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Requeued {
    /// The id that was asked for.
    pub id: Uuid,
    /// `payment` or `payout`.
    pub kind: Option<&'static str>,
    /// Where it stands.
    pub status: Option<&'static str>,
    /// What was done.
    pub outcome: Outcome,
}

/// Gives these payments and payouts their work again; answers in the order of the ids, each once. Any number of ids.
///
/// # Errors
/// [`DbError`]; what was done before it stays done, and all of it may be done again.
pub async fn by_ids(db: &Db, ids: &[Uuid]) -> Result<Vec<Requeued>, DbError> {
    let mut seen = HashSet::new();
    let ids: Vec<Uuid> = ids.iter().copied().filter(|id| seen.insert(*id)).collect();
    let mut all = Vec::with_capacity(ids.len());
    for page in ids.chunks(PAGE) {
        let page = page.to_vec();
        let done = db.tx("requeue.by_ids", move |conn| {
            let page = page.clone();
            Box::pin(async move { requeue_in_tx(conn, &page).await })
        });
        all.extend(done.await?);
    }
    Ok(all)
}

/// A look at some operations.
#[derive(Clone, Debug)]
pub struct Look {
    /// Operations looked at.
    pub seen: i64,
    /// Those that had lost their work, with what became of them.
    pub requeued: Vec<Requeued>,
    /// What the next look goes on behind; none after the last one.
    pub next: Option<Uuid>,
}

/// Looks at some operations behind `after`, by id, and gives those their work again that need it and have none.
/// The first look is behind the nil id.
///
/// # Errors
/// [`DbError`].
pub async fn without_work(db: &Db, after: Uuid) -> Result<Look, DbError> {
    let page = i64::try_from(PAGE).unwrap_or(i64::MAX);
    db.tx("requeue.without_work", move |conn| {
        Box::pin(async move {
            let look = repo::lost(conn, after, page).await?;
            let requeued = requeue_in_tx(conn, &look.lost).await?;
            Ok(Look { seen: look.seen, requeued, next: look.end })
        })
    })
    .await
}

/// In the caller's transaction, at most [`PAGE`] different ids.
async fn requeue_in_tx(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Requeued>, DbError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    // The rows first: a claim that holds one ends before we look, and none begins until we are done.
    let rows: HashMap<Uuid, DispatchRow> =
        dispatch::lock(conn, ids).await?.into_iter().map(|row| (row.operation_id, row)).collect();
    let mut operations: HashMap<Uuid, Operation> = HashMap::with_capacity(ids.len());
    let charges = payments::by_ids(conn, ids).await?;
    operations.extend(charges.into_iter().map(|row| (row.life.id, Operation::Charge(row))));
    let sent = payouts::by_ids(conn, ids).await?;
    operations.extend(sent.into_iter().map(|row| (row.life.id, Operation::Payout(row))));

    let mut all: Vec<Requeued> = ids
        .iter()
        .map(|id| {
            let operation = operations.get(id);
            let outcome = decide(operation.map(Operation::progress), rows.get(id));
            let kind = operation.map(|operation| operation.named().kind.object());
            Requeued { id: *id, kind, status: operation.map(Operation::status), outcome }
        })
        .collect();
    let with = |outcome| all.iter().filter(move |one| one.outcome == outcome).map(|one| one.id);
    let due: Vec<Uuid> = with(Outcome::MadeDue).collect();
    let missing: Vec<OperationId> =
        with(Outcome::MadeAgain).filter_map(|id| operations.get(&id)).map(Operation::named).collect();
    repo::make_due(conn, &due).await?;
    let made: HashSet<Uuid> = repo::make_again(conn, &missing).await?.into_iter().collect();
    for one in &mut all {
        if one.outcome == Outcome::MadeAgain && !made.contains(&one.id) {
            one.outcome = Outcome::InWork;
        }
    }
    Ok(all)
}

/// What is to be done about an operation, none if there is no such, and its dispatch row, if it has one. Pure.
fn decide(operation: Option<Progress>, row: Option<&DispatchRow>) -> Outcome {
    match (operation, row) {
        (None, _) => Outcome::UnknownId,
        // A row that was left over is removed by the next claim.
        (Some(Progress::Over), _) => Outcome::NothingToDo,
        (Some(Progress::Unsent | Progress::Unknown | Progress::Acknowledged), None) => Outcome::MadeAgain,
        (Some(_), Some(row)) if row.leased => Outcome::InWork,
        (Some(_), Some(_)) => Outcome::MadeDue,
    }
}

/// The work that a payout has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Somebody works on it now.
    Leased,
    /// It waits to be claimed.
    Due,
    /// It is looked at again later.
    Waits,
}

/// A payout as an operator sees it.
#[derive(Clone, Debug, Serialize)]
pub struct ListedPayout {
    /// Its id.
    pub payout_id: PayoutId,
    /// Name of its tenant.
    pub tenant: String,
    /// Where it stands.
    pub status: PayoutStatus,
    /// Minor units.
    pub amount_minor: i64,
    /// ISO 4217.
    pub currency: String,
    /// The client's reference.
    pub reference: Option<String>,
    /// The gateway account.
    pub gateway: String,
    /// Why a person must look.
    pub attention: Option<String>,
    /// The work that it has; none when its dispatch row is not there.
    pub work: Option<Work>,
    /// When we accepted it.
    pub created_at: jiff::Timestamp,
    /// How long ago that was, by the database's clock.
    pub age_seconds: i64,
}

/// What a list of payouts is narrowed to.
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// Only those in this status.
    pub status: Option<PayoutStatus>,
    /// Only those that need work and have no dispatch row.
    pub without_work: bool,
}

/// Payouts of all tenants, oldest first, at most `limit`. Goes through all payouts, some at a time.
///
/// # Errors
/// [`DbError`].
pub async fn list_payouts(db: &Db, filter: &ListFilter, limit: usize) -> Result<Vec<ListedPayout>, DbError> {
    let mut found = Vec::new();
    let mut after = Uuid::nil();
    while found.len() < limit {
        let left = i64::try_from(limit - found.len()).unwrap_or(i64::MAX);
        let mut conn = db.conn().await?;
        let end = repo::page_end(&mut conn, after, LIST_PAGE).await?;
        found.extend(repo::payouts(&mut conn, filter, after, end, left).await?);
        let Some(end) = end else { break };
        after = end;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(leased: bool) -> DispatchRow {
        DispatchRow { operation_id: Uuid::nil(), fence: 1, leased, cleared: false, tries: 0 }
    }

    #[test]
    fn work_is_given_where_it_is_needed_and_taken_from_nobody() {
        for progress in [Progress::Unsent, Progress::Unknown, Progress::Acknowledged] {
            assert_eq!(decide(Some(progress), None), Outcome::MadeAgain, "{progress:?}");
            assert_eq!(decide(Some(progress), Some(&row(false))), Outcome::MadeDue, "{progress:?}");
            assert_eq!(decide(Some(progress), Some(&row(true))), Outcome::InWork, "{progress:?}");
        }
        for left_over in [None, Some(&row(false)), Some(&row(true))] {
            assert_eq!(decide(Some(Progress::Over), left_over), Outcome::NothingToDo);
            assert_eq!(decide(None, left_over), Outcome::UnknownId);
        }
    }
}
