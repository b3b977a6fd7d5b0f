//! Is there a transaction pooler between us and the database that mixes up prepared statements?
//!
//! A pooler that lends its connections for one transaction at a time must know which of them has which prepared
//! statement. One that does not know (pgbouncer before 1.21, or with `max_prepared_statements = 0`) answers a statement
//! with the result of another one, and reports success. Money cannot be decided over that, so it is looked for before
//! anything starts: many connections at once prepare different statements in different orders and compare what comes
//! back.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::error::DbError;
use crate::{Db, repo};

/// Tasks at once; each has a connection of the pool most of the time.
const TASKS: i64 = 16;
/// Different statements.
const STATEMENTS: i64 = 8;
/// Rounds of each task over all statements. One round finds it nearly always.
const ROUNDS: i64 = 4;
const DEADLINE: Duration = Duration::from_secs(20);

/// Why this connection is not used.
#[derive(Debug, thiserror::Error)]
pub enum PoolerError {
    /// Statements are mixed up.
    #[error(
        "the pooler in front of the database mixes up prepared statements ({0}): connect directly, or use pgbouncer \
         1.21 or newer with max_prepared_statements above 0"
    )]
    Mixed(String),
    /// The question could not be asked.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Refuses a pooler that mixes up prepared statements.
///
/// # Errors
/// [`PoolerError`] says what to do.
pub async fn check(db: &Db) -> Result<(), PoolerError> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let db = db.clone();
        tasks.spawn(async move { probe(&db, task).await });
    }
    let all = async {
        while let Some(joined) = tasks.join_next().await {
            match joined {
                Ok(result) => result?,
                Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
                Err(_) => return Err(DbError::Unavailable(sqlx::Error::PoolClosed).into()),
            }
        }
        Ok(())
    };
    match tokio::time::timeout(DEADLINE, all).await {
        Ok(result) => result,
        Err(_) => Err(DbError::Unavailable(sqlx::Error::PoolTimedOut).into()),
    }
}

async fn probe(db: &Db, task: i64) -> Result<(), PoolerError> {
    for turn in 0..ROUNDS * STATEMENTS {
        // Each task begins elsewhere, so that the same statement has another name on each connection.
        let wanted = (task + turn) % STATEMENTS;
        let mut conn = db.conn().await?;
        match repo::pooler_probe(&mut conn, wanted).await {
            Ok(found) if found == wanted => {}
            Ok(found) => {
                return Err(PoolerError::Mixed(format!("statement {wanted} was answered as {found}")));
            }
            Err(error) => return Err(sort(error)),
        }
    }
    Ok(())
}

fn sort(error: DbError) -> PoolerError {
    // 26000: no such prepared statement; 42P05: it exists already; 08P01: the parameters are of another one.
    match error.code().as_deref() {
        Some("26000" | "42P05" | "08P01") => PoolerError::Mixed(crate::looper::chain(&error)),
        _ => error.into(),
    }
}
