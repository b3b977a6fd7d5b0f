//! A fresh database per test.
//!
//! Migrating takes longer than most tests, so it is done once per set of migrations, into a template that all test
//! programs share; each test gets a copy and drops it at its end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use tallystick_runner::{Db, DbOptions};

/// Address of a server on which the tests may make databases, as a superuser.
const SERVER: &str = "TALLYSTICK_TEST_DATABASE_URL";
/// Where PostgreSQL is when the environment does not say.
const DEFAULT_SERVER: &str = "postgres://postgres@127.0.0.1:5432/postgres";
/// Held while the template is made.
const TEMPLATE_LOCK: i64 = 7_355_608;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A database of one test; dropped with it.
pub struct TestDb {
    name: String,
}

impl TestDb {
    /// A migrated database with the tenant `default`.
    pub async fn new() -> Self {
        let name = format!("tallystick_it_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut admin = connect("postgres").await;
        let template = template(&mut admin).await;
        run(&mut admin, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
        run(&mut admin, &format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        Self { name }
    }

    /// The pool of an application: as the role that owns nothing.
    pub async fn pool(&self, lock_timeout: Duration) -> Db {
        let url = self.url();
        let options = DbOptions { max_connections: 8, lock_timeout, ..DbOptions::default() };
        let db = Db::connect(&url, &options).await.expect("the test database takes connections");
        tallystick_outbox::ensure_partitions(&db, 7).await.expect("partitions can be made");
        db
    }

    /// A copy with all that is in it. Nobody may work on this one any more: their connections are ended.
    pub async fn copy(&self) -> Self {
        let name = format!("tallystick_it_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut admin = connect("postgres").await;
        let theirs = format!(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{}'",
            self.name
        );
        run(&mut admin, &theirs).await;
        run(&mut admin, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
        run(&mut admin, &format!("CREATE DATABASE {name} TEMPLATE {}", self.name)).await;
        Self { name }
    }

    /// Its address, for a program that connects as the application.
    pub fn url(&self) -> String {
        format!("{}?options=-c%20role%3Dtallystick_app", url(&self.name))
    }

    /// A connection as superuser.
    pub async fn admin(&self) -> PgConnection {
        connect(&self.name).await
    }

    /// Rows of every table that requests write to.
    pub async fn rows(&self) -> BTreeMap<String, i64> {
        let mut admin = self.admin().await;
        let tables = "SELECT schemaname || '.' || quote_ident(tablename) FROM pg_tables
             WHERE schemaname IN ('payments', 'ledger', 'outbox') AND tablename NOT LIKE 'event\\_2%'
               AND tablename NOT IN ('tenant', 'api_key', '_sqlx_migrations', 'window', 'sink')";
        let tables = sqlx::query(tables).fetch_all(&mut admin).await.expect("the catalog is there");
        let mut rows = BTreeMap::new();
        for table in tables {
            let table: String = table.get(0);
            let count = format!("SELECT count(*) FROM {table}");
            let count =
                sqlx::query(AssertSqlSafe(count)).fetch_one(&mut admin).await.expect("tables can be counted");
            rows.insert(table, count.get(0));
        }
        rows
    }

    /// Everything in these tables, as text.
    pub async fn dump(&self) -> String {
        let mut admin = self.admin().await;
        let mut text = String::new();
        for table in self.rows().await.keys() {
            let rows = sqlx::query(AssertSqlSafe(format!("SELECT t::text, '' FROM {table} t")))
                .fetch_all(&mut admin)
                .await;
            for row in rows.expect("tables can be read") {
                writeln!(text, "{}", row.get::<String, _>(0)).expect("a string takes text");
            }
        }
        text
    }

    /// Holds back every transaction that writes to `table`, until [`Held::release`].
    pub async fn hold(&self, table: &str) -> Held {
        let mut admin = self.admin().await;
        run(&mut admin, "BEGIN").await;
        run(&mut admin, &format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")).await;
        Held(admin)
    }

    /// Sessions of this database that wait for a lock.
    pub async fn waiting(&self) -> i64 {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        sqlx::query(waiting).fetch_one(&mut self.admin().await).await.expect("the catalog is there").get(0)
    }
}

/// An open transaction that others wait for.
pub struct Held(PgConnection);

impl Held {
    /// Lets them go on.
    pub async fn release(mut self) {
        run(&mut self.0, "COMMIT").await;
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let name = self.name.clone();
        // The test's own runtime may be gone or be blocked here.
        let dropping = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
            runtime.block_on(async {
                let mut admin = connect("postgres").await;
                run(&mut admin, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
            });
        });
        if dropping.join().is_err() {
            eprintln!("a test database was left behind");
        }
    }
}

fn url(database: &str) -> String {
    let server = std::env::var(SERVER).unwrap_or_else(|_| DEFAULT_SERVER.to_owned());
    let (server, _) = server.rsplit_once('/').expect("the address names a database");
    format!("{server}/{database}")
}

async fn connect(database: &str) -> PgConnection {
    let url = url(database);
    PgConnection::connect(&url).await.unwrap_or_else(|e| {
        panic!("no PostgreSQL at {url}: {e}. Set {SERVER}, or run the tests under `cargo xtask pg run`")
    })
}

async fn run(conn: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(conn).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
}

/// The migrated template of this set of migrations; made when it is not there.
async fn template(admin: &mut PgConnection) -> String {
    let mut digest = Sha256::new();
    for migrator in [
        &tallystick_runner::MIGRATOR,
        &tallystick_outbox::MIGRATOR,
        &tallystick_ledger::MIGRATOR,
        &tallystick_payments::MIGRATOR,
    ] {
        migrator.iter().for_each(|migration| digest.update(&migration.checksum));
    }
    let name = format!("tallystick_template_{}", hex::encode(&digest.finalize()[..8]));
    run(admin, &format!("SELECT pg_advisory_lock({TEMPLATE_LOCK})")).await;
    let found = sqlx::query("SELECT 1 FROM pg_database WHERE datname = $1").bind(&name);
    if found.fetch_optional(&mut *admin).await.expect("the catalog is there").is_none() {
        // Under another name until it is complete: a test program may be killed half-way.
        let making = format!("{name}_making");
        run(admin, &format!("DROP DATABASE IF EXISTS {making} WITH (FORCE)")).await;
        run(admin, &format!("CREATE DATABASE {making}")).await;
        tallystick_payments::migrate::run(&url(&making)).await.expect("the migrations run");
        let mut made = connect("postgres").await;
        run(
            &mut made,
            &format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{making}'"),
        )
        .await;
        run(&mut made, &format!("ALTER DATABASE {making} RENAME TO {name}")).await;
    }
    run(admin, &format!("SELECT pg_advisory_unlock({TEMPLATE_LOCK})")).await;
    name
}
