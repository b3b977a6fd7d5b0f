//! The server is killed again and again at each boundary between a commit and a call, under a small load.
//!
//! The failpoint is in the server's environment, so every server that `dev` starts anew dies at the same place after
//! so many visits. Clients go on until they are answered. Then everything is started once more without the
//! failpoint, comes to rest, and the sandbox's own book judges: one effect per payment, of the right amount, and none
//! that we do not know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::dev::{Dev, folder, said};
use crate::support::client::{Client, Reply};

/// Kills at each boundary.
const KILLS: usize = 20;
/// Clients that create payments meanwhile.
const CLIENTS: u32 = 4;
/// How long the kills of one boundary may take.
const PATIENCE: Duration = Duration::from_secs(240);
/// Short times, so that what a killed server held is soon taken over.
const QUICK: [(&str, &str); 4] = [
    ("TALLYSTICK_GATEWAY_TIMEOUT", "1s"),
    ("TALLYSTICK_LEASE", "3s"),
    ("TALLYSTICK_SWEEP_AFTER", "200ms"),
    ("TALLYSTICK_SWEEP_MAX_BACKOFF", "1s"),
];

#[tokio::test]
async fn killed_before_a_claim_every_payment_still_happens_once() {
    killed_at("before_claim", 25).await;
}

#[tokio::test]
async fn killed_between_claim_and_call_every_payment_still_happens_once() {
    killed_at("after_claim", 25).await;
}

#[tokio::test]
async fn killed_with_a_request_on_the_wire_every_payment_still_happens_once() {
    let requests = killed_at("after_send", 8).await;
    assert!(requests.questions > 0, "an outcome that the killed server did not learn was asked for");
}

#[tokio::test]
async fn killed_between_reply_and_record_every_payment_still_happens_once() {
    let requests = killed_at("after_reply", 8).await;
    assert!(requests.questions > 0, "an outcome that the killed server did not record was asked for");
}

#[tokio::test]
async fn killed_after_the_record_every_payment_still_happens_once() {
    killed_at("after_record", 8).await;
}

/// What the sandbox was asked during a run.
struct Requests {
    questions: usize,
}

async fn killed_at(point: &str, visits: u32) -> Requests {
    let folder = folder();
    let data = folder.path().join("data");
    let failpoint = format!("{point}=kill@{visits}");
    let with: Vec<_> = QUICK.into_iter().chain([("TALLYSTICK_FAILPOINT", failpoint.as_str())]).collect();
    let mut dev = Dev::start_in(&data, &[], &with);
    let latency = dev.sandbox().call("PUT", "/_settings").header("Content-Type", "application/json");
    latency.body(json!({"latency": "20ms", "spread": 0.5}).to_string()).send().await.is(200);
    let accepted = load_until_killed(&dev).await;
    assert!(accepted.len() >= KILLS, "too little work for {KILLS} kills: {}", accepted.len());
    dev.signal(Signal::SIGTERM);
    dev.ended();

    let dev = Dev::start_in(&data, &[], &QUICK);
    for args in [&["wait", "--idle", "--timeout", "120s"][..], &["verify"]] {
        let output = dev.command(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    }
    judge(&dev, &accepted).await
}

/// Creates payments until the server was killed often enough; gives the amounts by payment.
async fn load_until_killed(dev: &Dev) -> BTreeMap<String, i64> {
    let (enough, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let clients = (0..CLIENTS).map(|_| tokio::spawn(client(dev.api(), enough.clone(), next.clone())));
    let clients: Vec<_> = clients.collect();
    let started = Instant::now();
    while kills(dev) < KILLS {
        let told = || format!("{} kills: {}", kills(dev), dev.log());
        assert!(started.elapsed() < PATIENCE, "the server is not killed often enough: {}", told());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    enough.store(true, Ordering::Relaxed);
    let mut accepted = BTreeMap::new();
    for client in clients {
        accepted.extend(client.await.expect("a client does not die"));
    }
    accepted
}

/// Servers that were killed so far, by what dev says.
fn kills(dev: &Dev) -> usize {
    dev.log().matches("the server ended (signal: 9").count()
}

async fn client(api: Client, enough: Arc<AtomicBool>, next: Arc<AtomicU32>) -> Vec<(String, i64)> {
    let mut accepted = Vec::new();
    while !enough.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let amount = i64::from(number) + 100;
        let create =
            api.pay(&json!({"amount_minor": amount, "currency": "EUR"})).idem(&format!("crash-{number}"));
        let reply = loop {
            match create.try_send().await {
                Some(reply) if [200, 202].contains(&reply.status) => break reply,
                // Killed, busy, or a twin of our own is under way: the same again.
                Some(reply) => assert!([409, 503].contains(&reply.status), "{reply:?}"),
                None => {}
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        accepted.push((Reply::text(&reply, "payment_id"), amount));
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    accepted
}

async fn judge(dev: &Dev, accepted: &BTreeMap<String, i64>) -> Requests {
    let mut book: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for effect in all(dev, "effects", "_book").await {
        let key = effect["key"].as_str().expect("a key").to_owned();
        assert_eq!((&effect["kind"], &effect["state"]), (&json!("charge"), &json!("done")), "{effect}");
        book.entry(key).or_default().push(effect["amount_minor"].as_i64().expect("an amount"));
    }
    let expected: BTreeMap<String, Vec<i64>> =
        accepted.iter().map(|(id, amount)| (id.clone(), vec![*amount])).collect();
    assert_eq!(book, expected, "one effect per payment, of the right amount, and no other");
    for id in accepted.keys() {
        assert_eq!(dev.api().payment(id).await["status"], "succeeded", "{id}");
    }
    let requests = all(dev, "requests", "_requests").await;
    Requests { questions: requests.iter().filter(|request| request["operation"] == "status").count() }
}

/// Every item of one of the sandbox's lists.
async fn all(dev: &Dev, name: &str, path: &str) -> Vec<Value> {
    let (mut items, mut after) = (Vec::new(), json!(0));
    loop {
        let page = dev.sandbox().get(&format!("/{path}?after={after}&limit=1000")).send().await.json();
        let found = page[name].as_array().expect("a list").clone();
        if found.is_empty() {
            return items;
        }
        items.extend(found);
        after = page["next"].clone();
    }
}
