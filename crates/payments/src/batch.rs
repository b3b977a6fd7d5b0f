//! Collecting single requests into batches: a few milliseconds of patience save most commits under load, and cost
//! nothing that matters when idle.

use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::Receiver;

/// How long the next batch waits for company: once per writer at work, this one included. When idle that is `linger`;
/// under load batches grow instead of writers waiting for each other's locks and commits.
pub(crate) fn patience(linger: Duration, writers: &Semaphore, most: usize) -> Duration {
    let at_work = most.saturating_sub(writers.available_permits()).max(1);
    linger * u32::try_from(at_work).unwrap_or(1)
}

/// `first` and what comes within `linger`, at most `most` in all.
pub(crate) async fn collect<T>(first: T, inbox: &mut Receiver<T>, most: usize, linger: Duration) -> Vec<T> {
    let mut batch = vec![first];
    let end = tokio::time::Instant::now() + linger;
    while batch.len() < most {
        match inbox.try_recv() {
            Ok(item) => batch.push(item),
            Err(_) => match tokio::time::timeout_at(end, inbox.recv()).await {
                Ok(Some(item)) => batch.push(item),
                Ok(None) | Err(_) => break,
            },
        }
    }
    batch
}
