//! Checks that `verify` runs over what is retained. Pure reads in the caller's connection and snapshot.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::OutboxError;
use crate::repo;

/// Do the versions of each object of one kind run 1, 2, 3 … without a gap or a double? Gives how many objects were
/// looked at and the ids of those that break the rule. Objects whose version 1 is no longer retained are left out.
///
/// # Errors
/// [`OutboxError::Db`].
pub async fn versions_without_gap(
    conn: &mut PgConnection,
    aggregate: &str,
) -> Result<(u64, Vec<Uuid>), OutboxError> {
    Ok(repo::versions_without_gap(conn, aggregate).await?)
}
