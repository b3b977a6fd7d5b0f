//! What the database itself refuses, whoever asks. All of it in plain SQL.

use sqlx::{PgConnection, PgPool};
use tallystick_ledger::{Account, AccountKind};
use uuid::Uuid;

use crate::support::{World, refused, sql};

/// Begins a transaction and inserts a journal that declares `count` entries; answers its number.
async fn begin(conn: &mut PgConnection, tenant: Uuid, count: i16) -> i64 {
    sql(conn, "BEGIN").await.unwrap();
    sqlx::query_scalar(
        "INSERT INTO ledger.journal (journal_id, tenant_id, kind, source, entry_count, entries_hash, description)
         VALUES (gen_random_uuid(), $1, 'manual', gen_random_uuid(), $2, sha256(''), '') RETURNING id",
    )
    .bind(tenant)
    .bind(count)
    .fetch_one(conn)
    .await
    .unwrap()
}

fn line(journal: i64, line: &str, account: &Account, side: char, minor: i64, currency: &str) -> String {
    format!(
        "INSERT INTO ledger.entry (journal_id, line_no, line_count, account_id, currency, direction, amount_minor)
         SELECT {journal}, {line}, id, '{currency}', '{side}', {minor} FROM ledger.account WHERE account_id = '{}'",
        account.account_id
    )
}

struct Books {
    world: World,
    cash: Account,
    sales: Account,
    dollars: Account,
}

async fn books(pool: PgPool) -> Books {
    let world = World::new(pool).await;
    let cash = world.account(AccountKind::Asset, "EUR").await;
    let sales = world.account(AccountKind::Revenue, "EUR").await;
    let dollars = world.account(AccountKind::Revenue, "USD").await;
    Books { world, cash, sales, dollars }
}

#[sqlx::test(migrations = false)]
async fn c091_unbalanced_empty_and_short_journals_do_not_commit(pool: PgPool) {
    let Books { world, cash, sales, dollars } = books(pool).await;
    let mut conn = world.conn().await;

    let id = begin(&mut conn, world.tenant, 2).await;
    sql(&mut conn, &line(id, "1, 2", &cash, 'D', 100, "EUR")).await.unwrap();
    sql(&mut conn, &line(id, "2, 2", &sales, 'C', 99, "EUR")).await.unwrap();
    refused(&mut conn, "COMMIT", "23514", "unbalanced in EUR: debit 100 <> credit 99").await;

    begin(&mut conn, world.tenant, 2).await;
    refused(&mut conn, "COMMIT", "23514", "has 0 of 2 entries").await;

    let id = begin(&mut conn, world.tenant, 3).await;
    sql(&mut conn, &line(id, "1, 3", &cash, 'D', 100, "EUR")).await.unwrap();
    sql(&mut conn, &line(id, "3, 3", &sales, 'C', 100, "EUR")).await.unwrap();
    refused(&mut conn, "COMMIT", "23514", "has 2 of 3 entries").await;

    // Equal numbers in two currencies are no balance.
    let id = begin(&mut conn, world.tenant, 2).await;
    sql(&mut conn, &line(id, "1, 2", &cash, 'D', 100, "EUR")).await.unwrap();
    sql(&mut conn, &line(id, "2, 2", &dollars, 'C', 100, "USD")).await.unwrap();
    refused(&mut conn, "COMMIT", "23514", "unbalanced in EUR: debit 100 <> credit 0").await;

    let count = "INSERT INTO ledger.journal (journal_id, tenant_id, kind, source, entry_count, entries_hash, description)
                 VALUES (gen_random_uuid(), gen_random_uuid(), 'manual', gen_random_uuid(), 1, sha256(''), '')";
    refused(&mut conn, count, "23514", "journal_entry_count_check").await;
}

#[sqlx::test(migrations = false)]
async fn c091_entries_with_another_currency_direction_amount_or_tenant_are_refused(pool: PgPool) {
    let Books { world, cash, sales, .. } = books(pool).await;
    let mut conn = world.conn().await;
    for (bad, code, says) in [
        (('D', 100, "USD"), "23503", "entry_account_id_currency_fkey"),
        (('X', 100, "EUR"), "23514", "entry_direction_check"),
        (('D', 0, "EUR"), "23514", "entry_amount_minor_check"),
        (('D', -5, "EUR"), "23514", "entry_amount_minor_check"),
    ] {
        let id = begin(&mut conn, world.tenant, 2).await;
        refused(&mut conn, &line(id, "1, 2", &cash, bad.0, bad.1, bad.2), code, says).await;
        sql(&mut conn, "ROLLBACK").await.unwrap();
    }
    let theirs = world.account_of(Uuid::new_v4(), AccountKind::Revenue, "EUR", None).await;
    let id = begin(&mut conn, world.tenant, 2).await;
    sql(&mut conn, &line(id, "1, 2", &sales, 'D', 100, "EUR")).await.unwrap();
    sql(&mut conn, &line(id, "2, 2", &theirs, 'C', 100, "EUR")).await.unwrap();
    refused(&mut conn, "COMMIT", "23514", "an account of another tenant").await;
}

#[sqlx::test(migrations = false)]
async fn c091_a_full_journal_takes_no_further_entry(pool: PgPool) {
    let Books { world, cash, sales, .. } = books(pool).await;
    let mut conn = world.conn().await;
    let id = begin(&mut conn, world.tenant, 2).await;
    sql(&mut conn, &line(id, "1, 2", &cash, 'D', 100, "EUR")).await.unwrap();
    sql(&mut conn, &line(id, "2, 2", &sales, 'C', 100, "EUR")).await.unwrap();
    // The check is made early and does not fire again: the keys must refuse what comes after it.
    sql(&mut conn, "SET CONSTRAINTS ALL IMMEDIATE").await.unwrap();
    sql(&mut conn, "SAVEPOINT full_journal").await.unwrap();
    let further = [
        ("2, 2", "23505", "entry_pkey"),
        ("3, 2", "23514", "entry_check"),
        ("0, 2", "23514", "entry_check"),
        ("3, 3", "23503", "entry_journal_id_line_count_fkey"),
        ("3, 4", "23503", "entry_journal_id_line_count_fkey"),
    ];
    for (place, code, says) in further {
        refused(&mut conn, &line(id, place, &cash, 'D', 1, "EUR"), code, says).await;
        sql(&mut conn, "ROLLBACK TO full_journal").await.unwrap();
    }
    sql(&mut conn, "COMMIT").await.unwrap();
    // The same in a later transaction, also for the superuser.
    let mut admin = world.admin.acquire().await.unwrap();
    for (place, code, says) in further {
        refused(&mut conn, &line(id, place, &cash, 'D', 1, "EUR"), code, says).await;
        refused(&mut admin, &line(id, place, &cash, 'D', 1, "EUR"), code, says).await;
    }
    assert_eq!(world.plain_balance(&cash).await, 100);
}

/// An empty or short journal cannot slip through by making the check early either.
#[sqlx::test(migrations = false)]
async fn c091_an_early_check_finds_a_short_journal(pool: PgPool) {
    let Books { world, cash, .. } = books(pool).await;
    let mut conn = world.conn().await;
    let id = begin(&mut conn, world.tenant, 2).await;
    sql(&mut conn, &line(id, "1, 2", &cash, 'D', 100, "EUR")).await.unwrap();
    refused(&mut conn, "SET CONSTRAINTS ALL IMMEDIATE", "23514", "has 1 of 2 entries").await;
    sql(&mut conn, "ROLLBACK").await.unwrap();
    sql(&mut conn, "BEGIN").await.unwrap();
    sql(&mut conn, "SET CONSTRAINTS ALL IMMEDIATE").await.unwrap();
    let insert = format!(
        "INSERT INTO ledger.journal (journal_id, tenant_id, kind, source, entry_count, entries_hash, description)
         VALUES (gen_random_uuid(), '{}', 'manual', gen_random_uuid(), 2, sha256(''), '')",
        world.tenant
    );
    refused(&mut conn, &insert, "23514", "has 0 of 2 entries").await;
    sql(&mut conn, "ROLLBACK").await.unwrap();
}

const CHANGES: [&str; 14] = [
    "UPDATE ledger.entry SET amount_minor = amount_minor + 1",
    "UPDATE ledger.entry SET amount_minor = 1 WHERE false",
    "DELETE FROM ledger.entry",
    "TRUNCATE ledger.entry CASCADE",
    "UPDATE ledger.journal SET kind = 'x'",
    "DELETE FROM ledger.journal",
    "TRUNCATE ledger.journal CASCADE",
    "UPDATE ledger.journal_status SET status = 'failed'",
    "DELETE FROM ledger.journal_status",
    "TRUNCATE ledger.journal_status",
    "UPDATE ledger.checkpoint SET debits = 0",
    "DELETE FROM ledger.checkpoint",
    "TRUNCATE ledger.checkpoint",
    "MERGE INTO ledger.entry e USING ledger.account a ON a.id = e.account_id WHEN MATCHED THEN DELETE",
];

#[sqlx::test(migrations = false)]
async fn c091_nothing_is_updated_deleted_or_truncated(pool: PgPool) {
    let Books { world, cash, sales, .. } = books(pool).await;
    world.post(world.transfer(&cash, &sales, 100)).await.unwrap();
    let mut app = world.conn().await;
    let mut admin = world.admin.acquire().await.unwrap();
    for change in CHANGES {
        refused(&mut app, change, "42501", "permission denied").await;
        refused(&mut admin, change, "23001", "post a correcting journal instead").await;
    }
    sql(&mut admin, "SET ROLE tallystick_owner").await.unwrap();
    for change in CHANGES {
        refused(&mut admin, change, "23001", "post a correcting journal instead").await;
    }
    // Switching ordinary triggers off does not help.
    sql(&mut admin, "RESET ROLE; SET session_replication_role = replica").await.unwrap();
    for change in CHANGES {
        refused(&mut admin, change, "23001", "post a correcting journal instead").await;
    }
    sql(&mut admin, "RESET session_replication_role").await.unwrap();
    let upsert = "INSERT INTO ledger.journal_status (journal_id, status, evidence) SELECT id, 'settled', 'x' FROM ledger.journal
                  ON CONFLICT (journal_id, status) DO UPDATE SET evidence = 'y'";
    refused(&mut admin, upsert, "23001", "post a correcting journal instead").await;
    assert_eq!(world.plain_balance(&cash).await, 100);
}

#[sqlx::test(migrations = false)]
async fn the_application_role_cannot_get_around_the_guards(pool: PgPool) {
    let Books { world, cash, sales, .. } = books(pool).await;
    let id = {
        let posted = world.post(world.transfer(&cash, &sales, 100)).await.unwrap();
        sqlx::query_scalar::<_, i64>("SELECT id FROM ledger.journal WHERE journal_id = $1")
            .bind(posted.journal_id)
            .fetch_one(&world.app)
            .await
            .unwrap()
    };
    let mut app = world.conn().await;
    let journal = |column: &str, value: &str| {
        format!(
            "INSERT INTO ledger.journal (journal_id, tenant_id, kind, source, entry_count, entries_hash, description, {column})
             VALUES (gen_random_uuid(), gen_random_uuid(), 'manual', gen_random_uuid(), 2, sha256(''), '', {value})"
        )
    };
    let entry = "INSERT INTO ledger.entry (journal_id, line_no, line_count, account_id, currency, direction, amount_minor, mark)
                 SELECT 1, 1, 2, id, 'EUR', 'D', 100, 1 FROM ledger.account";
    let denied = [
        entry.to_owned(),
        journal("mark", "1"),
        journal("recorded_at", "'2000-01-01'"),
        format!("INSERT INTO ledger.checkpoint VALUES ({id}, 1, 0, 0, 0, now())"),
        format!("INSERT INTO ledger.journal_status (journal_id, status, evidence) VALUES ({id}, 'failed', 'x')"),
        format!("INSERT INTO ledger.pending_journal VALUES ({id}, {id}, 0, 0)"),
        "DELETE FROM ledger.pending_journal".to_owned(),
        "TRUNCATE ledger.pending_journal".to_owned(),
        "UPDATE ledger.account SET minimum_minor = -100".to_owned(),
        "UPDATE ledger.account SET kind = 'asset'".to_owned(),
        "DELETE FROM ledger.account".to_owned(),
        "SET session_replication_role = replica".to_owned(),
        "CREATE TABLE ledger.x ()".to_owned(),
        "CREATE TRIGGER x BEFORE INSERT ON ledger.entry FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()".to_owned(),
    ];
    for statement in denied {
        refused(&mut app, &statement, "42501", "permission denied").await;
    }
    for statement in ["SET ROLE tallystick_owner", "SET SESSION AUTHORIZATION tallystick_owner"] {
        refused(&mut app, statement, "42501", "permission denied").await;
    }
    let owned = [
        "ALTER TABLE ledger.entry DISABLE TRIGGER ALL",
        "ALTER TABLE ledger.entry DISABLE TRIGGER append_only",
        "ALTER TABLE ledger.journal DISABLE TRIGGER journal_balanced",
        "ALTER TABLE ledger.journal_status DROP CONSTRAINT journal_status_pkey",
        "DROP TRIGGER append_only ON ledger.entry",
        "DROP TABLE ledger.entry CASCADE",
        "DROP INDEX ledger.journal_status_final",
        "ALTER FUNCTION ledger.refuse_change() RENAME TO x",
    ];
    for statement in owned {
        refused(&mut app, statement, "42501", "must be owner").await;
    }
    let replace = "CREATE OR REPLACE FUNCTION ledger.refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'";
    refused(&mut app, replace, "42501", "permission denied").await;
    let identity = journal("id", "9").replace("VALUES", "OVERRIDING SYSTEM VALUE VALUES");
    refused(&mut app, &identity, "42501", "permission denied").await;
    assert_eq!(world.plain_balance(&cash).await, 100);
}

/// A search path of the caller's own cannot make the checks use other operators or tables.
#[sqlx::test(migrations = false)]
async fn a_hostile_search_path_changes_nothing(pool: PgPool) {
    let Books { world, cash, sales, .. } = books(pool).await;
    let mut admin = world.admin.acquire().await.unwrap();
    let schema = "CREATE SCHEMA evil;
        CREATE FUNCTION evil.never(numeric, numeric) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT false';
        CREATE OPERATOR evil.<> (LEFTARG = numeric, RIGHTARG = numeric, FUNCTION = evil.never);
        GRANT USAGE ON SCHEMA evil TO tallystick_app";
    sql(&mut admin, schema).await.unwrap();
    let mut app = world.conn().await;
    sql(&mut app, "SET search_path = evil, pg_catalog").await.unwrap();
    let fooled: bool =
        sqlx::query_scalar("SELECT 1::numeric <> 2::numeric").fetch_one(&mut *app).await.unwrap();
    assert!(!fooled, "the operator is in front of the real one");
    let id = begin(&mut app, world.tenant, 2).await;
    sql(&mut app, &line(id, "1, 2", &cash, 'D', 100, "EUR")).await.unwrap();
    sql(&mut app, &line(id, "2, 2", &sales, 'C', 99, "EUR")).await.unwrap();
    refused(&mut app, "COMMIT", "23514", "unbalanced in EUR").await;
    sql(&mut app, "RESET search_path").await.unwrap();
}
