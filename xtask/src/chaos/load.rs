//! Clients that create payments and do not give up: each repeats its request with the same key until it is answered.
//!
//! Kills need work around them, so payments are released in portions: a portion is released when the kill of the
//! portion before has happened.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::dev::{self, Dev};
use super::http::{Answer, Http};

/// Currencies with two, no and three decimals.
const CURRENCIES: [&str; 3] = ["EUR", "JPY", "KWD"];
/// One request in so many is sent twice at the same time, as by a double click.
const TWIN_EACH: u32 = 10;
/// How long a client repeats before the run has failed.
const PATIENCE: Duration = Duration::from_secs(120);
/// Problems that are told; more of the same kind help nobody.
const MOST_PROBLEMS: usize = 20;

/// What a client was told about a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The client's key.
    pub key: String,
    /// The payment's id.
    pub id: String,
    /// What was asked for.
    pub amount_minor: i64,
    /// What was asked for.
    pub currency: &'static str,
}

/// What all clients share.
pub struct Load {
    payments: u32,
    seed: u64,
    next: AtomicU32,
    released: watch::Sender<u32>,
    accepted: Mutex<BTreeMap<u32, Accepted>>,
    problems: Mutex<Vec<String>>,
}

impl Load {
    /// Nothing created yet; `first` payments are released.
    pub fn new(payments: u32, seed: u64, first: u32) -> Self {
        Self {
            payments,
            seed,
            next: AtomicU32::new(0),
            released: watch::Sender::new(first),
            accepted: Mutex::default(),
            problems: Mutex::default(),
        }
    }

    /// Lets clients create payments up to this number.
    pub fn release(&self, until: u32) {
        self.released.send_replace(until);
    }

    /// How many creates were answered.
    pub fn count(&self) -> u32 {
        let accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        u32::try_from(accepted.len()).unwrap_or(u32::MAX)
    }

    /// What clients saw that they must not see.
    pub fn problems(&self) -> Vec<String> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn problem(&self, text: String) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if problems.len() < MOST_PROBLEMS {
            problems.push(text);
        }
    }

    /// The next payment that may be created; `None` when there are no more.
    async fn take(&self) -> Option<u32> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.payments {
            return None;
        }
        let mut released = self.released.subscribe();
        released.wait_for(|until| number < *until).await.ok()?;
        Some(number)
    }
}

/// What is asked for; the same for the same seed and number.
fn wanted(seed: u64, number: u32) -> (i64, &'static str, bool) {
    let mut chance = StdRng::seed_from_u64(seed ^ (u64::from(number) << 20) ^ 0x10ad);
    let currency = CURRENCIES[chance.random_range(0..CURRENCIES.len())];
    (chance.random_range(1..=1_000_000), currency, chance.random_range(0..TWIN_EACH) == 0)
}

/// Starts the clients.
pub fn start(load: &Arc<Load>, http: &Http, dev: &Dev, clients: u32) -> Vec<JoinHandle<()>> {
    let client = |number: u32| {
        let (load, http, data) = (load.clone(), http.clone(), dev.data());
        tokio::spawn(async move {
            let mut chance = StdRng::seed_from_u64(load.seed ^ (u64::from(number) << 40) ^ 0xc11e);
            while let Some(number) = load.take().await {
                if let Err(error) = create(&load, &http, &data, number, &mut chance).await {
                    load.problem(format!("payment {number}: {error:#}"));
                }
            }
        })
    };
    (0..clients).map(client).collect()
}

/// Waits for the clients; gives what they were told.
///
/// # Errors
/// When a client was never answered: what it asked for is not known to be anything.
pub async fn finish(load: &Load, clients: Vec<JoinHandle<()>>) -> Result<Vec<Accepted>> {
    for client in clients {
        client.await.context("a client died")?;
    }
    let accepted: Vec<_> = {
        let accepted = load.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.values().cloned().collect()
    };
    let count = u32::try_from(accepted.len()).unwrap_or(u32::MAX);
    let problems = load.problems().join("\n");
    ensure!(count == load.payments, "only {count} of {} creates were answered\n{problems}", load.payments);
    Ok(accepted)
}

async fn create(
    load: &Load,
    http: &Http,
    data: &std::path::Path,
    number: u32,
    chance: &mut StdRng,
) -> Result<()> {
    let (amount_minor, currency, twin) = wanted(load.seed, number);
    let key = format!("chaos-{}-{number}", load.seed);
    let body = body(amount_minor, currency, &number.to_string());
    let pause = Duration::from_millis(chance.random_range(50..250));
    let once = || until_answered(http, data, &key, &body, pause);
    let first = if twin {
        let (first, second) = tokio::join!(once(), once());
        let (first, second) = (first?, second?);
        ensure!(first.body == second.body, "one key, two answers: {first} and {second}");
        first
    } else {
        once().await?
    };
    let told = first.json::<Value>()?;
    let id = told["payment_id"].as_str().context("an answer without payment_id")?.to_owned();
    let accepted = Accepted { key, id, amount_minor, currency };
    load.accepted.lock().unwrap_or_else(PoisonError::into_inner).insert(number, accepted);
    Ok(())
}

/// Repeats until there is a 2xx. Only answers that invite a repetition are followed by one.
async fn until_answered(
    http: &Http,
    data: &std::path::Path,
    key: &str,
    body: &Value,
    pause: Duration,
) -> Result<Answer> {
    let deadline = Instant::now() + PATIENCE;
    let mut last = "no answer at all".to_owned();
    while Instant::now() < deadline {
        // The server may be away or come back elsewhere: look again each time.
        if let Ok(info) = dev::info(data) {
            match send(http, &info, key, body).await {
                Ok(answer) if (200..300).contains(&answer.status) => return Ok(answer),
                Ok(answer) if [409, 429, 500, 503].contains(&answer.status) => last = answer.to_string(),
                Ok(answer) => anyhow::bail!("refused: {answer}"),
                Err(error) => last = error.to_string(),
            }
        }
        tokio::time::sleep(pause).await;
    }
    anyhow::bail!("not answered within {PATIENCE:?}; last: {last}")
}

/// The request for a payment; the same again is a repetition.
pub fn body(amount_minor: i64, currency: &str, number: &str) -> Value {
    json!({"amount_minor": amount_minor, "currency": currency, "description": format!("chaos {number}")})
}

/// Creates a payment, or repeats it.
///
/// # Errors
/// When there is no whole answer.
pub async fn send(http: &Http, info: &dev::Info, key: &str, body: &Value) -> Result<Answer, reqwest::Error> {
    let request = http
        .request(Method::POST, &format!("{}/api/v1/payments", info.api_url))
        .header("X-API-Key", &info.api_key)
        .header("Idempotency-Key", key)
        .json(body);
    http.send(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_depends_on_seed_and_number_only() {
        let of = |seed| (0..1000).map(|number| wanted(seed, number)).collect::<Vec<_>>();
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        assert!(of(7).iter().all(|(amount, _, _)| (1..=1_000_000).contains(amount)));
        let twins = of(7).iter().filter(|(_, _, twin)| *twin).count();
        assert!((60..150).contains(&twins), "{twins}");
    }

    #[tokio::test]
    async fn payments_wait_until_they_are_released() {
        let load = Load::new(3, 1, 1);
        assert_eq!(load.take().await, Some(0));
        let blocked = tokio::time::timeout(Duration::from_millis(20), load.take()).await;
        assert!(blocked.is_err());
        load.release(3);
        assert_eq!(load.take().await, Some(2));
        assert_eq!(load.take().await, None);
    }
}
