//! Many payouts of one account at a slow bank: they do not wait for each other, and nothing is open meanwhile.

use serde_json::json;
use sqlx::Row;

use super::{AMOUNT, holds, submits, verified, wanted};
use crate::dev::Dev;
use crate::support::until;

/// Payouts of the one account.
const PAYOUTS: usize = 50;
/// What they take together.
const ALL: i64 = 50 * AMOUNT;
/// The bank's answer takes so long, in microseconds.
const LATENCY_MICROS: i64 = 500_000;

/// A slow bank, and a gateway deadline that fits; status questions do not come in between.
const PATIENT: [(&str, &str); 3] = [
    ("TALLYSTICK_GATEWAY_TIMEOUT", "10s"),
    ("TALLYSTICK_LEASE", "25s"),
    ("TALLYSTICK_STATUS_CHECK_AFTER", "30s"),
];

/// Creates the payouts at the same time.
async fn create(dev: &Dev, account: &str) -> Vec<String> {
    let body = wanted(account, "acct_ok", AMOUNT);
    let calls = (0..PAYOUTS).map(|_| dev.api().pay_out(&body));
    let running: Vec<_> = calls.map(|call| tokio::spawn(async move { call.send().await })).collect();
    let mut ids = Vec::new();
    for call in running {
        ids.push(call.await.expect("a request does not die").is(202).text("payout_id"));
    }
    ids
}

/// C101: fifty payouts of one account are at the bank at the same time, not one after the other.
#[tokio::test]
async fn c101_payouts_of_one_account_do_not_wait_for_each_other() {
    let dev = Dev::start(&PATIENT);
    dev.tell_sandbox("PUT", "/_settings", &json!({"latency": "500ms", "spread": 0})).await;
    let account = dev.api().funded("EUR", ALL).await;
    let ids = create(&dev, &account).await;
    let mut calls = Vec::new();
    for id in &ids {
        dev.api().payout_in(id, "succeeded").await;
        assert_eq!(submits(&dev, id).await, 1, "{id}");
        let arrived: jiff::Timestamp =
            dev.requests(id).await[0]["at"].as_str().expect("a time").parse().expect("RFC 3339");
        calls.push(arrived.as_microsecond());
    }
    // A call is under way from its arrival until the latency is over, so what counts is the bank's own clock and not
    // how busy this machine is.
    let at = |moment: i64| {
        calls.iter().filter(|began| (moment - LATENCY_MICROS..=moment).contains(*began)).count()
    };
    let most = calls.iter().map(|began| at(*began)).max().expect("there are calls");
    assert!(most >= 10, "at most {most} of {PAYOUTS} calls were under way at the same time: {calls:?}");
    holds(&dev.api().balance(&account).await, 0, 0, "all went out");
    verified(&dev);
}

/// C101: no transaction and no lock on account or payouts is open while the bank is called.
#[tokio::test]
async fn nothing_is_open_during_a_call_of_the_bank() {
    let dev = Dev::start(&PATIENT);
    dev.tell_sandbox("PUT", "/_settings", &json!({"latency": "8s", "spread": 0})).await;
    let account = dev.api().funded("EUR", ALL).await;
    let ids = create(&dev, &account).await;
    until("all calls are under way", async || {
        let seen = dev.sandbox().get("/_requests?limit=1000").send().await.json();
        (seen["requests"].as_array()?.len() == PAYOUTS).then_some(())
    })
    .await;
    // The debits are booked already: the bank is asked to send money that is set aside.
    holds(&dev.api().balance(&account).await, 0, -ALL, "debited before the first answer");
    let mut admin = dev.database().await;
    let mut number = async |sql: &'static str| -> i64 {
        sqlx::query(sql).fetch_one(&mut admin).await.expect("the statement is right").get(0)
    };
    for _ in 0..20 {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
                     AND xact_start < now() - interval '1 s'";
        assert_eq!(number(open).await, 0, "transactions older than a second");
        // A row that somebody locks is left out here.
        let free = "SELECT count(*) FROM (SELECT 1 FROM payments.payout FOR UPDATE SKIP LOCKED) p";
        assert_eq!(number(free).await, 50, "payouts without a lock");
        let free =
            "SELECT count(*) FROM (SELECT 1 FROM ledger.account WHERE limited FOR UPDATE SKIP LOCKED) a";
        assert_eq!(number(free).await, 1, "the account has no lock");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let metrics = dev.api().get("/metrics").send().await;
    let page = String::from_utf8_lossy(&metrics.is(200).body).into_owned();
    let gauge = page.lines().find(|line| line.starts_with("tallystick_calls_in_flight"));
    assert!(
        gauge.is_some_and(|line| line.ends_with(" 50")),
        "it was looked at while all were under way: {gauge:?}"
    );
    for id in &ids {
        dev.api().payout_in(id, "succeeded").await;
    }
}
