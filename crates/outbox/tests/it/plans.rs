//! Hot statements use their indexes, with the plans that the product gets.

use sqlx::{AssertSqlSafe, Executor, PgPool, Row};
use uuid::Uuid;

use crate::common::*;

/// The one statement of a function, from its first word to `end`.
async fn statement(conn: &mut sqlx::PgConnection, function: &str, end: &str) -> String {
    let body: String = sqlx::query_scalar(
        "SELECT prosrc FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace AND proname = $1",
    )
    .bind(function)
    .fetch_one(&mut *conn)
    .await
    .expect("source");
    let from = body.find("WITH ").expect("statement");
    let to = body[from..].find(end).expect("its end");
    body[from..from + to].to_owned()
}

async fn explain(conn: &mut sqlx::PgConnection, sql: &str) -> String {
    let rows = conn.fetch_all(AssertSqlSafe(format!("EXPLAIN (COSTS OFF) {sql}"))).await.expect("plan");
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

fn assert_plan(plan: &str, has: &[&str]) {
    assert!(!plan.contains("Seq Scan on event_"), "{plan}");
    for part in has {
        assert!(plan.contains(part), "{part} is missing in\n{plan}");
    }
}

async fn explain_tick(conn: &mut sqlx::PgConnection) -> String {
    let sql = statement(conn, "make_window", "RETURNING").await;
    explain(conn, &sql).await
}

const PREPARE: &str = "PREPARE page (bigint, bigint, bigint, uuid, bigint) AS";

async fn explain_page(conn: &mut sqlx::PgConnection) -> String {
    let sql = statement(conn, "read_page", ";\nEND").await;
    conn.execute(AssertSqlSafe(format!("{PREPARE} {sql}"))).await.expect("prepare");
    let plan = explain(conn, "EXECUTE page (1, 1000, 500, NULL, 500)").await;
    conn.execute("DEALLOCATE page").await.expect("deallocate");
    plan
}

/// A superuser's connection with the settings of the product and of its functions.
async fn planner(superuser: &PgPool) -> sqlx::PgConnection {
    let mut conn = held(superuser).await;
    conn.execute("COMMIT").await.expect("commit");
    conn.execute("RESET ROLE; SET ROLE NONE; SET enable_seqscan = off").await.expect("settings");
    conn
}

/// Statistics of an empty table must not spoil a plan that may be kept for a while.
#[sqlx::test(migrations = false)]
async fn hot_statements_use_their_indexes_empty_small_and_large(superuser: PgPool) {
    let db = app(&superuser).await;
    let mut conn = planner(&superuser).await;
    for rows in [0, 100, 200_000] {
        insert(&superuser, "gen_random_uuid()", rows).await;
        tick(&db).await;
        superuser.execute("ANALYZE outbox.event; ANALYZE outbox.window").await.expect("analyze");
        // The fresh events by seq, the late ones by transaction.
        assert_plan(&explain_page(&mut conn).await, &["_seq_idx on", "_xid_seq_idx on", "window_pkey"]);
        let plan = explain_tick(&mut conn).await;
        assert_plan(&plan, &["_xid_seq_idx on", "window_pkey"]);
        assert!(
            !plan.contains("_xid_seq_idx on event_20\n") && plan.contains("Index Cond: ((xid >= "),
            "{plan}"
        );
        assert!(plan.contains("Index Cond: (xid = "), "{plan}");
    }
    conn.execute("RESET enable_seqscan").await.expect("reset");
    let of = "PREPARE of (uuid, uuid[]) AS SELECT FROM outbox.event WHERE aggregate_id = ANY($2) AND tenant_id = $1";
    conn.execute(of).await.expect("prepare");
    let plan = explain(&mut conn, "EXECUTE of (gen_random_uuid(), ARRAY[gen_random_uuid()])").await;
    assert!(plan.contains("_aggregate_id_idx"), "{plan}");
}

/// Events of many objects, or versions of one.
async fn insert(superuser: &PgPool, object: &str, rows: u32) {
    let sql = format!(
        // Many old transactions, as they really are; a superuser may name them.
        "INSERT INTO outbox.event (event_id, tenant_id, aggregate, aggregate_id, version, type, payload, xid)
         SELECT gen_random_uuid(), '{}', 'thing', {object}, i, 'thing.made', convert_to(repeat('x', 300), 'UTF8'),
                (3 + i / 400)::text::xid8
           FROM generate_series(1, {rows}) i",
        tenant()
    );
    superuser.execute(AssertSqlSafe(sql)).await.expect("rows");
}

/// Ticks until there is a window; gives how many events are in it.
async fn next_window(db: &tallystick_runner::Db) -> u64 {
    let end = std::time::Instant::now() + WAIT;
    loop {
        let events = tick(db).await;
        if events > 0 {
            return events;
        }
        assert!(std::time::Instant::now() < end, "no window");
    }
}

/// Pages of memory that reading one page of the feed touches, and the plan.
async fn touched(conn: &mut sqlx::PgConnection, window: i64, seq: i64) -> (u32, String) {
    let sql = format!(
        "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) EXECUTE page ({window}, {seq}, 500, NULL, 500)"
    );
    let rows = conn.fetch_all(AssertSqlSafe(sql)).await.expect("plan");
    let plan = rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n");
    let line = plan.lines().find_map(|line| line.trim().strip_prefix("Buffers: shared ")).expect("buffers");
    let pages = line.split([' ', '=']).filter_map(|word| word.parse::<u32>().ok()).sum();
    (pages, plan)
}

/// A window that holds very much, as after an outage of the ticker: each page costs what it holds.
#[sqlx::test(migrations = false)]
async fn pages_of_a_huge_window_cost_the_same_from_first_to_last(superuser: PgPool) {
    let db = app(&superuser).await;
    insert(&superuser, &format!("'{}'::uuid", Uuid::now_v7()), 200_000).await;
    superuser.execute("ANALYZE outbox.event").await.expect("analyze");
    assert_eq!(next_window(&db).await, 200_000);
    let mut conn = planner(&superuser).await;
    let sql = statement(&mut conn, "read_page", ";\nEND").await;
    conn.execute(AssertSqlSafe(format!("{PREPARE} {sql}"))).await.expect("prepare");
    for after in [0_i64, 100_000, 199_000] {
        let (pages, plan) = touched(&mut conn, 1, after).await;
        assert!(pages < 200, "{pages} pages touched behind {after}:\n{plan}");
    }
    let (read, _) = read_from(&db, None, tallystick_outbox::Cursor::start(), 10_000).await;
    assert_eq!(read.len(), 200_000);
    assert_story(&read);
}

/// One that was open for long comes late, alone: what was written meanwhile is not gone through again.
#[sqlx::test(migrations = false)]
async fn a_late_transaction_is_not_searched_among_everything_written_meanwhile(superuser: PgPool) {
    let db = app(&superuser).await;
    let mut late = held(&superuser).await;
    append(&mut late, &[event(Uuid::now_v7(), 1)]).await;
    insert(&superuser, "gen_random_uuid()", 100_000).await;
    assert_eq!(next_window(&db).await, 100_000);
    append(&mut late, &[event(Uuid::now_v7(), 1)]).await;
    commit(late).await;
    superuser.execute("ANALYZE outbox.event").await.expect("analyze");
    assert_eq!(next_window(&db).await, 2);
    let mut conn = planner(&superuser).await;
    let sql = statement(&mut conn, "read_page", ";\nEND").await;
    conn.execute(AssertSqlSafe(format!("{PREPARE} {sql}"))).await.expect("prepare");
    let (pages, plan) = touched(&mut conn, 2, 0).await;
    assert!(pages < 60, "{pages} pages touched:\n{plan}");
    assert_eq!(read_all(&db).await.len(), 100_002);
}
