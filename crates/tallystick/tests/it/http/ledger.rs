//! Accounts and journals over HTTP.

use serde_json::{Value, json};
use uuid::Uuid;

use super::with;
use crate::support::client::Client;
use crate::support::server::Server;

async fn account(client: &Client, kind: &str, currency: &str, minimum: Option<i64>) -> String {
    let body = json!({"name": format!("{kind} account"), "kind": kind, "currency": currency, "minimum_minor": minimum});
    client.post("/api/v1/accounts", &body).send().await.is(201).text("account_id")
}

fn entry(account: &str, direction: &str, amount_minor: i64) -> Value {
    json!({"account_id": account, "direction": direction, "amount_minor": amount_minor})
}

fn journal(entries: Value) -> Value {
    json!({"description": "by hand", "entries": entries})
}

async fn balance(client: &Client, id: &str) -> Value {
    client.get(&format!("/api/v1/accounts/{id}/balance")).send().await.is(200).json()
}

#[tokio::test]
async fn an_account_is_opened_once() {
    let s = Server::start().await;
    let body = json!({"name": "customer 4711", "kind": "liability", "currency": "EUR", "minimum_minor": 0, "metadata": {"n": 12345678901234567890_u64}});
    let call = s.client.post("/api/v1/accounts", &body);
    let (first, again) = (call.send().await, call.send().await);
    assert_eq!((first.status, again.status, again.header("idempotency-replayed")), (201, 200, Some("true")));
    assert_eq!(first.body, again.body);
    let id = first.text("account_id");
    assert_eq!(first.header("location"), Some(format!("/api/v1/accounts/{id}").as_str()));
    assert_eq!(again.header("location"), first.header("location"));
    let shown = s.client.get(&format!("/api/v1/accounts/{id}")).send().await.is(200).json();
    assert_eq!(with(body, json!({"account_id": id, "created_at": shown["created_at"]})), shown);
    s.client
        .post("/api/v1/accounts", &json!({"name": "x", "kind": "asset", "currency": "EUR"}))
        .idem("k")
        .send()
        .await
        .is(201);
    let other = s
        .client
        .post("/api/v1/accounts", &json!({"name": "y", "kind": "asset", "currency": "EUR"}))
        .idem("k")
        .send()
        .await;
    other.refused(409, "idempotency_mismatch");
    assert_eq!(other.fields(), ["/name"]);
}

#[tokio::test]
async fn bad_accounts_are_refused_by_field() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    let good = json!({"name": "a", "kind": "asset", "currency": "EUR"});
    for (change, field) in [
        (json!({"name": ""}), "/name"),
        (json!({"name": null}), "/name"),
        (json!({"name": "x".repeat(256)}), "/name"),
        (json!({"kind": "Asset"}), "/kind"),
        (json!({"kind": null}), "/kind"),
        (json!({"currency": "XXX"}), "/currency"),
        (json!({"currency": null}), "/currency"),
        (json!({"minimum_minor": 1}), "/minimum_minor"),
        (json!({"minimum_minor": "0"}), "/minimum_minor"),
        (json!({"minimum_minor": 0.5}), "/minimum_minor"),
        (json!({"metadata": []}), "/metadata"),
        (json!({"balance_minor": 7}), "/balance_minor"),
    ] {
        s.client.post("/api/v1/accounts", &with(good.clone(), change)).send().await.invalid(field);
    }
    let empty = s.client.post("/api/v1/accounts", &json!({})).send().await;
    empty.invalid("/name").invalid("/kind").invalid("/currency");
    let card = with(good, json!({"metadata": {"4111111111111111": 1}}));
    s.client.post("/api/v1/accounts", &card).send().await.refused(422, "card_number_refused");
    assert_eq!(s.db.rows().await, before);
}

#[tokio::test]
async fn a_journal_moves_balances() {
    let s = Server::start().await;
    let (cash, customer) = (
        account(&s.client, "asset", "EUR", None).await,
        account(&s.client, "liability", "EUR", Some(0)).await,
    );
    let body = with(
        journal(json!([entry(&cash, "D", 600), entry(&cash, "D", 400), entry(&customer, "C", 1000)])),
        json!({"source": "deposit-1", "metadata": {"a": 1}, "effective_at": "2026-01-02T03:04:05Z"}),
    );
    let call = s.client.post("/api/v1/journals", &body);
    let posted = call.send().await;
    let shown = posted.is(201).json();
    let id = posted.text("journal_id");
    assert_eq!(
        (&shown["kind"], &shown["source"], &shown["status"]),
        (&json!("manual"), &json!("deposit-1"), &json!("settled"))
    );
    assert_eq!((&shown["effective_at"], &shown["corrects"]), (&json!("2026-01-02T03:04:05Z"), &json!(null)));
    assert_eq!(shown["entries"].as_array().unwrap().len(), 3);
    assert_eq!(posted.header("location"), Some(format!("/api/v1/journals/{id}").as_str()));
    assert_eq!(call.send().await.is(200).body, posted.body);
    assert_eq!(s.client.get(&format!("/api/v1/journals/{id}")).send().await.is(200).json(), shown);

    for account in [&cash, &customer] {
        let held = balance(&s.client, account).await;
        assert_eq!(
            (&held["balance_minor"], &held["settled_minor"], &held["pending_minor"]),
            (&json!(1000), &json!(1000), &json!(0))
        );
        assert_eq!(
            (&held["available_minor"], &held["held_minor"], &held["complete"]),
            (&json!(1000), &json!(0), &json!(true))
        );
    }
    let before = s
        .client
        .get(&format!("/api/v1/accounts/{cash}/balance?at=2026-01-01T00:00:00Z"))
        .send()
        .await
        .is(200)
        .json();
    assert_eq!(before["balance_minor"], 0);
    let trial = s.client.get("/api/v1/trial-balance?currency=EUR").send().await.is(200).json();
    assert_eq!(
        (&trial["debits_minor"], &trial["credits_minor"], trial["accounts"].as_array().unwrap().len()),
        (&json!(1000), &json!(1000), 2)
    );

    // The same source again is the same journal; with other entries it is refused.
    let same = s.client.post("/api/v1/journals", &body).send().await;
    assert_eq!((same.status, same.text("journal_id")), (200, id));
    let other = with(body, json!({"entries": [entry(&cash, "D", 1), entry(&customer, "C", 1)]}));
    s.client.post("/api/v1/journals", &other).send().await.refused(409, "journal_conflict");
}

#[tokio::test]
async fn bad_journals_are_refused_and_nothing_is_stored() {
    let s = Server::start().await;
    let (a, b) =
        (account(&s.client, "asset", "EUR", None).await, account(&s.client, "revenue", "EUR", None).await);
    let usd = account(&s.client, "revenue", "USD", None).await;
    let before = s.db.rows().await;
    for (entries, field) in [
        (json!([]), "/entries"),
        (json!([entry(&a, "D", 100)]), "/entries"),
        (json!([entry(&a, "D", 100), entry(&b, "C", 99)]), "/entries"),
        (json!([entry(&a, "D", 100), entry(&usd, "C", 100)]), "/entries"),
        (json!([entry(&a, "D", 0), entry(&b, "C", 0)]), "/entries/0/amount_minor"),
        (json!([entry(&a, "D", 5), entry(&b, "C", -5)]), "/entries/1/amount_minor"),
        (json!([entry(&a, "X", 100), entry(&b, "C", 100)]), "/entries/0/direction"),
        (json!([entry("nope", "D", 100), entry(&b, "C", 100)]), "/entries/0/account_id"),
        (json!([entry(&a, "D", 1_000_000_000_000_001), entry(&b, "C", 100)]), "/entries/0/amount_minor"),
        (json!([7, entry(&b, "C", 100)]), "/entries/0"),
        (json!([with(entry(&a, "D", 100), json!({"note": "x"})), entry(&b, "C", 100)]), "/entries/0/note"),
        (
            json!([with(entry(&a, "D", 100), json!({"amount_minor": null})), entry(&b, "C", 100)]),
            "/entries/0/amount_minor",
        ),
        (json!("x"), "/entries"),
        (json!(null), "/entries"),
        (Value::Array(vec![entry(&a, "D", 1); 1001]), "/entries"),
    ] {
        s.client.post("/api/v1/journals", &journal(entries)).send().await.invalid(field);
    }
    let good = json!([entry(&a, "D", 1), entry(&b, "C", 1)]);
    for (change, field) in [
        (json!({"description": null}), "/description"),
        (json!({"description": "x".repeat(1001)}), "/description"),
        (json!({"source": ""}), "/source"),
        (json!({"effective_at": "yesterday"}), "/effective_at"),
        (json!({"kind": "payment_captured"}), "/kind"),
    ] {
        s.client.post("/api/v1/journals", &with(journal(good.clone()), change)).send().await.invalid(field);
    }
    let unknown = s
        .client
        .post(
            "/api/v1/journals",
            &journal(json!([entry(&a, "D", 1), entry(&Uuid::now_v7().to_string(), "C", 1)])),
        )
        .send()
        .await;
    unknown.refused(404, "not_found");
    assert_eq!(unknown.fields(), ["/entries/1/account_id"]);
    let card = with(journal(good), json!({"description": "card 4111 1111 1111 1111"}));
    s.client.post("/api/v1/journals", &card).send().await.refused(422, "card_number_refused");
    assert_eq!(s.db.rows().await, before);
}

#[tokio::test]
async fn an_account_keeps_its_minimum() {
    let s = Server::start().await;
    let (cash, customer) = (
        account(&s.client, "asset", "EUR", None).await,
        account(&s.client, "liability", "EUR", Some(0)).await,
    );
    s.client
        .post("/api/v1/journals", &journal(json!([entry(&cash, "D", 1000), entry(&customer, "C", 1000)])))
        .send()
        .await
        .is(201);
    let before = s.db.rows().await;
    let too_much = journal(json!([entry(&customer, "D", 1001), entry(&cash, "C", 1001)]));
    s.client.post("/api/v1/journals", &too_much).idem("k").send().await.refused(422, "minimum_balance");
    assert_eq!(s.db.rows().await, before, "the key is not used up either");
    let all = journal(json!([entry(&customer, "D", 1000), entry(&cash, "C", 1000)]));
    s.client.post("/api/v1/journals", &all).idem("k").send().await.is(201);
    assert_eq!(balance(&s.client, &customer).await["balance_minor"], 0);
}

#[tokio::test]
async fn a_journal_is_reversed_once() {
    let s = Server::start().await;
    let (a, b) =
        (account(&s.client, "asset", "EUR", None).await, account(&s.client, "revenue", "EUR", None).await);
    let posted = s
        .client
        .post("/api/v1/journals", &journal(json!([entry(&a, "D", 100), entry(&b, "C", 100)])))
        .send()
        .await
        .text("journal_id");
    let path = format!("/api/v1/journals/{posted}/reverse");
    let call = s.client.post(&path, &json!({"reason": "wrong account"}));
    let first = call.send().await;
    assert_eq!(first.is(201).json()["corrects"], json!(posted));
    assert_eq!(
        first.header("location"),
        Some(format!("/api/v1/journals/{}", first.text("journal_id")).as_str())
    );
    assert_eq!(call.send().await.is(200).body, first.body);
    let again = s.client.post(&path, &json!({"reason": "once more"})).send().await;
    assert_eq!((again.status, again.text("journal_id")), (200, first.text("journal_id")));
    assert_eq!(balance(&s.client, &a).await["balance_minor"], 0);
    s.client.post(&path, &json!({})).send().await.invalid("/reason");
    s.client
        .post(&path, &json!({"reason": "4111111111111111"}))
        .send()
        .await
        .refused(422, "card_number_refused");
    s.client.post("/api/v1/journals/x/reverse", &json!({"reason": "r"})).send().await.invalid("path:id");
    s.client
        .post(&format!("/api/v1/journals/{}/reverse", Uuid::now_v7()), &json!({"reason": "r"}))
        .send()
        .await
        .refused(404, "not_found");
}

#[tokio::test]
async fn statements_and_lists_have_pages() {
    let s = Server::start().await;
    let (a, b) =
        (account(&s.client, "asset", "EUR", None).await, account(&s.client, "revenue", "EUR", None).await);
    for n in 1..=5 {
        s.client
            .post("/api/v1/journals", &journal(json!([entry(&a, "D", n), entry(&b, "C", n)])))
            .send()
            .await
            .is(201);
    }
    for path in [format!("/api/v1/accounts/{a}/entries"), "/api/v1/accounts".to_owned()] {
        let whole = s.client.get(&path).send().await.is(200).json();
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = s.client.get(&format!("{path}?limit=2{cursor}")).send().await.is(200).json();
            seen.extend(page["data"].as_array().unwrap().clone());
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(Value::Array(seen), whole["data"], "{path}");
        for bad in ["cursor=nonsense", "cursor=", "limit=0", "limit=201", "x=1"] {
            let name = bad.split('=').next().unwrap();
            s.client.get(&format!("{path}?{bad}")).send().await.invalid(&format!("query:{name}"));
        }
    }
    let newest = s.client.get(&format!("/api/v1/accounts/{a}/entries?limit=1")).send().await.json();
    assert_eq!(newest["data"][0]["amount_minor"], 5);
    for (query, field) in [
        ("", "currency"),
        ("currency=eur", "currency"),
        ("currency=EUR&at=now", "at"),
        ("currency=EUR&x=1", "x"),
    ] {
        s.client
            .get(&format!("/api/v1/trial-balance?{query}"))
            .send()
            .await
            .invalid(&format!("query:{field}"));
    }
    s.client.get(&format!("/api/v1/accounts/{a}/balance?at=tomorrow")).send().await.invalid("query:at");
}
