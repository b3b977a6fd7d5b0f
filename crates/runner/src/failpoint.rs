//! Places at which a test may kill or delay the process. Compiled in only with the feature `failpoints`.
//!
//! `TALLYSTICK_FAILPOINT="after_claim=kill@3"` kills this process (SIGKILL) the third time it gets there;
//! `after_send=sleep:500@1` sleeps 500 ms there, once. Several are separated by `;`.

/// A named place. Expands to nothing without the feature.
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::hit($name).await;
    };
}

#[cfg(feature = "failpoints")]
mod imp {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{LazyLock, Mutex};
    use std::time::Duration;

    enum Action {
        Kill,
        Sleep(Duration),
    }

    struct Point {
        action: Action,
        at: u64,
        seen: AtomicU64,
    }

    static POINTS: LazyLock<Mutex<HashMap<String, std::sync::Arc<Point>>>> = LazyLock::new(|| {
        let text = std::env::var("TALLYSTICK_FAILPOINT").unwrap_or_default();
        Mutex::new(text.split(';').filter_map(parse).collect())
    });

    fn parse(text: &str) -> Option<(String, std::sync::Arc<Point>)> {
        let (name, rest) = text.trim().split_once('=')?;
        let (action, at) = rest.split_once('@').unwrap_or((rest, "1"));
        let action = match action.split_once(':') {
            Some(("sleep", ms)) => Action::Sleep(Duration::from_millis(ms.parse().ok()?)),
            _ if action == "kill" => Action::Kill,
            _ => return None,
        };
        Some((
            name.to_owned(),
            std::sync::Arc::new(Point { action, at: at.parse().ok()?, seen: AtomicU64::new(0) }),
        ))
    }

    /// Runs `work`, and acts once it has been polled long enough to have put its request on the wire.
    pub async fn during<T>(name: &str, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            done = &mut work => done,
            () = tokio::time::sleep(Duration::from_millis(3)) => {
                hit(name).await;
                work.await
            }
        }
    }

    /// Acts when the environment asks for it.
    pub async fn hit(name: &str) {
        let point = POINTS.lock().expect("no panic while held").get(name).cloned();
        let Some(point) = point else { return };
        if point.seen.fetch_add(1, Ordering::Relaxed) + 1 != point.at {
            return;
        }
        match point.action {
            Action::Kill => {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
            }
            Action::Sleep(time) => tokio::time::sleep(time).await,
        }
    }
}

#[cfg(feature = "failpoints")]
pub use imp::{during, hit};
