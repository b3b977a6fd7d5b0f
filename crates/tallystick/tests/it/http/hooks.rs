//! Webhooks of gateways over HTTP.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{order, with};
use crate::support::client::Call;
use crate::support::gateway::secret;
use crate::support::server::Server;
use crate::support::until;

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// A webhook request, rightly signed.
fn signed(s: &Server, id: &str, body: &str) -> Call {
    let at = now();
    let signature = secret().sign(id, at, body.as_bytes());
    let call = s.client.call("POST", "/webhooks/test").without("X-API-Key").body(body);
    call.header("webhook-id", id)
        .header("webhook-timestamp", at.to_string())
        .header("webhook-signature", signature)
}

fn captured(key: &str) -> Value {
    json!({"type": "captured", "key": key, "reference": format!("ref-{key}"), "amount_minor": 100, "currency": "EUR"})
}

#[tokio::test]
async fn a_signed_event_is_stored_and_applied_once() {
    let s = Server::start().await;
    let id =
        s.client.pay(&with(order(100), json!({"payment_method": "accept"}))).send().await.text("payment_id");
    s.client.payment_in(&id, "processing").await;
    let call = signed(&s, "evt-1", &captured(&id).to_string());
    let replies = join_all((0..20).map(|_| call.send())).await;
    assert!(replies.iter().all(|r| r.status == 200 && r.json() == json!({})), "{replies:?}");
    let done = s.client.payment_in(&id, "succeeded").await;
    assert_eq!(done["version"], 3);
    let rows = s.db.rows().await;
    assert_eq!((rows["payments.inbound_event"], rows["ledger.journal"]), (1, 1));
}

#[tokio::test]
async fn what_is_not_signed_is_not_stored() {
    let s = Server::start().await;
    let id =
        s.client.pay(&with(order(100), json!({"payment_method": "accept"}))).send().await.text("payment_id");
    s.client.payment_in(&id, "processing").await;
    let before = s.db.rows().await;
    let body = captured(&id).to_string();
    let good = signed(&s, "evt-1", &body);
    let stale = (now() - 3600).to_string();
    let bad = [
        good.clone().without("webhook-signature"),
        good.clone().without("webhook-timestamp"),
        good.clone().without("webhook-id"),
        good.clone().without("webhook-id").header("webhook-id", "evt-2"),
        good.clone().header("webhook-id", "evt-1"),
        good.clone().header("webhook-signature", "v1,AAAA"),
        good.clone().without("webhook-signature").header("webhook-signature", "v1,AAAA"),
        good.clone().without("webhook-signature").header("webhook-signature", ""),
        good.clone().without("webhook-timestamp").header("webhook-timestamp", stale),
        good.clone().without("webhook-timestamp").header("webhook-timestamp", "soon"),
        good.clone().body(format!("{body} ")),
        good.clone().body("{"),
    ];
    for call in bad {
        let reply = call.send().await;
        reply.refused(401, "unauthenticated");
        assert_eq!(reply.json()["detail"], "the signature does not hold", "nothing is told about why");
    }
    assert_eq!(s.db.rows().await, before);
    good.send().await.is(200);
    s.client.payment_in(&id, "succeeded").await;
}

#[tokio::test]
async fn malformed_large_and_misdirected_events_are_refused() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    signed(&s, "evt-1", "{").send().await.refused(400, "malformed_json");
    signed(&s, "evt-1", &format!("\"{}\"", "x".repeat(1024 * 1024)))
        .send()
        .await
        .refused(413, "body_too_large");
    let elsewhere = s.client.call("POST", "/webhooks/nowhere").body("{}");
    elsewhere.send().await.refused(404, "not_found");
    let got = s.client.get("/webhooks/test").send().await;
    got.refused(405, "method_not_allowed");
    assert_eq!(s.db.rows().await, before);
}

/// An event of something that is not ours is kept, so that its sender does not switch us off.
#[tokio::test]
async fn c036_events_about_something_else_are_taken() {
    let s = Server::start().await;
    signed(&s, "evt-9", &captured("unknown-key").to_string()).send().await.is(200);
    signed(&s, "evt-10", r#"{"type":"requires_action","key":"x"}"#).send().await.is(200);
    until("both are stored", async || (s.db.rows().await["payments.inbound_event"] == 2).then_some(())).await;
    assert_eq!(s.db.rows().await["ledger.journal"], 0);
}
