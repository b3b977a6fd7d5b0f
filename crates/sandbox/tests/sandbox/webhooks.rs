//! Webhooks out: retried, redelivered, switched off, forged on request; and the receiver of the product's webhooks.

use std::time::Duration;

use crate::common::{Sandbox, http, signature, until};
use serde_json::{Value, json};

#[test]
fn a_failing_receiver_gets_the_same_bytes_again() {
    let sandbox = Sandbox::new();
    sandbox.hook.answer(503);
    sandbox.charge("k", "tok_ok");
    sandbox.hook.wait_for("k", 3);
    sandbox.hook.answer(204);
    let deliveries = until("a good delivery", || {
        let event = sandbox.events("k").remove(0);
        let deliveries = event["deliveries"].as_array().unwrap().clone();
        (deliveries.last().is_some_and(|d| d["status"] == 204)).then_some(deliveries)
    });
    assert!(deliveries[..deliveries.len() - 1].iter().all(|d| d["status"] == 503 && d["at"].is_string()));
    let came = sandbox.hook.of("k");
    assert_eq!(came.len(), deliveries.len());
    assert!(came.iter().all(|c| c.is_signed() && c.body == came[0].body && c.id() == came[0].id()));
}

#[test]
fn redelivery_is_the_same_event() {
    let sandbox = Sandbox::new();
    sandbox.charge("k", "tok_ok");
    let first = sandbox.hook.wait_for("k", 1).remove(0);
    for count in 2..4 {
        let again = sandbox.call("POST", &format!("/_events/{}/redeliver", first.id()), None);
        assert_eq!(again.status, 202);
        let came = sandbox.hook.wait_for("k", count);
        assert!(came.iter().all(|c| c.is_signed() && c.body == first.body && c.id() == first.id()));
    }
    let event = until("three deliveries", || {
        let event = sandbox.events("k").remove(0);
        (event["deliveries"].as_array().unwrap().len() == 3).then_some(event)
    });
    assert_eq!((event["body"].as_str(), &event["type"]), (Some(first.body.as_str()), &json!("captured")));
    let last = sandbox.hook.of("k").pop().unwrap();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        assert_eq!(event["headers"][name].as_str(), Some(last.headers[name].as_str()));
    }
    assert_eq!(sandbox.call("POST", "/_events/evt_nobody/redeliver", None).status, 404);
}

#[test]
fn switched_off_they_are_listed_and_sent_on_request() {
    let sandbox = Sandbox::new();
    sandbox.set(json!({"webhooks": false, "webhook_delay": "0ms"}));
    sandbox.charge("off", "tok_ok");
    sandbox.set(json!({"webhooks": true}));
    sandbox.charge("on", "tok_ok");
    sandbox.hook.wait_for("on", 1);
    assert_eq!((sandbox.facts("off"), sandbox.hook.of("off").len()), (vec!["captured".to_owned()], 0));
    let id = sandbox.events("off")[0]["id"].as_str().unwrap().to_owned();
    sandbox.post(&format!("/_events/{id}/redeliver"), json!({}));
    sandbox.hook.wait_for("off", 1);
}

#[test]
fn signatures_on_request() {
    let sandbox = Sandbox::new();
    let body = "{\"n\": 1.0, \"t\": \"a\u{2028}😀\"}\r\n";
    let signed = sandbox.post(
        "/_sign",
        json!({"body": body, "id": "evt_1", "timestamp": 1_700_000_000, "gateway": "sandbox"}),
    );
    let headers = &signed["headers"];
    assert_eq!(
        (&headers["webhook-id"], &headers["webhook-timestamp"]),
        (&json!("evt_1"), &json!("1700000000"))
    );
    assert_eq!(headers["webhook-signature"], json!(signature(&format!("evt_1.1700000000.{body}"))));
    let fresh = sandbox.post("/_sign", json!({"body": "x"}));
    let id = fresh["headers"]["webhook-id"].as_str().unwrap();
    assert!(id.starts_with("evt_"));
    for wrong in
        [json!({}), json!({"body": "x", "timestamp": "soon"}), json!({"body": "x", "gateway": "nobody"})]
    {
        assert_eq!(sandbox.call("POST", "/_sign", Some(wrong)).status, 422);
    }
}

#[test]
fn the_receiver_keeps_what_comes_and_fails_on_request() {
    let sandbox = Sandbox::new();
    let post = |id: &str, body: &str| {
        let headers = [("webhook-id", id), ("x-signature", "abc")];
        http(sandbox.address, "POST", "/_receiver/hook", &headers, body, Duration::from_secs(5))
            .unwrap()
            .status
    };
    assert_eq!(post("e1", r#"{"payment_id": "p1", "n": 1.0}"#), 200);
    let change = json!({"fail_first": 2, "status": 502, "delay": "10ms"});
    assert_eq!(sandbox.call("PUT", "/_receiver", Some(change)).status, 200);
    assert_eq!([0; 3].map(|_| post("e2", r#"{"payment_id": "p2"}"#)), [502, 502, 200]);
    let one = sandbox.get("/_receiver/events?payment_id=p1");
    assert_eq!(
        (&one["count"], &one["items"][0]["body"]),
        (&json!(1), &json!(r#"{"payment_id": "p1", "n": 1.0}"#))
    );
    assert_eq!(one["items"][0]["headers"]["x-signature"], "abc");
    let two = sandbox.get("/_receiver/events?payment_id=p2");
    let answered: Vec<_> = two["items"].as_array().unwrap().iter().map(|i| i["answered"].clone()).collect();
    assert_eq!((&two["count"], answered), (&json!(3), vec![json!(502), json!(502), json!(200)]));
    assert_eq!(sandbox.get("/_receiver/events")["count"], 4);
    assert_eq!(sandbox.call("DELETE", "/_receiver/events", None).status, 204);
    assert_eq!(sandbox.get("/_receiver/events")["count"], 0);
    let wrong = sandbox.call("PUT", "/_receiver", Some(json!({"fail": 1})));
    assert_eq!((wrong.status, &wrong.json()["field"]), (422, &json!("/fail")));
    sandbox.call("PUT", "/_receiver", Some(json!({"fail_first": null})));
    assert_eq!(post("e3", "no JSON at all"), 200);
    assert_eq!(sandbox.get("/_receiver/events")["items"][0]["body"], Value::from("no JSON at all"));
}
