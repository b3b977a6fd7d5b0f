//! Creating, reading and listing payments.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{order, with};
use crate::support::server::Server;
use crate::support::until;

#[tokio::test]
async fn a_payment_is_created_pending_and_ends_succeeded() {
    let s = Server::start().await;
    let body = json!({"amount": "100.00", "currency": "EUR", "description": "Order 1001", "order_id": "1001", "payment_method": "approve", "metadata": {"a": [1]}});
    let reply = s.client.pay(&body).send().await;
    reply.is(202);
    let created = reply.json();
    let id = reply.text("payment_id");
    assert_eq!(reply.header("location"), Some(format!("/api/v1/payments/{id}").as_str()));
    assert_eq!(reply.header("idempotency-replayed"), None);
    let expected = json!({
        "payment_id": id, "status": "pending", "amount": "100.00", "amount_minor": 10000, "currency": "EUR",
        "authorized_minor": 0, "captured_minor": 0, "refunded_minor": 0, "capture": "automatic",
        "description": "Order 1001", "metadata": {"a": [1]}, "order_id": "1001", "payment_method": "approve",
        "gateway": "test", "gateway_reference": null, "failure": null, "attention": null, "unknown_since": null,
        "cancel_requested_at": null, "webhook_url": null, "created_at": created["created_at"],
        "updated_at": created["created_at"], "processed_at": null, "version": 1
    });
    assert_eq!(created, expected);
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&created), names(&expected), "members stand in the promised order");
    assert_eq!(Uuid::parse_str(&id).unwrap().get_version_num(), 7);
    let done = s.client.payment_in(&id, "succeeded").await;
    assert_eq!((&done["captured_minor"], &done["version"]), (&json!(10000), &json!(2)));
    assert_eq!(s.gateway.effects(&id), 1);
}

#[tokio::test]
async fn a_request_with_the_least_fields_works() {
    let s = Server::start().await;
    let body = json!({"amount": "100.00", "currency": "USD", "description": "demo", "webhook_url": "http://127.0.0.1:9/hook"});
    let reply = s.client.pay(&body).idem("demo-1").send().await;
    let created = reply.is(202).json();
    assert_eq!(
        (&created["amount"], &created["capture"], &created["gateway"]),
        (&json!("100.00"), &json!("automatic"), &json!("test"))
    );
    assert_eq!(
        (&created["payment_method"], &created["webhook_url"]),
        (&json!("approve"), &json!("http://127.0.0.1:9/hook"))
    );
}

#[tokio::test]
async fn null_is_the_same_as_absent() {
    let s = Server::start().await;
    let nulls = json!({"description": null, "metadata": null, "order_id": null, "payment_method": null, "capture": null, "gateway": null, "webhook_url": null});
    let first = s.client.pay(&json!({"amount_minor": 5, "currency": "EUR"})).idem("n").send().await;
    let second =
        s.client.pay(&with(json!({"amount_minor": 5, "currency": "EUR"}), nulls)).idem("n").send().await;
    assert_eq!((first.status, second.status, &first.body), (202, 200, &second.body));
}

#[tokio::test]
async fn every_complaint_is_told_at_once() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    let body = json!({
        "amount_minor": 0, "currency": "eur", "description": "", "metadata": [], "order_id": "x".repeat(129),
        "capture": "later", "gateway": 7, "webhook_url": "ftp://shop.example", "status": "succeeded"
    });
    let reply = s.client.pay(&body).idem(&"k".repeat(256)).send().await;
    reply.refused(422, "validation");
    let mut fields = reply.fields();
    fields.sort();
    let expected = [
        "/amount_minor",
        "/capture",
        "/currency",
        "/description",
        "/gateway",
        "/metadata",
        "/order_id",
        "/status",
        "/webhook_url",
        "header:Idempotency-Key",
    ];
    assert_eq!(fields, expected);
    assert_eq!(s.db.rows().await, before, "nothing was stored");
}

#[tokio::test]
async fn unknown_gateways_are_refused_by_name() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    s.client.pay(&with(order(100), json!({"gateway": "nowhere"}))).send().await.invalid("/gateway");
    assert_eq!(s.db.rows().await, before);
}

#[tokio::test]
async fn a_decline_fails_with_the_gateways_words() {
    let s = Server::start().await;
    let id =
        s.client.pay(&with(order(100), json!({"payment_method": "decline"}))).send().await.text("payment_id");
    let failed = s.client.payment_in(&id, "failed").await;
    assert_eq!(failed["failure"], json!({"code": "declined", "message": "no"}));
    assert!(failed["processed_at"].is_string());
    assert_eq!(s.gateway.all_effects(), 0);
}

#[tokio::test]
async fn expansions_agree_with_the_payment() {
    let s = Server::start().await;
    let id =
        s.client.pay(&with(order(1234), json!({"payment_method": "lose"}))).send().await.text("payment_id");
    s.client.payment_in(&id, "succeeded").await;
    let all = s
        .client
        .get(&format!("/api/v1/payments/{id}?expand=history,attempts,journals,events,refunds,captures"))
        .send()
        .await;
    let all = all.is(200).json();
    let column = |name: &str, member: &str| -> Vec<Value> {
        all[name].as_array().unwrap().iter().map(|row| row[member].clone()).collect()
    };
    assert_eq!(column("history", "status"), ["pending", "unknown", "succeeded"]);
    assert_eq!(column("history", "evidence"), ["request", "reply", "status_query"]);
    assert_eq!(column("history", "version"), [1, 2, 3]);
    assert_eq!(column("events", "type"), ["payment.created", "payment.unknown", "payment.succeeded"]);
    assert_eq!(column("events", "sequence"), [1, 2, 3]);
    assert_eq!(column("journals", "kind"), ["payment_captured"]);
    assert!(column("attempts", "action").len() >= 2);
    assert_eq!((&all["refunds"], &all["captures"], &all["version"]), (&json!([]), &json!([]), &json!(3)));
    assert_eq!(s.gateway.effects(&id), 1);

    let plain = s.client.payment(&id).await;
    assert!(plain.get("history").is_none());
    for bad in ["x", "history,", "", "history;events"] {
        s.client.get(&format!("/api/v1/payments/{id}?expand={bad}")).send().await.invalid("query:expand");
    }
}

#[tokio::test]
async fn the_second_click_of_an_order_finds_the_first_payment() {
    let s = Server::start().await;
    let body = with(order(100), json!({"order_id": "order-7", "payment_method": "accept"}));
    let first = s.client.pay(&body).send().await;
    let id = first.is(202).text("payment_id");
    s.client.payment_in(&id, "processing").await;

    let second = s.client.pay(&body).idem("second").send().await;
    assert_eq!((second.status, second.header("existing-payment")), (200, Some("true")));
    assert_eq!(
        (second.text("payment_id"), second.text("status")),
        (id.clone(), "processing".into()),
        "as it is now"
    );
    let again = s.client.pay(&body).idem("second").send().await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (200, Some("true")));
    assert_eq!(again.text("payment_id"), id);
    assert_eq!(s.db.rows().await["payments.payment"], 1);
}

/// C014: the active payment is never returned as if it were for the changed order.
#[tokio::test]
async fn c014_a_changed_order_is_a_conflict() {
    let s = Server::start().await;
    let body = with(order(10_000), json!({"order_id": "7", "payment_method": "accept"}));
    let id = s.client.pay(&body).send().await.text("payment_id");
    for (change, field) in [
        (json!({"amount_minor": 12_000}), "/amount"),
        (json!({"currency": "USD"}), "/currency"),
        (json!({"capture": "manual"}), "/capture"),
    ] {
        let reply = s.client.pay(&with(body.clone(), change)).send().await;
        reply.refused(409, "order_conflict");
        assert_eq!(reply.json()["payment_id"], json!(id));
        assert!(reply.fields()[0].starts_with(field), "{field}: {reply:?}");
    }
    assert_eq!(s.db.rows().await["payments.payment"], 1);
}

#[tokio::test]
async fn after_a_decline_the_order_may_be_paid_again() {
    let s = Server::start().await;
    let declined = with(order(100), json!({"order_id": "8", "payment_method": "decline"}));
    let id = s.client.pay(&declined).send().await.text("payment_id");
    s.client.payment_in(&id, "failed").await;
    let again = s.client.pay(&with(order(100), json!({"order_id": "8"}))).send().await;
    assert_ne!(again.is(202).text("payment_id"), id);
}

#[tokio::test]
async fn prefer_wait_answers_with_what_is_true_then() {
    let s = Server::start().await;
    let reply = s.client.pay(&order(100)).idem("w").header("Prefer", "wait=20").send().await;
    assert_eq!((reply.status, reply.header("preference-applied")), (202, Some("wait=20")));
    assert_eq!(reply.text("status"), "succeeded");
    assert!(reply.header("location").is_some());

    // What is stored under the key is the creation.
    let plain = s.client.pay(&order(100)).idem("w").send().await;
    assert_eq!((plain.status, plain.text("status")), (200, "pending".into()));
    let waiting =
        s.client.pay(&order(100)).idem("w").header("Prefer", "respond-async, wait=\"1\"").send().await;
    assert_eq!((waiting.status, waiting.header("idempotency-replayed")), (200, Some("true")));
    assert_eq!(
        (waiting.text("status"), waiting.header("preference-applied")),
        ("succeeded".into(), Some("wait=1"))
    );
}

#[tokio::test]
async fn prefer_wait_ends_with_its_time_and_odd_wishes_are_ignored() {
    let s = Server::start().await;
    let held = with(order(100), json!({"payment_method": "hold"}));
    let reply = s.client.pay(&held).header("Prefer", "wait=1").send().await;
    assert_eq!(
        (reply.status, reply.text("status"), reply.header("preference-applied")),
        (202, "pending".into(), Some("wait=1"))
    );
    for odd in ["wait=0", "wait=31", "wait=-1", "wait", "wait=x"] {
        let reply = s.client.pay(&held).header("Prefer", odd).send().await;
        assert_eq!((reply.status, reply.header("preference-applied")), (202, None), "{odd}");
    }
    s.gateway.release();
}

#[tokio::test]
async fn pages_show_everything_once_newest_first() {
    let s = Server::start().await;
    let mut made = Vec::new();
    for n in 0..7 {
        made.push(
            s.client.pay(&with(order(100 + n), json!({"order_id": format!("o-{}", n % 2)}))).send().await,
        );
    }
    let made: Vec<String> = made.iter().filter(|r| r.status == 202).map(|r| r.text("payment_id")).collect();
    for n in 0..5 {
        s.client.pay(&order(200 + n)).send().await.is(202);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = s.client.get(&format!("/api/v1/payments?limit=3{cursor}")).send().await.is(200).json();
        seen.extend(
            page["data"].as_array().unwrap().iter().map(|p| p["payment_id"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    let mut sorted = seen.clone();
    sorted.sort();
    sorted.dedup();
    sorted.reverse();
    assert_eq!((seen.len(), &seen), (made.len() + 5, &sorted));

    let one = s.client.get("/api/v1/payments?order_id=o-0").send().await.json();
    assert_eq!(one["data"].as_array().unwrap().len(), 1);
    let none = s.client.get("/api/v1/payments?gateway=nowhere").send().await.json();
    assert_eq!(none, json!({"data": [], "next_cursor": null}));
    until("all succeeded", async || {
        let page = s.client.get("/api/v1/payments?status=succeeded&gateway=test").send().await.json();
        (page["data"].as_array()?.len() == seen.len()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn bad_ids_and_parameters_are_named() {
    let s = Server::start().await;
    for id in ["not-a-uuid", "0198f2c56f3a7c1e8000000000000000", "%00", "%ff", "4111111111111111"] {
        let reply = s.client.get(&format!("/api/v1/payments/{id}")).send().await;
        reply.invalid("path:id");
    }
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=x", "limit"),
        ("limit=", "limit"),
        ("limit=1&limit=2", "limit"),
        ("cursor=nonsense", "cursor"),
        ("cursor=", "cursor"),
        ("cursor=AAAA", "cursor"),
        ("status=done", "status"),
        ("order_id=a%00b", "order_id"),
        ("sort=asc", "sort"),
        ("Limit=1", "Limit"),
    ] {
        s.client.get(&format!("/api/v1/payments?{query}")).send().await.invalid(&format!("query:{field}"));
    }
    s.client.get("/api/v1/payments?4111111111111111=1").send().await.invalid("query:");
}
