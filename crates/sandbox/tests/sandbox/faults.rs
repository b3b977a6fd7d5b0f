//! Faults by rule and by mix: for any operation, repeatable, and for status questions and webhooks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::common::{Sandbox, authorization, charge, done, payout, until};
use serde_json::{Value, json};

#[test]
fn rules_hit_what_they_name_and_count_down() {
    let sandbox = Sandbox::new();
    sandbox.fault(json!({"operation": "payout", "fault": "decline", "destination": "acct_ok", "times": 1}));
    assert_eq!(sandbox.charge("card", "tok_ok").status, 200);
    assert_eq!(sandbox.pay_out("other", "acct_mine").status, 202);
    assert_eq!(sandbox.pay_out("hit", "acct_ok").status, 402);
    assert_eq!(sandbox.pay_out("after", "acct_ok").status, 202);
    assert_eq!(sandbox.get("/_faults")["faults"], json!([]), "used up");
    sandbox.fault(json!({"operation": "any", "fault": "error_after", "key": "k"}));
    assert_eq!(sandbox.charge("k", "tok_ok").status, 500);
    assert_eq!(sandbox.charge("l", "tok_ok").status, 200);
    assert_eq!(sandbox.call("DELETE", "/_faults", None).status, 204);
    sandbox.fault(json!({"operation": "charge", "fault": "reset", "probability": 0}));
    assert_eq!(sandbox.charge("m", "tok_ok").status, 200);
    for wrong in [
        json!({"operation": "charge", "fault": "moon"}),
        json!({"operation": "charge", "fault": "returned"}),
        json!({"operation": "moon", "fault": "reset"}),
        json!({"operation": "charge", "fault": "reset", "probability": 2}),
        json!({"operation": "charge", "fault": "reset", "more": 1}),
        json!({"operation": "charge", "fault": "delay", "delay": "soon"}),
    ] {
        assert_eq!(sandbox.call("POST", "/_faults", Some(wrong.clone())).status, 422, "{wrong}");
    }
}

#[test]
fn captures_voids_and_refunds_can_be_lost_too() {
    let sandbox = Sandbox::new();
    for key in ["a", "b"] {
        sandbox.submit("sandbox/charges", key, &authorization("tok_ok"));
    }
    for operation in ["capture", "void", "refund"] {
        sandbox.fault(json!({"operation": operation, "fault": "lost_reply", "times": 1}));
    }
    let amount = json!({"charge_key": "a", "amount_minor": 1000, "currency": "EUR"});
    for (path, key, body) in [
        ("sandbox/captures", "capture:1", amount.clone()),
        ("sandbox/voids", "void:1", json!({"charge_key": "b"})),
        ("sandbox/refunds", "refund:1", amount),
    ] {
        sandbox.swallowed(path, key, &body);
        assert_eq!(sandbox.effects(key).len(), 1, "{key}");
        assert_eq!(sandbox.answers(key), [Value::Null]);
        assert_eq!(sandbox.deliveries(key), 0);
    }
    assert_eq!(
        (sandbox.status("void:1").as_str(), sandbox.status("refund:1").as_str()),
        ("voided", "refunded")
    );
    sandbox.fault(json!({"operation": "payout", "fault": "never_seen", "times": 1}));
    sandbox.swallowed("sandbox/payouts", "p", &payout("acct_ok"));
    assert_eq!((sandbox.status("p").as_str(), sandbox.effects("p").len()), ("not_found", 0));
    assert_eq!(sandbox.pay_out("p", "acct_ok").status, 202);
}

#[test]
fn an_answer_can_be_late_while_effect_and_webhook_are_not() {
    let sandbox = Sandbox::new();
    sandbox.fault(json!({"operation": "charge", "fault": "delay", "delay": "3s"}));
    let begun = Instant::now();
    let answer = std::thread::scope(|scope| {
        let call = scope.spawn(|| sandbox.charge("k", "tok_ok"));
        sandbox.hook.wait_for("k", 1);
        assert_eq!(sandbox.effects("k"), [done("charge", 1000)]);
        assert!(begun.elapsed() < Duration::from_millis(2900));
        call.join().unwrap()
    });
    assert_eq!(answer.status, 200);
    assert!(begun.elapsed() >= Duration::from_secs(3));
}

#[test]
fn status_questions_can_be_lost_wrong_or_late() {
    let sandbox = Sandbox::new();
    sandbox.charge("k", "tok_ok");
    for (fault, status) in
        [("status_not_found", "not_found"), ("not_found", "not_found"), ("pending", "pending")]
    {
        sandbox.fault(json!({"operation": "status", "fault": fault, "times": 1}));
        assert_eq!(sandbox.status("k"), status, "{fault}");
        assert_eq!(sandbox.status("k"), "captured");
    }
    sandbox.fault(json!({"operation": "any", "fault": "status_lost", "times": 1}));
    let bearer = format!("Bearer {}", crate::common::SECRET);
    let ask = |wait| {
        let headers = [("authorization", bearer.as_str())];
        crate::common::http(sandbox.address, "GET", "/gateways/sandbox/operations/k", &headers, "", wait)
    };
    ask(Duration::from_millis(300)).unwrap_err();
    assert_eq!(ask(Duration::from_secs(5)).unwrap().status, 200);
    let asked: Vec<_> =
        sandbox.requests("k").into_iter().filter(|(o, _)| o == "status").map(|(_, a)| a).collect();
    assert_eq!(
        asked,
        [404, 200, 404, 200, 200, 200, 0, 200].map(|a| if a == 0 { Value::Null } else { json!(a) })
    );
    sandbox.fault(json!({"operation": "status", "fault": "delay", "delay": "300ms"}));
    let begun = Instant::now();
    assert_eq!(sandbox.status("k"), "captured");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert_eq!(sandbox.status("nobody"), "not_found");
}

/// What a mix does to a hundred charges, sent in some order: the answers by key.
fn mixed(seed: u64, order: impl Iterator<Item = usize>) -> BTreeMap<String, (Vec<Value>, usize)> {
    let sandbox = Sandbox::new();
    let rates = json!({"error_after": 0.2, "decline": 0.2, "error_before": 0.1, "garbage": 0.1});
    sandbox.post("/_mix", json!({"seed": seed, "rates": rates}));
    let keys: Vec<_> = order.map(|n| format!("key-{n}")).collect();
    for key in &keys {
        sandbox.charge(key, "tok_ok");
    }
    keys.iter().map(|key| (key.clone(), (sandbox.answers(key), sandbox.effects(key).len()))).collect()
}

#[test]
fn a_mix_is_the_same_whatever_the_order() {
    let (up, down) = (mixed(5, 0..100), mixed(5, (0..100).rev()));
    assert_eq!(up, down);
    let count =
        |code: u64, effects: usize| up.values().filter(|(a, e)| *a == [json!(code)] && *e == effects).count();
    let (declined, after, before) = (count(402, 0), count(500, 1), count(500, 0));
    assert!((5..40).contains(&declined) && (5..40).contains(&after) && (1..30).contains(&before), "{up:?}");
    assert_ne!(up, mixed(6, 0..100));
}

#[test]
fn a_mix_must_make_sense_and_can_be_ended() {
    let sandbox = Sandbox::new();
    for rates in [json!({"moon": 0.1}), json!({"reset": 0.6, "garbage": 0.6}), json!({"reset": -1})] {
        assert_eq!(sandbox.call("POST", "/_mix", Some(json!({"seed": 1, "rates": rates}))).status, 422);
    }
    sandbox.post("/_mix", json!({"seed": 1, "rates": {"decline": 1}}));
    assert_eq!(sandbox.charge("a", "tok_ok").status, 402);
    assert_eq!(
        sandbox.charge("b", "tok_error_after").status,
        500,
        "what a value asks for comes before the mix"
    );
    sandbox.post("/_mix", json!({"seed": 1, "rates": {}}));
    assert_eq!(sandbox.charge("c", "tok_ok").status, 200);
}

#[test]
fn a_success_rate_declines_by_key() {
    let sandbox = Sandbox::new();
    sandbox.set(json!({"success_rate": 0.5}));
    let statuses: Vec<_> = (0..60).map(|n| sandbox.charge(&format!("k{n}"), "tok_ok").status).collect();
    let declined = statuses.iter().filter(|s| **s == 402).count();
    assert!((12..48).contains(&declined), "{declined}");
}

#[test]
fn webhooks_can_be_dropped_doubled_late_and_out_of_order() {
    let sandbox = Sandbox::new();
    for (key, fault) in [("drop", "webhook_drop"), ("dup", "dup"), ("late", "webhook_late")] {
        sandbox.fault(json!({"operation": "webhook", "fault": fault, "key": key}));
    }
    sandbox.fault(json!({"operation": "webhook", "fault": "reorder", "key": "back", "times": 1}));
    let begun = Instant::now();
    for key in ["drop", "dup", "late"] {
        sandbox.charge(key, "tok_ok");
    }
    sandbox.pay_out("back", "acct_returned");
    let came = sandbox.hook.wait_for("dup", 2);
    assert_eq!(came[0].id(), came[1].id());
    let came = sandbox.hook.wait_for("back", 2);
    assert_eq!(came.iter().map(|c| c.fact()["type"].clone()).collect::<Vec<_>>(), ["returned", "settled"]);
    let late = sandbox.hook.wait_for("late", 1);
    assert!(late[0].at.duration_since(begun) >= Duration::from_secs(3));
    assert_eq!((sandbox.facts("drop").len(), sandbox.deliveries("drop")), (1, 0));
    until("all deliveries recorded", || (sandbox.deliveries("dup") == 2).then_some(()));
    sandbox.post("/_mix", json!({"seed": 1, "rates": {"webhook_drop": 1}}));
    sandbox.charge("mixed", "tok_ok");
    sandbox.charge("never", "tok_rate_limited");
    assert_eq!(sandbox.deliveries("mixed"), 0);
    sandbox.swallowed("sandbox/charges", "l", &charge("tok_lost_reply"));
}
