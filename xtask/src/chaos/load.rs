//! Clients that create payments and payouts and do not give up: each repeats its request with the same key, at one
//! server or the other, until it is answered.
//!
//! Kills need work around them, so requests are released in portions: a portion is released when the kill of the
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

use super::accounts::Account;
use super::dev;
use super::http::{Answer, Http};
use super::servers::Doors;
use super::wanted::{Plan, Wanted, What};

/// How long a client repeats before the run has failed.
const PATIENCE: Duration = Duration::from_secs(120);
/// Problems that are told; more of the same kind help nobody.
const MOST_PROBLEMS: usize = 20;

/// What a client was told about its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The request's number.
    pub number: u32,
    /// The client's key.
    pub key: String,
    /// The id of the payment or payout.
    pub id: String,
    /// What was asked for.
    pub wanted: Wanted,
}

/// What all clients share.
pub struct Load {
    plan: Plan,
    accounts: Vec<Account>,
    next: AtomicU32,
    looks: AtomicU32,
    released: watch::Sender<u32>,
    accepted: Mutex<BTreeMap<u32, Accepted>>,
    problems: Mutex<Vec<String>>,
}

impl Load {
    /// Nothing created yet; the `first` requests are released.
    pub fn new(plan: Plan, accounts: Vec<Account>, first: u32) -> Self {
        Self {
            plan,
            accounts,
            next: AtomicU32::new(0),
            looks: AtomicU32::new(0),
            released: watch::Sender::new(first),
            accepted: Mutex::default(),
            problems: Mutex::default(),
        }
    }

    /// Lets clients create up to this number.
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

    /// Notes something that nobody must see.
    pub fn problem(&self, text: String) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if problems.len() < MOST_PROBLEMS {
            problems.push(text);
        }
    }

    /// Counts a look at a balance.
    pub fn looked(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// How often a balance was looked at.
    pub fn looks(&self) -> u32 {
        self.looks.load(Ordering::Relaxed)
    }

    /// The next request that may be sent; `None` when there are no more.
    async fn take(&self) -> Option<u32> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.plan.total() {
            return None;
        }
        let mut released = self.released.subscribe();
        released.wait_for(|until| number < *until).await.ok()?;
        Some(number)
    }

    /// The request of a number: route and body; the same again is a repetition.
    fn request(&self, number: u32, wanted: &Wanted) -> (&'static str, Value) {
        request(&self.accounts, number, wanted)
    }
}

/// Starts the clients.
pub fn start(load: &Arc<Load>, http: &Http, doors: &Doors, clients: u32) -> Vec<JoinHandle<()>> {
    let client = |number: u32| {
        let (load, http, doors) = (load.clone(), http.clone(), doors.clone());
        tokio::spawn(async move {
            let mut chance = StdRng::seed_from_u64(load.plan.seed ^ (u64::from(number) << 40) ^ 0xc11e);
            while let Some(number) = load.take().await {
                let pause = Duration::from_millis(chance.random_range(50..250));
                if let Err(error) = create(&load, &http, &doors, number, pause).await {
                    load.problem(format!("request {number}: {error:#}"));
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
    let (count, total) = (accepted.len(), load.plan.total());
    let problems = load.problems().join("\n");
    ensure!(u32::try_from(count) == Ok(total), "only {count} of {total} creates were answered\n{problems}");
    Ok(accepted)
}

async fn create(load: &Load, http: &Http, doors: &Doors, number: u32, pause: Duration) -> Result<()> {
    let wanted = load.plan.wanted(number);
    let key = format!("chaos-{}-{number}", load.plan.seed);
    let (path, body) = load.request(number, &wanted);
    let from = |turn: u32| until_answered(http, doors, turn, path, &key, &body, pause);
    let first = if wanted.twin {
        let (first, second) = tokio::join!(from(number), from(number.wrapping_add(1)));
        let (first, second) = (first?, second?);
        ensure!(first.body == second.body, "one key, two answers: {first} and {second}");
        first
    } else {
        from(number).await?
    };
    let told = first.json::<Value>()?;
    let member = id_member(&wanted);
    let id = told[member].as_str().with_context(|| format!("an answer without {member}"))?.to_owned();
    let accepted = Accepted { number, key, id, wanted };
    load.accepted.lock().unwrap_or_else(PoisonError::into_inner).insert(number, accepted);
    Ok(())
}

/// Repeats until there is a 2xx, at the servers in turn. Only answers that invite a repetition are followed by one.
async fn until_answered(
    http: &Http,
    doors: &Doors,
    mut turn: u32,
    path: &str,
    key: &str,
    body: &Value,
    pause: Duration,
) -> Result<Answer> {
    let deadline = Instant::now() + PATIENCE;
    let mut last = "no answer at all".to_owned();
    while Instant::now() < deadline {
        // The server may be away or come back elsewhere: look again each time.
        if let Ok(door) = doors.at(turn) {
            match send(http, &door, path, key, body).await {
                Ok(answer) if (200..300).contains(&answer.status) => return Ok(answer),
                Ok(answer) if [409, 429, 500, 503].contains(&answer.status) => last = answer.to_string(),
                Ok(answer) => anyhow::bail!("refused: {answer}"),
                Err(error) => last = error.to_string(),
            }
        }
        turn = turn.wrapping_add(1);
        tokio::time::sleep(pause).await;
    }
    anyhow::bail!("not answered within {PATIENCE:?}; last: {last}")
}

fn request(accounts: &[Account], number: u32, wanted: &Wanted) -> (&'static str, Value) {
    let (amount, currency, text) = (wanted.amount_minor, wanted.currency, format!("chaos {number}"));
    match wanted.what {
        What::Payment => {
            ("/api/v1/payments", json!({"amount_minor": amount, "currency": currency, "description": text}))
        }
        What::Payout { source, destination, referenced, .. } => (
            "/api/v1/payouts",
            json!({
                "account_id": accounts.get(source).map(|account| &account.id), "destination": destination,
                "amount_minor": amount, "currency": currency,
                "reference": referenced.then_some(text),
            }),
        ),
    }
}

/// The member that names what was made.
fn id_member(wanted: &Wanted) -> &'static str {
    if wanted.what == What::Payment { "payment_id" } else { "payout_id" }
}

async fn send(
    http: &Http,
    door: &dev::Info,
    path: &str,
    key: &str,
    body: &Value,
) -> Result<Answer, reqwest::Error> {
    let request = http
        .request(Method::POST, &format!("{}{path}", door.api_url))
        .header("X-API-Key", &door.api_key)
        .header("Idempotency-Key", key)
        .json(body);
    http.send(request).await
}

/// The id that a client is told when it repeats its request now; another answer in words.
///
/// # Errors
/// When there is no whole answer.
pub async fn repeat(http: &Http, door: &dev::Info, accounts: &[Account], of: &Accepted) -> Result<String> {
    let (path, body) = request(accounts, of.number, &of.wanted);
    let answer = send(http, door, path, &of.key, &body).await?;
    let told = answer.json::<Value>()?;
    let id = told[id_member(&of.wanted)].as_str().unwrap_or_default().to_owned();
    Ok(if answer.status == 200 { id } else { answer.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_wait_until_they_are_released() {
        let load = Load::new(Plan { payments: 2, payouts: 1, seed: 1 }, Vec::new(), 1);
        assert_eq!(load.take().await, Some(0));
        let blocked = tokio::time::timeout(Duration::from_millis(20), load.take()).await;
        assert!(blocked.is_err());
        load.release(3);
        assert_eq!(load.take().await, Some(2));
        assert_eq!(load.take().await, None);
    }

    #[test]
    fn a_repetition_is_the_same_request() {
        let plan = Plan { payments: 3, payouts: 7, seed: 2 };
        let accounts: Vec<_> =
            (0..5).map(|n| Account { id: format!("account-{n}"), funds_minor: 1 }).collect();
        for number in 0..plan.total() {
            let wanted = plan.wanted(number);
            let (path, body) = request(&accounts, number, &wanted);
            assert_eq!(
                (path, &body),
                (request(&accounts, number, &wanted).0, &request(&accounts, number, &wanted).1)
            );
            assert_eq!(path.ends_with("payouts"), body["destination"].is_string(), "{body}");
            assert_eq!(path.ends_with("payouts"), body["account_id"].is_string(), "{body}");
        }
    }
}
