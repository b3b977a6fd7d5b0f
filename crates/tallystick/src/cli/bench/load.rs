//! The generator of load: clients with a connection each, that ask for payouts one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::accounts::CURRENCY;
use super::wire::{Side, Wire, uri};
use crate::cli::CliError;

/// What each payout takes from its account.
pub const AMOUNT_MINOR: i64 = 100;
/// The sandbox's ordinary payee.
const DESTINATION: &str = "acct_ok";
const PATH: &str = "/api/v1/payouts";
/// How long a client waits after "too many" before it asks again with the same key.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);
/// Answers that mean: nothing was stored, come again.
const REFUSED: [u16; 2] = [429, 503];

/// What is to be asked for.
pub struct Load {
    /// Our API.
    pub api: Side,
    /// Payouts in all.
    pub payouts: u64,
    /// Clients, each with one request at a time.
    pub clients: usize,
    /// Payouts per second; without it as fast as the clients get answers.
    pub rate: Option<u64>,
    /// Accounts that are debited in turn.
    pub accounts: Vec<Uuid>,
}

/// One payout that was accepted.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    /// Its id.
    pub id: Uuid,
    /// When its request was sent, or was due: a client that is late because the server is slow must not hide it.
    pub began: Instant,
}

/// What came of it.
pub struct Loaded {
    /// When the first request was sent.
    pub began: Instant,
    /// When the last one was answered.
    pub ended: Instant,
    /// Every payout that was accepted.
    pub accepted: Vec<Accepted>,
    /// Requests that were answered "too many" and sent again.
    pub refused: u64,
}

/// What all clients share.
struct Shared {
    load: Load,
    bodies: Vec<Bytes>,
    tag: String,
    next: AtomicU64,
    refused: AtomicU64,
    began: Instant,
}

#[derive(Deserialize)]
struct Created {
    payout_id: Uuid,
}

/// Asks for all payouts and waits for all answers.
///
/// # Errors
/// [`CliError::Broken`] for an answer other than 202 or "too many", [`CliError::Away`] without one.
pub async fn run(load: Load) -> Result<Loaded, CliError> {
    let body = |account: &Uuid| {
        json!({
            "account_id": account, "destination": DESTINATION, "amount_minor": AMOUNT_MINOR, "currency": CURRENCY,
        })
    };
    let bodies = load.accounts.iter().map(|account| body(account).to_string().into()).collect();
    let tag = hex::encode(rand::random::<[u8; 8]>());
    let clients = load.clients;
    let (next, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let shared = Arc::new(Shared { load, bodies, tag, next, refused, began: Instant::now() });
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        tasks.spawn(client(shared.clone()));
    }
    let mut accepted = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        // Dropping the set on an error ends the other clients.
        accepted.extend(ended.map_err(|e| CliError::Broken(format!("a client ended: {e}")))??);
    }
    let refused = shared.refused.load(Ordering::Relaxed);
    Ok(Loaded { began: shared.began, ended: Instant::now(), accepted, refused })
}

async fn client(shared: Arc<Shared>) -> Result<Vec<Accepted>, CliError> {
    let path = uri(PATH)?;
    let mut wire = shared.load.api.wire();
    let mut accepted = Vec::new();
    loop {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        if number >= shared.load.payouts {
            return Ok(accepted);
        }
        let began = match shared.load.rate {
            Some(rate) => {
                let due = shared.began + after(number, rate);
                tokio::time::sleep_until(due.into()).await;
                due
            }
            None => Instant::now(),
        };
        let id = one(&shared, &mut wire, &path, number).await?;
        accepted.push(Accepted { id, began });
    }
}

/// When a payout is due, at so many per second.
fn after(number: u64, rate: u64) -> Duration {
    let (seconds, rest) = (number / rate, number % rate);
    Duration::from_secs(seconds) + Duration::from_nanos(rest * 1_000_000_000 / rate)
}

async fn one(shared: &Shared, wire: &mut Wire, path: &hyper::Uri, number: u64) -> Result<Uuid, CliError> {
    let key = format!("{}-{number}", shared.tag);
    let turn = usize::try_from(number).unwrap_or_default() % shared.bodies.len();
    loop {
        let answer = wire.post(path, &key, &shared.bodies[turn]).await?;
        // 200: the answer to the first request was lost with its connection.
        if matches!(answer.status, 200 | 202) {
            let created: Created = serde_json::from_slice(&answer.body)
                .map_err(|e| CliError::Broken(format!("a payout was accepted without an id: {e}")))?;
            return Ok(created.payout_id);
        }
        if !REFUSED.contains(&answer.status) {
            return Err(CliError::Broken(format!("POST {PATH} was answered {}", answer.shown())));
        }
        shared.refused.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(REFUSED_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_an_open_loop_are_due_at_even_distances() {
        assert_eq!(after(0, 300), Duration::ZERO);
        assert_eq!(after(150, 300), Duration::from_millis(500));
        assert_eq!(after(900, 300), Duration::from_secs(3));
        assert_eq!(after(1, 3), Duration::from_nanos(333_333_333));
        assert_eq!(after(u64::MAX, 1), Duration::from_secs(u64::MAX));
    }
}
