//! Each magic value: answer, effects, status, events.

use std::time::{Duration, Instant};

use crate::common::{Sandbox, authorization, charge, done, payout};
use serde_json::{Value, json};

const NOBODY: Vec<String> = Vec::new();

#[test]
fn an_ordinary_charge_is_captured_and_told() {
    let sandbox = Sandbox::new();
    let answer = sandbox.charge("k", "tok_ok");
    assert_eq!(answer.status, 200);
    let body = answer.json();
    let names: Vec<_> = body.as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        names,
        [
            "key",
            "operation",
            "reference",
            "status",
            "amount_minor",
            "currency",
            "captured_minor",
            "refunded_minor",
            "decline"
        ]
    );
    assert_eq!(
        (&body["status"], &body["captured_minor"], &body["decline"]),
        (&json!("captured"), &json!(1000), &Value::Null)
    );
    assert_eq!(sandbox.effects("k"), [done("charge", 1000)]);
    assert_eq!(sandbox.status_at("sandbox", "k").body, answer.body);
    let came = &sandbox.hook.wait_for("k", 1)[0];
    assert_eq!(came.path, "/webhooks/sandbox");
    assert!(came.is_signed());
    let fact = came.fact();
    assert_eq!(
        (&fact["type"], &fact["amount_minor"], &fact["currency"]),
        (&json!("captured"), &json!(1000), &json!("EUR"))
    );
    assert_eq!(
        (fact["reference"].as_str(), fact["id"].as_str()),
        (body["reference"].as_str(), Some(came.id()))
    );
    assert!(fact["occurred_at"].as_str().is_some_and(|at| at.ends_with('Z')));
    assert_eq!(sandbox.charge("other", "visa").status, 200, "a value that is not magic is an ordinary one");
}

#[test]
fn a_charge_without_capture_is_held() {
    let sandbox = Sandbox::new();
    let answer = sandbox.submit("sandbox/charges", "k", &authorization("tok_ok")).json();
    assert_eq!((&answer["status"], &answer["captured_minor"]), (&json!("authorized"), &json!(0)));
    assert_eq!(sandbox.effects("k"), [done("authorize", 1000)]);
    assert_eq!(sandbox.facts("k"), ["authorized"]);
}

#[test]
fn declined() {
    let sandbox = Sandbox::new();
    let answer = sandbox.charge("k", "tok_decline");
    assert_eq!((answer.status, &answer.json()["decline"]["code"]), (402, &json!("declined")));
    assert_eq!((sandbox.effects("k").len(), sandbox.status("k").as_str()), (0, "declined"));
    assert_eq!(sandbox.hook.wait_for("k", 1)[0].fact()["type"], "declined");
}

#[test]
fn what_is_lost_after_the_effect_has_one_effect_and_no_webhook() {
    let sandbox = Sandbox::new();
    sandbox.swallowed("sandbox/charges", "lost", &charge("tok_lost_reply"));
    assert_eq!(sandbox.charge("error", "tok_error_after").status, 500);
    let reset = sandbox.try_submit("sandbox/charges", "reset", &charge("tok_reset"), Duration::from_secs(5));
    assert_eq!(reset.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    let garbage = sandbox.charge("garbage", "tok_garbage");
    assert!(
        garbage.cut && garbage.status == 200 && serde_json::from_str::<Value>(&garbage.body).is_err(),
        "{garbage:?}"
    );
    let answers =
        [("lost", Value::Null), ("error", json!(500)), ("reset", Value::Null), ("garbage", json!(200))];
    for (key, answer) in answers {
        assert_eq!(sandbox.effects(key), [done("charge", 1000)], "{key}");
        assert_eq!(sandbox.status(key), "captured");
        assert_eq!(sandbox.answers(key), [answer], "{key}");
        assert_eq!(
            (sandbox.facts(key), sandbox.deliveries(key)),
            (vec!["captured".to_owned()], 0),
            "listed, not sent"
        );
        let again = sandbox.charge(key, &format!("tok_{}", tokens(key)));
        assert_eq!(again.json()["status"], "captured", "a replay of what really became of it");
        assert_eq!(sandbox.effects(key).len(), 1);
    }
}

fn tokens(key: &str) -> &str {
    match key {
        "lost" => "lost_reply",
        "error" => "error_after",
        other => other,
    }
}

#[test]
fn what_fails_before_the_effect_works_with_the_same_key() {
    let sandbox = Sandbox::new();
    sandbox.swallowed("sandbox/charges", "never", &charge("tok_never_seen"));
    assert_eq!((sandbox.status("never").as_str(), sandbox.effects("never").len()), ("not_found", 0));
    assert_eq!(sandbox.charge("never", "tok_never_seen").status, 200);
    assert_eq!(sandbox.answers("never"), [Value::Null, json!(200)]);
    let statuses: Vec<_> = (0..4).map(|_| sandbox.charge("before", "tok_error_before").status).collect();
    assert_eq!(statuses, [500, 500, 200, 200]);
    for key in ["never", "before"] {
        assert_eq!(sandbox.effects(key), [done("charge", 1000)], "{key}");
        assert_eq!(sandbox.deliveries(key), 0, "quiet to the end");
    }
    assert_eq!(sandbox.charge("limit", "tok_rate_limited").headers["retry-after"], "1");
    assert_eq!(sandbox.charge("limit", "tok_rate_limited").status, 200);
}

#[test]
fn late_and_hidden_take_three_seconds() {
    let sandbox = Sandbox::new();
    let begun = Instant::now();
    let answer = sandbox.charge("late", "tok_late");
    assert_eq!((answer.status, &answer.json()["status"]), (202, &json!("pending")));
    sandbox.swallowed("sandbox/charges", "hidden", &charge("tok_hidden_then_captured"));
    assert_eq!((sandbox.status("late").as_str(), sandbox.effects("late").len()), ("pending", 0));
    assert_eq!((sandbox.status("hidden").as_str(), sandbox.effects("hidden").len()), ("not_found", 1));
    assert_eq!(sandbox.charge("hidden", "tok_hidden_then_captured").status, 200);
    sandbox.becomes("late", "captured");
    sandbox.becomes("hidden", "captured");
    assert!(begun.elapsed() >= Duration::from_secs(3));
    assert_eq!(sandbox.hook.wait_for("late", 1)[0].fact()["type"], "captured");
    assert_eq!((sandbox.effects("late").len(), sandbox.effects("hidden").len()), (1, 1));
    assert_eq!(sandbox.charge("late", "tok_late").status, 202, "the key's result is the first answer");
}

#[test]
fn webhook_before_the_answer() {
    let sandbox = Sandbox::new();
    sandbox.set(json!({"webhook_delay": "1h"}));
    assert_eq!(sandbox.charge("k", "tok_webhook_first").status, 200);
    assert_eq!(sandbox.hook.of("k").len(), 1, "it came before the answer");
    sandbox.hook.answer(500);
    let begun = Instant::now();
    assert_eq!(sandbox.charge("failing", "tok_webhook_first").status, 200);
    assert!(begun.elapsed() < Duration::from_secs(3));
    sandbox.hook.answer(200);
    sandbox.hook.wait_for("failing", 2);
}

#[test]
fn one_fact_three_times_under_two_ids() {
    let sandbox = Sandbox::new();
    sandbox.charge("k", "tok_webhook_dup");
    let came = sandbox.hook.wait_for("k", 3);
    let mut ids: Vec<_> = came.iter().map(|c| c.id().to_owned()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((came.len(), ids.len(), sandbox.effects("k").len()), (3, 2, 1));
    assert!(came.iter().all(|c| c.is_signed() && c.fact()["type"] == "captured"));
}

#[test]
fn another_amount() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.charge("k", "tok_wrong_amount").json()["amount_minor"], 1001);
    assert_eq!(sandbox.effects("k"), [done("charge", 1001)]);
    assert_eq!(sandbox.status_at("sandbox", "k").json()["captured_minor"], 1001);
    assert_eq!(sandbox.deliveries("k"), 0);
}

#[test]
fn declined_and_captured_nevertheless() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.charge("k", "tok_decline_then_captured").status, 402);
    assert_eq!((sandbox.status("k").as_str(), sandbox.effects("k").len()), ("declined", 0));
    sandbox.becomes("k", "captured");
    assert_eq!(sandbox.effects("k"), [done("charge", 1000)]);
    let came = sandbox.hook.wait_for("k", 2);
    assert_eq!(came.iter().map(|c| c.fact()["type"].clone()).collect::<Vec<_>>(), ["declined", "captured"]);
    assert_eq!(sandbox.charge("k", "tok_decline_then_captured").status, 402, "the key's result stays");
}

#[test]
fn payouts_are_acknowledged_and_settled() {
    let sandbox = Sandbox::new();
    let answer = sandbox.pay_out("k", "acct_ok");
    assert_eq!((answer.status, &answer.json()["status"]), (202, &json!("accepted")));
    assert_eq!(sandbox.hook.wait_for("k", 1)[0].fact()["type"], "settled");
    assert_eq!((sandbox.status("k").as_str(), sandbox.effects("k")), ("paid", vec![done("payout", 1000)]));
    sandbox.pay_out("quiet", "acct_no_webhook");
    sandbox.becomes("quiet", "paid");
    sandbox.swallowed("sandbox/payouts", "lost", &payout("acct_lost_reply"));
    sandbox.becomes("lost", "paid");
    for key in ["quiet", "lost"] {
        assert_eq!((sandbox.effects(key), sandbox.deliveries(key)), (vec![done("payout", 1000)], 0));
    }
}

#[test]
fn payouts_that_the_bank_refuses() {
    let sandbox = Sandbox::new();
    let answer = sandbox.pay_out("closed", "acct_closed");
    let code = &answer.json()["decline"]["code"];
    assert_eq!(
        (answer.status, code, sandbox.status("closed").as_str()),
        (402, &json!("account_closed"), "rejected")
    );
    assert_eq!(sandbox.pay_out("later", "acct_reject_later").status, 202);
    sandbox.becomes("later", "rejected");
    for key in ["closed", "later"] {
        assert_eq!(sandbox.kinds(key), NOBODY);
        assert_eq!(sandbox.hook.wait_for(key, 1)[0].fact()["type"], "rejected");
    }
}

#[test]
fn a_payout_that_comes_back() {
    let sandbox = Sandbox::new();
    sandbox.pay_out("k", "acct_returned");
    sandbox.becomes("k", "returned");
    let came = sandbox.hook.wait_for("k", 2);
    assert_eq!(came.iter().map(|c| c.fact()["type"].clone()).collect::<Vec<_>>(), ["settled", "returned"]);
    assert_eq!(sandbox.effects("k"), [done("payout", 1000), done("payout_return", 1000)]);
    assert_eq!(sandbox.get("/_balance?currency=EUR")["balance_minor"], 0);
}

#[test]
fn acknowledgement_can_be_set() {
    let sandbox = Sandbox::new();
    sandbox.set(json!({"acknowledge": "async"}));
    assert_eq!(sandbox.charge("card", "tok_ok").status, 202);
    sandbox.becomes("card", "captured");
    sandbox.set(json!({"acknowledge": "sync"}));
    let answer = sandbox.pay_out("bank", "acct_ok");
    assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("paid")));
    assert_eq!(sandbox.pay_out("back", "acct_returned").status, 200);
    sandbox.becomes("back", "returned");
}
