//! One active payout per reference, over HTTP and over two processes: a repeat finds the first payout, a changed one is
//! refused by field, and only a payout that failed or came back frees its reference.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{AMOUNT, FUNDS, holds, submits, verified, wanted};
use crate::dev::Dev;
use crate::flows::QUICK;
use crate::serve::stopping::Second;

/// The body of a payout with a reference.
fn referring(account: &str, destination: &str, reference: &str) -> Value {
    let mut body = wanted(account, destination, AMOUNT);
    body["reference"] = json!(reference);
    body
}

#[tokio::test]
async fn a_reference_finds_its_payout_and_a_changed_one_is_a_conflict_by_field() {
    let dev = Dev::start(&[]);
    let api = dev.api();
    let (account, other) = (api.funded("EUR", FUNDS).await, api.funded("EUR", FUNDS).await);
    let dollars = api.funded("USD", FUNDS).await;
    let body = referring(&account, "acct_ok", "salary-7");
    let first = api.pay_out(&body).send().await;
    let id = first.is(202).text("payout_id");
    for moment in ["at once", "when it is paid"] {
        let again = api.pay_out(&body).send().await;
        assert_eq!(
            (again.is(200).text("payout_id"), again.header("existing-payment")),
            (id.clone(), Some("true")),
            "{moment}"
        );
        api.payout_in(&id, "succeeded").await;
    }
    assert_eq!(api.pay_out(&body).send().await.text("status"), "succeeded", "the body is the present one");
    for (change, field) in [
        (json!({"amount_minor": AMOUNT + 1}), "/amount"),
        (json!({"account_id": other}), "/account_id"),
        (json!({"destination": "acct_no_webhook"}), "/destination"),
        // In another currency it has another account, and that is named first.
        (json!({"account_id": dollars, "currency": "USD"}), "/account_id"),
    ] {
        let mut changed = body.clone();
        changed.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
        let refused = api.pay_out(&changed).send().await;
        refused.refused(409, "order_conflict");
        assert_eq!(refused.json()["payout_id"], json!(id), "{refused:?}");
        assert!(refused.fields().iter().any(|named| named.starts_with(field)), "{field}: {refused:?}");
    }
    // What describes it may change; it is the same payout.
    let mut described = body.clone();
    described["metadata"] = json!({"run": 2});
    assert_eq!(api.pay_out(&described).send().await.is(200).text("payout_id"), id);
    // Another tenant's references are its own.
    let theirs = dev.info()["other_tenant"]["api_key"].as_str().expect("a key").to_owned();
    api.pay_out(&body).key(&theirs).send().await.refused(404, "not_found");
    assert_eq!((submits(&dev, &id).await, dev.effects(&id).await.len()), (1, 1));
    holds(&api.balance(&account).await, FUNDS - AMOUNT, 0, "one payout");
    holds(&api.balance(&other).await, FUNDS, 0, "none");
    verified(&dev);
}

/// A payout that failed, for whatever reason, or came back, is no obstacle; one that was paid is, for ever.
#[tokio::test]
async fn failed_and_returned_payouts_free_their_reference_and_paid_ones_do_not() {
    let dev = Dev::start(&[]);
    let api = dev.api();
    let account = api.funded("EUR", 3 * AMOUNT).await;
    for (reference, destination, ends) in [
        ("closed", "acct_closed", "failed"),
        ("late-no", "acct_reject_later", "failed"),
        ("back", "acct_returned", "returned"),
    ] {
        let body = referring(&account, destination, reference);
        let first = api.pay_out(&body).send().await.is(202).text("payout_id");
        api.payout_in(&first, ends).await;
        let second = api.pay_out(&referring(&account, "acct_ok", reference)).send().await;
        let second = second.is(202).text("payout_id");
        assert_ne!(first, second, "{reference}");
        api.payout_in(&second, "succeeded").await;
        let third = api.pay_out(&referring(&account, "acct_ok", reference)).send().await;
        assert_eq!(third.is(200).text("payout_id"), second, "{reference}: it blocks again");
    }
    // Nothing is left: insufficient funds frees it as well.
    let body = referring(&account, "acct_ok", "short");
    let short = api.pay_out(&body).send().await.is(202).text("payout_id");
    api.payout_in(&short, "failed").await;
    let again = api.pay_out(&body).send().await.is(202).text("payout_id");
    assert_ne!(again, short);
    let refused = api.payout_in(&again, "failed").await;
    assert_eq!(refused["failure"]["code"], "insufficient_funds", "{refused}");
    holds(&api.balance(&account).await, 0, 0, "three were paid");
    verified(&dev);
}

#[tokio::test]
async fn fifty_twins_of_a_payout_on_two_servers_are_one_and_get_the_same_bytes() {
    let dev = Dev::start(&QUICK);
    let second = Second::start(&dev, &[], &[]).await;
    let clients = [dev.api(), second.client.clone()];
    let account = dev.api().funded("EUR", FUNDS).await;
    for (reference, case) in [(json!("twins"), "with a reference"), (Value::Null, "with a key alone")] {
        let mut body = wanted(&account, "acct_ok", AMOUNT);
        body["reference"] = reference;
        let calls = (0..50).map(|number| clients[number % 2].pay_out(&body).idem(case));
        let running: Vec<_> = calls.map(|call| tokio::spawn(async move { call.send().await })).collect();
        let mut answered = Vec::new();
        for call in running {
            let reply = call.await.expect("a request does not die");
            // A twin that waited too long for the first one is told to come again.
            if reply.status == 409 {
                reply.refused(409, "idempotency_in_flight");
            } else {
                answered.push(reply);
            }
        }
        assert_eq!(
            answered.iter().filter(|reply| reply.status == 202).count(),
            1,
            "{case}: one was the first"
        );
        let bytes: BTreeSet<&[u8]> = answered.iter().map(|reply| reply.body.as_slice()).collect();
        assert_eq!(bytes.len(), 1, "{case}: all were told the same");
        let id = answered[0].text("payout_id");
        dev.api().payout_in(&id, "succeeded").await;
        dev.kill_and_wait("server");
        for client in [dev.api(), second.client.clone()] {
            let again = client.pay_out(&body).idem(case).send().await;
            assert_eq!(
                (again.status, &again.body),
                (200, &answered[0].body),
                "{case}: after a kill, on both servers"
            );
            assert_eq!(again.header("idempotency-replayed"), Some("true"));
        }
        assert_eq!((submits(&dev, &id).await, dev.effects(&id).await.len()), (1, 1), "{case}");
    }
    holds(&dev.api().balance(&account).await, FUNDS - 2 * AMOUNT, 0, "two payouts");
}

/// Many requests for one reference, each with a key of its own, at two servers: one payout.
#[tokio::test]
async fn requests_for_one_reference_on_two_servers_are_one_payout() {
    let dev = Dev::start(&QUICK);
    let second = Second::start(&dev, &[], &[]).await;
    let clients = [dev.api(), second.client.clone()];
    let account = dev.api().funded("EUR", FUNDS).await;
    let body = referring(&account, "acct_lost_reply", "rent");
    let running: Vec<_> = (0..30)
        .map(|number| clients[number % 2].pay_out(&body))
        .map(|call| tokio::spawn(async move { call.send().await }))
        .collect();
    let mut ids = BTreeSet::new();
    for call in running {
        let reply = call.await.expect("a request does not die");
        if reply.status == 409 {
            reply.refused(409, "idempotency_in_flight");
            continue;
        }
        let existing = reply.header("existing-payment") == Some("true");
        assert_eq!(existing, reply.status == 200, "{reply:?}");
        ids.insert(reply.text("payout_id"));
    }
    assert_eq!(ids.len(), 1, "{ids:?}");
    let id = ids.first().expect("one payout");
    dev.api().payout_in(id, "succeeded").await;
    assert_eq!((submits(&dev, id).await, dev.effects(id).await.len()), (1, 1));
    holds(&dev.api().balance(&account).await, FUNDS - AMOUNT, 0, "one payout");
}
