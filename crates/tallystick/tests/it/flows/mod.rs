//! Two server processes on one database, seen from outside: twins that meet on different servers, and servers that
//! are killed in turn. The sandbox's book judges.

pub mod payouts;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::dev::{Dev, said};
use crate::serve::stopping::Second;
use crate::support::client::{Client, Reply};

/// Short times, so that what a killed server held is soon taken over.
pub const QUICK: [(&str, &str); 4] = [
    ("TALLYSTICK_GATEWAY_TIMEOUT", "1s"),
    ("TALLYSTICK_LEASE", "3s"),
    ("TALLYSTICK_SWEEP_AFTER", "200ms"),
    ("TALLYSTICK_SWEEP_MAX_BACKOFF", "1s"),
];

/// Sends requests at the same time, in turn to each of the clients.
async fn at_once(clients: &[Client], calls: impl Iterator<Item = (String, Value)>) -> Vec<Reply> {
    let calls = calls.zip(clients.iter().cycle()).map(|((key, body), client)| client.pay(&body).idem(&key));
    let running: Vec<_> = calls.map(|call| tokio::spawn(async move { call.send().await })).collect();
    let mut replies = Vec::new();
    for call in running {
        replies.push(call.await.expect("a request does not die"));
    }
    replies
}

#[tokio::test]
async fn fifty_twins_on_two_servers_are_one_payment_and_get_the_same_bytes() {
    let dev = Dev::start(&QUICK);
    let second = Second::start(&dev, &[], &[]).await;
    let clients = [dev.api(), second.client.clone()];
    let body = json!({"amount_minor": 4200, "currency": "EUR", "description": "twins"});
    let replies = at_once(&clients, (0..50).map(|_| ("twins".to_owned(), body.clone()))).await;
    let (answered, refused): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status != 409);
    for reply in refused {
        // A twin that waited too long for the first one is told to come again.
        reply.refused(409, "idempotency_in_flight");
    }
    assert_eq!(answered.iter().filter(|reply| reply.status == 202).count(), 1, "one of them was the first");
    let bytes: BTreeSet<&[u8]> = answered.iter().map(|reply| reply.body.as_slice()).collect();
    assert_eq!(bytes.len(), 1, "all were told the same");
    let first = answered[0].body.clone();
    let id = answered[0].text("payment_id");

    dev.api().payment_in(&id, "succeeded").await;
    dev.kill_and_wait("server");
    for client in [dev.api(), second.client.clone()] {
        let again = client.pay(&body).idem("twins").send().await;
        assert_eq!((again.status, &again.body), (200, &first), "after a kill, on both servers");
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
    }
    assert_eq!(dev.effects(&id).await.len(), 1);
}

#[tokio::test]
async fn clicks_for_one_order_on_two_servers_are_one_payment() {
    let dev = Dev::start(&QUICK);
    let second = Second::start(&dev, &[], &[]).await;
    let clients = [dev.api(), second.client.clone()];
    let body = json!({"amount_minor": 900, "currency": "EUR", "order_id": "order-1"});
    let replies = at_once(&clients, (0..30).map(|click| (format!("click-{click}"), body.clone()))).await;
    let (answered, refused): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status != 409);
    for reply in refused {
        reply.refused(409, "idempotency_in_flight");
    }
    let ids: BTreeSet<String> = answered.iter().map(|reply| reply.text("payment_id")).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    for reply in answered {
        let existing = reply.header("existing-payment") == Some("true");
        assert_eq!(existing, reply.status == 200, "{reply:?}");
    }
    let id = ids.first().expect("one payment");
    dev.api().payment_in(id, "succeeded").await;
    assert_eq!(dev.effects(id).await.len(), 1);
}

#[tokio::test]
async fn two_servers_killed_in_turn_make_every_payment_happen_once() {
    const ROUNDS: u32 = 6;
    const EACH: u32 = 30;
    let dev = Dev::start(&QUICK);
    let mix = json!({"seed": 5, "rates": {"lost_reply": 0.1, "error_after": 0.05, "never_seen": 0.05, "reset": 0.05}});
    for (path, method, body) in
        [("/_mix", "POST", mix), ("/_settings", "PUT", json!({"latency": "40ms", "spread": 0.5}))]
    {
        let call = dev.sandbox().call(method, path).header("Content-Type", "application/json");
        assert!(call.body(body.to_string()).send().await.status < 300);
    }
    let mut accepted = BTreeMap::new();
    for round in 0..ROUNDS {
        let second = Second::start(&dev, &[], &[]).await;
        let clients = [dev.api(), second.client.clone()];
        let creates: Vec<_> = (0..EACH)
            .map(|number| {
                let (number, client) = (round * EACH + number, clients[(number % 2) as usize].clone());
                tokio::spawn(create(client, dev.api(), number))
            })
            .collect();
        if round % 2 == 0 {
            dev.kill_and_wait("server");
        }
        // The second one goes in each round, in every other one first.
        second.signal(Signal::SIGKILL);
        for create in creates {
            let (id, amount) = create.await.expect("a client does not die");
            accepted.insert(id, amount);
        }
    }
    let clear = dev.sandbox().call("POST", "/_mix").header("Content-Type", "application/json");
    assert!(clear.body(json!({"seed": 0, "rates": {}}).to_string()).send().await.status < 300);
    for args in [&["wait", "--idle", "--timeout", "120s"][..], &["verify"]] {
        let output = dev.command(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    }
    assert_eq!(accepted.len(), (ROUNDS * EACH) as usize);
    let book = dev.sandbox().get("/_book?limit=10000").send().await.json();
    let mut effects: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for effect in book["effects"].as_array().expect("a list") {
        let key = effect["key"].as_str().expect("a key").to_owned();
        effects.entry(key).or_default().push(effect["amount_minor"].as_i64().expect("an amount"));
    }
    let expected: BTreeMap<String, Vec<i64>> =
        accepted.into_iter().map(|(id, amount)| (id, vec![amount])).collect();
    assert_eq!(effects, expected, "one effect per payment, of the right amount, and no other");
}

/// Creates a payment at one server; when that one is gone, at the other.
async fn create(first: Client, other: Client, number: u32) -> (String, i64) {
    let amount = i64::from(number) + 100;
    let body = json!({"amount_minor": amount, "currency": "EUR"});
    let key = format!("flow-{number}");
    for client in std::iter::once(&first).chain(std::iter::repeat(&other)) {
        match client.pay(&body).idem(&key).try_send().await {
            Some(reply) if [200, 202].contains(&reply.status) => return (reply.text("payment_id"), amount),
            Some(reply) => assert!([409, 503].contains(&reply.status), "{reply:?}"),
            None => {}
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    unreachable!("the other server is asked again and again")
}
