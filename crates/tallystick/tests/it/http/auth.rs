//! Who may do what, and what one tenant learns about another: nothing.

use serde_json::json;
use tallystick_payments::tenants::{self, Scope};
use uuid::Uuid;

use super::{order, payout, said, with};
use crate::support::client::Reply;
use crate::support::server::Server;
use crate::support::until;

fn refused(reply: &Reply) {
    reply.refused(401, "unauthenticated");
    assert_eq!(reply.header("www-authenticate"), Some("ApiKey"));
}

#[tokio::test]
async fn one_valid_key_is_needed() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    let call = s.client.get("/api/v1/payments").without("X-API-Key");
    let key = s.client.key.clone();
    refused(&call.send().await);
    let almost = format!("{}x", &key[..key.len() - 1]);
    for wrong in [
        "",
        "wrong",
        &almost,
        &format!("{key} "),
        &key.to_uppercase(),
        &format!("{key}{key}"),
        &"x".repeat(300),
        "ключ",
    ] {
        if wrong.trim() != key {
            refused(&call.clone().header("X-API-Key", wrong).send().await);
        }
    }
    refused(&call.clone().header("X-API-Key", &key).header("X-API-Key", &key).send().await);
    refused(
        &call.clone().header("X-API-Key", &key).header("Authorization", format!("Bearer {key}")).send().await,
    );
    refused(&call.clone().header("Authorization", format!("Basic {key}")).send().await);
    refused(&s.client.get(&format!("/api/v1/payments?api_key={key}")).without("X-API-Key").send().await);
    refused(&s.client.pay(&order(100)).key("wrong").send().await);
    refused(&s.client.pay_out(&payout(&Uuid::nil().to_string(), 5)).key("wrong").send().await);
    refused(&s.client.get("/api/v1/payouts").without("X-API-Key").send().await);
    call.clone().header("Authorization", format!("Bearer {key}")).send().await.is(200);
    call.header("authorization", format!("bearer {key}")).send().await.is(200);
    assert_eq!(s.db.rows().await, before);
}

#[tokio::test]
async fn an_enormous_key_is_no_key() {
    let s = Server::start().await;
    let call = s.client.get("/api/v1/payments");
    refused(&call.clone().key(&"x".repeat(30_000)).send().await);
    // Beyond what a head may have, the connection ends with 431, or unread.
    let mut stream = tokio::net::TcpStream::connect(s.client.address).await.unwrap();
    let bytes = call.key(&"x".repeat(1024 * 1024)).bytes();
    let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, &bytes).await;
    let mut answer = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    s.client.get("/api/v1/payments").send().await.is(200);
}

#[tokio::test]
async fn a_revoked_key_ends_and_another_goes_on() {
    let s = Server::start().await;
    let (id, second) = tenants::key_create(s.engine.db(), "default", Scope::Client).await.unwrap();
    let call = s.client.get("/api/v1/payments");
    call.clone().key(&second).send().await.is(200);
    tenants::key_revoke(s.engine.db(), id).await.unwrap();
    until("the key is refused", async || {
        (call.clone().key(&second).send().await.status == 401).then_some(())
    })
    .await;
    call.send().await.is(200);
}

#[tokio::test]
async fn another_tenants_things_read_like_things_that_never_were() {
    let s = Server::start().await;
    let payment = s.client.pay(&order(100)).send().await.text("payment_id");
    let source = s.client.funded("EUR", 100).await;
    let paid_out = s.client.pay_out(&payout(&source, 5)).send().await.text("payout_id");
    let account = |client: &crate::support::client::Client| {
        client.post("/api/v1/accounts", &json!({"name": "a", "kind": "asset", "currency": "EUR"}))
    };
    let (mine, theirs) = (
        account(&s.client).send().await.text("account_id"),
        account(&s.other).send().await.text("account_id"),
    );
    let entry =
        |account: &str, side: &str| json!({"account_id": account, "direction": side, "amount_minor": 5});
    let pair = |a: &str, b: &str| json!({"description": "j", "entries": [entry(a, "D"), entry(b, "C")]});
    let second = account(&s.client).send().await.text("account_id");
    let journal =
        s.client.post("/api/v1/journals", &pair(&mine, &second)).send().await.is(201).text("journal_id");

    let random = Uuid::now_v7().to_string();
    for (path, id) in [
        ("/api/v1/payments/{id}", &payment),
        ("/api/v1/payments/{id}?expand=history,journals,events", &payment),
        ("/api/v1/payouts/{id}", &paid_out),
        ("/api/v1/payouts/{id}?expand=history,attempts,journals,events", &paid_out),
        ("/api/v1/accounts/{id}", &mine),
        ("/api/v1/accounts/{id}/entries", &mine),
        ("/api/v1/accounts/{id}/balance", &mine),
        ("/api/v1/journals/{id}", &journal),
    ] {
        s.client.get(&path.replace("{id}", id)).send().await.is(200);
        let foreign = s.other.get(&path.replace("{id}", id)).send().await;
        let nothing = s.other.get(&path.replace("{id}", &random)).send().await;
        foreign.refused(404, "not_found");
        assert_eq!(said(&foreign), said(&nothing), "{path}");
    }
    let before = s.db.rows().await;
    let reverse = |id: &str| s.other.post(&format!("/api/v1/journals/{id}/reverse"), &json!({"reason": "r"}));
    assert_eq!(
        said(reverse(&journal).send().await.refused(404, "not_found")),
        said(&reverse(&random).send().await)
    );
    // Also inside bodies.
    let foreign = s.other.post("/api/v1/journals", &pair(&theirs, &mine)).send().await;
    let nothing = s.other.post("/api/v1/journals", &pair(&theirs, &random)).send().await;
    foreign.refused(404, "not_found");
    assert_eq!(foreign.fields(), ["/entries/1/account_id"]);
    assert_eq!(said(&foreign), said(&nothing));
    let foreign = s.other.pay_out(&payout(&source, 5)).send().await;
    let nothing = s.other.pay_out(&payout(&random, 5)).send().await;
    assert_eq!(foreign.refused(404, "not_found").fields(), ["/account_id"]);
    assert_eq!(said(&foreign), said(&nothing));
    // A currency or kind that does not fit tells no more about it.
    let odd = s.other.pay_out(&with(payout(&mine, 5), json!({"currency": "USD"}))).send().await;
    assert_eq!(said(&odd), said(&nothing));
    assert_eq!(s.db.rows().await, before);

    for list in [
        "/api/v1/payments",
        "/api/v1/payments?order_id=x",
        "/api/v1/payouts",
        &format!("/api/v1/payouts?account_id={source}"),
    ] {
        assert_eq!(s.other.get(list).send().await.is(200).json()["data"], json!([]));
    }
    let accounts = s.other.get("/api/v1/accounts").send().await.json();
    let ids: Vec<&str> =
        accounts["data"].as_array().unwrap().iter().map(|a| a["account_id"].as_str().unwrap()).collect();
    assert_eq!(ids, [theirs.as_str()]);
}

#[tokio::test]
async fn nothing_can_be_assigned_from_outside() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    for field in [
        "status",
        "captured_minor",
        "tenant_id",
        "fee",
        "id",
        "payment_id",
        "created_at",
        "version",
        "nonsense",
    ] {
        let reply = s.client.pay(&with(order(100), json!({field: "x"}))).send().await;
        reply.invalid(&format!("/{field}"));
        assert_eq!(reply.json()["errors"][0]["rule"], "unknown_field");
    }
    for field in [
        "status",
        "payout_id",
        "batch_id",
        "failure",
        "gateway_reference",
        "tenant_id",
        "version",
        "order_id",
    ] {
        let body = with(payout(&Uuid::now_v7().to_string(), 5), json!({field: "x"}));
        let reply = s.client.pay_out(&body).send().await;
        assert_eq!(reply.invalid(&format!("/{field}")).json()["errors"][0]["rule"], "unknown_field");
    }
    let account = json!({"name": "a", "kind": "asset", "currency": "EUR", "tenant_id": Uuid::nil()});
    s.client.post("/api/v1/accounts", &account).send().await.invalid("/tenant_id");
    assert_eq!(s.db.rows().await, before);
}

#[tokio::test]
async fn work_on_breaks_needs_the_operator_scope() {
    let s = Server::start().await;
    s.client.get("/api/v1/breaks").send().await.refused(403, "forbidden");
    let (_, approver) = tenants::key_create(s.engine.db(), "default", Scope::Approver).await.unwrap();
    s.client.get("/api/v1/breaks").key(&approver).send().await.refused(403, "forbidden");
    let list = s.operator.get("/api/v1/breaks?status=open&limit=5").send().await;
    assert_eq!(list.is(200).json(), json!({"data": [], "next_cursor": null}));
    s.operator.get("/api/v1/breaks?status=all").send().await.invalid("query:status");
    s.operator.get("/api/v1/breaks?cursor=x").send().await.invalid("query:cursor");
    s.operator.get("/api/v1/payments").send().await.is(200);
}
