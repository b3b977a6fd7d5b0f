//! Reversal: the mirrored journal of one that should not have been.

use jiff::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{JournalStatus, NewEntry, NewJournal, Posted, post_within_limits_in_tx, repo};
use crate::error::LedgerError;

/// Kind of journals that correct others.
const CORRECTION: &str = "correction";

/// Posts the mirror of a journal as a `correction` whose source is the corrected journal, once only: a second call
/// answers the first reversal with [`Posted::already`].
///
/// `reason` becomes the description, `at` the business time. Minimum balances are kept as for any decision.
///
/// # Errors
/// [`LedgerError::UnknownJournal`] when the tenant has none with this id, [`LedgerError::NotReversible`] when it is
/// pending or failed, [`LedgerError::MinimumBalance`].
pub async fn reverse_in_tx(
    conn: &mut PgConnection,
    tenant: Uuid,
    journal_id: Uuid,
    reason: &str,
    at: Option<Timestamp>,
) -> Result<Posted, LedgerError> {
    let entries = repo::entries(conn, tenant, journal_id).await?;
    if entries.is_empty() {
        return Err(LedgerError::UnknownJournal(journal_id));
    }
    match repo::status(conn, journal_id).await? {
        JournalStatus::Settled => {}
        status @ (JournalStatus::Pending | JournalStatus::Failed) => {
            return Err(LedgerError::NotReversible { journal_id, status });
        }
    }
    let mirrored = entries
        .into_iter()
        .map(|entry| NewEntry { direction: entry.direction.opposite(), ..entry })
        .collect();
    let reversal = NewJournal {
        journal_id: Uuid::now_v7(),
        tenant_id: tenant,
        kind: CORRECTION,
        source: journal_id,
        source_text: None,
        ordinal: 0,
        description: reason.to_owned(),
        metadata: None,
        effective_at: at,
        corrects: Some(journal_id),
        entries: mirrored,
        status: None,
    };
    post_within_limits_in_tx(conn, &reversal).await
}
