//! Creating, reading and listing payouts.

use serde_json::{Value, json};
use tallystick_payments::tenants;
use uuid::Uuid;

use super::{payout, said, with};
use crate::support::client::{Client, Reply};
use crate::support::server::Server;
use crate::support::until;

/// An account of a kind, without a limit and with nothing on it.
async fn account(client: &Client, kind: &str, currency: &str) -> String {
    let body = json!({"name": format!("{kind} account"), "kind": kind, "currency": currency});
    client.post("/api/v1/accounts", &body).send().await.is(201).text("account_id")
}

fn names(value: &Value) -> Vec<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

/// The rules that a problem tells about a field.
fn rules(reply: &Reply, field: &str) -> Vec<String> {
    let errors = reply.json()["errors"].as_array().cloned().unwrap_or_default();
    let of_field = errors.iter().filter(|error| error["field"] == field);
    of_field.map(|error| error["rule"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_payout_is_created_pending_and_ends_succeeded() {
    let s = Server::start().await;
    let account = s.client.funded("EUR", 100_000).await;
    let body = json!({
        "account_id": account, "destination": "approve", "amount": "250.00", "currency": "EUR", "reference": "invoice 1001",
        "description": "Supplier", "metadata": {"a": [1]}, "gateway": "test", "webhook_url": "http://127.0.0.1:9/hook"
    });
    let reply = s.client.pay_out(&body).send().await;
    let created = reply.is(202).json();
    let id = reply.text("payout_id");
    assert_eq!(reply.header("location"), Some(format!("/api/v1/payouts/{id}").as_str()));
    assert_eq!((reply.header("idempotency-replayed"), reply.header("existing-payment")), (None, None));
    let expected = json!({
        "payout_id": id, "status": "pending", "account_id": account, "destination": "approve", "amount": "250.00",
        "amount_minor": 25000, "currency": "EUR", "reference": "invoice 1001", "description": "Supplier",
        "metadata": {"a": [1]}, "batch_id": null, "gateway": "test", "gateway_reference": null, "failure": null,
        "attention": null, "unknown_since": null, "webhook_url": "http://127.0.0.1:9/hook",
        "created_at": created["created_at"], "updated_at": created["created_at"], "processed_at": null, "version": 1
    });
    assert_eq!(created, expected);
    assert_eq!(names(&created), names(&expected), "members stand in the promised order");
    assert_eq!(Uuid::parse_str(&id).unwrap().get_version_num(), 7);
    let done = s.client.payout_in(&id, "succeeded").await;
    assert_eq!((&done["gateway_reference"], &done["version"]), (&json!(format!("ref-{id}")), &json!(2)));
    assert!(done["processed_at"].is_string());
    assert_eq!(s.gateway.effects(&id), 1);
    assert_eq!(s.client.balance(&account).await["balance_minor"], json!(75_000));
    // Where Location leads is the payout.
    let there = s.client.get(reply.header("location").unwrap()).send().await;
    assert_eq!((there.status, there.text("payout_id")), (200, id));
}

#[tokio::test]
async fn a_payout_with_the_least_fields_works_and_null_is_absent() {
    let s = Server::start().await;
    let account = s.client.funded("EUR", 100).await;
    let least = payout(&account, 5);
    let nulls = json!({"reference": null, "description": null, "metadata": null, "gateway": null, "webhook_url": null});
    let first = s.client.pay_out(&least).idem("n").send().await;
    let second = s.client.pay_out(&with(least, nulls)).idem("n").send().await;
    assert_eq!((first.status, second.status, &first.body), (202, 200, &second.body));
    assert_eq!((first.text("amount"), first.text("gateway")), ("0.05".into(), "test".into()));
}

/// Nobody waits for a payout: the wish is not granted, and nothing pretends that it was.
#[tokio::test]
async fn a_wish_to_wait_is_not_granted() {
    let s = Server::start().await;
    let account = s.client.funded("EUR", 100).await;
    let reply = s.client.pay_out(&payout(&account, 5)).header("Prefer", "wait=5").send().await;
    assert_eq!(
        (reply.status, reply.text("status"), reply.header("preference-applied")),
        (202, "pending".into(), None)
    );
}

#[tokio::test]
async fn every_field_has_its_rules() {
    let s = Server::start().await;
    let account = s.client.funded("EUR", 100).await;
    let before = s.db.rows().await;
    let long = |most: usize| json!("é".repeat(most + 1));
    let cases = [
        ("account_id", json!("not-a-uuid"), "uuid"),
        ("account_id", json!(7), "uuid"),
        ("account_id", json!(account.replace('-', "")), "uuid"),
        ("account_id", json!(format!("{{{account}}}")), "uuid"),
        ("destination", json!(""), "length"),
        ("destination", long(255), "length"),
        ("destination", json!(["approve"]), "type"),
        ("amount_minor", json!(0), "range"),
        ("amount_minor", json!(-1), "range"),
        ("amount_minor", json!(1_000_000_000_000_001_i64), "range"),
        ("amount_minor", json!(1.5), "integer"),
        ("amount_minor", json!("5"), "integer"),
        ("currency", json!("eur"), "currency"),
        ("currency", json!(978), "currency"),
        ("currency", json!("XXX"), "currency"),
        ("reference", json!(""), "length"),
        ("reference", long(128), "length"),
        ("reference", json!(7), "type"),
        ("description", json!(""), "length"),
        ("description", long(1000), "length"),
        ("description", json!({}), "type"),
        ("metadata", json!([]), "type"),
        ("metadata", json!("text"), "type"),
        ("metadata", json!({"k": "x".repeat(16 * 1024)}), "max_bytes"),
        ("gateway", json!(""), "length"),
        ("gateway", long(64), "length"),
        ("gateway", json!(true), "type"),
        ("gateway", json!("nowhere"), "unknown"),
        ("webhook_url", json!("ftp://shop.example"), "url"),
        ("webhook_url", json!("http://u:p@shop.example"), "url"),
        ("webhook_url", json!(format!("https://shop.example/{}", "x".repeat(2048))), "length"),
        ("webhook_url", json!(7), "type"),
    ];
    for (field, value, rule) in cases {
        let reply = s.client.pay_out(&with(payout(&account, 5), json!({field: value}))).send().await;
        reply.refused(422, "validation");
        assert_eq!(reply.fields(), [format!("/{field}")], "{rule}: {reply:?}");
        assert_eq!(rules(&reply, &format!("/{field}")), [rule], "{field}: {reply:?}");
    }
    for (field, most) in [("destination", 255), ("reference", 128), ("description", 1000)] {
        s.client.pay_out(&with(payout(&account, 1), json!({field: "é".repeat(most)}))).send().await.is(202);
    }
    assert_eq!(
        s.db.rows().await["payments.payout"],
        before["payments.payout"] + 3,
        "nothing else was stored"
    );
}

#[tokio::test]
async fn what_is_required_is_named_and_null_is_no_amount() {
    let s = Server::start().await;
    let account = s.client.funded("EUR", 100).await;
    let before = s.db.rows().await;
    let empty = s.client.pay_out(&json!({})).send().await;
    empty.refused(422, "validation");
    let mut fields = empty.fields();
    fields.sort();
    assert_eq!(fields, ["/account_id", "/amount", "/currency", "/destination"]);
    for field in &fields {
        assert_eq!(rules(&empty, field), ["required"], "{empty:?}");
    }
    for (change, field, rule) in [
        (json!({"account_id": null}), "/account_id", "required"),
        (json!({"destination": null}), "/destination", "required"),
        (json!({"currency": null}), "/currency", "currency"),
        (json!({"amount_minor": null}), "/amount_minor", "integer"),
        (json!({"amount": "0.05"}), "/amount", "exclusive"),
    ] {
        let reply = s.client.pay_out(&with(payout(&account, 5), change)).send().await;
        reply.invalid(field);
        assert_eq!(rules(&reply, field), [rule], "{reply:?}");
    }
    assert_eq!(s.db.rows().await, before);
}

#[tokio::test]
async fn every_complaint_about_a_payout_is_told_at_once() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    let body = json!({
        "account_id": "x", "destination": "", "amount_minor": 0, "currency": "eur", "reference": "x".repeat(129),
        "description": "", "metadata": [], "gateway": 7, "webhook_url": "ftp://shop.example", "status": "succeeded"
    });
    let reply = s.client.pay_out(&body).idem(&"k".repeat(256)).send().await;
    reply.refused(422, "validation");
    let mut fields = reply.fields();
    fields.sort();
    let expected = [
        "/account_id",
        "/amount_minor",
        "/currency",
        "/description",
        "/destination",
        "/gateway",
        "/metadata",
        "/reference",
        "/status",
        "/webhook_url",
        "header:Idempotency-Key",
    ];
    assert_eq!(fields, expected);
    assert_eq!(s.db.rows().await, before, "nothing was stored");
}

#[tokio::test]
async fn the_account_is_one_of_the_tenants_in_its_currency_and_of_a_kind_that_can_pay() {
    let s = Server::start().await;
    let (mine, theirs) = (s.client.funded("EUR", 100).await, s.other.funded("EUR", 100).await);
    let mut paying = Vec::new();
    for kind in ["liability", "equity", "revenue"] {
        paying.push(account(&s.client, kind, "EUR").await);
    }
    let (asset, expense) =
        (account(&s.client, "asset", "EUR").await, account(&s.client, "expense", "EUR").await);
    let before = s.db.rows().await;

    let nothing = s.client.pay_out(&payout(&Uuid::now_v7().to_string(), 5)).send().await;
    nothing.refused(404, "not_found");
    assert_eq!(nothing.fields(), ["/account_id"]);
    let foreign = s.client.pay_out(&payout(&theirs, 5)).send().await;
    assert_eq!(
        (foreign.status, said(&foreign)),
        (404, said(&nothing)),
        "another tenant's account is no account"
    );

    let currency = s.client.pay_out(&with(payout(&mine, 5), json!({"currency": "USD"}))).send().await;
    currency.invalid("/currency");
    assert_eq!(rules(&currency, "/currency"), ["account_currency"]);
    for account in [&asset, &expense] {
        let kind = s.client.pay_out(&payout(account, 5)).send().await;
        kind.invalid("/account_id");
        assert_eq!(
            (kind.fields(), rules(&kind, "/account_id")),
            (vec!["/account_id".into()], vec!["account_kind".into()])
        );
    }
    assert_eq!(s.db.rows().await, before, "nothing was stored");

    // Accounts without a minimum pay what is asked for.
    for account in &paying {
        let id = s.client.pay_out(&payout(account, 5)).send().await.is(202).text("payout_id");
        s.client.payout_in(&id, "succeeded").await;
        assert_eq!(s.client.balance(account).await["balance_minor"], json!(-5));
    }
}

#[tokio::test]
async fn an_account_without_funds_fails_its_payout_and_nothing_is_sent() {
    let s = Server::start().await;
    let account = s.client.funded("EUR", 100).await;
    let id = s.client.pay_out(&payout(&account, 101)).send().await.is(202).text("payout_id");
    let failed = s.client.payout_in(&id, "failed").await;
    assert_eq!(failed["failure"]["code"], "insufficient_funds");
    assert_eq!((&failed["journals"], &failed["attempts"]), (&json!([]), &json!([])));
    assert_eq!(failed["history"][1]["evidence"], "ledger");
    assert_eq!(
        (s.gateway.effects(&id), &s.client.balance(&account).await["available_minor"]),
        (0, &json!(100))
    );
}

#[tokio::test]
async fn a_rejected_payout_is_reversed_and_tells_the_banks_words() {
    let s = Server::start().await;
    let account = s.client.funded("EUR", 100).await;
    let declined = with(payout(&account, 60), json!({"destination": "decline"}));
    let id = s.client.pay_out(&declined).send().await.is(202).text("payout_id");
    let failed = s.client.payout_in(&id, "failed").await;
    assert_eq!(failed["failure"], json!({"code": "declined", "message": "no"}));
    let journals: Vec<_> =
        failed["journals"].as_array().unwrap().iter().map(|j| (&j["kind"], &j["status"])).collect();
    let (debit, reversal) = (json!("payout_debited"), json!("payout_reversed"));
    assert_eq!(journals, [(&debit, &json!("failed")), (&reversal, &json!("failed"))]);
    assert_eq!(s.client.balance(&account).await["available_minor"], json!(100));
}

#[tokio::test]
async fn expansions_agree_with_the_payout() {
    let s = Server::start().await;
    let account = s.client.funded("EUR", 5_000).await;
    let lost = with(payout(&account, 1234), json!({"destination": "lose"}));
    let id = s.client.pay_out(&lost).send().await.is(202).text("payout_id");
    let all = s.client.payout_in(&id, "succeeded").await;
    let column = |name: &str, member: &str| -> Vec<Value> {
        all[name].as_array().unwrap().iter().map(|row| row[member].clone()).collect()
    };
    assert_eq!(column("history", "status"), ["pending", "unknown", "succeeded"]);
    assert_eq!(column("history", "evidence"), ["request", "reply", "status_query"]);
    assert_eq!(column("history", "version"), [1, 2, 3]);
    assert_eq!(column("events", "type"), ["payout.created", "payout.unknown", "payout.succeeded"]);
    assert_eq!(column("events", "payout_id"), [id.as_str(); 3]);
    assert_eq!(column("events", "sequence"), [1, 2, 3]);
    assert_eq!(column("journals", "kind"), ["payout_debited"]);
    assert_eq!(column("journals", "status"), ["settled"]);
    assert_eq!(column("attempts", "action")[..2], ["submit", "ask"]);
    assert_eq!((&all["version"], s.gateway.effects(&id)), (&json!(3), 1));

    let plain = s.client.get(&format!("/api/v1/payouts/{id}")).send().await.is(200).json();
    assert!(plain.get("history").is_none() && plain.get("journals").is_none());
    for bad in ["x", "history,", "", "refunds", "captures"] {
        s.client.get(&format!("/api/v1/payouts/{id}?expand={bad}")).send().await.invalid("query:expand");
    }
}

#[tokio::test]
async fn the_references_active_payout_is_found() {
    let s = Server::start().await;
    let account = s.client.funded("EUR", 1_000).await;
    let body = with(payout(&account, 100), json!({"reference": "r-7", "destination": "accept"}));
    let id = s.client.pay_out(&body).send().await.is(202).text("payout_id");
    s.client.payout_in(&id, "processing").await;
    // What is not among the things that must be equal may differ.
    let second = with(body.clone(), json!({"description": "again"}));
    let second = s.client.pay_out(&second).idem("second").send().await;
    assert_eq!((second.status, second.header("existing-payment")), (200, Some("true")));
    assert_eq!(
        (second.text("payout_id"), second.text("status")),
        (id.clone(), "processing".into()),
        "as it is now"
    );
    assert_eq!(second.header("location"), Some(format!("/api/v1/payouts/{id}").as_str()));
    assert_eq!(s.db.rows().await["payments.payout"], 1);
    // References belong to the tenant, and are not the orders of payments.
    let theirs = s.other.funded("EUR", 1_000).await;
    let other = with(payout(&theirs, 5), json!({"reference": "r-7"}));
    s.other.pay_out(&other).send().await.is(202);
    s.client.pay(&with(super::order(100), json!({"order_id": "r-7"}))).send().await.is(202);
}

#[tokio::test]
async fn a_changed_reference_is_a_conflict() {
    let s = Server::start().await;
    let (account, second, dollars) = (
        s.client.funded("EUR", 1_000).await,
        s.client.funded("EUR", 1_000).await,
        s.client.funded("USD", 1_000).await,
    );
    let body = with(payout(&account, 100), json!({"reference": "r", "destination": "accept"}));
    let id = s.client.pay_out(&body).send().await.is(202).text("payout_id");
    let cases = [
        (json!({"account_id": second}), "/account_id"),
        (json!({"destination": "approve"}), "/destination"),
        (json!({"amount_minor": 101}), "/amount_minor"),
        (json!({"account_id": dollars, "currency": "USD"}), "/account_id"),
    ];
    for (n, (change, field)) in cases.into_iter().enumerate() {
        let key = format!("k-{n}");
        let reply = s.client.pay_out(&with(body.clone(), change)).idem(&key).send().await;
        reply.refused(409, "order_conflict");
        assert_eq!((reply.fields(), &reply.json()["payout_id"]), (vec![field.to_owned()], &json!(id)));
        // A refused request does not use up its key.
        s.client.pay_out(&payout(&account, 1)).idem(&key).send().await.is(202);
    }
    assert_eq!(s.gateway.effects(&id), 0);
}

#[tokio::test]
async fn a_reference_is_free_after_a_failure() {
    let s = Server::start().await;
    let account = s.client.funded("EUR", 100).await;
    for (change, code) in [
        (json!({"destination": "decline"}), "declined"),
        (json!({"amount_minor": 101}), "insufficient_funds"),
    ] {
        let failing = with(with(payout(&account, 50), json!({"reference": code})), change);
        let id = s.client.pay_out(&failing).send().await.is(202).text("payout_id");
        assert_eq!(s.client.payout_in(&id, "failed").await["failure"]["code"], code);
        let again = with(payout(&account, 50), json!({"reference": code}));
        assert_ne!(s.client.pay_out(&again).send().await.is(202).text("payout_id"), id);
    }
}

#[tokio::test]
async fn pages_show_every_payout_once_newest_first() {
    let s = Server::start().await;
    let (first, second) = (s.client.funded("EUR", 1_000).await, s.client.funded("EUR", 1_000).await);
    let mut made = Vec::new();
    for n in 0..8 {
        let account = if n % 2 == 0 { &first } else { &second };
        let body = with(payout(account, 10 + n), json!({"reference": format!("r-{n}")}));
        made.push(s.client.pay_out(&body).send().await.is(202).text("payout_id"));
    }
    let theirs = s.other.funded("EUR", 1_000).await;
    let foreign = s.other.pay_out(&payout(&theirs, 1)).send().await.is(202).text("payout_id");
    made.reverse();
    let ids = |page: &Value| -> Vec<String> {
        page["data"].as_array().unwrap().iter().map(|p| p["payout_id"].as_str().unwrap().to_owned()).collect()
    };
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = s.client.get(&format!("/api/v1/payouts?limit=3{cursor}")).send().await.is(200).json();
        seen.extend(ids(&page));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, made);
    let get =
        async |query: &str| s.client.get(&format!("/api/v1/payouts?{query}")).send().await.is(200).json();
    until("all succeeded", async || (ids(&get("status=succeeded").await).len() == 8).then_some(())).await;
    assert_eq!(ids(&get("reference=r-3").await), made[4..5]);
    let of_first: Vec<String> = made.iter().skip(1).step_by(2).cloned().collect();
    assert_eq!(ids(&get(&format!("account_id={first}")).await), of_first);
    // A filter and a cursor together.
    let page = get(&format!("account_id={first}&limit=3")).await;
    let rest =
        get(&format!("account_id={first}&limit=3&cursor={}", page["next_cursor"].as_str().unwrap())).await;
    assert_eq!([ids(&page), ids(&rest)].concat(), of_first);
    for nothing in ["gateway=nowhere", "status=returned", "reference=gone", &format!("account_id={theirs}")] {
        assert_eq!(get(nothing).await, json!({"data": [], "next_cursor": null}), "{nothing}");
    }
    assert_eq!(ids(&s.other.get("/api/v1/payouts").send().await.json()), [foreign]);
}

#[tokio::test]
async fn bad_ids_and_parameters_of_payouts_are_named() {
    let s = Server::start().await;
    for id in ["not-a-uuid", "0198f2c56f3a7c1e8000000000000000", "%00", "%ff", "4111111111111111"] {
        s.client.get(&format!("/api/v1/payouts/{id}")).send().await.invalid("path:id");
    }
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=x", "limit"),
        ("limit=1&limit=2", "limit"),
        ("cursor=nonsense", "cursor"),
        ("cursor=", "cursor"),
        ("status=done", "status"),
        ("status=authorized", "status"),
        ("account_id=x", "account_id"),
        ("account_id=", "account_id"),
        ("reference=a%00b", "reference"),
        ("order_id=1", "order_id"),
        ("sort=asc", "sort"),
    ] {
        s.client.get(&format!("/api/v1/payouts?{query}")).send().await.invalid(&format!("query:{field}"));
    }
}

/// Where the tenant asks for approval a payout waits: seen by whoever asks, found by its status, and not sent.
#[tokio::test]
async fn a_tenant_that_asks_for_approval_sends_nothing_without_it() {
    let s = Server::start().await;
    let account = s.client.funded("EUR", 1_000).await;
    let theirs = s.other.funded("EUR", 1_000).await;
    tenants::set(s.engine.db(), "default", "payout_approval", true).await.unwrap();
    let waiting = until("the setting is seen", async || {
        let created = s.client.pay_out(&payout(&account, 5)).send().await;
        Some(created).filter(|created| created.is(202).text("status") == "requires_approval")
    })
    .await;
    let id = waiting.text("payout_id");
    assert!(waiting.header("location").is_some());
    // Another tenant's work goes on, and so do payments of this one.
    let free = s.other.pay_out(&payout(&theirs, 5)).send().await.is(202).text("payout_id");
    s.other.payout_in(&free, "succeeded").await;
    let paid = s.client.pay(&super::order(100)).send().await.text("payment_id");
    s.client.payment_in(&paid, "succeeded").await;
    let shown = s.client.payout(&id).await;
    assert_eq!((&shown["status"], &shown["version"]), (&json!("requires_approval"), &json!(1)));
    assert_eq!((&shown["journals"], &shown["attempts"]), (&json!([]), &json!([])));
    assert_eq!(shown["events"][0]["type"], "payout.created");
    let page = s.client.get("/api/v1/payouts?status=requires_approval").send().await.json();
    assert_eq!(page["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(s.gateway.effects(&id), 0);
}
