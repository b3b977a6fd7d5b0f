//! What kinds of answers mean: a definite no reverses at once, everything else is tried again with the same key.

use serde_json::{Value, json};

use super::{evidence, judge, paid_out, questions, submits, texts, verified};
use crate::dev::Dev;
use crate::serve::stopping::Second;
use crate::support::until;

/// C103: a closed account and a status that says rejected reverse at once; a bank that is away or does not know us
/// proves nothing about the payout.
#[tokio::test]
async fn c103_a_definite_no_reverses_at_once() {
    let dev = Dev::start(&[("TALLYSTICK_STATUS_CHECK_AFTER", "300ms")]);
    let (id, account) = paid_out(&dev, "acct_closed").await;
    judge(&dev, &id, &account, "failed", "refused in the reply").await;
    let payout = dev.api().payout(&id).await;
    assert_eq!(texts(&payout, "history", "status"), ["pending", "failed"]);
    assert_eq!((submits(&dev, &id).await, questions(&dev, &id).await), (1, 0), "nothing had to be asked");

    dev.tell_sandbox("PUT", "/_settings", &json!({"webhooks": false})).await;
    let (id, account) = paid_out(&dev, "acct_reject_later").await;
    judge(&dev, &id, &account, "failed", "200 and rejected").await;
    assert_eq!(evidence(&dev.api().payout(&id).await, "failed"), "status_query");
    verified(&dev);
}

#[tokio::test]
async fn c103_a_bank_that_is_away_is_tried_again_with_the_same_key() {
    let dev = Dev::start(&[("TALLYSTICK_SWEEP_AFTER", "200ms"), ("TALLYSTICK_SWEEP_MAX_BACKOFF", "500ms")]);
    for fault in ["unavailable", "rate_limited", "error_before"] {
        dev.tell_sandbox("POST", "/_faults", &json!({"operation": "payout", "fault": fault, "times": 1}))
            .await;
        let (id, account) = paid_out(&dev, "acct_ok").await;
        judge(&dev, &id, &account, "succeeded", fault).await;
        assert!(submits(&dev, &id).await >= 2, "{fault}: sent again under its key");
    }
    verified(&dev);
}

/// The secret of a second server is wrong: the bank refuses it with 401 before it looks at the payout.
#[tokio::test]
async fn c103_a_bank_that_does_not_know_us_is_no_rejection() {
    let dev = Dev::start(&[("TALLYSTICK_ROLES", "api,relay"), ("TALLYSTICK_SWEEP_AFTER", "200ms")]);
    let gateways = std::fs::read_to_string(dev.data.join("gateways.json")).expect("the accounts of dev");
    let mut wrong: Value = serde_json::from_str(&gateways).expect("JSON");
    for account in wrong.as_array_mut().expect("a list") {
        account["secret"] = json!("a secret that the bank does not know");
    }
    let file = dev.data.with_file_name("wrong.json");
    std::fs::write(&file, wrong.to_string()).expect("it can be written");
    let accounts = file.to_str().expect("a plain path");
    let stranger =
        Second::start(&dev, &["--roles", "dispatch,sweep"], &[("TALLYSTICK_GATEWAYS_FILE", accounts)]).await;
    let (id, account) = paid_out(&dev, "acct_ok").await;
    let refused = async || {
        let requests = dev.requests(&id).await;
        requests.iter().filter(|request| request["answer"] == 401).count()
    };
    until("the bank has refused us twice", async || (refused().await >= 2).then_some(())).await;
    let payout = dev.api().payout(&id).await;
    assert_eq!(payout["status"], "unknown", "{payout}");
    assert_eq!(texts(&payout, "journals", "status"), ["pending"], "no reversal");
    drop(stranger);
    let _known = Second::start(&dev, &["--roles", "dispatch,sweep"], &[]).await;
    judge(&dev, &id, &account, "succeeded", "known again").await;
    verified(&dev);
}
