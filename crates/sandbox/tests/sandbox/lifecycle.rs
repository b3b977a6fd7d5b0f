//! Captures, voids, refunds; facts that happen at the gateway by itself; balance and settlement file.

use crate::common::{Answer, Sandbox, authorization, done, undone};
use serde_json::{Value, json};

impl Sandbox {
    fn authorize(&self, key: &str) {
        assert_eq!(self.submit("sandbox/charges", key, &authorization("tok_ok")).status, 200);
    }

    fn capture(&self, charge: &str, id: &str, amount_minor: i64, last: bool) -> Answer {
        let body =
            json!({"charge_key": charge, "amount_minor": amount_minor, "currency": "EUR", "final": last});
        self.submit("sandbox/captures", &format!("capture:{id}"), &body)
    }

    fn void(&self, charge: &str, id: &str) -> Answer {
        self.submit("sandbox/voids", &format!("void:{id}"), &json!({"charge_key": charge}))
    }

    fn refund(&self, charge: &str, id: &str, amount_minor: i64) -> Answer {
        let body = json!({"charge_key": charge, "amount_minor": amount_minor, "currency": "EUR"});
        self.submit("sandbox/refunds", &format!("refund:{id}"), &body)
    }

    fn fact(&self, body: Value) -> Value {
        self.post("/_facts", body)
    }
}

fn code(answer: &Answer) -> (u16, String) {
    let code = answer.json()["decline"]["code"].as_str().unwrap_or("").to_owned();
    (answer.status, code)
}

fn declined(code: &str) -> (u16, String) {
    (402, code.to_owned())
}

#[test]
fn captures_stay_within_the_authorization() {
    let sandbox = Sandbox::new();
    sandbox.authorize("k");
    let first = sandbox.capture("k", "1", 300, false);
    assert_eq!(
        (first.status, &first.json()["status"], &first.json()["captured_minor"]),
        (200, &json!("captured"), &json!(300))
    );
    assert_eq!(code(&sandbox.capture("k", "2", 701, false)), declined("capture_exceeds_authorized"));
    assert_eq!(
        (sandbox.status("k").as_str(), sandbox.status("capture:2").as_str()),
        ("authorized", "declined")
    );
    assert_eq!(sandbox.capture("k", "3", 700, false).status, 200);
    assert_eq!(sandbox.status("k"), "captured");
    assert_eq!(code(&sandbox.capture("k", "4", 1, false)), declined("already_captured"));
    assert_eq!(code(&sandbox.void("k", "1")), declined("already_captured"));
    assert_eq!(sandbox.effects("capture:3"), [done("capture", 700)]);
    assert_eq!(sandbox.get("/_balance?currency=EUR")["captured_minor"], 1000);
    sandbox.authorize("final");
    assert_eq!(sandbox.capture("final", "5", 400, true).status, 200);
    assert_eq!(code(&sandbox.capture("final", "6", 1, false)), declined("already_captured"));
    assert_eq!(sandbox.hook.wait_for("capture:5", 1)[0].fact()["type"], "captured");
}

#[test]
fn what_a_submit_needs_must_be_there() {
    let sandbox = Sandbox::new();
    let missing = sandbox.capture("nobody", "1", 1, false);
    assert_eq!((missing.status, &missing.json()["error"]), (404, &json!("not_found")));
    sandbox.charge("late", "tok_late");
    let early = sandbox.refund("late", "1", 1);
    assert_eq!((early.status, &early.json()["error"]), (422, &json!("invalid_state")));
    sandbox.becomes("late", "captured");
    assert_eq!(sandbox.refund("late", "1", 1).status, 200, "nothing was kept under the key");
    sandbox.charge("no", "tok_decline");
    assert_eq!(code(&sandbox.capture("no", "2", 1, false)), declined("not_authorized"));
    assert_eq!(code(&sandbox.void("no", "2")), declined("not_authorized"));
}

#[test]
fn a_void_lets_go_of_the_rest() {
    let sandbox = Sandbox::new();
    sandbox.authorize("whole");
    let void = sandbox.void("whole", "1").json();
    assert_eq!(
        (&void["status"], &void["amount_minor"], &void["currency"]),
        (&json!("voided"), &json!(1000), &json!("EUR"))
    );
    assert_eq!(
        (sandbox.status("whole").as_str(), sandbox.effects("whole")),
        ("voided", vec![undone("authorize", 1000)])
    );
    assert_eq!(sandbox.effects("void:1"), [done("void", 1000)]);
    assert_eq!(code(&sandbox.void("whole", "2")), declined("already_voided"));
    assert_eq!(code(&sandbox.capture("whole", "1", 1, false)), declined("already_voided"));
    sandbox.authorize("part");
    sandbox.capture("part", "2", 900, false);
    assert_eq!(sandbox.void("part", "3").json()["amount_minor"], 100);
    assert_eq!(
        (sandbox.status("part").as_str(), sandbox.effects("capture:2")),
        ("captured", vec![done("capture", 900)])
    );
}

#[test]
fn refunds_stay_within_the_capture() {
    let sandbox = Sandbox::new();
    sandbox.charge("k", "tok_ok");
    let part = sandbox.refund("k", "1", 400).json();
    assert_eq!((&part["status"], &part["refunded_minor"]), (&json!("refunded"), &json!(400)));
    assert_eq!(code(&sandbox.refund("k", "2", 601)), declined("refund_exceeds_captured"));
    assert_eq!(sandbox.refund("k", "3", 600).status, 200);
    assert_eq!(sandbox.get("/_balance?currency=EUR")["balance_minor"], 0);
    let told = sandbox.hook.wait_for("refund:1", 1)[0].fact();
    assert_eq!(
        (&told["type"], &told["amount_minor"], told.get("refunded_minor")),
        (&json!("refund"), &json!(400), None)
    );
    sandbox.authorize("held");
    assert_eq!(code(&sandbox.refund("held", "4", 1)), declined("refund_exceeds_captured"));
    let yen = json!({"charge_key": "k", "amount_minor": 1, "currency": "JPY"});
    assert_eq!(code(&sandbox.submit("sandbox/refunds", "refund:5", &yen)), declined("currency_mismatch"));
}

#[test]
fn refunds_can_be_told_as_a_sum() {
    let sandbox = Sandbox::new();
    sandbox.set(json!({"refund_events": "cumulative"}));
    let reference = sandbox.charge("k", "tok_ok").json()["reference"].clone();
    sandbox.refund("k", "1", 400);
    sandbox.fact(json!({"fact": "refund", "key": "k", "amount_minor": 100}));
    let bodies: Vec<Value> = ["refund:1", "k"]
        .iter()
        .flat_map(|key| sandbox.events(key))
        .map(|e| serde_json::from_str(e["body"].as_str().unwrap()).unwrap())
        .filter(|body: &Value| body["type"] == "refund")
        .collect();
    let shown: Vec<_> = bodies
        .iter()
        .map(|b| (&b["key"], &b["reference"], &b["amount_minor"], &b["refunded_minor"]))
        .collect();
    let (key, captured) = (json!("k"), json!(1000));
    assert_eq!(
        shown,
        [(&key, &reference, &captured, &json!(400)), (&key, &reference, &captured, &json!(500))]
    );
}

#[test]
fn captures_and_refunds_are_taken_back() {
    let sandbox = Sandbox::new();
    sandbox.authorize("k");
    sandbox.capture("k", "1", 1000, true);
    sandbox.refund("k", "1", 400);
    let made = sandbox.fact(json!({"fact": "refund_failed", "key": "refund:1"}));
    assert_eq!(
        (made["event_ids"].as_array().unwrap().len(), &made["effects"][0]["state"]),
        (1, &json!("undone"))
    );
    assert_eq!(
        (sandbox.effects("refund:1"), sandbox.status("refund:1").as_str()),
        (vec![undone("refund", 400)], "refund_failed")
    );
    assert_eq!(sandbox.status_at("sandbox", "k").json()["refunded_minor"], 0);
    sandbox.fact(json!({"fact": "capture_failed", "key": "capture:1"}));
    assert_eq!(
        (sandbox.effects("capture:1"), sandbox.status("capture:1").as_str()),
        (vec![undone("capture", 1000)], "capture_failed")
    );
    assert_eq!(sandbox.status_at("sandbox", "k").json()["captured_minor"], 0);
    sandbox.fact(json!({"fact": "capture_failed", "key": "capture:1"}));
    assert_eq!(
        sandbox.facts("capture:1"),
        ["captured", "capture_failed", "capture_failed"],
        "told again, done once"
    );
    let none = sandbox.call("POST", "/_facts", Some(json!({"fact": "capture_failed", "key": "k"})));
    assert_eq!(none.status, 422);
    assert_eq!(sandbox.get("/_balance?currency=EUR")["balance_minor"], 0);
}

#[test]
fn refunds_and_disputes_at_the_gateway_have_references_of_their_own() {
    let sandbox = Sandbox::new();
    let reference = sandbox.charge("k", "tok_ok").json()["reference"].clone();
    let made = sandbox.fact(json!({"fact": "refund", "key": "k", "amount_minor": 400}));
    assert_eq!((&made["effects"][0]["kind"], &made["effects"][0]["key"]), (&json!("refund"), &json!("k")));
    assert_ne!(made["effects"][0]["reference"], reference);
    assert_eq!(sandbox.effects("k"), [done("charge", 1000), done("refund", 400)]);
    let too_much = json!({"fact": "refund", "key": "k", "amount_minor": 601});
    assert_eq!(sandbox.call("POST", "/_facts", Some(too_much)).status, 422);
    sandbox.fact(json!({"fact": "dispute_opened", "key": "k", "amount_minor": 600, "fee_minor": 1500}));
    sandbox.fact(json!({"fact": "dispute_lost", "key": "k", "amount_minor": 600}));
    let told: Vec<_> = sandbox.hook.wait_for("k", 4).iter().map(|c| c.fact()).collect();
    let of =
        |fact: &str| told.iter().find(|t| t["type"] == fact).unwrap_or_else(|| panic!("{fact}: {told:?}"));
    assert_eq!(
        (&of("dispute_opened")["amount_minor"], &of("dispute_opened")["fee_minor"]),
        (&json!(600), &json!(1500))
    );
    assert_eq!(of("dispute_opened")["reference"], of("dispute_lost")["reference"]);
    assert_ne!(of("dispute_opened")["reference"], reference);
    assert_eq!(of("dispute_lost").get("fee_minor"), None);
}

#[test]
fn facts_decide_what_is_open_or_refused() {
    let sandbox = Sandbox::new();
    sandbox.charge("declined", "tok_late");
    sandbox.fact(json!({"fact": "declined", "key": "declined"}));
    assert_eq!(sandbox.status("declined"), "declined");
    sandbox.charge("captured", "tok_decline");
    sandbox.fact(json!({"fact": "captured", "key": "captured"}));
    assert_eq!(
        (sandbox.status("captured").as_str(), sandbox.effects("captured")),
        ("captured", vec![done("charge", 1000)])
    );
    sandbox.fact(json!({"fact": "declined", "key": "captured"}));
    assert_eq!(sandbox.status("captured"), "captured", "told, but nothing was undone");
    sandbox.authorize("held");
    sandbox.fact(json!({"fact": "captured", "key": "held", "amount_minor": 600}));
    assert_eq!(
        (sandbox.status("held").as_str(), sandbox.effects("held")),
        ("authorized", vec![done("authorize", 1000), done("capture", 600)])
    );
    sandbox.authorize("expired");
    sandbox.fact(json!({"fact": "expired", "key": "expired"}));
    assert_eq!(
        (sandbox.status("expired").as_str(), sandbox.effects("expired")),
        ("expired", vec![undone("authorize", 1000)])
    );
    assert_eq!(code(&sandbox.capture("expired", "9", 1, false)), declined("authorization_expired"));
    let silent =
        sandbox.fact(json!({"fact": "settled", "key": "captured", "fee_minor": 30, "deliver": false}));
    let id = silent["event_ids"][0].clone();
    let event = sandbox.events("captured").into_iter().find(|e| e["id"] == id).unwrap();
    assert!(event["body"].as_str().unwrap().contains("\"fee_minor\":30"), "{event}");
    for wrong in [
        json!({"fact": "returned", "key": "held"}),
        json!({"fact": "moon", "key": "held"}),
        json!({"key": "held"}),
    ] {
        assert_eq!(sandbox.call("POST", "/_facts", Some(wrong)).status, 422);
    }
    assert_eq!(
        sandbox.call("POST", "/_facts", Some(json!({"fact": "captured", "key": "nobody"}))).status,
        404
    );
}

#[test]
fn payouts_settle_are_refused_and_come_back_by_facts() {
    let sandbox = Sandbox::new();
    sandbox.set(json!({"webhook_delay": "1h"}));
    for key in ["settled", "rejected", "returned"] {
        assert_eq!(sandbox.pay_out(key, "acct_ok").status, 202);
        sandbox.fact(json!({"fact": key, "key": key}));
        assert_eq!(sandbox.hook.wait_for(key, 1)[0].fact()["type"], key, "at once, whatever the delay");
    }
    assert_eq!(
        (sandbox.status("settled").as_str(), sandbox.effects("settled")),
        ("paid", vec![done("payout", 1000)])
    );
    assert_eq!((sandbox.status("rejected").as_str(), sandbox.effects("rejected").len()), ("rejected", 0));
    let both = vec![done("payout", 1000), done("payout_return", 1000)];
    assert_eq!(
        (sandbox.status("returned").as_str(), sandbox.effects("returned")),
        ("returned", both.clone())
    );
    sandbox.fact(json!({"fact": "rejected", "key": "settled"}));
    assert_eq!(
        (sandbox.status("settled").as_str(), sandbox.effects("settled")),
        ("returned", both),
        "refused after it was sent"
    );
    sandbox.post("/_clock", json!({"advance": "2h"}));
    sandbox.charge("later", "tok_ok");
    assert_eq!(sandbox.effects("rejected").len(), 0, "the step that was overtaken does nothing");
}

#[test]
fn payouts_in_some_currencies_are_multiples() {
    let sandbox = Sandbox::new();
    sandbox.set(json!({"payout_multiple": {"HUF": 100}}));
    let pay = |key, amount: i64| {
        sandbox.submit(
            "sandbox/payouts",
            key,
            &json!({"amount_minor": amount, "currency": "HUF", "destination": "acct_ok"}),
        )
    };
    assert_eq!(code(&pay("odd", 150)), declined("amount_not_multiple"));
    assert_eq!(pay("even", 200).status, 202);
}

#[test]
fn the_settlement_file_has_a_row_for_each_movement() {
    let sandbox = Sandbox::new();
    sandbox.charge("k", "tok_ok");
    sandbox.refund("k", "1", 400);
    sandbox.fact(json!({"fact": "settled", "key": "k", "fee_minor": 30}));
    sandbox.pay_out("p", "acct_returned");
    sandbox.becomes("p", "returned");
    sandbox.authorize("held");
    let day = sandbox.get("/_book")["effects"][0]["at"].as_str().unwrap()[..10].to_owned();
    let file = sandbox.call("GET", &format!("/_settlement?date={day}"), None);
    assert!(file.headers["content-type"].starts_with("text/csv"));
    let rows: Vec<Vec<&str>> = file.body.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        rows[0].join(","),
        "row_id,kind,occurred_at,gateway_reference,our_reference,currency,gross,fee,net,note"
    );
    let shown: Vec<_> = rows[1..].iter().map(|r| [r[1], r[4], r[6], r[7], r[8]]).collect();
    assert_eq!(
        shown,
        [
            ["payment", "k", "10.00", "0.30", "9.70"],
            ["refund", "refund:1", "-4.00", "0.00", "-4.00"],
            ["payout", "p", "-10.00", "0.00", "-10.00"],
            ["payout_return", "p", "10.00", "0.00", "10.00"],
        ]
    );
    assert_eq!(sandbox.call("GET", "/_settlement?date=2001-01-01", None).body.lines().count(), 1);
    assert_eq!(sandbox.call("GET", "/_settlement?date=yesterday", None).status, 422);
}
