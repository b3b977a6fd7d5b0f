//! The server is killed again and again at each boundary between a commit and a call, under a small load.
//!
//! The failpoint is in the server's environment, so every server that `dev` starts anew dies at the same place after
//! so many visits. Clients create payments and payouts and go on until they are answered. Then everything is started
//! once more without the failpoint, comes to rest, and the sandbox's own book judges: one effect per payment and per
//! payout, of the right amount, and none that we do not know; the account from which payouts were made has exactly
//! what was not paid out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::dev::{Dev, folder, said};
use crate::flows::payouts::wanted;
use crate::support::client::{Client, Reply};

/// Kills at each boundary.
const KILLS: usize = 20;
/// Clients that create payments and payouts meanwhile, in turn.
const CLIENTS: u32 = 4;
/// More than all payouts of a run can take.
const FUNDS: i64 = 1_000_000_000;
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
    let asked = killed_at("after_send", 8).await;
    assert!(
        asked.payments > 0 && asked.payouts > 0,
        "outcomes that the killed server did not learn were asked for"
    );
}

#[tokio::test]
async fn killed_between_reply_and_record_every_payment_still_happens_once() {
    let asked = killed_at("after_reply", 8).await;
    assert!(
        asked.payments > 0 && asked.payouts > 0,
        "outcomes that the killed server did not record were asked for"
    );
}

#[tokio::test]
async fn killed_after_the_record_every_payment_still_happens_once() {
    killed_at("after_record", 8).await;
}

/// Payments and payouts that were unknown for a while, so that the gateway was asked.
struct Asked {
    payments: usize,
    payouts: usize,
}

/// What a client was told of.
struct Accepted {
    id: String,
    amount_minor: i64,
    /// A payout; else a payment.
    is_payout: bool,
}

async fn killed_at(point: &str, visits: u32) -> Asked {
    let folder = folder();
    let data = folder.path().join("data");
    let failpoint = format!("{point}=kill@{visits}");
    let with: Vec<_> = QUICK.into_iter().chain([("TALLYSTICK_FAILPOINT", failpoint.as_str())]).collect();
    let mut dev = Dev::start_in(&data, &[], &with);
    let latency = dev.sandbox().call("PUT", "/_settings").header("Content-Type", "application/json");
    latency.body(json!({"latency": "20ms", "spread": 0.5}).to_string()).send().await.is(200);
    let (account, accepted) = load_until_killed(&dev).await;
    assert!(accepted.len() >= 2 * KILLS, "too little work for {KILLS} kills: {}", accepted.len());
    dev.signal(Signal::SIGTERM);
    dev.ended();

    let dev = Dev::start_in(&data, &[], &QUICK);
    for args in [&["wait", "--idle", "--timeout", "120s"][..], &["verify"]] {
        let output = dev.command(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    }
    judge_account(&dev, &account, &accepted).await;
    judge(&dev, &accepted).await
}

/// Creates payments and payouts until the server was killed often enough; gives the account of the payouts, too.
async fn load_until_killed(dev: &Dev) -> (String, Vec<Accepted>) {
    let (enough, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let account = dev.api().funded("EUR", FUNDS).await;
    let clients =
        (0..CLIENTS).map(|_| tokio::spawn(client(dev.api(), account.clone(), enough.clone(), next.clone())));
    let clients: Vec<_> = clients.collect();
    let started = Instant::now();
    while kills(dev) < KILLS {
        let told = || format!("{} kills: {}", kills(dev), dev.log());
        assert!(started.elapsed() < PATIENCE, "the server is not killed often enough: {}", told());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    enough.store(true, Ordering::Relaxed);
    let mut accepted = Vec::new();
    for client in clients {
        accepted.extend(client.await.expect("a client does not die"));
    }
    (account, accepted)
}

/// Servers that were killed so far, by what dev says.
fn kills(dev: &Dev) -> usize {
    dev.log().matches("the server ended (signal: 9").count()
}

async fn client(
    api: Client,
    account: String,
    enough: Arc<AtomicBool>,
    next: Arc<AtomicU32>,
) -> Vec<Accepted> {
    let mut accepted = Vec::new();
    while !enough.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let amount_minor = i64::from(number) + 100;
        let is_payout = number % 2 == 1;
        let create = match is_payout {
            true => api.pay_out(&wanted(&account, "acct_ok", amount_minor)),
            false => api.pay(&json!({"amount_minor": amount_minor, "currency": "EUR"})),
        };
        let create = create.idem(&format!("crash-{number}"));
        let reply = loop {
            match create.try_send().await {
                Some(reply) if [200, 202].contains(&reply.status) => break reply,
                // Killed, busy, or a twin of our own is under way: the same again.
                Some(reply) => assert!([409, 503].contains(&reply.status), "{reply:?}"),
                None => {}
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let id = Reply::text(&reply, if is_payout { "payout_id" } else { "payment_id" });
        accepted.push(Accepted { id, amount_minor, is_payout });
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    accepted
}

async fn judge(dev: &Dev, accepted: &[Accepted]) -> Asked {
    let mut book: BTreeMap<String, Vec<(String, i64)>> = BTreeMap::new();
    for effect in all(dev, "effects", "_book").await {
        assert_eq!(effect["state"], "done", "{effect}");
        let text = |member: &str| effect[member].as_str().expect("text").to_owned();
        let amount = effect["amount_minor"].as_i64().expect("an amount");
        book.entry(text("key")).or_default().push((text("kind"), amount));
    }
    let kind = |one: &Accepted| if one.is_payout { "payout" } else { "charge" }.to_owned();
    let expected: BTreeMap<String, Vec<(String, i64)>> =
        accepted.iter().map(|one| (one.id.clone(), vec![(kind(one), one.amount_minor)])).collect();
    assert_eq!(book, expected, "one effect for each, of the right amount, and no other");
    let requests = all(dev, "requests", "_requests").await;
    let asked: BTreeSet<&str> = requests
        .iter()
        .filter(|request| request["operation"] == "status")
        .filter_map(|request| request["key"].as_str())
        .collect();
    let (mut payments, mut payouts) = (0, 0);
    for one in accepted {
        let status = if one.is_payout {
            let payout = dev.api().payout(&one.id).await;
            let journals = (payout["journals"][0]["kind"].as_str(), payout["journals"][0]["status"].as_str());
            assert_eq!(journals, (Some("payout_debited"), Some("settled")), "{payout}");
            assert_eq!(payout["journals"].as_array().map(Vec::len), Some(1), "{payout}");
            payouts += usize::from(asked.contains(one.id.as_str()));
            payout["status"].clone()
        } else {
            payments += usize::from(asked.contains(one.id.as_str()));
            dev.api().payment(&one.id).await["status"].clone()
        };
        assert_eq!(status, "succeeded", "{}", one.id);
    }
    Asked { payments, payouts }
}

/// Every payout was debited once.
async fn judge_account(dev: &Dev, account: &str, accepted: &[Accepted]) {
    let paid: i64 = accepted.iter().filter(|one| one.is_payout).map(|one| one.amount_minor).sum();
    assert!(paid > 0, "there were payouts");
    let balance = dev.api().balance(account).await;
    let found = (balance["balance_minor"].as_i64(), balance["pending_minor"].as_i64());
    assert_eq!(found, (Some(FUNDS - paid), Some(0)), "{balance}");
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
