//! Is this database the one that its rows were written in?
//!
//! Marks (schema `runner`) are transaction ids of one cluster. After a dump and restore elsewhere, or an
//! upgrade into a new cluster, new rows would sort below old ones: balances would silently be wrong and
//! events would be skipped. So every role asks here before it starts.

use crate::error::DbError;
use crate::{Db, repo};

/// Why a role does not start.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The rows were written in another cluster.
    #[error(
        "this database was copied: its rows were written in cluster {expected}, this is cluster {found}. \
         Stop all writers, then run `tallystick adopt`"
    )]
    Copied {
        /// The identifier that the data names.
        expected: i64,
        /// The identifier of the server that we are connected to.
        found: i64,
    },
    /// The server is a standby; money is never decided on one.
    #[error("this server is a standby in recovery: connect to the primary")]
    Standby,
    /// A server setting would let acknowledged commits be lost.
    #[error("{setting} is off on this server: a commit that was acknowledged could be lost. Switch it on")]
    Unsafe {
        /// Name of the setting.
        setting: &'static str,
    },
    /// `migrate` has not run.
    #[error("the database has no schema `runner`: run `tallystick migrate` first")]
    NotMigrated,
    /// The question could not be asked.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Refuses a copied database, a standby, and settings that lose acknowledged commits.
///
/// # Errors
/// [`ClusterError`] says what to do.
pub async fn check(db: &Db) -> Result<(), ClusterError> {
    let mut conn = db.conn().await?;
    let server = repo::server(&mut conn).await?;
    if server.in_recovery {
        return Err(ClusterError::Standby);
    }
    for (setting, on) in [
        ("fsync", server.fsync),
        ("full_page_writes", server.full_page_writes),
        ("synchronous_commit", server.synchronous_commit),
    ] {
        if !on {
            return Err(ClusterError::Unsafe { setting });
        }
    }
    if !server.migrated {
        return Err(ClusterError::NotMigrated);
    }
    let expected = repo::cluster(&mut conn).await?;
    if expected != server.system_identifier {
        return Err(ClusterError::Copied { expected, found: server.system_identifier });
    }
    Ok(())
}

/// Whether the connected role is more than the application role: a superuser, or a member of the owning role. The
/// guards against rewriting what was recorded do not bind such a role.
///
/// # Errors
/// Of the database.
pub async fn is_privileged(db: &Db) -> Result<bool, DbError> {
    let mut conn = db.conn().await?;
    repo::is_privileged(&mut conn).await
}
