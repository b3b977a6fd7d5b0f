//! A sink that keeps what it gets in memory and fails when told to. For tests.

use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;

use super::EventSink;
use crate::error::SinkError;
use crate::event::StoredEvent;

#[derive(Debug, Default)]
struct Inner {
    events: Vec<StoredEvent>,
    calls: usize,
    fail_after: Option<usize>,
    refuse: bool,
}

/// Keeps events in memory.
#[derive(Debug)]
pub struct Memory {
    name: &'static str,
    inner: Mutex<Inner>,
}

impl Memory {
    /// An empty sink of this name.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, inner: Mutex::default() }
    }

    /// From now on at most `events` events of each call are taken and confirmed.
    pub fn confirm_at_most(&self, events: usize) {
        self.lock().fail_after = Some(events);
    }

    /// From now on each call fails.
    pub fn refuse(&self) {
        self.lock().refuse = true;
    }

    /// From now on everything is taken again.
    pub fn heal(&self) {
        let mut inner = self.lock();
        inner.fail_after = None;
        inner.refuse = false;
    }

    /// Everything that was taken so far, in order of arrival.
    #[must_use]
    pub fn taken(&self) -> Vec<StoredEvent> {
        self.lock().events.clone()
    }

    /// How often the relay called.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.lock().calls
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code that holds the lock can panic")
    }
}

#[async_trait]
impl EventSink for Memory {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn publish(&self, events: &[StoredEvent]) -> Result<usize, SinkError> {
        let mut inner = self.lock();
        inner.calls += 1;
        if inner.refuse {
            return Err(SinkError::Refused("told to refuse".into()));
        }
        let taken = inner.fail_after.map_or(events.len(), |most| most.min(events.len()));
        inner.events.extend(events.iter().take(taken).cloned());
        Ok(taken)
    }
}
