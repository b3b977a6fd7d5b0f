//! Everything that is ours, in one snapshot.

use sqlx::PgConnection;
use tallystick_ledger::verify as ledger;
use uuid::Uuid;

use super::book::Shelf;
use super::journals::Journals;
use super::outside::{Breaks, Inside};
use super::report::{
    BREAKS, CHECKPOINTS, Check, Draft, FAILED, HASHES, I1, I2, I3, I4, I5, I6, I7, I15, I17, I19, I24, I26,
    PENDING, Rule,
};
use super::{Tell, VerifyError, edges, repo, told};

/// The role that programs connect as.
const APP_ROLE: &str = "tallystick_app";

/// Tables outside of the ledger that rows are only added to.
const ADDED_TO: [&str; 4] = ["payments.history", "payments.attempt", "outbox.event", "outbox.window"];

/// Their triggers: name, table, and what they refuse as bits of `pg_trigger.tgtype` (before 2, delete 8, update 16,
/// truncate 32).
const GUARDS: [(&str, &str, i32); 5] = [
    ("history_append_only", "payments.history", 2 + 8 + 16 + 32),
    ("append_only", "outbox.event", 2 + 8 + 16),
    ("append_only_truncate", "outbox.event", 2 + 32),
    ("append_only", "outbox.window", 2 + 16),
    ("append_only_truncate", "outbox.window", 2 + 32),
];

/// What the snapshot gave.
pub(super) struct Seen {
    pub checks: Vec<Check>,
    /// The book as it was read before, and what is to be compared with the rest of it.
    pub outside: Option<(Shelf, Inside)>,
}

pub(super) async fn all(
    conn: &mut PgConnection,
    shelf: Option<Shelf>,
    page: i64,
    tell: &Tell,
) -> Result<Seen, VerifyError> {
    let mut checks = of_ledger(conn, tell).await?;
    checks.extend(of_operations(conn, tell).await?);
    let moves = tell.about("moves and their events");
    checks.push(told::compare(conn, page, &moves).await?.finish(I24));
    let (journals, outside) =
        by_operation(conn, shelf, page, &tell.about("payments, payouts and their journals")).await?;
    checks.push(journals);
    Ok(Seen { checks, outside })
}

async fn of_ledger(conn: &mut PgConnection, tell: &Tell) -> Result<Vec<Check>, VerifyError> {
    let found = |rule: Rule, finding: ledger::Finding| Draft::from(finding).finish(rule);
    let mut checks = Vec::new();
    tell.about(I1.name);
    checks.push(found(I1, ledger::journals_balanced(conn).await?));
    tell.about(I2.name);
    checks.push(found(I2, ledger::trial_balance_zero(conn).await?));
    tell.about(I3.name);
    checks.push(append_only(conn).await?);
    tell.about(I4.name);
    checks.push(found(I4, ledger::amounts_positive(conn).await?));
    tell.about(I5.name);
    checks.push(found(I5, ledger::minimum_kept(conn).await?));
    tell.about(FAILED.name);
    checks.push(found(FAILED, ledger::failed_sums_zero(conn).await?));
    tell.about(PENDING.name);
    checks.push(found(PENDING, ledger::pending_table_matches(conn).await?));
    tell.about(CHECKPOINTS.name);
    checks.push(found(CHECKPOINTS, ledger::checkpoints_match(conn).await?));
    tell.about(HASHES.name);
    checks.push(found(HASHES, ledger::hashes_match(conn).await?));
    Ok(checks)
}

/// The ledger's own guards, and those of the other tables that rows are only added to.
async fn append_only(conn: &mut PgConnection) -> Result<Check, VerifyError> {
    let mut draft = Draft::from(ledger::append_only_in_place(conn).await?);
    let text = |text: &str| text.to_owned();
    draft.count(
        repo::append_only(
            conn,
            APP_ROLE,
            &ADDED_TO.map(text),
            &GUARDS.map(|(trigger, _, _)| text(trigger)),
            &GUARDS.map(|(_, table, _)| text(table)),
            &GUARDS.map(|(_, _, bits)| bits),
        )
        .await?,
    );
    Ok(draft.finish(I3))
}

async fn of_operations(conn: &mut PgConnection, tell: &Tell) -> Result<Vec<Check>, VerifyError> {
    let counted = |rule: Rule, counted| {
        let mut draft = Draft::default();
        draft.count(counted);
        draft.finish(rule)
    };
    let mut checks = Vec::new();
    tell.about(I6.name);
    checks.push(counted(I6, repo::amounts(conn).await?));
    tell.about(I15.name);
    checks.push(counted(I15, repo::versions(conn, &edges::allowed()).await?));
    tell.about(I17.name);
    checks.push(counted(I17, repo::open_work(conn).await?));
    tell.about(I19.name);
    checks.push(counted(I19, repo::active_orders(conn).await?));
    tell.about(I26.name);
    checks.push(counted(I26, repo::inbound(conn).await?));
    tell.about(BREAKS.name);
    checks.push(counted(BREAKS, repo::breaks(conn).await?));
    Ok(checks)
}

/// One walk over payments and payouts, beside the journals and beside the book.
async fn by_operation(
    conn: &mut PgConnection,
    shelf: Option<Shelf>,
    page: i64,
    tell: &Tell,
) -> Result<(Check, Option<(Shelf, Inside)>), VerifyError> {
    let mut draft = Draft::default();
    let mut journals = Journals::new(page);
    let mut outside = shelf.map(|shelf| {
        let inside = Inside::new(&shelf);
        (shelf, inside)
    });
    let (mut tenant, mut after) = (Uuid::nil(), Uuid::nil());
    loop {
        let operations = repo::operations(conn, tenant, after, page).await?;
        journals.compare(conn, &operations, &mut draft).await?;
        tell.at(draft.checked);
        let last = operations.last().map(|last| (last.tenant_id, last.id));
        let full = i64::try_from(operations.len()).unwrap_or(page) == page;
        if let Some((shelf, inside)) = &mut outside {
            inside.look(operations, shelf);
        }
        match last {
            Some(last) if full => (tenant, after) = last,
            _ => break,
        }
    }
    journals.strays(conn, &mut draft).await?;
    if let Some((_, inside)) = &mut outside {
        inside.orders = repo::orders_of_several(conn).await?;
        inside.breaks = Breaks::of_rows(repo::open_breaks(conn, None).await?);
    }
    Ok((draft.finish(I7), outside))
}
