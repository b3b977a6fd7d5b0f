//! What tests share: a database per test, the API in-process, a gateway that does as it is told, a plain HTTP client.

pub mod client;
pub mod db;
pub mod gateway;
pub mod logs;
pub mod server;

use std::time::{Duration, Instant};

/// How long anything is waited for before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until there is an answer.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "waited too long for: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
