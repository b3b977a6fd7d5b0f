//! What PostgreSQL counts about itself and how it is set, for measurements.
//!
//! The counters grow for as long as the cluster lives; a measurement is the difference of two readings.

use crate::db::Db;
use crate::error::DbError;
use crate::repo;

/// Counters of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions committed in this database, those that only read included. Connections report theirs now and then
    /// (at most once a second), so the last ones show a moment later.
    pub commits: i64,
    /// Transactions that wrote, in the whole cluster: each one takes a number. Exact at every moment; one that was
    /// rolled back counts, too.
    pub writes: i64,
    /// Bytes of write-ahead log, of the whole cluster. Exact at every moment.
    pub wal_bytes: i64,
}

/// Settings that decide what a commit costs, as the server itself says them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durability {
    /// Version of the server.
    pub server_version: String,
    /// `on`: a commit waits for the disk.
    pub fsync: String,
    /// `on`: a commit is answered when it is on disk.
    pub synchronous_commit: String,
    /// `on`: torn pages are repaired after a crash.
    pub full_page_writes: String,
    /// How a write reaches the disk.
    pub wal_sync_method: String,
    /// Microseconds that a commit waits for company before the log is synced.
    pub commit_delay: String,
    /// Other open transactions that must be there for it to wait.
    pub commit_siblings: String,
}

impl Durability {
    /// The first setting under which an answered commit could be lost or torn, if there is one.
    #[must_use]
    pub fn weak(&self) -> Option<(&'static str, &str)> {
        [
            ("fsync", &self.fsync),
            ("synchronous_commit", &self.synchronous_commit),
            ("full_page_writes", &self.full_page_writes),
        ]
        .into_iter()
        .find(|(_, value)| *value != "on")
        .map(|(name, value)| (name, value.as_str()))
    }
}

/// Reads the counters.
///
/// # Errors
/// Of the database.
pub async fn counters(db: &Db) -> Result<Counters, DbError> {
    repo::counters(&mut *db.conn().await?).await
}

/// Reads the settings.
///
/// # Errors
/// Of the database.
pub async fn durability(db: &Db) -> Result<Durability, DbError> {
    repo::durability(&mut *db.conn().await?).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_but_on_is_weak() {
        let on = Durability {
            server_version: "15.1".into(),
            fsync: "on".into(),
            synchronous_commit: "on".into(),
            full_page_writes: "on".into(),
            wal_sync_method: "fdatasync".into(),
            commit_delay: "6700".into(),
            commit_siblings: "0".into(),
        };
        assert_eq!(on.weak(), None);
        assert_eq!(Durability { fsync: "off".into(), ..on.clone() }.weak(), Some(("fsync", "off")));
        let local = Durability { synchronous_commit: "local".into(), ..on.clone() };
        assert_eq!(local.weak(), Some(("synchronous_commit", "local")));
        assert_eq!(
            Durability { full_page_writes: "off".into(), ..on }.weak(),
            Some(("full_page_writes", "off"))
        );
    }
}
