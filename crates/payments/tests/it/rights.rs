//! What the application role may not do, whoever connects as it.

use sqlx::{AssertSqlSafe, PgPool};
use tallystick_gateway::Replay;

use crate::common::{World, quick};
use crate::gateway::Scripted;

#[sqlx::test(migrations = false)]
async fn application_role_cannot_rewrite_what_was_recorded(pool: PgPool) {
    let world = World::new(pool, Scripted::new("cards", Replay::SameResult)).await;
    let engine = world.engine(quick()).await;
    let refused = [
        "UPDATE payments.history SET status = 'succeeded'",
        "DELETE FROM payments.history",
        "TRUNCATE payments.history",
        "DELETE FROM payments.payment",
        "TRUNCATE payments.payment",
        "DELETE FROM payments.attempt",
        "UPDATE payments.attempt SET outcome = 'x'",
        "DELETE FROM payments.inbound_event",
        "UPDATE payments.api_key SET hash = ''",
        "UPDATE payments.api_key SET scope = 'operator'",
        "DELETE FROM payments.tenant",
        "UPDATE runner.cluster SET base = 1",
        "CREATE TABLE payments.mine ()",
        "ALTER TABLE payments.history DISABLE TRIGGER ALL",
        "SET session_replication_role = replica",
        "SET ROLE tallystick_owner",
    ];
    for statement in refused {
        let result = sqlx::query(AssertSqlSafe(statement)).execute(engine.db().pool()).await;
        assert!(result.is_err(), "allowed: {statement}");
    }
}

/// The schema itself refuses rows that contradict themselves, whoever writes them.
#[sqlx::test(migrations = false)]
async fn schema_refuses_rows_that_contradict_themselves(pool: PgPool) {
    let world = World::new(pool, Scripted::new("cards", Replay::SameResult)).await;
    let process = world.api_only(quick()).await;
    world.pay(&process, "ok").await;
    let wrong = [
        "status = 'failed'",
        "status = 'unknown'",
        "status = 'succeeded'",
        "processed_at = now()",
        "failure_code = 'x'",
        "captured_minor = 1",
        "amount_minor = 0",
        "attention_code = 'x'",
        "active_order = 'x'",
    ];
    for set in wrong {
        let statement = format!("UPDATE payments.payment SET {set}");
        let result = sqlx::query(AssertSqlSafe(statement)).execute(&world.superuser).await;
        let refused = result.unwrap_err();
        assert_eq!(refused.as_database_error().and_then(|e| e.code()).as_deref(), Some("23514"), "{set}");
    }
}

/// A type of the caller's own, put before the system's, must not run anything as the owner nor bend a mark.
#[sqlx::test(migrations = false)]
async fn types_of_a_callers_own_run_nothing_as_the_owner(pool: PgPool) {
    let world = World::new(pool, Scripted::new("cards", Replay::SameResult)).await;
    let process = world.process().await;
    let id = world.pay(&process, "ok").await;
    world.succeeds(&process, id).await;
    let conn = process.engine.db().conn();
    let refused = sqlx::raw_sql("CREATE TEMP TABLE t ()").execute(&mut *conn.await.unwrap()).await;
    assert!(refused.is_err(), "temporary objects are not for everybody");
    // Even where somebody hands that right out.
    world.sql("DO $$ BEGIN EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO tallystick_app', current_database()); END $$").await;
    let mut conn = process.engine.db().conn().await.unwrap();
    let evil = "CREATE FUNCTION pg_temp.evil(v pg_catalog.varchar) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                    IF current_user <> 'tallystick_app' THEN RAISE EXCEPTION 'runs as %', current_user; END IF;
                    RETURN true; END $$;
                CREATE DOMAIN pg_temp.text AS pg_catalog.varchar CHECK (pg_temp.evil(VALUE));
                CREATE DOMAIN pg_temp.uuid AS pg_catalog.varchar CHECK (pg_temp.evil(VALUE));
                CREATE DOMAIN pg_temp.timestamptz AS pg_catalog.varchar CHECK (pg_temp.evil(VALUE));
                CREATE DOMAIN pg_temp.date AS pg_catalog.varchar CHECK (pg_temp.evil(VALUE));
                CREATE DOMAIN pg_temp.pg_snapshot AS pg_catalog.varchar CHECK (pg_temp.evil(VALUE))";
    sqlx::raw_sql(evil).execute(&mut *conn).await.unwrap();
    for call in [
        "SELECT ledger.make_checkpoint(a.id) FROM ledger.account a",
        "SELECT outbox.ensure_partitions(9)",
        "SELECT outbox.make_window()",
        "SELECT ledger.set_status(ARRAY[(SELECT journal_id FROM ledger.journal LIMIT 1)], ARRAY['settled'::pg_catalog.text], ARRAY['x'::pg_catalog.text])",
    ] {
        sqlx::raw_sql(call).execute(&mut *conn).await.unwrap_or_else(|error| panic!("{call}: {error}"));
    }
    let bent = "CREATE DOMAIN pg_temp.bent AS pg_catalog.varchar; DROP DOMAIN pg_temp.text;
                CREATE DOMAIN pg_temp.text AS pg_catalog.varchar(1)";
    sqlx::raw_sql(bent).execute(&mut *conn).await.unwrap();
    let same: bool =
        sqlx::query_scalar("SELECT runner.mark() = pg_current_xact_id()::pg_catalog.text::pg_catalog.int8")
            .fetch_one(&mut *conn)
            .await
            .unwrap();
    assert!(same, "a mark is the whole transaction id");
    process.stop().await;
}

/// A journal that was never pending counts as settled: the application role cannot make it fail.
#[sqlx::test(migrations = false)]
async fn settled_journal_cannot_be_made_to_fail(pool: PgPool) {
    let world = World::new(pool, Scripted::new("cards", Replay::SameResult)).await;
    let process = world.process().await;
    let id = world.pay(&process, "ok").await;
    world.succeeds(&process, id).await;
    let refused = sqlx::raw_sql("SELECT ledger.set_status(ARRAY[(SELECT journal_id FROM ledger.journal LIMIT 1)], ARRAY['failed'], ARRAY['x'])")
        .execute(&mut *process.engine.db().conn().await.unwrap())
        .await;
    let refused = refused.unwrap_err();
    assert!(refused.to_string().contains("was never pending"), "{refused}");
    process.stop().await;
}
