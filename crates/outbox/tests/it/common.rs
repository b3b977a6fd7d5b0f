//! What the tests share.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};
use tallystick_outbox::{Cursor, NewEvent, StoredEvent, page};
use tallystick_runner::Db;
use uuid::Uuid;

pub const WAIT: Duration = Duration::from_secs(60);

/// Makes the roles, which belong to the cluster, and lays out the schemas as the owner.
pub async fn migrate(superuser: &PgPool) {
    for role in ["tallystick_owner", "tallystick_app"] {
        // Other tests make the same roles at the same time.
        let sql = format!(
            "DO $$ BEGIN CREATE ROLE {role} NOLOGIN;
             EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
        );
        superuser.execute(AssertSqlSafe(sql)).await.expect("role");
    }
    let mut owner = superuser.acquire().await.expect("connection").detach();
    let database: String =
        sqlx::query_scalar("SELECT current_database()").fetch_one(&mut owner).await.expect("database");
    let grant =
        format!("GRANT CREATE ON DATABASE \"{database}\" TO tallystick_owner; SET ROLE tallystick_owner");
    owner.execute(AssertSqlSafe(grant)).await.expect("grant");
    tallystick_runner::MIGRATOR.run(&mut owner).await.expect("runner's migrations");
    tallystick_outbox::MIGRATOR.run(&mut owner).await.expect("outbox's migrations");
}

fn app_options(superuser: &PgPool) -> PgConnectOptions {
    // As the product connects, so that plans are the same.
    superuser.connect_options().as_ref().clone().options([
        ("role", "tallystick_app"),
        ("plan_cache_mode", "force_generic_plan"),
        ("random_page_cost", "1.1"),
        ("jit", "off"),
        ("timezone", "UTC"),
    ])
}

/// A migrated database, seen as the application role.
pub async fn app(superuser: &PgPool) -> Db {
    migrate(superuser).await;
    pool(superuser).await
}

/// One more process on the same database.
pub async fn pool(superuser: &PgPool) -> Db {
    let options = PgPoolOptions::new().max_connections(6);
    Db::from_pool(options.connect_with(app_options(superuser)).await.expect("pool"))
}

/// A connection in a transaction that stays open until the test ends it.
pub async fn held(superuser: &PgPool) -> PgConnection {
    let mut conn = app_options(superuser).connect().await.expect("connection");
    conn.execute("BEGIN").await.expect("begin");
    conn
}

pub async fn commit(mut conn: PgConnection) {
    conn.execute("COMMIT").await.expect("commit");
}

pub fn tenant() -> Uuid {
    Uuid::from_u128(1)
}

pub fn event(aggregate_id: Uuid, version: i32) -> NewEvent {
    event_of(tenant(), aggregate_id, version)
}

pub fn event_of(tenant_id: Uuid, aggregate_id: Uuid, version: i32) -> NewEvent {
    NewEvent {
        event_id: Uuid::now_v7(),
        tenant_id,
        aggregate: "thing",
        aggregate_id,
        version,
        kind: "thing.moved".into(),
        payload: format!(r#"{{"sequence":{version}}}"#).into_bytes(),
    }
}

pub async fn append(conn: &mut PgConnection, events: &[NewEvent]) {
    tallystick_outbox::append_in_tx(conn, events).await.expect("append");
}

/// Appends in a transaction of its own and gives the ids.
pub async fn append_alone(db: &Db, events: &[NewEvent]) -> Vec<Uuid> {
    let mut conn = db.conn().await.expect("connection");
    append(&mut conn, events).await;
    events.iter().map(|e| e.event_id).collect()
}

pub async fn tick(db: &Db) -> u64 {
    tallystick_outbox::tick(db).await.expect("tick").done
}

/// Pages on from `after` until a page is empty.
pub async fn read_from(
    db: &Db,
    tenant: Option<Uuid>,
    after: Cursor,
    limit: i64,
) -> (Vec<StoredEvent>, Cursor) {
    let mut conn = db.conn().await.expect("connection");
    let (mut all, mut at) = (Vec::new(), after);
    loop {
        let next = page(&mut conn, tenant, at, limit).await.expect("page");
        assert!(i64::try_from(next.events.len()).expect("small") <= limit);
        let end = next.events.is_empty() && next.next == at;
        at = next.next;
        all.extend(next.events);
        if end {
            return (all, at);
        }
    }
}

pub async fn read_all(db: &Db) -> Vec<StoredEvent> {
    read_from(db, None, Cursor::start(), 100).await.0
}

/// Ticks and reads until all of `wanted` are in the feed; gives the whole feed.
pub async fn tick_until(db: &Db, wanted: &[Uuid]) -> Vec<StoredEvent> {
    let end = Instant::now() + WAIT;
    loop {
        tick(db).await;
        let all = read_all(db).await;
        if wanted.iter().all(|id| all.iter().any(|e| e.event_id == *id)) {
            return all;
        }
        assert!(Instant::now() < end, "not in the feed in time: {wanted:?} of {}", all.len());
    }
}

pub fn ids(events: &[StoredEvent]) -> Vec<Uuid> {
    events.iter().map(|e| e.event_id).collect()
}

/// No event twice, and each object's versions 1, 2, 3 … in the order read.
pub fn assert_story(events: &[StoredEvent]) {
    let mut seen = std::collections::HashSet::new();
    let mut versions: HashMap<Uuid, i32> = HashMap::new();
    for e in events {
        assert!(seen.insert(e.event_id), "twice: {e:?}");
        let last = versions.entry(e.aggregate_id).or_default();
        assert_eq!(e.version, *last + 1, "out of order or with a gap: {e:?}");
        *last = e.version;
    }
    let cursors: Vec<_> = events.iter().map(|e| (e.cursor.window, e.cursor.seq)).collect();
    assert!(cursors.is_sorted(), "positions only rise");
}

/// Waits until some backend of this database waits for a lock.
pub async fn until_somebody_waits(superuser: &PgPool) {
    let end = Instant::now() + WAIT;
    loop {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        .fetch_one(superuser)
        .await
        .expect("activity");
        if waiting > 0 {
            return;
        }
        assert!(Instant::now() < end, "nobody waits");
        tokio::task::yield_now().await;
    }
}
