//! What the application role, and even the owner, must not be able to do.

use sqlx::{AssertSqlSafe, Executor, PgPool};
use uuid::Uuid;

use crate::common::*;

async fn refused(conn: &mut sqlx::PgConnection, sql: &str, code: &str) {
    conn.execute("BEGIN").await.expect("begin");
    let error = conn.execute(AssertSqlSafe(sql.to_owned())).await.expect_err(sql);
    let found = error.as_database_error().and_then(|e| e.code()).map(|code| code.into_owned());
    assert_eq!(found.as_deref(), Some(code), "{sql}: {error}");
    conn.execute("ROLLBACK").await.expect("rollback");
}

const DENIED: &str = "42501";
const APPEND_ONLY: &str = "23001";

#[sqlx::test(migrations = false)]
async fn the_application_writes_events_and_nothing_else(superuser: PgPool) {
    let db = app(&superuser).await;
    let written = append_alone(&db, &[event(Uuid::now_v7(), 1)]).await;
    tick_until(&db, &written).await;
    let leaf: String = sqlx::query_scalar("SELECT tableoid::regclass::text FROM outbox.event")
        .fetch_one(&superuser)
        .await
        .expect("leaf");
    let mut conn = db.conn().await.expect("connection");
    let columns = "event_id, tenant_id, aggregate, aggregate_id, version, type, payload";
    let values = "gen_random_uuid(), gen_random_uuid(), 'thing', gen_random_uuid(), 1, 'thing.made', ''";
    for (column, value) in
        [("xid", "'3'"), ("seq", "1"), ("epoch", "0"), ("created_at", "now()"), ("seq", "DEFAULT")]
    {
        let sql = format!("INSERT INTO outbox.event ({columns}, {column}) VALUES ({values}, {value})");
        refused(&mut conn, &sql, DENIED).await;
    }
    for sql in [
        "UPDATE outbox.event SET version = 2",
        "DELETE FROM outbox.event",
        "TRUNCATE outbox.event",
        "INSERT INTO outbox.window SELECT * FROM outbox.window",
        "UPDATE outbox.window SET last_seq = 0",
        "DELETE FROM outbox.window",
        "TRUNCATE outbox.window",
        "DELETE FROM outbox.sink",
        "SELECT setval('outbox.event_seq', 1)",
        "ALTER TABLE outbox.event DISABLE TRIGGER ALL",
        "CREATE TABLE outbox.mine (id integer)",
        "CREATE OR REPLACE FUNCTION outbox.epoch() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "LOCK TABLE outbox.event IN EXCLUSIVE MODE",
        &format!("INSERT INTO {leaf} ({columns}) VALUES ({values})"),
        &format!("SELECT FROM {leaf}"),
        &format!("DELETE FROM {leaf}"),
        &format!("DROP TABLE {leaf}"),
    ] {
        refused(&mut conn, sql, DENIED).await;
    }
    conn.execute(AssertSqlSafe(format!("INSERT INTO outbox.event ({columns}) VALUES ({values})")))
        .await
        .expect("insert");
}

#[sqlx::test(migrations = false)]
async fn events_are_append_only_for_everybody(superuser: PgPool) {
    let db = app(&superuser).await;
    append_alone(&db, &[event(Uuid::now_v7(), 1)]).await;
    let leaf: String = sqlx::query_scalar("SELECT tableoid::regclass::text FROM outbox.event")
        .fetch_one(&superuser)
        .await
        .expect("leaf");
    let mut conn = superuser.acquire().await.expect("connection");
    for role in ["NONE", "tallystick_owner"] {
        conn.execute(AssertSqlSafe(format!("SET ROLE {role}"))).await.expect("role");
        for table in ["outbox.event", &leaf] {
            refused(&mut conn, &format!("UPDATE {table} SET version = 2"), APPEND_ONLY).await;
            refused(&mut conn, &format!("DELETE FROM {table} WHERE false"), APPEND_ONLY).await;
            refused(&mut conn, &format!("TRUNCATE {table}"), APPEND_ONLY).await;
        }
        refused(&mut conn, "UPDATE outbox.window SET last_seq = 0", APPEND_ONLY).await;
    }
}

#[sqlx::test(migrations = false)]
async fn strangers_may_not_call_the_definers_functions(superuser: PgPool) {
    migrate(&superuser).await;
    // A role that every server has, so that the test leaves none behind.
    let mut conn = superuser.acquire().await.expect("connection");
    conn.execute("GRANT USAGE ON SCHEMA outbox TO pg_monitor; SET ROLE pg_monitor").await.expect("role");
    refused(&mut conn, "SELECT outbox.make_window()", DENIED).await;
    refused(&mut conn, "SELECT outbox.ensure_partitions(1)", DENIED).await;
}
