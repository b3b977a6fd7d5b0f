//! The connection pool and the one way to open a transaction.
//!
//! sqlx's `begin` is not safe when its future is dropped: the connection can go back to the pool inside an
//! open transaction. [`Db::tx`] therefore runs every transaction in a task of its own that is never aborted;
//! a caller that goes away leaves it to finish by itself.

use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};

use crate::backoff::Backoff;
use crate::error::{DbError, Fault};
use crate::repo;

/// What a transaction's body returns: a boxed future that borrows the connection.
pub type TxFuture<'c, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'c>>;

/// Runs of one transaction, the first included, before a conflict is given to the caller.
const MAX_RUNS: u32 = 5;
const CONFLICT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(200));

/// Idle for less than this, a connection is taken without being asked whether it still stands.
const IDLE_UNASKED: Duration = Duration::from_millis(200);

/// How to connect.
#[derive(Clone, Debug)]
pub struct DbOptions {
    /// Shown in `pg_stat_activity`.
    pub application_name: String,
    /// Most connections of this process.
    pub max_connections: u32,
    /// How long a caller waits for a free connection before it gets [`DbError::Unavailable`].
    pub acquire_timeout: Duration,
    /// How long one statement waits for a lock.
    pub lock_timeout: Duration,
    /// How long one statement may run.
    pub statement_timeout: Duration,
}

impl Default for DbOptions {
    fn default() -> Self {
        Self {
            application_name: "tallystick".into(),
            max_connections: 16,
            acquire_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
        }
    }
}

/// A pool of connections to one PostgreSQL database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Db {
    pool: PgPool,
}

impl Db {
    /// Opens a pool; the first connection is made at once, so that a wrong address is found here.
    ///
    /// # Errors
    /// [`DbError::Unavailable`] when the server cannot be reached, [`DbError::Sql`] when the URL is wrong or refused.
    pub async fn connect(url: &str, options: &DbOptions) -> Result<Self, DbError> {
        let millis = |d: Duration| format!("{}ms", d.as_millis());
        let connect = PgConnectOptions::from_str(url)?.application_name(&options.application_name).options([
            ("lock_timeout", millis(options.lock_timeout)),
            ("statement_timeout", millis(options.statement_timeout)),
            // A forgotten transaction stalls checkpoints and seals of the whole cluster.
            ("idle_in_transaction_session_timeout", "10s".to_owned()),
            // Hot statements avoid partial indexes, so the generic plan is right and planning is saved.
            ("plan_cache_mode", "force_generic_plan".to_owned()),
            ("random_page_cost", "1.1".to_owned()),
            ("jit", "off".to_owned()),
            ("timezone", "UTC".to_owned()),
        ]);
        let pool = PgPoolOptions::new()
            .max_connections(options.max_connections)
            .acquire_timeout(options.acquire_timeout)
            // sqlx pings on release already; a second ping per checkout only costs a round trip. One that was idle
            // for a while may have lost its server meanwhile: it is asked, so that a restart of PostgreSQL does not
            // cost one failed request per idle connection.
            .test_before_acquire(false)
            .before_acquire(|conn, meta| {
                Box::pin(async move {
                    if meta.idle_for < IDLE_UNASKED {
                        return Ok(true);
                    }
                    Ok(sqlx::Connection::ping(conn).await.is_ok())
                })
            })
            .connect_with(connect)
            .await?;
        Ok(Self { pool })
    }

    /// Wraps a pool that somebody else opened (tests).
    #[must_use]
    pub fn from_pool(pool: PgPool) -> Self {
        Self { pool }
    }

    /// The pool, for single statements that need no transaction.
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// A connection of its own for single statements.
    ///
    /// # Errors
    /// [`DbError::Unavailable`] when none became free in time.
    pub async fn conn(&self) -> Result<sqlx::pool::PoolConnection<sqlx::Postgres>, DbError> {
        Ok(self.pool.acquire().await?)
    }

    /// Runs `body` in a READ COMMITTED transaction called `name` and commits it when it returns `Ok`.
    ///
    /// Deadlocks and serialization failures are run again, at most `MAX_RUNS` times in all, so the body must
    /// have no effect outside of the transaction. It waits for nothing but PostgreSQL: no call, no channel, no sleep.
    ///
    /// # Errors
    /// What the body returned, or a [`DbError`] of begin or commit. [`DbError::CommitUnknown`] means what it says.
    pub async fn tx<T, E, F>(&self, name: &'static str, mut body: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: Fault,
        F: for<'c> FnMut(&'c mut PgConnection) -> TxFuture<'c, T, E> + Send + 'static,
    {
        let pool = self.pool.clone();
        let run = async move {
            let started = Instant::now();
            let mut runs = 0;
            let result = loop {
                runs += 1;
                let result = run_once(&pool, &mut body).await;
                let conflict = result.as_ref().is_err_and(|e| e.db().is_some_and(DbError::is_conflict));
                if !conflict || runs == MAX_RUNS {
                    break result;
                }
                metrics::counter!("tallystick_db_transaction_conflicts_total", "name" => name).increment(1);
                tokio::time::sleep(CONFLICT_BACKOFF.full_jitter(runs)).await;
            };
            metrics::histogram!("tallystick_db_transaction_seconds", "name" => name)
                .record(started.elapsed());
            result
        };
        joined(tokio::spawn(run).await)
    }

    /// Runs `body` in a READ ONLY transaction called `name` in which every statement sees the database as it was at
    /// one instant. For long reads: neither statements nor the time between them are limited, and plans are made
    /// for the values asked for.
    ///
    /// An open snapshot keeps dead rows of the whole database from being cleaned up; it delays nobody otherwise.
    ///
    /// # Errors
    /// What the body returned, or a [`DbError`] of begin.
    pub async fn snapshot<T, E, F>(&self, name: &'static str, body: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: Fault,
        F: for<'c> FnOnce(&'c mut PgConnection) -> TxFuture<'c, T, E> + Send + 'static,
    {
        let pool = self.pool.clone();
        let run = async move {
            let started = Instant::now();
            let result = run_snapshot(&pool, body).await;
            metrics::histogram!("tallystick_db_transaction_seconds", "name" => name)
                .record(started.elapsed());
            result
        };
        joined(tokio::spawn(run).await)
    }
}

fn joined<T, E: Fault>(result: Result<Result<T, E>, tokio::task::JoinError>) -> Result<T, E> {
    match result {
        Ok(result) => result,
        Err(join) => match join.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that is shutting down cancels these tasks.
            Err(_) => Err(E::from(DbError::Unavailable(sqlx::Error::PoolClosed))),
        },
    }
}

async fn run_snapshot<T, E, F>(pool: &PgPool, body: F) -> Result<T, E>
where
    E: Fault,
    F: for<'c> FnOnce(&'c mut PgConnection) -> TxFuture<'c, T, E>,
{
    let mut tx =
        pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.map_err(DbError::from)?;
    repo::settings_of_snapshot(&mut tx).await?;
    let result = body(&mut tx).await;
    // Nothing was written; ending the transaction only gives the connection back.
    if let Err(rollback) = tx.rollback().await {
        tracing::debug!(error = %rollback, "rollback failed");
    }
    result
}

#[expect(clippy::disallowed_methods, reason = "the one place that opens transactions")]
async fn run_once<T, E, F>(pool: &PgPool, body: &mut F) -> Result<T, E>
where
    E: Fault,
    F: for<'c> FnMut(&'c mut PgConnection) -> TxFuture<'c, T, E>,
{
    let mut tx = pool.begin().await.map_err(DbError::from)?;
    match body(&mut tx).await {
        Ok(value) => {
            tx.commit().await.map_err(commit_error)?;
            Ok(value)
        }
        Err(error) => {
            // The first error is the one worth telling; a failed rollback closes the connection anyway.
            if let Err(rollback) = tx.rollback().await {
                tracing::debug!(error = %rollback, "rollback failed");
            }
            Err(error)
        }
    }
}

fn commit_error(error: sqlx::Error) -> DbError {
    match DbError::from(error) {
        DbError::Unavailable(e) => DbError::CommitUnknown(e),
        other => other,
    }
}
