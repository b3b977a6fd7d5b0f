//! Phase three: write down what was learnt, in batches, through the one writer.
//!
//! Also the way in for facts that no lease stands behind (webhooks): they are learnt all the same; only the
//! dispatch row's schedule belongs to whoever holds its lease.

use std::collections::{BTreeSet, HashMap};

use sqlx::PgConnection;
use uuid::Uuid;

use super::claim::Work;
use super::decide::{self, News, Next};
use super::repo::{self, DispatchRow, Postpone};
use crate::engine::Inner;
use crate::history::Evidence;
use crate::history::repo::{self as history, NewAttempt};
use crate::inbound;
use crate::operation::{Operation, OperationId};
use crate::writer::{self, Learned, Moved, WriteError, Written};

/// News about one operation, with the lease under which it was won, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub operation: OperationId,
    pub fence: Option<i64>,
    pub news: News,
    pub evidence: Evidence,
    pub attempt: Option<NewAttempt>,
}

impl Item {
    pub(super) fn held(work: &Work, news: News, evidence: Evidence, attempt: Option<NewAttempt>) -> Self {
        Self { operation: work.operation.named(), fence: Some(work.fence), news, evidence, attempt }
    }
}

/// What a batch did, for metrics and wake-ups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// Leases that had passed to somebody else.
    pub leases_lost: u64,
    /// Some operation is due again at once.
    pub due_now: bool,
    /// What moved, to be logged after the commit.
    pub moved: Vec<Moved>,
}

/// Records a batch in the caller's transaction.
pub(crate) async fn record_in_tx(
    conn: &mut PgConnection,
    inner: &Inner,
    items: &[Item],
) -> Result<Recorded, WriteError> {
    let named: Vec<OperationId> =
        items.iter().map(|i| i.operation).collect::<BTreeSet<_>>().into_iter().collect();
    let ids: Vec<Uuid> = named.iter().map(|o| o.id).collect();
    let open: HashMap<Uuid, DispatchRow> =
        repo::lock(conn, &ids).await?.into_iter().map(|r| (r.operation_id, r)).collect();
    let holds = |item: &Item| open.get(&item.operation.id).is_some_and(|row| Some(row.fence) == item.fence);
    let learned: Vec<Learned> = items
        .iter()
        .filter(|item| holds(item) || !item.news.is_weak())
        .filter_map(|item| match &item.news {
            News::Fact(fact) => {
                Some(Learned { operation: item.operation, fact: fact.clone(), evidence: item.evidence })
            }
            News::NotSent { .. } | News::NotFound | News::Unanswered | News::HandedBack => None,
        })
        .collect();
    let written = writer::learn_in_tx(conn, &inner.accounts, &learned, &named).await?;
    let mut recorded = reschedule(conn, inner, items, &open, &written).await?;
    recorded.moved = written.moved;
    let attempts: Vec<NewAttempt> = items.iter().filter_map(|i| i.attempt.clone()).collect();
    history::append_attempts(conn, &attempts).await?;
    inbound::repo::make_due(conn, &written.new_references).await?;
    Ok(recorded)
}

async fn reschedule(
    conn: &mut PgConnection,
    inner: &Inner,
    items: &[Item],
    open: &HashMap<Uuid, DispatchRow>,
    written: &Written,
) -> Result<Recorded, WriteError> {
    let mut recorded = Recorded::default();
    let mut done = BTreeSet::new();
    let mut postponed: HashMap<Uuid, Postpone> = HashMap::new();
    let advanced: BTreeSet<Uuid> = written.moved.iter().filter_map(Moved::status_of).collect();
    for item in items {
        let Some(dispatch) = open.get(&item.operation.id) else {
            recorded.leases_lost += u64::from(item.fence.is_some());
            continue;
        };
        let Some(operation) = written.rows.get(&item.operation.id) else { continue };
        let held = item.fence == Some(dispatch.fence);
        recorded.leases_lost += u64::from(item.fence.is_some() && !held);
        // Counted are results without progress: after a move the waits begin again.
        let tries = if advanced.contains(&item.operation.id) { 0 } else { dispatch.tries };
        match next(inner, item, dispatch, tries, operation) {
            Next::Done => {
                done.insert(item.operation.id);
            }
            // Whoever holds the lease plans the next look; without a holder the news does.
            Next::After { wait, cleared, tries } if held || !dispatch.leased && item.fence.is_none() => {
                recorded.due_now |= wait.is_zero();
                let (operation_id, fence) = (item.operation.id, dispatch.fence);
                postponed.insert(operation_id, Postpone { operation_id, fence, wait, cleared, tries });
            }
            Next::After { .. } => {}
        }
    }
    postponed.retain(|id, _| !done.contains(id));
    repo::delete(conn, &done.into_iter().collect::<Vec<_>>()).await?;
    repo::postpone(conn, &postponed.into_values().collect::<Vec<_>>()).await?;
    Ok(recorded)
}

fn next(inner: &Inner, item: &Item, dispatch: &DispatchRow, tries: i32, operation: &Operation) -> Next {
    decide::next(
        &item.news,
        operation.progress(),
        operation.awaits_person(),
        dispatch.cleared,
        tries,
        &inner.settings,
    )
}

/// Records a batch in a transaction of its own.
pub(crate) async fn record(inner: &std::sync::Arc<Inner>, items: Vec<Item>) -> Result<Recorded, WriteError> {
    let items = std::sync::Arc::new(items);
    let inner2 = inner.clone();
    let recorded = inner
        .db
        .tx("dispatch.record", move |conn| {
            let (inner, items) = (inner2.clone(), items.clone());
            Box::pin(async move { record_in_tx(conn, &inner, &items).await })
        })
        .await?;
    committed(inner, &recorded);
    Ok(recorded)
}

/// What follows once a batch is committed: logs, figures, and a wake-up for what is due at once.
pub(crate) fn committed(inner: &Inner, recorded: &Recorded) {
    writer::log(&recorded.moved);
    if recorded.leases_lost > 0 {
        metrics::counter!("tallystick_leases_lost_total").increment(recorded.leases_lost);
    }
    if recorded.due_now {
        inner.wake_dispatch.notify_one();
    }
}
