//! Gateway keys: replay, reuse, retention, the account that executes again, and who may come in at all.

use std::time::Duration;

use crate::common::{SECRET, Sandbox, charge, done, http, until};
use serde_json::{Value, json};

#[test]
fn a_key_replays_its_result_byte_for_byte() {
    let sandbox = Sandbox::new();
    let first = sandbox.charge("k", "tok_ok");
    sandbox.post("/_facts", json!({"fact": "refund", "key": "k", "amount_minor": 300}));
    let again = sandbox.charge("k", "tok_ok");
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(sandbox.status_at("sandbox", "k").json()["refunded_minor"], 300);
    assert_eq!(sandbox.charge("d", "tok_decline").body, sandbox.charge("d", "tok_decline").body);
    assert_eq!(sandbox.answers("k"), [json!(200), json!(200)]);
}

#[test]
fn other_parameters_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.charge("k", "tok_ok");
    let other = json!({"amount_minor": 1001, "currency": "EUR", "payment_method": "tok_ok"});
    for (path, body) in [
        ("sandbox/charges", other),
        ("sandbox/payouts", json!({"amount_minor": 1000, "currency": "EUR", "destination": "acct_ok"})),
    ] {
        let answer = sandbox.submit(path, "k", &body);
        assert_eq!((answer.status, &answer.json()["error"]), (422, &json!("key_reuse")));
    }
    assert_eq!(sandbox.effects("k").len(), 1);
}

#[test]
fn twins_execute_once() {
    let sandbox = Sandbox::new();
    sandbox.set(json!({"latency": "100ms", "spread": 0}));
    let statuses: Vec<_> = std::thread::scope(|scope| {
        let twins: Vec<_> = (0..8).map(|_| scope.spawn(|| sandbox.charge("k", "tok_ok"))).collect();
        twins.into_iter().map(|twin| twin.join().unwrap()).collect()
    });
    assert!(statuses.iter().any(|a| a.status == 200));
    for answer in &statuses {
        match answer.status {
            200 => {}
            409 => assert_eq!(
                (&answer.json()["error"], answer.headers["retry-after"].as_str()),
                (&json!("in_flight"), "1")
            ),
            _ => panic!("{answer:?}"),
        }
    }
    assert_eq!(sandbox.effects("k"), [done("charge", 1000)]);
    assert_eq!(sandbox.requests("k").len(), 8, "each is recorded");
}

#[test]
fn what_has_arrived_is_carried_out_when_the_caller_hangs_up() {
    let sandbox = Sandbox::new();
    sandbox.set(json!({"latency": "300ms", "spread": 0}));
    sandbox.try_submit("sandbox/charges", "k", &charge("tok_ok"), Duration::from_millis(50)).unwrap_err();
    until("the effect", || (!sandbox.effects("k").is_empty()).then_some(()));
}

#[test]
fn retention_ends_by_the_clock_but_the_status_stays() {
    let sandbox = Sandbox::new();
    sandbox.charge("k", "tok_ok");
    sandbox.swallowed("sandbox/charges", "lost", &charge("tok_lost_reply"));
    sandbox.post("/_clock", json!({"advance": "23h"}));
    sandbox.charge("k", "tok_ok");
    assert_eq!(sandbox.effects("k").len(), 1);
    sandbox.post("/_clock", json!({"advance": "2h"}));
    assert_eq!(sandbox.status("k"), "captured", "the status route forgets nothing");
    sandbox.charge("k", "tok_ok");
    assert_eq!(
        sandbox.effects("k"),
        [done("charge", 1000), done("charge", 1000)],
        "a new request: a second effect"
    );
    let other = json!({"amount_minor": 7, "currency": "EUR", "payment_method": "tok_ok"});
    assert_eq!(sandbox.submit("sandbox/charges", "k", &other).status, 422, "kept anew");
    sandbox.swallowed("sandbox/charges", "lost", &charge("tok_lost_reply"));
    assert_eq!(sandbox.effects("lost").len(), 2);
}

#[test]
fn the_other_account_executes_again_unless_it_answered() {
    let sandbox = Sandbox::new();
    let path = "sandbox-reexecutes/charges";
    assert_eq!(
        sandbox.submit(path, "ok", &charge("tok_ok")).body,
        sandbox.submit(path, "ok", &charge("tok_ok")).body
    );
    assert_eq!(sandbox.effects("ok").len(), 1);
    assert_eq!(sandbox.submit(path, "error", &charge("tok_error_after")).status, 500);
    assert_eq!(sandbox.submit(path, "error", &charge("tok_error_after")).status, 200);
    assert_eq!(sandbox.submit(path, "error", &charge("tok_error_after")).status, 200, "kept now");
    sandbox.swallowed(path, "lost", &charge("tok_lost_reply"));
    assert_eq!(sandbox.submit(path, "lost", &charge("tok_lost_reply")).status, 200);
    for key in ["error", "lost"] {
        assert_eq!(sandbox.effects(key), [done("charge", 1000), done("charge", 1000)], "{key}");
    }
    assert_eq!(sandbox.submit(path, "no", &charge("tok_decline")).status, 402);
    assert_eq!(sandbox.submit(path, "no", &charge("tok_decline")).status, 402);
    assert_eq!(sandbox.status_at("sandbox", "ok").status, 404, "accounts know only their own keys");
    assert_eq!(sandbox.status_at("sandbox-reexecutes", "ok").json()["status"], "captured");
    sandbox.hook.wait_for("ok", 1);
    assert_eq!(sandbox.hook.of("ok")[0].path, "/webhooks/sandbox-reexecutes");
}

#[test]
fn who_has_no_secret_or_key_is_refused_and_recorded() {
    let sandbox = Sandbox::new();
    let body = charge("tok_ok").to_string();
    let bearer = format!("Bearer {SECRET}");
    let call = |headers: &[(&str, &str)], path: &str, body: &str| {
        let answer = http(sandbox.address, "POST", path, headers, body, Duration::from_secs(5)).unwrap();
        (answer.status, answer.json()["error"].clone())
    };
    let charges = "/gateways/sandbox/charges";
    assert_eq!(call(&[("idempotency-key", "k")], charges, &body), (401, json!("unauthorized")));
    let wrong = [("idempotency-key", "k"), ("authorization", "Bearer wrong")];
    assert_eq!(call(&wrong, charges, &body), (401, json!("unauthorized")));
    assert_eq!(call(&[("authorization", &bearer)], charges, &body), (422, json!("invalid")));
    let good = [("idempotency-key", "k"), ("authorization", bearer.as_str())];
    assert_eq!(call(&good, charges, "{"), (422, json!("invalid")));
    assert_eq!(call(&good, "/gateways/nobody/charges", &body), (404, json!("not_found")));
    assert_eq!(sandbox.answers("k"), [json!(401), json!(401), json!(422)]);
    assert_eq!(sandbox.get("/_book")["effects"], json!([]));
    let quoted = [("idempotency-key", "\"q\""), ("authorization", bearer.as_str())];
    assert_eq!(call(&quoted, charges, &body).1, Value::Null);
    assert_eq!(sandbox.effects("q").len(), 1);
}
