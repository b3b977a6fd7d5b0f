//! What the bank says by itself, in any order and as often as it likes.

use serde_json::{Value, json};
use sqlx::Row;

use super::{
    AMOUNT, FUNDS, evidence, holds, judge, judge_words, paid_out, questions, submits, texts, verified,
};
use crate::dev::Dev;
use crate::support::until;

/// A bank that acknowledges and then says nothing by itself for a long time, and a server that does not ask.
async fn silent() -> Dev {
    let dev = Dev::start(&[("TALLYSTICK_STATUS_CHECK_AFTER", "10m")]);
    dev.tell_sandbox("PUT", "/_settings", &json!({"webhook_delay": "1h"})).await;
    dev
}

/// A payout that the bank has acknowledged: its id and its account.
async fn acknowledged(dev: &Dev) -> (String, String) {
    let (id, account) = paid_out(dev, "acct_ok").await;
    dev.api().payout_in(&id, "processing").await;
    holds(&dev.api().balance(&account).await, FUNDS - AMOUNT, -AMOUNT, "debited and open");
    (id, account)
}

/// Has something happen at the bank, and waits until our server has taken what the bank said of it.
async fn happens(dev: &Dev, fact: &str, id: &str) {
    let made = dev.tell_sandbox("POST", "/_facts", &json!({"fact": fact, "key": id})).await;
    let event = made["event_ids"][0].as_str().expect("an event").to_owned();
    until(&format!("{fact} is told"), async || {
        let events = dev.sandbox().get(&format!("/_events?key={id}")).send().await.json();
        let told = events["events"].as_array()?.iter().find(|one| one["id"] == event.as_str())?.clone();
        told["deliveries"].as_array()?.iter().any(|delivery| delivery["status"] == 200).then_some(())
    })
    .await;
    applied(dev).await;
}

/// Waits until no stored word of the bank is left to apply.
async fn applied(dev: &Dev) {
    until("the bank's words are applied", async || {
        let open = "SELECT count(*) FROM payments.inbound_event WHERE ended_at IS NULL";
        let row = sqlx::query(open).fetch_one(&mut dev.database().await).await;
        let open: i64 = row.expect("events can be counted").get(0);
        (open == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_payout_that_comes_back_before_it_was_settled_is_settled_and_returned() {
    let dev = silent().await;
    let (id, account) = acknowledged(&dev).await;
    happens(&dev, "returned", &id).await;
    judge(&dev, &id, &account, "returned", "returned first").await;
    let payout = dev.api().payout(&id).await;
    assert_eq!(texts(&payout, "history", "status"), ["pending", "processing", "succeeded", "returned"]);
    assert_eq!((evidence(&payout, "succeeded"), evidence(&payout, "returned")), ("webhook", "webhook"));
    // What it overtook comes late and changes nothing.
    for late in ["settled", "rejected", "returned"] {
        happens(&dev, late, &id).await;
        let after = dev.api().payout(&id).await;
        assert_eq!(after, payout, "{late} after the return");
    }
    holds(&dev.api().balance(&account).await, FUNDS, 0, "all came back, once");
    verified(&dev);
}

#[tokio::test]
async fn a_payout_that_is_settled_twice_is_settled_once() {
    let dev = silent().await;
    let (id, account) = acknowledged(&dev).await;
    happens(&dev, "settled", &id).await;
    judge(&dev, &id, &account, "succeeded", "settled").await;
    let payout = dev.api().payout(&id).await;
    happens(&dev, "settled", &id).await;
    assert_eq!(dev.api().payout(&id).await, payout, "the same fact under another event id");
    let events = dev.sandbox().get(&format!("/_events?key={id}")).send().await.json();
    let first = events["events"][0]["id"].as_str().expect("an id").to_owned();
    dev.tell_sandbox("POST", &format!("/_events/{first}/redeliver"), &json!({})).await;
    until("it is delivered again", async || {
        let events = dev.sandbox().get(&format!("/_events?key={id}")).send().await.json();
        (events["events"][0]["deliveries"].as_array()?.len() == 2).then_some(())
    })
    .await;
    applied(&dev).await;
    assert_eq!(dev.api().payout(&id).await, payout, "the same event again");
    judge(&dev, &id, &account, "succeeded", "settled three times").await;
    verified(&dev);
}

#[tokio::test]
async fn a_rejection_after_the_payout_was_settled_is_a_return() {
    let dev = silent().await;
    let (id, account) = acknowledged(&dev).await;
    happens(&dev, "settled", &id).await;
    judge(&dev, &id, &account, "succeeded", "settled").await;
    happens(&dev, "rejected", &id).await;
    judge(&dev, &id, &account, "returned", "rejected after it was settled").await;
    verified(&dev);
}

/// C089: whatever is said after a rejection, there is one reversal, and money that left nevertheless is for a person.
#[tokio::test]
async fn c089_settled_after_a_rejection_calls_a_person_and_books_nothing() {
    let dev = silent().await;
    let (id, account) = acknowledged(&dev).await;
    happens(&dev, "rejected", &id).await;
    judge(&dev, &id, &account, "failed", "rejected").await;
    let failed = dev.api().payout(&id).await;
    happens(&dev, "rejected", &id).await;
    assert_eq!(dev.api().payout(&id).await, failed, "rejected once more");

    happens(&dev, "settled", &id).await;
    let called = until("a person is called", async || {
        Some(dev.api().payout(&id).await).filter(|payout| payout["attention"].is_object())
    })
    .await;
    assert_eq!(called["status"], "failed", "{called}");
    for same in ["version", "journals", "history", "events"] {
        assert_eq!(called[same], failed[same], "{same}");
    }
    judge_words(&called, "settled after a rejection");
    assert_eq!(dev.effects(&id).await.len(), 1, "the bank has paid");
    holds(&dev.api().balance(&account).await, FUNDS, 0, "nothing is booked until a person decides");
    let open = async || {
        let breaks =
            dev.api().get("/api/v1/breaks?status=open").key(&dev.text("operator_key")).send().await.json();
        breaks["data"].as_array().expect("a list").clone()
    };
    let breaks = open().await;
    assert_eq!(breaks.len(), 1, "{breaks:?}");
    let about = (&breaks[0]["payout_id"], &breaks[0]["break_id"]);
    assert_eq!(about, (&json!(id), &called["attention"]["break_id"]), "{breaks:?}");
    let report = verified(&dev);
    let explained = |check: &&Value| {
        check["status"] == "explained"
            && check["breaks"].as_array().is_some_and(|ids| ids.contains(&breaks[0]["break_id"]))
    };
    assert!(report["checks"].as_array().expect("a list").iter().any(|check| explained(&check)), "{report}");

    happens(&dev, "settled", &id).await;
    happens(&dev, "returned", &id).await;
    assert_eq!(dev.api().payout(&id).await, called, "nothing moves while a person is called");
    assert_eq!(open().await, breaks, "one break");
    // Paid and sent back: the bank's book agrees with ours again.
    verified(&dev);
}

/// C100: an attempt that failed and will be tried another way is not the payout's end.
#[tokio::test]
async fn c100_a_failed_attempt_is_not_a_failed_payout() {
    let dev = silent().await;
    let (id, account) = acknowledged(&dev).await;
    let before = dev.api().payout(&id).await;
    for attempt in ["evt-attempt-1", "evt-attempt-2"] {
        let body = json!({"id": attempt, "type": "attempt_failed", "key": id, "reference": before["gateway_reference"], "amount_minor": AMOUNT, "currency": "EUR", "occurred_at": "2026-01-02T03:04:05Z"}).to_string();
        let signed = dev.tell_sandbox("POST", "/_sign", &json!({"body": body, "id": attempt})).await;
        let mut call = dev
            .api()
            .call("POST", "/webhooks/sandbox")
            .without("X-API-Key")
            .header("Content-Type", "application/json");
        for (name, value) in signed["headers"].as_object().expect("headers") {
            call = call.header(name, value.as_str().expect("text"));
        }
        let taken = call.body(body).send().await;
        assert!((200..300).contains(&taken.status), "{taken:?}");
        applied(&dev).await;
        assert_eq!(dev.api().payout(&id).await, before, "{attempt}");
    }
    holds(&dev.api().balance(&account).await, FUNDS - AMOUNT, -AMOUNT, "no reversal in between");
    happens(&dev, "settled", &id).await;
    judge(&dev, &id, &account, "succeeded", "executed another way").await;
    assert_eq!((submits(&dev, &id).await, questions(&dev, &id).await), (1, 0));
    verified(&dev);
}
