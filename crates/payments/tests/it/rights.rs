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
