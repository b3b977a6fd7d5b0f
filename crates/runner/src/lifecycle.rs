//! Two-step shutdown: the first request lets work in flight finish, the second stops at once.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Shared by everything that runs in a process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    soft: CancellationToken,
    hard: CancellationToken,
    panicked: CancellationToken,
    tasks: TaskTracker,
}

/// Lives as long as a task. Its task's future is dropped while a panic unwinds; that is how the panic is noticed.
struct Guard(CancellationToken);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

impl Shutdown {
    /// Nothing asked to stop yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks everyone to take no new work and finish what is in flight.
    pub fn begin(&self) {
        self.soft.cancel();
        self.tasks.close();
    }

    /// Asks everyone to stop now; leases expire by themselves.
    pub fn abort(&self) {
        self.soft.cancel();
        self.hard.cancel();
        self.tasks.close();
    }

    /// True once [`Self::begin`] or [`Self::abort`] was called.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.soft.is_cancelled()
    }

    /// Resolves when it is time to take no new work.
    pub async fn stopping(&self) {
        self.soft.cancelled().await;
    }

    /// Resolves when it is time to stop at once.
    pub async fn aborted(&self) {
        self.hard.cancelled().await;
    }

    /// Runs a task that [`Self::finished`] waits for.
    pub fn spawn<F>(&self, task: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let guard = Guard(self.panicked.clone());
        self.tasks.spawn(async move {
            let _guard = guard;
            task.await
        })
    }

    /// Resolves when a task spawned here has panicked. Its work is not done by anybody any more.
    pub async fn panicked(&self) {
        self.panicked.cancelled().await;
    }

    /// Waits until every task spawned here has ended, or until [`Self::abort`].
    pub async fn finished(&self) {
        tokio::select! {
            () = self.tasks.wait() => {}
            () = self.hard.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_panic_of_a_task_is_noticed_and_does_not_block_the_end() {
        let shutdown = Shutdown::new();
        shutdown.spawn(async {});
        let quiet = tokio::time::timeout(Duration::from_millis(20), shutdown.panicked()).await;
        assert!(quiet.is_err(), "nothing has panicked");
        shutdown.spawn(async {
            tokio::task::yield_now().await;
            panic!("planted");
        });
        tokio::time::timeout(Duration::from_secs(5), shutdown.panicked()).await.expect("noticed");
        shutdown.begin();
        tokio::time::timeout(Duration::from_secs(5), shutdown.finished()).await.expect("ended");
    }
}
