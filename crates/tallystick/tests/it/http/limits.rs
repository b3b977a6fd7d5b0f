//! Too much, too long, too slow: refused with an answer that arrives, and nothing stored.

use std::num::NonZeroU32;
use std::time::Duration;

use serde_json::json;
use tallystick::http::HttpSettings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{order, payout, with};
use crate::support::client::Reply;
use crate::support::server::{Server, Wanted};
use crate::support::until;

fn wanted(http: HttpSettings) -> Wanted {
    Wanted { http, ..Wanted::default() }
}

#[tokio::test]
async fn beyond_the_requests_at_once_nothing_queues() {
    let s = Server::with(wanted(HttpSettings { max_requests: 1, ..HttpSettings::default() })).await;
    let held = s.db.hold("payments.payment").await;
    let first = s.client.pay(&order(100)).sent().await;
    until("the first one is under way", async || (s.db.waiting().await > 0).then_some(())).await;
    let refused = s.client.pay(&order(100)).send().await;
    refused.refused(503, "overloaded");
    assert_eq!(refused.header("retry-after"), Some("1"));
    s.client.get("/health/live").send().await.is(200);
    held.release().await;
    Reply::read(first).await.is(202);
    assert_eq!(s.db.rows().await["payments.payment"], 1);
    s.client.pay(&order(100)).send().await.is(202);
}

#[tokio::test]
async fn only_half_of_the_requests_may_wait() {
    let s = Server::with(wanted(HttpSettings { max_requests: 2, ..HttpSettings::default() })).await;
    let held = with(order(100), json!({"payment_method": "hold"}));
    let waiting = s.client.pay(&held).header("Prefer", "wait=30").sent().await;
    until("it is created", async || (s.db.rows().await["payments.payment"] == 1).then_some(())).await;
    let second = s.client.pay(&held).header("Prefer", "wait=30").send().await;
    assert_eq!(
        (second.status, second.header("preference-applied"), second.text("status")),
        (202, None, "pending".into())
    );
    s.gateway.release();
    let first = Reply::read(waiting).await;
    assert_eq!(
        (first.status, first.header("preference-applied"), first.text("status")),
        (202, Some("wait=30"), "succeeded".into())
    );
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_told_so_and_still_happens_once() {
    let s = Server::with(wanted(HttpSettings {
        request_timeout: Duration::from_millis(300),
        ..HttpSettings::default()
    }))
    .await;
    let held = s.db.hold("payments.payment").await;
    let call = s.client.pay(&order(100)).idem("slow");
    let late = call.send().await;
    late.refused(503, "unavailable");
    assert_eq!(late.header("retry-after"), Some("1"));
    held.release().await;
    let again =
        until("the answer to the repeat", async || Some(call.send().await).filter(|r| r.status != 503)).await;
    assert!(matches!(again.status, 200 | 202), "{again:?}");
    assert_eq!(s.db.rows().await["payments.payment"], 1);
    let id = again.text("payment_id");
    s.client.payment_in(&id, "succeeded").await;
    assert_eq!(s.gateway.all_effects(), 1);
}

/// A payout that took too long is one payout, whoever repeats it: debited and sent once.
#[tokio::test]
async fn a_payout_that_takes_too_long_still_happens_once() {
    let s = Server::with(wanted(HttpSettings {
        request_timeout: Duration::from_millis(300),
        ..HttpSettings::default()
    }))
    .await;
    let account = s.client.funded("EUR", 100).await;
    let held = s.db.hold("payments.payout").await;
    let call = s.client.pay_out(&payout(&account, 60)).idem("slow");
    call.send().await.refused(503, "unavailable");
    held.release().await;
    let again =
        until("the answer to the repeat", async || Some(call.send().await).filter(|r| r.status != 503)).await;
    assert!(matches!(again.status, 200 | 202), "{again:?}");
    let id = again.text("payout_id");
    s.client.payout_in(&id, "succeeded").await;
    assert_eq!((s.db.rows().await["payments.payout"], s.gateway.all_effects()), (1, 1));
    assert_eq!(s.client.balance(&account).await["balance_minor"], json!(40));
}

#[tokio::test]
async fn waiting_ends_before_the_requests_time_does() {
    let s = Server::with(wanted(HttpSettings {
        request_timeout: Duration::from_secs(3),
        ..HttpSettings::default()
    }))
    .await;
    let held = with(order(100), json!({"payment_method": "hold"}));
    let reply = s.client.pay(&held).header("Prefer", "wait=30").send().await;
    assert_eq!((reply.status, reply.text("status")), (202, "pending".into()));
    s.gateway.release();
}

#[tokio::test]
async fn each_key_has_its_rate() {
    let one = NonZeroU32::MIN;
    let http = HttpSettings { requests_per_second: Some(one), burst: one, ..HttpSettings::default() };
    let s = Server::with(wanted(http)).await;
    let (first, second) = (s.client.get("/api/v1/payments"), s.client.pay(&order(100)));
    first.send().await.is(200);
    let refused = second.send().await;
    refused.refused(429, "rate_limited");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    s.other.get("/api/v1/payments").send().await.is(200);
    s.client.get("/health/live").send().await.is(200);
    assert_eq!(s.db.rows().await["payments.payment"], 0);
    until("the rate allows it again", async || (second.send().await.status == 202).then_some(())).await;
}

#[tokio::test]
async fn the_answer_to_a_large_body_arrives() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    for size in [1024 * 1024, 10 * 1024 * 1024] {
        let body = with(order(100), json!({"description": "x".repeat(size)}));
        s.client.pay(&body).send().await.refused(413, "body_too_large");
        s.client.pay(&body).key("wrong").send().await.refused(401, "unauthenticated");
        let out =
            with(payout("0198c5a0-5f3e-7cc1-9f57-2d1f0a4c8e11", 5), json!({"description": "x".repeat(size)}));
        s.client.pay_out(&out).send().await.refused(413, "body_too_large");
        s.client.pay(&body).without("Content-Type").send().await.refused(415, "unsupported_media_type");
        s.client.post("/nowhere", &body).send().await.refused(404, "not_found");
        s.client
            .call("POST", "/api/v1/payments/x")
            .body(body.to_string())
            .send()
            .await
            .refused(405, "method_not_allowed");
    }
    assert_eq!(s.db.rows().await, before);
}

#[tokio::test]
async fn a_chunked_body_has_the_same_limits() {
    let s = Server::start().await;
    let chunk = |bytes: &str| format!("{:x}\r\n{bytes}\r\n", bytes.len());
    let call = s.client.pay(&order(100)).header("Transfer-Encoding", "chunked");
    let body = order(100).to_string();
    let (left, right) = body.split_at(7);
    call.clone().body([chunk(left), chunk(right), chunk("")].concat()).send().await.is(202);
    let large = chunk(&"x".repeat(64 * 1024)).repeat(40) + &chunk("");
    call.body(large).send().await.refused(413, "body_too_large");
}

#[tokio::test]
async fn a_body_without_end_is_cut_off() {
    let s = Server::start().await;
    let head = s.client.pay(&order(100)).header("Transfer-Encoding", "chunked").body("").sent().await;
    let (mut read, mut write) = head.into_split();
    let chunk = format!("{:x}\r\n{}\r\n", 1024 * 1024, "x".repeat(1024 * 1024));
    let sending = async {
        for sent in 0..200 {
            if write.write_all(chunk.as_bytes()).await.is_err() {
                return sent;
            }
        }
        panic!("200 MiB were taken");
    };
    let mut answer = Vec::new();
    let (_, _) = tokio::join!(sending, read.read_to_end(&mut answer));
    // The answer may be lost with the connection; what counts is that it ended.
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&answer));
    s.client.pay(&order(100)).send().await.is(202);
}

#[tokio::test]
async fn a_body_that_is_cut_off_is_no_request() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    let body = order(100).to_string();
    let call = s.client.pay(&order(100)).header("Content-Length", (body.len() + 10).to_string());
    let mut stream = call.sent().await;
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&answer));
    s.client.get("/api/v1/payments").send().await.is(200);
    assert_eq!(s.db.rows().await, before);
}

#[tokio::test]
async fn a_body_that_is_longer_than_announced_is_two_requests_at_most() {
    let s = Server::start().await;
    let body = order(100).to_string();
    let call = s
        .client
        .pay(&order(100))
        .header("Content-Length", body.len().to_string())
        .body(format!("{body}{body}"));
    let mut stream = call.sent().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.starts_with(b"HTTP/1.1 202"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(s.db.rows().await["payments.payment"], 1);
}
