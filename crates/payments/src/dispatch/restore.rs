//! Makes lost dispatch rows again: an operation that needs work must have one. Its own row is the truth.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tallystick_runner::{StepError, StepReport};
use uuid::Uuid;

use super::repo;
use crate::engine::Inner;

/// Operations looked at in one step.
const PAGE: i64 = 1_000;
/// The usual pass begins with operations of this age; all are walked once a day.
const RECENT: Duration = Duration::from_secs(3_600);
const FULL_EVERY: Duration = Duration::from_secs(86_400);

/// Where the walk stands. Kept in memory only: beginning again is always right.
#[derive(Debug)]
pub(crate) struct Walk(Mutex<(Uuid, Instant)>);

impl Default for Walk {
    fn default() -> Self {
        // The first pass of a process is a full one.
        Self(Mutex::new((Uuid::nil(), Instant::now())))
    }
}

impl Walk {
    fn here(&self) -> Uuid {
        self.0.lock().expect("no panic while held").0
    }

    /// Goes on behind `last`, or begins again when the page was the last one.
    fn go_on(&self, last: Option<Uuid>, more: bool) {
        let mut walk = self.0.lock().expect("no panic while held");
        walk.0 = match last {
            Some(last) if more => last,
            _ if walk.1.elapsed() > FULL_EVERY => {
                walk.1 = Instant::now();
                Uuid::nil()
            }
            _ => recent(),
        };
    }
}

/// The smallest version 7 id of the time at which the recent ones begin.
fn recent() -> Uuid {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
        .saturating_sub(RECENT);
    let millis = u64::try_from(since.as_millis()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid()
}

/// One page of the walk.
pub(crate) async fn restore_step(inner: &Arc<Inner>) -> Result<StepReport, StepError> {
    let after = inner.walk.here();
    let page = inner
        .db
        .tx("dispatch.restore", move |conn| Box::pin(async move { repo::restore(conn, after, PAGE).await }))
        .await?;
    let more = page.seen == PAGE;
    inner.walk.go_on(page.last, more);
    if page.made > 0 {
        tracing::warn!(rows = page.made, "operations that need work had no dispatch row: made again");
        inner.wake_dispatch.notify_one();
    }
    Ok(StepReport { done: u64::try_from(page.made).unwrap_or(0), more })
}
