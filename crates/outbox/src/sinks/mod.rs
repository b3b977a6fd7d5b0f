//! Sinks: where the relay publishes events. A new one is one file and one line in [`ALL`] and [`build`].

pub mod memory;
pub mod stdout;

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::SinkError;
use crate::event::StoredEvent;

/// A place to publish events to.
#[async_trait]
pub trait EventSink: Send + Sync {
    /// Names the sink's position in the database: two sinks with one name would share it.
    fn name(&self) -> &'static str;

    /// Publishes events in the slice's order and gives how many of them, from the first on, are confirmed: safe on
    /// the other side. Events behind the first one that failed are not counted, even if they were taken.
    ///
    /// Events may come again after a crash, a lost lease or a failure; receivers tell by the event id. The future is
    /// dropped when the lease runs out.
    ///
    /// # Errors
    /// [`SinkError`] when nothing is confirmed and there is a reason to tell.
    async fn publish(&self, events: &[StoredEvent]) -> Result<usize, SinkError>;
}

/// Names of the sinks that can be switched on.
pub const ALL: &[&str] = &[stdout::NAME];

/// Makes a sink by its name; `None` when there is none of that name.
#[must_use]
pub fn build(name: &str) -> Option<Arc<dyn EventSink>> {
    match name {
        stdout::NAME => Some(Arc::new(stdout::Stdout::new())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_builds_the_sink_of_that_name() {
        for name in ALL {
            assert_eq!(build(name).map(|sink| sink.name()), Some(*name));
        }
        assert!(build("nowhere").is_none());
    }
}
