//! Loops as idempotent steps.
//!
//! A step does one bounded batch and takes no input: everything it needs is in the database. It is driven by a
//! timer with jitter and by a wake-up signal; losing a signal only costs the time until the next tick.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use tokio::sync::Notify;

use crate::backoff::Backoff;
use crate::{DbError, Shutdown};

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepReport {
    /// Items handled.
    pub done: u64,
    /// The batch was full: there is probably more to do at once.
    pub more: bool,
}

/// How a step ended when it did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// Something needed is away; the loop goes on after a pause.
    #[error("{0}")]
    Retry(String),
    /// The loop must not go on; the process stops with a failure.
    #[error("{0}")]
    Stop(String),
}

impl From<DbError> for StepError {
    fn from(error: DbError) -> Self {
        Self::Retry(crate::looper::chain(&error))
    }
}

/// An error with all its causes on one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// When a loop runs its step.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Shown in logs and metrics.
    pub name: &'static str,
    /// Time between steps when there is nothing to do; ±20 % jitter is added.
    pub period: Duration,
    /// Runs the next step at once.
    pub wake: Arc<Notify>,
}

const TROUBLE: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// Runs `step` until shutdown begins. A step that is under way is finished.
///
/// # Errors
/// The text of [`StepError::Stop`].
pub async fn run<F, Fut>(pace: Pace, shutdown: Shutdown, mut step: F) -> Result<(), String>
where
    F: FnMut() -> Fut + Send,
    Fut: Future<Output = Result<StepReport, StepError>> + Send,
{
    let mut failures: u32 = 0;
    loop {
        if shutdown.is_stopping() {
            return Ok(());
        }
        let pause = match step().await {
            Ok(report) => {
                failures = 0;
                metrics::counter!("tallystick_loop_items_total", "loop" => pace.name).increment(report.done);
                if report.more { Duration::ZERO } else { jittered(pace.period) }
            }
            Err(StepError::Retry(reason)) => {
                failures = failures.saturating_add(1);
                metrics::counter!("tallystick_loop_failures_total", "loop" => pace.name).increment(1);
                tracing::warn!(
                    loop_name = pace.name,
                    failures,
                    reason,
                    "a step of this loop failed and will be tried again"
                );
                TROUBLE.half_jitter(failures)
            }
            Err(StepError::Stop(reason)) => {
                tracing::error!(loop_name = pace.name, reason, "this loop cannot go on");
                return Err(reason);
            }
        };
        if pause.is_zero() {
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = pace.wake.notified(), if failures == 0 => {}
            () = shutdown.stopping() => return Ok(()),
        }
    }
}

fn jittered(period: Duration) -> Duration {
    period.saturating_mul(rand::rng().random_range(80..=120)) / 100
}
