//! Every check reports what was planted, and only that.

use sqlx::{PgConnection, PgPool};
use tallystick_ledger::verify::{self, Finding};
use tallystick_ledger::{Account, AccountKind, JournalStatus, NewJournal, checkpoint_step};

use crate::support::{World, sql, until};

const CHECKS: [&str; 9] =
    ["balanced", "trial", "append_only", "amounts", "minimum", "failed", "pending", "checkpoints", "hashes"];

async fn check(conn: &mut PgConnection, name: &str) -> Finding {
    match name {
        "balanced" => verify::journals_balanced(conn).await,
        "trial" => verify::trial_balance_zero(conn).await,
        "append_only" => verify::append_only_in_place(conn).await,
        "amounts" => verify::amounts_positive(conn).await,
        "minimum" => verify::minimum_kept(conn).await,
        "failed" => verify::failed_sums_zero(conn).await,
        "pending" => verify::pending_table_matches(conn).await,
        "checkpoints" => verify::checkpoints_match(conn).await,
        _ => verify::hashes_match(conn).await,
    }
    .unwrap()
}

/// The named checks report exactly these ids, all others hold. As the application role, which runs them.
async fn report(world: &World, planted: &[(&str, Vec<String>)]) {
    let mut conn = world.conn().await;
    for name in CHECKS {
        let finding = check(&mut conn, name).await;
        let expected =
            planted.iter().find(|(check, _)| *check == name).map(|(_, ids)| ids.clone()).unwrap_or_default();
        assert_eq!(finding.violations, expected, "{name}");
        assert!(finding.checked > 0, "{name} looked at nothing");
    }
}

struct Books {
    world: World,
    bank: Account,
    customer: Account,
    /// Settled: bank to customer, 1000.
    funded: NewJournal,
    /// Pending: customer to bank, 300.
    pending: NewJournal,
}

/// A ledger in which every check has something to look at.
async fn books(pool: PgPool) -> Books {
    let world = World::new(pool).await;
    let (bank, customer) = (world.account(AccountKind::Asset, "EUR").await, world.customer().await);
    let funded = world.transfer(&bank, &customer, 1000);
    let status = |journal, status| NewJournal { status: Some((status, "test".to_owned())), ..journal };
    let pending = status(world.transfer(&customer, &bank, 300), JournalStatus::Pending);
    let undone = status(world.transfer(&customer, &bank, 200), JournalStatus::Failed);
    let mirror = status(world.transfer(&bank, &customer, 200), JournalStatus::Failed);
    world.post_all(vec![funded.clone(), pending.clone()]).await.unwrap();
    world.post_all(vec![undone, mirror]).await.unwrap();
    until("a checkpoint is made", || async {
        let (_, made) = checkpoint_step(&mut *world.conn().await, 0, 100, 3).await.unwrap();
        (made > 0).then_some(())
    })
    .await;
    report(&world, &[]).await;
    Books { world, bank, customer, funded, pending }
}

/// Does what nobody may, with the guards off meanwhile.
async fn plant(world: &World, statement: &str) {
    let mut admin = world.admin.acquire().await.unwrap();
    let tables = ["journal", "entry", "journal_status", "checkpoint"];
    let switch =
        |how: &str| tables.map(|t| format!("ALTER TABLE ledger.{t} {how} TRIGGER append_only;")).concat();
    let all = format!(
        "BEGIN; SET LOCAL session_replication_role = replica; {} {statement}; {} COMMIT",
        switch("DISABLE"),
        switch("ENABLE ALWAYS")
    );
    sql(&mut admin, &all).await.unwrap();
}

/// Number of a journal, as SQL.
fn number(journal: &NewJournal) -> String {
    format!("(SELECT id FROM ledger.journal WHERE journal_id = '{}')", journal.journal_id)
}

#[sqlx::test(migrations = false)]
async fn an_unbalanced_journal_is_named(pool: PgPool) {
    let books = books(pool).await;
    plant(&books.world, &format!("DELETE FROM ledger.checkpoint; UPDATE ledger.entry SET amount_minor = 1001 WHERE journal_id = {} AND direction = 'C'", number(&books.funded))).await;
    let id = books.funded.journal_id.to_string();
    let mut conn = books.world.conn().await;
    assert_eq!(check(&mut conn, "balanced").await.violations, std::slice::from_ref(&id));
    assert_eq!(check(&mut conn, "trial").await.violations, [format!("{}/EUR", books.world.tenant)]);
    assert_eq!(check(&mut conn, "hashes").await.violations, [id]);
    assert_eq!(check(&mut conn, "amounts").await.violations, [""; 0]);
}

#[sqlx::test(migrations = false)]
async fn a_journal_that_lost_its_entries_is_named(pool: PgPool) {
    let books = books(pool).await;
    let empty = books.world.transfer(&books.bank, &books.customer, 1);
    books.world.post(empty.clone()).await.unwrap();
    plant(&books.world, &format!("DELETE FROM ledger.entry WHERE journal_id = {}", number(&empty))).await;
    let id = empty.journal_id.to_string();
    report(&books.world, &[("balanced", vec![id.clone()]), ("hashes", vec![id])]).await;
}

/// Both sides of an entry changed alike: it still balances, but it is not what was posted.
#[sqlx::test(migrations = false)]
async fn entries_that_were_exchanged_are_named(pool: PgPool) {
    let books = books(pool).await;
    let late = books.world.transfer(&books.bank, &books.customer, 1);
    books.world.post(late.clone()).await.unwrap();
    plant(
        &books.world,
        &format!("UPDATE ledger.entry SET amount_minor = 2 WHERE journal_id = {}", number(&late)),
    )
    .await;
    report(&books.world, &[("hashes", vec![late.journal_id.to_string()])]).await;
}

#[sqlx::test(migrations = false)]
async fn a_wrong_currency_and_amount_are_named(pool: PgPool) {
    let books = books(pool).await;
    let late = books.world.transfer(&books.bank, &books.customer, 1);
    books.world.post(late.clone()).await.unwrap();
    plant(
        &books.world,
        &format!("UPDATE ledger.entry SET currency = 'USD' WHERE journal_id = {}", number(&late)),
    )
    .await;
    let id = late.journal_id;
    let lines = vec![format!("{id}/1"), format!("{id}/2")];
    report(&books.world, &[("amounts", lines), ("hashes", vec![id.to_string()])]).await;
    plant(
        &books.world,
        &format!(
            "ALTER TABLE ledger.entry DROP CONSTRAINT entry_amount_minor_check;
             UPDATE ledger.entry SET currency = 'EUR', amount_minor = -1 WHERE journal_id = {}",
            number(&late)
        ),
    )
    .await;
    let mut conn = books.world.conn().await;
    assert_eq!(check(&mut conn, "amounts").await.violations, [format!("{id}/1"), format!("{id}/2")]);
    assert_eq!(
        check(&mut conn, "append_only").await.violations,
        ["constraint ledger.entry.entry_amount_minor_check"]
    );
    plant(&books.world, "UPDATE ledger.account SET currency = 'ZZZ'").await;
    let violations = check(&mut conn, "amounts").await.violations;
    assert_eq!(violations.last().map(String::as_str), Some("ZZZ"));
}

#[sqlx::test(migrations = false)]
async fn an_account_below_its_minimum_is_named(pool: PgPool) {
    let books = books(pool).await;
    // Posting without deciding is what a faulty program would do.
    books.world.post(books.world.transfer(&books.customer, &books.bank, 701)).await.unwrap();
    report(&books.world, &[("minimum", vec![books.customer.account_id.to_string()])]).await;
}

#[sqlx::test(migrations = false)]
async fn a_failed_journal_without_its_mirror_is_named(pool: PgPool) {
    let books = books(pool).await;
    let mut conn = books.world.conn().await;
    let failed = [(books.pending.journal_id, JournalStatus::Failed, "test".to_owned())];
    tallystick_ledger::set_status_in_tx(&mut conn, &failed).await.unwrap();
    drop(conn);
    let mut accounts = vec![books.bank.account_id.to_string(), books.customer.account_id.to_string()];
    accounts.sort();
    let planted = [("failed", accounts)];
    // Nothing is pending any more, so that check has nothing to look at.
    let late = NewJournal {
        status: Some((JournalStatus::Pending, "test".to_owned())),
        ..books.world.transfer(&books.bank, &books.customer, 1)
    };
    books.world.post(late).await.unwrap();
    report(&books.world, &planted).await;
}

#[sqlx::test(migrations = false)]
async fn a_pending_table_that_differs_is_named(pool: PgPool) {
    let books = books(pool).await;
    let id = books.pending.journal_id.to_string();
    plant(&books.world, "UPDATE ledger.pending_journal SET debits = debits + 1 WHERE debits > 0").await;
    report(&books.world, &[("pending", vec![id.clone()])]).await;
    plant(&books.world, "DELETE FROM ledger.pending_journal").await;
    report(&books.world, &[("pending", vec![id.clone()])]).await;
    let extra = format!(
        "INSERT INTO ledger.pending_journal
         SELECT account_id, journal_id, sum(CASE direction WHEN 'D' THEN amount_minor ELSE 0 END), sum(CASE direction WHEN 'C' THEN amount_minor ELSE 0 END)
           FROM ledger.entry WHERE journal_id IN ({}, {}) GROUP BY 1, 2",
        number(&books.pending),
        number(&books.funded)
    );
    plant(&books.world, &extra).await;
    report(&books.world, &[("pending", vec![books.funded.journal_id.to_string()])]).await;
}

#[sqlx::test(migrations = false)]
async fn a_wrong_checkpoint_is_named_and_no_other(pool: PgPool) {
    let books = books(pool).await;
    // More checkpoints above the one that is made wrong.
    for _ in 0..2 {
        books.world.post(books.world.transfer(&books.bank, &books.customer, 1)).await.unwrap();
        until("a checkpoint is made", || async {
            let (_, made) = checkpoint_step(&mut *books.world.conn().await, 0, 100, 0).await.unwrap();
            (made == 2).then_some(())
        })
        .await;
    }
    let mut admin = books.world.admin.acquire().await.unwrap();
    let horizon: i64 = sqlx::query_scalar("SELECT min(horizon) FROM ledger.checkpoint c JOIN ledger.account a ON a.id = c.account_id WHERE a.account_id = $1")
        .bind(books.customer.account_id)
        .fetch_one(&mut *admin)
        .await
        .unwrap();
    let wrong = |column: &str| {
        format!(
            "UPDATE ledger.checkpoint SET {column} = {column} + 1 WHERE horizon = {horizon}
                AND account_id = (SELECT id FROM ledger.account WHERE account_id = '{}')",
            books.customer.account_id
        )
    };
    let id = format!("{}@{horizon}", books.customer.account_id);
    plant(&books.world, &wrong("debits")).await;
    report(&books.world, &[("checkpoints", vec![id])]).await;
}

/// Hides an entry below a horizon: the balance loses it, the check finds it.
#[sqlx::test(migrations = false)]
async fn an_entry_hidden_below_a_horizon_is_found(pool: PgPool) {
    let books = books(pool).await;
    let late = books.world.transfer(&books.bank, &books.customer, 1);
    books.world.post(late.clone()).await.unwrap();
    plant(
        &books.world,
        &format!("UPDATE ledger.entry SET mark = 1 WHERE journal_id = {} AND direction = 'C'", number(&late)),
    )
    .await;
    let mut conn = books.world.conn().await;
    let found = check(&mut conn, "checkpoints").await.violations;
    assert!(
        !found.is_empty() && found.iter().all(|id| id.starts_with(&books.customer.account_id.to_string())),
        "{found:?}"
    );
}

#[sqlx::test(migrations = false)]
async fn missing_guards_are_named(pool: PgPool) {
    let books = books(pool).await;
    let mut admin = books.world.admin.acquire().await.unwrap();
    for (statement, undo, name) in [
        (
            "ALTER TABLE ledger.entry DISABLE TRIGGER append_only",
            "ALTER TABLE ledger.entry ENABLE ALWAYS TRIGGER append_only",
            "trigger ledger.entry.append_only",
        ),
        (
            "ALTER TABLE ledger.journal DISABLE TRIGGER journal_balanced",
            "ALTER TABLE ledger.journal ENABLE TRIGGER journal_balanced",
            "trigger ledger.journal.journal_balanced",
        ),
        (
            "ALTER TABLE ledger.checkpoint ENABLE REPLICA TRIGGER no_truncate",
            "ALTER TABLE ledger.checkpoint ENABLE ALWAYS TRIGGER no_truncate",
            "trigger ledger.checkpoint.no_truncate",
        ),
        (
            "GRANT UPDATE (kind) ON ledger.journal TO tallystick_app",
            "REVOKE UPDATE (kind) ON ledger.journal FROM tallystick_app",
            "privilege UPDATE on ledger.journal",
        ),
        (
            "GRANT DELETE ON ledger.entry TO PUBLIC",
            "REVOKE DELETE ON ledger.entry FROM PUBLIC",
            "privilege DELETE on ledger.entry",
        ),
        (
            "GRANT INSERT (mark) ON ledger.entry TO tallystick_app",
            "REVOKE INSERT (mark) ON ledger.entry FROM tallystick_app",
            "privilege INSERT on ledger.entry.mark",
        ),
        (
            "GRANT INSERT ON ledger.checkpoint TO tallystick_app",
            "REVOKE INSERT ON ledger.checkpoint FROM tallystick_app",
            "privilege INSERT on ledger.checkpoint",
        ),
        (
            "GRANT UPDATE (minimum_minor) ON ledger.account TO tallystick_app",
            "REVOKE UPDATE (minimum_minor) ON ledger.account FROM tallystick_app",
            "privilege UPDATE on ledger.account.minimum_minor",
        ),
        (
            "GRANT CREATE ON SCHEMA ledger TO tallystick_app",
            "REVOKE CREATE ON SCHEMA ledger FROM tallystick_app",
            "role tallystick_app",
        ),
        (
            "DROP INDEX ledger.journal_status_final",
            "CREATE UNIQUE INDEX journal_status_final ON ledger.journal_status (journal_id) WHERE status IN ('settled', 'failed')",
            "index ledger.journal_status_final",
        ),
    ] {
        sql(&mut admin, statement).await.unwrap();
        report(&books.world, &[("append_only", vec![name.to_owned()])]).await;
        sql(&mut admin, undo).await.unwrap();
    }
    sql(&mut admin, "ALTER TABLE ledger.entry DISABLE TRIGGER ALL").await.unwrap();
    let mut conn = books.world.conn().await;
    assert_eq!(
        check(&mut conn, "append_only").await.violations,
        [
            "constraint ledger.entry.entry_account_id_currency_fkey",
            "constraint ledger.entry.entry_journal_id_line_count_fkey",
            "trigger ledger.entry.append_only",
            "trigger ledger.entry.no_truncate",
        ]
    );
    sql(&mut admin, "ALTER TABLE ledger.entry ENABLE TRIGGER ALL").await.unwrap();
    report(&books.world, &[]).await;
}
