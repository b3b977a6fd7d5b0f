//! How many requests are worked on at once, how many of them may wait, and how long one may take.
//!
//! Nothing queues here: a request that does not fit is refused at once with 503 and stored nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::problem::Problem;
use super::state::HttpSettings;

/// Waiting stops this long before the request's deadline, so that the answer still goes out.
const ANSWER_MARGIN: Duration = Duration::from_millis(100);

/// The limits of this process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Limits {
    requests: Arc<Semaphore>,
    waits: Arc<Semaphore>,
    timeout: Duration,
}

impl Limits {
    /// As the settings say; at least one request at once.
    #[must_use]
    pub fn new(settings: &HttpSettings) -> Self {
        let requests = settings.max_requests.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            requests: Arc::new(Semaphore::new(requests)),
            waits: Arc::new(Semaphore::new(requests / 2)),
            timeout: settings.request_timeout,
        }
    }

    /// Leave to wait for an outcome, while it is held. `None`: too many wait already.
    pub(super) fn try_wait(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.waits).try_acquire_owned().ok()
    }
}

/// When the answer must go out at the latest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// The end of a wait that begins now.
    pub(super) fn cap(self, wait: Duration) -> Instant {
        (Instant::now() + wait).min(self.0)
    }
}

/// The layer.
pub async fn admit(State(limits): State<Limits>, mut request: Request, next: Next) -> Response {
    let Ok(_permit) = limits.requests.try_acquire() else {
        return Problem::overloaded().into_response();
    };
    let last = Instant::now() + limits.timeout;
    request.extensions_mut().insert(Deadline(last.checked_sub(ANSWER_MARGIN).unwrap_or(last)));
    match tokio::time::timeout_at(last, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::timed_out().into_response(),
    }
}
