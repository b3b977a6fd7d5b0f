//! The same key: the same effect once, the same answer always.

use futures_util::future::join_all;
use serde_json::json;

use super::{order, payout, with};
use crate::support::server::{Server, Wanted};
use crate::support::until;

/// C016: twins at the same moment make one payment, and all get the same bytes.
#[tokio::test]
async fn c016_fifty_twins_make_one_payment_with_equal_bodies() {
    let s = Server::start().await;
    let call = s.client.pay(&order(100)).idem("twins");
    let replies = join_all((0..50).map(|_| call.send())).await;
    let first = replies.iter().filter(|r| r.status == 202).count();
    let repeats = replies
        .iter()
        .filter(|r| r.status == 200 && r.header("idempotency-replayed") == Some("true"))
        .count();
    assert_eq!((first, repeats), (1, 49));
    assert!(replies.iter().all(|r| r.body == replies[0].body));
    let id = replies[0].text("payment_id");
    s.client.payment_in(&id, "succeeded").await;
    let rows = s.db.rows().await;
    assert_eq!((rows["payments.payment"], rows["payments.idempotency"], s.gateway.effects(&id)), (1, 1, 1));
}

/// C017: the field that differs is named, the first payment stays as it was.
#[tokio::test]
async fn c017_same_key_other_request() {
    let s = Server::start().await;
    let first = s.client.pay(&order(100)).idem("k").send().await;
    let before = s.db.rows().await;
    for (change, field) in [
        (json!({"amount_minor": 101}), "/amount"),
        (json!({"currency": "USD"}), "/currency"),
        (json!({"description": "new"}), "/description"),
        (json!({"metadata": {"a": 1}}), "/metadata"),
        (json!({"order_id": "1"}), "/order_id"),
        (json!({"payment_method": "decline"}), "/payment_method"),
        (json!({"capture": "manual"}), "/capture"),
        (json!({"webhook_url": "https://shop.example/"}), "/webhook_url"),
    ] {
        let reply = s.client.pay(&with(order(100), change)).idem("k").send().await;
        reply.refused(409, "idempotency_mismatch");
        assert!(
            reply.fields().iter().all(|f| f.starts_with(field)) && !reply.fields().is_empty(),
            "{field}: {reply:?}"
        );
    }
    let rows = s.db.rows().await;
    assert_eq!(
        (rows["payments.payment"], rows["payments.idempotency"]),
        (before["payments.payment"], before["payments.idempotency"])
    );
    s.client.pay(&order(100)).idem("k").send().await.is(200);
    assert_eq!(s.gateway.effects(&first.text("payment_id")), s.gateway.all_effects());
}

/// Twins of a payout make one, debited and sent once, and all get the same bytes.
#[tokio::test]
async fn fifty_twins_make_one_payout_with_equal_bodies() {
    let s = Server::start().await;
    let account = s.client.funded("EUR", 1_000).await;
    let call = s.client.pay_out(&payout(&account, 100)).idem("twins");
    let replies = join_all((0..50).map(|_| call.send())).await;
    assert_eq!(replies.iter().filter(|r| r.status == 202).count(), 1);
    let repeats =
        replies.iter().filter(|r| r.status == 200 && r.header("idempotency-replayed") == Some("true"));
    assert_eq!(repeats.count(), 49);
    assert!(
        replies
            .iter()
            .all(|r| r.body == replies[0].body && r.header("location") == replies[0].header("location"))
    );
    let id = replies[0].text("payout_id");
    s.client.payout_in(&id, "succeeded").await;
    assert_eq!((s.db.rows().await["payments.payout"], s.gateway.effects(&id)), (1, 1));
    assert_eq!(s.client.balance(&account).await["balance_minor"], json!(900));
    // Whatever came since: the bytes of the creation, under each spelling of the request.
    let again = call.send().await;
    assert_eq!((again.status, &again.body, again.text("status")), (200, &replies[0].body, "pending".into()));
    let spelled = format!(
        "{{ \"currency\":\"\\u0045UR\", \"reference\":null, \"amount\":\"1.00\", \"destination\":\"approve\",\n \"account_id\":\"{}\"}}",
        account.to_uppercase()
    );
    let spelled = s.client.post_raw("/api/v1/payouts", spelled).idem("twins").send().await;
    assert_eq!((spelled.status, &spelled.body), (200, &replies[0].body));
}

#[tokio::test]
async fn same_key_with_another_payout_names_the_field() {
    let s = Server::start().await;
    let (account, second, dollars) = (
        s.client.funded("EUR", 1_000).await,
        s.client.funded("EUR", 1_000).await,
        s.client.funded("USD", 1_000).await,
    );
    let first = payout(&account, 100);
    let id = s.client.pay_out(&first).idem("k").send().await.is(202).text("payout_id");
    let before = s.db.rows().await;
    for (change, fields) in [
        (json!({"account_id": second}), &["/account_id"][..]),
        (json!({"destination": "decline"}), &["/destination"]),
        (json!({"amount_minor": 101}), &["/amount_minor"]),
        (json!({"account_id": dollars, "currency": "USD"}), &["/account_id", "/currency"]),
        (json!({"reference": "r"}), &["/reference"]),
        (json!({"description": "new"}), &["/description"]),
        (json!({"metadata": {"a": 1}}), &["/metadata"]),
        (json!({"webhook_url": "https://shop.example/"}), &["/webhook_url"]),
    ] {
        let reply = s.client.pay_out(&with(first.clone(), change)).idem("k").send().await;
        reply.refused(409, "idempotency_mismatch");
        assert_eq!(reply.fields(), fields, "{reply:?}");
    }
    let rows = s.db.rows().await;
    for table in ["payments.payout", "payments.idempotency"] {
        assert_eq!(rows[table], before[table], "{table}");
    }
    s.client.pay_out(&first).idem("k").send().await.is(200);
    // The key of a payment is another key, and so is another tenant's.
    s.client.pay(&order(100)).idem("k").send().await.is(202);
    let theirs = s.other.funded("EUR", 1_000).await;
    let foreign = s.other.pay_out(&payout(&theirs, 100)).idem("k").send().await;
    assert_ne!(foreign.is(202).text("payout_id"), id);
}

/// Refused payouts do not use up their key, and none is made without one.
#[tokio::test]
async fn refused_payouts_do_not_burn_the_key() {
    let s = Server::start().await;
    let (account, theirs) = (s.client.funded("EUR", 100).await, s.other.funded("EUR", 100).await);
    let before = s.db.rows().await;
    for (change, status) in [
        (json!({"currency": "eur"}), 422),
        (json!({"currency": "USD"}), 422),
        (json!({"account_id": theirs}), 404),
        (json!({"gateway": "nowhere"}), 422),
        (json!({"destination": "4111 1111 1111 1111"}), 422),
    ] {
        s.client.pay_out(&with(payout(&account, 5), change)).idem("k").send().await.is(status);
    }
    let missing = s.client.pay_out(&payout(&account, 5)).without("Idempotency-Key").send().await;
    assert_eq!(missing.refused(422, "missing_idempotency_key").fields(), ["header:Idempotency-Key"]);
    assert_eq!(s.db.rows().await, before);
    let good = s.client.pay_out(&payout(&account, 5)).idem("k").send().await;
    assert_eq!((good.status, good.header("idempotency-replayed")), (202, None));
}

/// C018: a key belongs to its route; another path under the same route is another request.
#[tokio::test]
async fn c018_the_same_key_on_another_route() {
    let s = Server::start().await;
    let payment = s.client.pay(&order(100)).idem("k").send().await.is(202).text("payment_id");
    let account = json!({"name": "a", "kind": "asset", "currency": "EUR"});
    let opened = s.client.post("/api/v1/accounts", &account).idem("k").send().await;
    assert_ne!(opened.is(201).text("account_id"), payment);
    assert_eq!(opened.header("idempotency-replayed"), None);

    let other = s.client.post("/api/v1/accounts", &account).send().await.text("account_id");
    let entry =
        |account: &str, side: &str| json!({"account_id": account, "direction": side, "amount_minor": 5});
    let journal =
        json!({"description": "j", "entries": [entry(&opened.text("account_id"), "D"), entry(&other, "C")]});
    let mut journals = Vec::new();
    for _ in 0..2 {
        journals.push(s.client.post("/api/v1/journals", &journal).send().await.is(201).text("journal_id"));
    }
    let reverse = |id: &str| {
        s.client.post(&format!("/api/v1/journals/{id}/reverse"), &json!({"reason": "x"})).idem("r")
    };
    reverse(&journals[0]).send().await.is(201);
    let reply = reverse(&journals[1]).send().await;
    reply.refused(409, "idempotency_mismatch");
    assert_eq!(reply.fields(), ["path"]);
}

/// C019: the order of keys, white space and escapes mean nothing.
#[tokio::test]
async fn c019_spelling_of_the_json_does_not_matter() {
    let s = Server::start().await;
    let bodies = [
        r#"{"amount_minor":500,"currency":"EUR","description":"caf\u00e9 \ud83d\ude00","metadata":{"a":1,"b":"x"}}"#,
        r#" { "currency" : "EUR" , "metadata":{ "a" : 1 , "b":"\u0078"}, "description" : "café 😀" , "amount_minor" : 500 } "#,
        "{\n\t\"metadata\": {\"a\": 1, \"b\": \"x\"},\r\n\"description\": \"caf\\u00E9 😀\", \"amount_minor\": 500, \"currency\": \"\\u0045UR\", \"order_id\": null}",
    ];
    let first = s.client.post_raw("/api/v1/payments", bodies[0]).idem("k").send().await;
    first.is(202);
    for body in &bodies[1..] {
        let again = s.client.post_raw("/api/v1/payments", *body).idem("k").send().await;
        assert_eq!((again.status, &again.body), (200, &first.body), "{body}");
    }
    // Both forms of an amount are one request.
    let major = r#"{"amount":"5.00","currency":"EUR","description":"café 😀","metadata":{"a":1,"b":"x"}}"#;
    s.client.post_raw("/api/v1/payments", major).idem("k").send().await.is(200);
    assert_eq!(s.db.rows().await["payments.payment"], 1);
}

/// C020: a number is an integer in plain digits or refused; never read as another one.
#[tokio::test]
async fn c020_number_spellings() {
    let s = Server::start().await;
    let spelled = |amount: &str| {
        s.client
            .post_raw("/api/v1/payments", format!(r#"{{"amount_minor":{amount},"currency":"EUR"}}"#))
            .idem("k")
    };
    assert_eq!(spelled("1000").send().await.is(202).json()["amount_minor"], json!(1000));
    spelled("1000").send().await.is(200);
    for amount in ["1000.0", "1e3", "1E3", "\"1000\"", "10.0e2", "1000.00"] {
        spelled(amount).send().await.invalid("/amount_minor");
    }
    spelled("01000").send().await.refused(400, "malformed_json");
    assert_eq!(s.db.rows().await["payments.payment"], 1);
}

/// C023: keys belong to the tenant.
#[tokio::test]
async fn c023_tenants_do_not_share_keys() {
    let s = Server::start().await;
    let mine = s.client.pay(&order(100)).idem("1").send().await;
    let theirs = s.other.pay(&order(200)).idem("1").send().await;
    assert_eq!((mine.status, theirs.status), (202, 202));
    assert_ne!(mine.text("payment_id"), theirs.text("payment_id"));
    // Two keys of one tenant are one client.
    assert_eq!(s.operator.pay(&order(100)).idem("1").send().await.is(200).body, mine.body);
}

/// C024: equal amounts under different keys are different payments.
#[tokio::test]
async fn c024_equal_amounts_are_two_payments() {
    let s = Server::start().await;
    let a = s.client.pay(&with(order(100), json!({"order_id": "a"}))).send().await.is(202).text("payment_id");
    let b = s.client.pay(&with(order(100), json!({"order_id": "b"}))).send().await.is(202).text("payment_id");
    s.client.payment_in(&a, "succeeded").await;
    s.client.payment_in(&b, "succeeded").await;
    assert_eq!((s.gateway.effects(&a), s.gateway.effects(&b)), (1, 1));
}

/// C025: a refused request does not use up its key.
#[tokio::test]
async fn c025_validation_errors_do_not_burn_the_key() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    s.client.pay(&with(order(100), json!({"currency": "eur"}))).idem("k").send().await.invalid("/currency");
    s.client
        .pay(&with(order(100), json!({"description": "4111 1111 1111 1111"})))
        .idem("k")
        .send()
        .await
        .refused(422, "card_number_refused");
    s.client.pay(&with(order(100), json!({"gateway": "nowhere"}))).idem("k").send().await.invalid("/gateway");
    s.client.post_raw("/api/v1/payments", "{").idem("k").send().await.refused(400, "malformed_json");
    assert_eq!(s.db.rows().await, before);
    let good = s.client.pay(&order(100)).idem("k").send().await;
    assert_eq!((good.status, good.header("idempotency-replayed")), (202, None));
}

/// C027: a repeat can be told from a first answer.
#[tokio::test]
async fn c027_replays_are_visible() {
    let s = Server::start().await;
    let call = s.client.pay(&order(100));
    let (first, again) = (call.send().await, call.send().await);
    assert_eq!((first.status, first.header("idempotency-replayed")), (202, None));
    assert_eq!((again.status, again.header("idempotency-replayed")), (200, Some("true")));
    assert_eq!(again.header("location"), first.header("location"));
}

/// C028: odd keys are a key or are refused; the request is never carried out without one.
#[tokio::test]
async fn c028_odd_keys() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    let call = s.client.pay(&order(100)).without("Idempotency-Key");
    for missing in ["", "   ", "\"\"", "\" \""] {
        call.clone().header("Idempotency-Key", missing).send().await.refused(422, "missing_idempotency_key");
    }
    for bad in ["k".repeat(256), "k".repeat(10_000), "ключ".repeat(32), "🔑".into(), "a\tb".into()] {
        call.clone().header("Idempotency-Key", bad).send().await.invalid("header:Idempotency-Key");
    }
    let two = call.clone().header("Idempotency-Key", "a").header("Idempotency-Key", "a").send().await;
    two.invalid("header:Idempotency-Key");
    assert_eq!(s.db.rows().await, before);
    for good in [
        "k".repeat(255),
        "%00".into(),
        "../x".into(),
        "a\"b'c".into(),
        "a b".into(),
        "'; DROP TABLE payments.payment; --".into(),
    ] {
        s.client.pay(&order(100)).idem(&good).send().await.is(202);
        s.client.pay(&order(100)).idem(&good).send().await.is(200);
    }
    let quoted = s.client.pay(&order(100)).idem("\"quoted\"").send().await;
    let plain = s.client.pay(&order(100)).idem("quoted").send().await;
    assert_eq!((quoted.status, plain.status, quoted.body), (202, 200, plain.body));
}

/// C031: a repeat gets the bytes of the creation, whatever came since; the payment itself tells what is true now.
#[tokio::test]
async fn c031_replay_after_the_state_moved_on() {
    let s = Server::start().await;
    let call = s.client.pay(&with(order(100), json!({"metadata": {"n": 12_345_678_901_234_567_890_u64}})));
    let first = call.send().await;
    let id = first.text("payment_id");
    s.client.payment_in(&id, "succeeded").await;
    let again = call.send().await;
    assert_eq!((again.status, &again.body), (200, &first.body));
    assert_eq!(again.text("status"), "pending");
}

/// C032: a client that pins its key buys once; the order still blocks a second charge under another key.
#[tokio::test]
async fn c032_a_pinned_key_buys_once() {
    let s = Server::start().await;
    let call = s.client.pay(&with(order(100), json!({"order_id": "pinned"}))).idem("pinned");
    let id = call.send().await.is(202).text("payment_id");
    s.client.payment_in(&id, "succeeded").await;
    assert_eq!(call.send().await.header("idempotency-replayed"), Some("true"));
    let fresh = call.clone().idem("fresh").send().await;
    assert_eq!((fresh.status, fresh.header("existing-payment")), (200, Some("true")));
    assert_eq!((fresh.text("payment_id"), fresh.text("status")), (id.clone(), "succeeded".into()));
    assert_eq!(s.gateway.all_effects(), 1);
}

/// C033: no key, no payment.
#[tokio::test]
async fn c033_missing_key() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    let account = json!({"name": "a", "kind": "asset", "currency": "EUR"});
    for call in [s.client.pay(&order(100)), s.client.post("/api/v1/accounts", &account)] {
        let reply = call.without("Idempotency-Key").send().await;
        reply.refused(422, "missing_idempotency_key");
        assert_eq!(reply.fields(), ["header:Idempotency-Key"]);
    }
    assert_eq!(s.db.rows().await, before);
}

#[tokio::test]
async fn a_client_that_hangs_up_changes_nothing() {
    let s = Server::start().await;
    let call = s.client.pay(&order(100)).idem("gone");
    let held = s.db.hold("payments.payment").await;
    let stream = call.sent().await;
    until("the write waits", async || (s.db.waiting().await > 0).then_some(())).await;
    drop(stream);
    held.release().await;
    let again = until("the write that nobody waited for", async || {
        let rows = s.db.rows().await;
        if rows["payments.payment"] == 1 { Some(call.send().await) } else { None }
    })
    .await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (200, Some("true")));
    let id = again.text("payment_id");
    s.client.payment_in(&id, "succeeded").await;
    assert_eq!(s.gateway.all_effects(), 1);
}

#[tokio::test]
async fn a_database_that_does_not_get_on_is_told_and_nothing_is_stored() {
    let wanted = Wanted { lock_timeout: std::time::Duration::from_millis(200), ..Wanted::default() };
    let s = Server::with(wanted).await;
    let before = s.db.rows().await;
    let held = s.db.hold("ledger.account").await;
    let call = s.client.post("/api/v1/accounts", &json!({"name": "a", "kind": "asset", "currency": "EUR"}));
    let reply = call.send().await;
    reply.refused(503, "unavailable");
    assert_eq!(reply.header("retry-after"), Some("1"));
    held.release().await;
    assert_eq!(s.db.rows().await, before);
    call.send().await.is(201);

    // For a payment it looks like a twin that is not done: the same advice under another name.
    let held = s.db.hold("payments.payment").await;
    let call = s.client.pay(&order(100)).idem("later");
    let reply = call.send().await;
    assert!(matches!(reply.status, 409 | 503) && reply.header("retry-after") == Some("1"), "{reply:?}");
    held.release().await;
    assert_eq!(s.db.rows().await["payments.payment"], 0);
    call.send().await.is(202);
}
