//! Every magic value of the sandbox's cards, through the real server and the real sandbox: final state, effects and
//! submits in the sandbox's own book, journals, and events with versions without a gap.

use serde_json::{Value, json};

use crate::dev::Dev;
use crate::support::until;

struct Expected {
    value: &'static str,
    ends: &'static str,
    effects: usize,
    /// Fewest and most submits.
    submits: (usize, usize),
    /// A status that it must pass.
    by_way_of: Option<&'static str>,
    attention: Option<&'static str>,
}

const fn expected(
    value: &'static str,
    ends: &'static str,
    effects: usize,
    submits: (usize, usize),
) -> Expected {
    Expected { value, ends, effects, submits, by_way_of: None, attention: None }
}

const fn way(status: &'static str, of: Expected) -> Expected {
    Expected { by_way_of: Some(status), ..of }
}

const fn attention(code: &'static str, of: Expected) -> Expected {
    Expected { attention: Some(code), ..of }
}

const VALUES: [Expected; 14] = [
    expected("tok_ok", "succeeded", 1, (1, 1)),
    expected("tok_decline", "failed", 0, (1, 1)),
    way("unknown", expected("tok_lost_reply", "succeeded", 1, (1, 1))),
    way("unknown", expected("tok_error_after", "succeeded", 1, (1, 1))),
    way("unknown", expected("tok_reset", "succeeded", 1, (1, 1))),
    way("unknown", expected("tok_garbage", "succeeded", 1, (1, 1))),
    way("unknown", expected("tok_never_seen", "succeeded", 1, (2, 9))),
    way("unknown", expected("tok_error_before", "succeeded", 1, (3, 9))),
    way("processing", expected("tok_late", "succeeded", 1, (1, 1))),
    way("unknown", expected("tok_hidden_then_captured", "succeeded", 1, (1, 20))),
    expected("tok_webhook_first", "succeeded", 1, (1, 1)),
    expected("tok_webhook_dup", "succeeded", 1, (1, 1)),
    attention("amount_mismatch", expected("tok_wrong_amount", "unknown", 1, (1, 1))),
    attention("late_capture", expected("tok_decline_then_captured", "failed", 1, (1, 1))),
];

#[tokio::test]
async fn every_card_value_ends_as_promised_with_its_effects() {
    let dev = Dev::start(&[]);
    let mut made = Vec::new();
    for expected in &VALUES {
        let reply = dev
            .api()
            .pay(&json!({"amount_minor": 10_000, "currency": "EUR", "payment_method": expected.value}));
        made.push((expected, reply.send().await.is(202).text("payment_id")));
    }
    for (expected, id) in made {
        let payment = until(expected.value, || async {
            let payment = dev.api().payment(&id).await;
            let called = payment["attention"]["code"].as_str() == expected.attention;
            (payment["status"] == expected.ends && called).then_some(payment)
        })
        .await;
        judge(&dev, expected, &id, &payment).await;
    }
    let output = dev.command(&["verify", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ok"], true, "{report}");
    let explained =
        report["checks"].as_array().unwrap().iter().filter(|c| c["status"] == "explained").count();
    assert!(explained > 0, "the contradictions are told as explained by their breaks: {report}");
}

async fn judge(dev: &Dev, expected: &Expected, id: &str, payment: &Value) {
    let value = expected.value;
    assert_eq!(dev.effects(id).await.len(), expected.effects, "{value}: effects");
    let requests = dev.sandbox().get(&format!("/_requests?key={id}")).send().await.json();
    let submits =
        requests["requests"].as_array().unwrap().iter().filter(|r| r["operation"] == "charge").count();
    let (fewest, most) = expected.submits;
    assert!((fewest..=most).contains(&submits), "{value}: {submits} submits");
    let captured = if expected.ends == "succeeded" { 10_000 } else { 0 };
    assert_eq!(payment["captured_minor"], captured, "{value}");
    let query = format!("/api/v1/payments/{id}?expand=history,journals,events");
    let shown = dev.api().get(&query).send().await.json();
    let list = |name: &str| shown[name].as_array().unwrap().clone();
    let kinds: Vec<Value> = list("journals").iter().map(|j| j["kind"].clone()).collect();
    let journals = if captured > 0 { vec![json!("payment_captured")] } else { Vec::new() };
    assert_eq!(kinds, journals, "{value}: journals");
    let statuses: Vec<Value> = list("history").iter().map(|h| h["status"].clone()).collect();
    if let Some(status) = expected.by_way_of {
        assert!(statuses.contains(&json!(status)), "{value}: {statuses:?}");
    }
    let versions = |name: &str, member: &str| -> Vec<i64> {
        let mut found: Vec<i64> = list(name).iter().map(|row| row[member].as_i64().unwrap()).collect();
        found.sort_unstable();
        found
    };
    let all: Vec<i64> = (1..=payment["version"].as_i64().unwrap()).collect();
    assert_eq!(versions("history", "version"), all, "{value}: history");
    assert_eq!(versions("events", "sequence"), all, "{value}: events");
}
