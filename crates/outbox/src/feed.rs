//! The feed: pages of events in window order, for consumers that keep their own position and for the relay.
//!
//! A page is bounded in windows and in events looked at. Windows never change, so a position means the same each
//! time; only the end of the feed moves on.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::{CursorError, OutboxError};
use crate::event::StoredEvent;
use crate::{Cursor, repo};

/// Most events of one page.
pub const MAX_PAGE: i64 = 10_000;
/// Rounds of one call. For a tenant that has many of the events the first one fills the page; if it does not, the next
/// ones look at more events each, so that a quiet tenant gets on, too.
const ROUNDS: u32 = 4;
const SECOND_SCAN: i64 = 1_000;
const MAX_SCAN: i64 = 20_000;

/// Some events and where to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Oldest first.
    pub events: Vec<StoredEvent>,
    /// Where the next page begins. Always a good position, also when `events` is empty.
    pub next: Cursor,
}

/// Reads on behind `after`: at most `limit` events (1 to [`MAX_PAGE`]; anything else is moved into that range), of
/// one tenant or of all.
///
/// Nothing is skipped and nothing comes twice, whatever transactions are open meanwhile. For one tenant among many a
/// page may be short or empty before the end is reached; `next` has moved on then, and reading on goes further.
///
/// # Errors
/// [`OutboxError::Cursor`] when this feed never gave out `after`.
pub async fn page(
    conn: &mut PgConnection,
    tenant: Option<Uuid>,
    after: Cursor,
    limit: i64,
) -> Result<Page, OutboxError> {
    let limit = limit.clamp(1, MAX_PAGE);
    let mut page = Page { events: Vec::new(), next: after };
    let mut scan = limit;
    for _ in 0..ROUNDS {
        let wanted = limit - i64::try_from(page.events.len()).unwrap_or(limit);
        let round = repo::page(conn, tenant, page.next, scan, wanted).await?;
        check_position(page.next, &round)?;
        let full = i64::try_from(round.events.len()).unwrap_or(limit) >= wanted;
        page.events.extend(round.events);
        page.next = match (full, page.events.last(), round.end) {
            (true, Some(last), _) => last.cursor,
            (_, _, Some(end)) => end,
            (_, _, None) => page.next,
        };
        if full || !round.more {
            break;
        }
        if tenant.is_some() {
            scan = scan.saturating_mul(4).clamp(SECOND_SCAN, MAX_SCAN);
        }
    }
    Ok(page)
}

/// A position of the future would silently pass over everything that comes until then.
fn check_position(at: Cursor, round: &repo::Round) -> Result<(), CursorError> {
    if at.window > round.last_window {
        return Err(CursorError::Ahead);
    }
    match round.epoch_of_position {
        Some(epoch) if epoch != at.epoch => Err(CursorError::OtherEpoch),
        _ => Ok(()),
    }
}
