//! Bringing a database to this version: roles, schemas, the migrations of each part, partitions, the first tenant.
//!
//! Run by somebody who may create roles and schemas (a superuser, or the owner of a prepared database). Everything
//! is made as the role `tallystick_owner`; programs connect as `tallystick_app`, which owns nothing.

use sqlx::migrate::{MigrateError as SqlxMigrateError, Migrator};
use tallystick_runner::{Db, DbError, DbOptions, looper};

use crate::loops::PARTITION_DAYS;
use crate::tenants::{self, TenantError};

mod repo;

/// Name of the tenant of a fresh install.
pub const DEFAULT_TENANT: &str = "default";

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MigrateReport {
    /// Migrations applied now, as `schema/version description`.
    pub applied: Vec<String>,
    /// Outbox partitions made now.
    pub partitions: i32,
    /// The key of the tenant `default`, when it was made now. Not kept anywhere.
    pub api_key: Option<String>,
}

/// Why a database could not be brought to this version.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// It was written by a newer program.
    #[error(
        "schema {schema} has migration {version}, which this program does not know: \
         the database belongs to a newer version, use that one"
    )]
    Newer {
        /// The schema.
        schema: &'static str,
        /// The unknown migration.
        version: i64,
    },
    /// It needs `tallystick migrate`.
    #[error("schema {schema} lacks migration {version}: run `tallystick migrate` first")]
    Older {
        /// The schema.
        schema: &'static str,
        /// The first missing migration.
        version: i64,
    },
    /// The connecting role may not do this.
    #[error(
        "{what}: {reason}. Connect as a superuser, or as a member of tallystick_owner on a prepared database"
    )]
    NotAllowed {
        /// What was tried.
        what: &'static str,
        /// What the server said.
        reason: String,
    },
    /// A migration failed; the ones before it stand.
    #[error("migrating schema {schema}: {reason}")]
    Failed {
        /// The schema.
        schema: &'static str,
        /// What the server said.
        reason: String,
    },
    /// The first tenant could not be made.
    #[error(transparent)]
    Tenant(#[from] TenantError),
    /// The database is away or refused.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// The parts in the order of their migrations.
fn parts() -> [(&'static str, &'static Migrator); 4] {
    [
        ("runner", &tallystick_runner::MIGRATOR),
        ("outbox", &tallystick_outbox::MIGRATOR),
        ("ledger", &tallystick_ledger::MIGRATOR),
        ("payments", &crate::MIGRATOR),
    ]
}

/// Brings the database at `url` to this version. Doing it twice, or from two places at once, is the same as once.
///
/// # Errors
/// [`MigrateError`] says what to do.
pub async fn run(url: &str) -> Result<MigrateReport, MigrateError> {
    let options = DbOptions {
        application_name: "tallystick migrate".into(),
        max_connections: 2,
        ..DbOptions::default()
    };
    let db = Db::connect(url, &options).await?;
    let mut conn = db.conn().await?;
    repo::prepare(&mut conn).await?;
    let mut applied = Vec::new();
    for (schema, migrator) in parts() {
        let before = versions(&mut conn, schema, migrator).await?;
        migrator.run_direct(None, &mut *conn, false).await.map_err(|e| failed(schema, &e))?;
        repo::grant_versions(&mut conn, schema).await?;
        let new = migrator.iter().filter(|m| !before.contains(&m.version));
        applied.extend(new.map(|m| format!("{schema}/{:04} {}", m.version, m.description)));
    }
    drop(conn);
    let partitions = tallystick_outbox::ensure_partitions(&db, PARTITION_DAYS)
        .await
        .map_err(|e| MigrateError::Failed { schema: "outbox", reason: looper::chain(&e) })?;
    let api_key = match tenants::create(&db, DEFAULT_TENANT).await {
        Ok((_, key)) => Some(key),
        Err(TenantError::Exists(_)) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(MigrateReport { applied, partitions, api_key })
}

/// Refuses a database that is not exactly at this version.
///
/// # Errors
/// [`MigrateError::Older`], [`MigrateError::Newer`], or of the database.
pub async fn check(db: &Db) -> Result<(), MigrateError> {
    let mut conn = db.conn().await?;
    for (schema, migrator) in parts() {
        let applied = repo::applied(&mut conn, schema).await?;
        if let Some(version) = applied.iter().find(|v| !migrator.version_exists(**v)) {
            return Err(MigrateError::Newer { schema, version: *version });
        }
        if let Some(missing) = migrator.iter().find(|m| !applied.contains(&m.version)) {
            return Err(MigrateError::Older { schema, version: missing.version });
        }
    }
    Ok(())
}

async fn versions(
    conn: &mut sqlx::PgConnection,
    schema: &'static str,
    migrator: &Migrator,
) -> Result<Vec<i64>, MigrateError> {
    let applied = repo::applied(conn, schema).await?;
    match applied.iter().find(|v| !migrator.version_exists(**v)) {
        Some(version) => Err(MigrateError::Newer { schema, version: *version }),
        None => Ok(applied),
    }
}

fn failed(schema: &'static str, error: &SqlxMigrateError) -> MigrateError {
    MigrateError::Failed { schema, reason: looper::chain(error) }
}

/// Everything that [`run`] would execute on an empty database, for people who run SQL themselves.
#[must_use]
pub fn sql() -> String {
    let mut text = String::from(repo::ROLES);
    for (schema, migrator) in parts() {
        text.push_str(&format!("\nCREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION tallystick_owner;\n"));
        text.push_str("SET ROLE tallystick_owner;\n");
        for migration in migrator.iter() {
            text.push_str(&format!("\n-- {schema}/{:04} {}\n", migration.version, migration.description));
            text.push_str(migration.sql.as_str());
        }
        text.push_str("\nRESET ROLE;\n");
    }
    text
}
