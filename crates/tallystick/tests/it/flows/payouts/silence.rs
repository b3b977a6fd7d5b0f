//! A bank that acknowledges and then says nothing: it is asked when the time has come, and never before.

use std::time::Duration;

use serde_json::json;
use sqlx::{AssertSqlSafe, Row};

use super::{FUNDS, evidence, holds, judge, paid_out, questions, submits, texts, verified, wanted};
use crate::dev::Dev;
use crate::support::until;

/// When a silent payout is asked about in these tests.
const CHECK_AFTER: Duration = Duration::from_secs(3);

fn time(row: &serde_json::Value) -> jiff::Timestamp {
    row["at"].as_str().expect("a time").parse().expect("RFC 3339")
}

/// Both moments are the bank's: when it heard of the payout, and when it was first asked about it.
#[tokio::test]
async fn a_silent_acknowledgement_is_asked_about_when_the_time_has_come_and_never_before() {
    let dev = Dev::start(&[("TALLYSTICK_STATUS_CHECK_AFTER", "3s")]);
    let (id, account) = paid_out(&dev, "acct_no_webhook").await;
    judge(&dev, &id, &account, "succeeded", "a silent bank").await;
    let payout = dev.api().payout(&id).await;
    assert_eq!(texts(&payout, "history", "status"), ["pending", "processing", "succeeded"]);
    assert_eq!(evidence(&payout, "succeeded"), "status_query");
    let requests = dev.requests(&id).await;
    let operations: Vec<&str> =
        requests.iter().map(|request| request["operation"].as_str().expect("text")).collect();
    assert_eq!(operations, ["payout", "status"], "one submit and one question");
    let waited = time(&requests[1]).duration_since(time(&requests[0]));
    assert!(waited.unsigned_abs() >= CHECK_AFTER && waited.is_positive(), "asked after {waited}");
    // One that is told of is not asked about at all.
    let (told, account) = paid_out(&dev, "acct_ok").await;
    judge(&dev, &told, &account, "succeeded", "a bank that tells").await;
    assert_eq!(questions(&dev, &told).await, 0);
    verified(&dev);
}

/// Tries before the acknowledgement were about another question: they do not put off the first one about it.
#[tokio::test]
async fn an_acknowledgement_after_a_loss_is_asked_about_as_soon_as_any_other() {
    let dev = Dev::start(&[
        ("TALLYSTICK_GATEWAY_TIMEOUT", "300ms"),
        ("TALLYSTICK_SWEEP_AFTER", "100ms"),
        ("TALLYSTICK_SWEEP_MAX_BACKOFF", "200ms"),
        ("TALLYSTICK_STATUS_CHECK_AFTER", "10m"),
    ]);
    let mut tries = Vec::new();
    for destination in ["acct_no_webhook", "acct_error_before"] {
        let (id, _) = paid_out(&dev, destination).await;
        dev.api().payout_in(&id, "processing").await;
        let sql = format!("SELECT tries FROM payments.dispatch WHERE operation_id = '{id}'");
        let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(&mut dev.database().await).await;
        tries.push((submits(&dev, &id).await, row.expect("it waits for its question").get::<i32, _>(0)));
    }
    assert_eq!(tries, [(1, 1), (3, 1)], "submits, and results without progress since the acknowledgement");
}

/// C099: a bank whose webhooks never come. Every payout ends all the same, the paid and the refused ones.
#[tokio::test]
async fn c099_payouts_end_although_no_webhook_ever_comes() {
    const EACH: usize = 17;
    let dev = Dev::start(&[("TALLYSTICK_STATUS_CHECK_AFTER", "300ms")]);
    dev.tell_sandbox("PUT", "/_settings", &json!({"webhooks": false})).await;
    let account = dev.api().funded("EUR", FUNDS).await;
    let mut made = Vec::new();
    for _ in 0..EACH {
        for (destination, ends) in [("acct_ok", "succeeded"), ("acct_reject_later", "failed")] {
            let reply = dev.api().pay_out(&wanted(&account, destination, 100)).send().await;
            made.push((reply.is(202).text("payout_id"), ends));
        }
    }
    for (id, ends) in &made {
        let payout = dev.api().payout_in(id, ends).await;
        assert_eq!(evidence(&payout, ends), "status_query", "{payout}");
        assert_eq!(submits(&dev, id).await, 1);
    }
    holds(&dev.api().balance(&account).await, FUNDS - 1_700, 0, "the paid ones are gone");
    let waited = dev.command(&["wait", "--idle", "--timeout", "30s"]);
    assert!(waited.status.success(), "{}", crate::dev::said(&waited));
    verified(&dev);
}

/// C095: the transfer is made, its reply is lost, and so are the first five answers to the question.
#[tokio::test]
async fn c095_lost_reply_and_lost_answers_are_one_transfer() {
    let dev = Dev::start(&[
        ("TALLYSTICK_GATEWAY_TIMEOUT", "300ms"),
        ("TALLYSTICK_SWEEP_AFTER", "100ms"),
        ("TALLYSTICK_SWEEP_MAX_BACKOFF", "500ms"),
    ]);
    dev.tell_sandbox("POST", "/_faults", &json!({"operation": "status", "fault": "lost"})).await;
    let (id, account) = paid_out(&dev, "acct_lost_reply").await;
    until("five questions are lost", async || (questions(&dev, &id).await >= 5).then_some(())).await;
    let payout = dev.api().payout(&id).await;
    assert_eq!(payout["status"], "unknown", "{payout}");
    assert_eq!(texts(&payout, "journals", "kind"), ["payout_debited"], "the debit stands while nobody knows");
    holds(&dev.api().balance(&account).await, FUNDS - super::AMOUNT, -super::AMOUNT, "and is open");
    dev.tell_sandbox("DELETE", "/_faults", &json!({})).await;
    judge(&dev, &id, &account, "succeeded", "answered in the end").await;
    assert_eq!(submits(&dev, &id).await, 1, "one transfer, one key, sent once");
    verified(&dev);
}
