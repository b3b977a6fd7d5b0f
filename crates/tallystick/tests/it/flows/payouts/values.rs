//! Every magic destination of the sandbox's bank: final state, effects and submits in the sandbox's own book, both
//! journals and their statuses, the account to the cent, history with its evidence, and events without a gap.

use serde_json::{Value, json};

use super::{AMOUNT, FUNDS, evidence, holds, judge, judge_words, paid_out, submits, texts, verified};
use crate::dev::Dev;
use crate::support::until;

struct Expected {
    destination: &'static str,
    ends: &'static str,
    /// How its end is known; two words where two messages may come at the same time.
    evidence: &'static [&'static str],
    /// Fewest and most submits.
    submits: (usize, usize),
    /// A status that it must pass, and how that is known.
    by_way_of: Option<(&'static str, &'static str)>,
}

const fn expected(
    destination: &'static str,
    ends: &'static str,
    evidence: &'static [&'static str],
    submits: (usize, usize),
) -> Expected {
    Expected { destination, ends, evidence, submits, by_way_of: None }
}

const fn way(status: &'static str, evidence: &'static str, of: Expected) -> Expected {
    Expected { by_way_of: Some((status, evidence)), ..of }
}

/// A lost reply is learnt from the call itself.
const fn lost(of: Expected) -> Expected {
    way("unknown", "reply", of)
}

const VALUES: [Expected; 16] = [
    expected("acct_ok", "succeeded", &["webhook"], (1, 1)),
    expected("acct_closed", "failed", &["reply"], (1, 1)),
    expected("acct_decline", "failed", &["reply"], (1, 1)),
    expected("acct_reject_later", "failed", &["webhook"], (1, 1)),
    way("succeeded", "webhook", expected("acct_returned", "returned", &["webhook"], (1, 1))),
    way("processing", "reply", expected("acct_no_webhook", "succeeded", &["status_query"], (1, 1))),
    lost(expected("acct_lost_reply", "succeeded", &["status_query"], (1, 1))),
    lost(expected("acct_error_after", "succeeded", &["status_query"], (1, 1))),
    lost(expected("acct_reset", "succeeded", &["status_query"], (1, 1))),
    lost(expected("acct_garbage", "succeeded", &["status_query"], (1, 1))),
    lost(expected("acct_never_seen", "succeeded", &["status_query"], (2, 9))),
    lost(expected("acct_error_before", "succeeded", &["status_query"], (3, 9))),
    lost(expected("acct_hidden_then_captured", "succeeded", &["status_query", "reply"], (1, 20))),
    way("processing", "reply", expected("acct_late", "succeeded", &["webhook"], (1, 1))),
    expected("acct_webhook_first", "succeeded", &["webhook", "reply"], (1, 1)),
    expected("acct_webhook_dup", "succeeded", &["webhook"], (1, 1)),
];

#[tokio::test]
async fn every_bank_value_ends_as_promised_with_its_money_in_place() {
    // Long enough for the late webhook to come first.
    let dev = Dev::start(&[("TALLYSTICK_STATUS_CHECK_AFTER", "8s")]);
    let mut made = Vec::new();
    for expected in &VALUES {
        made.push((expected, paid_out(&dev, expected.destination).await));
    }
    for (expected, (id, account)) in made {
        let what = expected.destination;
        judge(&dev, &id, &account, expected.ends, what).await;
        let payout = dev.api().payout(&id).await;
        let sent = submits(&dev, &id).await;
        let (fewest, most) = expected.submits;
        assert!((fewest..=most).contains(&sent), "{what}: {sent} submits");
        assert_eq!(evidence(&payout, "pending"), "request", "{what}: {payout}");
        let how = evidence(&payout, expected.ends);
        assert!(expected.evidence.contains(&how), "{what}: {how}: {payout}");
        if let Some((status, how)) = expected.by_way_of {
            assert_eq!(evidence(&payout, status), how, "{what}: {payout}");
        }
        let failed = expected.ends == "failed";
        assert_eq!(payout["failure"].is_object(), failed, "{what}: {payout}");
        if what == "acct_closed" {
            assert_eq!(payout["failure"]["code"], "account_closed");
        }
    }
    verified(&dev);
}

/// The bank's word about another amount books nothing and gives nothing back: a person decides.
#[tokio::test]
async fn another_amount_leaves_the_debit_open_and_calls_a_person() {
    let dev = Dev::start(&[("TALLYSTICK_STATUS_CHECK_AFTER", "200ms")]);
    let (id, account) = paid_out(&dev, "acct_wrong_amount").await;
    let payout = until("a person is called", async || {
        Some(dev.api().payout(&id).await).filter(|payout| payout["attention"].is_object())
    })
    .await;
    assert_eq!(payout["attention"]["code"], "amount_mismatch", "{payout}");
    assert!(["processing", "unknown"].map(Value::from).contains(&payout["status"]), "{payout}");
    let journals = (texts(&payout, "journals", "kind"), texts(&payout, "journals", "status"));
    assert_eq!(journals, (vec!["payout_debited".to_owned()], vec!["pending".to_owned()]));
    holds(&dev.api().balance(&account).await, FUNDS - AMOUNT, -AMOUNT, "the debit stands and is open");
    judge_words(&payout, "another amount");
    assert_eq!(submits(&dev, &id).await, 1);
    let breaks = dev.api().get("/api/v1/breaks").key(&dev.text("operator_key")).send().await.json();
    let found = &breaks["data"][0];
    assert_eq!(
        (&found["payout_id"], &found["break_id"]),
        (&json!(id), &payout["attention"]["break_id"]),
        "{breaks}"
    );
    assert_eq!(
        (&found["expected_minor"], &found["actual_minor"]),
        (&json!(AMOUNT), &json!(AMOUNT + 1)),
        "{breaks}"
    );
    verified(&dev);
}

/// Money that is not there is not sent: the bank never hears of it, and nothing is booked.
#[tokio::test]
async fn a_payout_beyond_the_funds_fails_without_a_word_to_the_bank() {
    let dev = Dev::start(&[]);
    let account = dev.api().funded("EUR", AMOUNT - 1).await;
    let body = super::wanted(&account, "acct_ok", AMOUNT);
    let id = dev.api().pay_out(&body).send().await.is(202).text("payout_id");
    let payout = dev.api().payout_in(&id, "failed").await;
    assert_eq!(payout["failure"]["code"], "insufficient_funds", "{payout}");
    assert_eq!(evidence(&payout, "failed"), "ledger");
    assert_eq!((&payout["journals"], &payout["attempts"]), (&json!([]), &json!([])));
    judge_words(&payout, "insufficient funds");
    holds(&dev.api().balance(&account).await, AMOUNT - 1, 0, "nothing was taken");
    // One that fits is paid, also after the refusal.
    let id =
        dev.api().pay_out(&super::wanted(&account, "acct_ok", AMOUNT - 1)).send().await.text("payout_id");
    dev.api().payout_in(&id, "succeeded").await;
    holds(&dev.api().balance(&account).await, 0, 0, "all was taken");
    let asked = dev.sandbox().get("/_requests").send().await.json();
    let keys = texts(&asked, "requests", "key");
    assert!(keys.iter().all(|key| *key == id), "the bank heard of the one that fits only: {keys:?}");
    verified(&dev);
}
