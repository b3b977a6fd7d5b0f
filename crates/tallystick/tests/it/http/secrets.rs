//! Card numbers and API keys: refused or used, never stored, echoed or logged.

use serde_json::{Value, json};

use super::{order, payout, with};
use crate::support::logs::Logs;
use crate::support::server::Server;

const CARD: &str = "4111 1111 1111 1111";
const DIGITS: &str = "4111111111111111";

/// Whether `text` has the number in any form.
fn leaks(text: &str) -> bool {
    text.contains(CARD)
        || text.contains(DIGITS)
        || text.contains("5555-5555")
        || text.contains("378282246310005")
}

fn refused() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"description": CARD}), "/description"),
        (json!({"description": format!("card {DIGITS}, exp 12/29")}), "/description"),
        (json!({"metadata": {"note": "card 5555-5555-5555-4444 exp"}}), "/metadata/note"),
        (json!({"metadata": {(CARD): 1}}), "/metadata"),
        (json!({"metadata": {"a": {(DIGITS): {"b": 1}}}}), "/metadata/a"),
        (json!({"metadata": {"n": 378_282_246_310_005_u64}}), "/metadata/n"),
        (json!({"metadata": {"deep": [[{"x": DIGITS}]]}}), "/metadata/deep/0/0/x"),
        (json!({"payment_method": DIGITS}), "/payment_method"),
    ]
}

/// The same for payouts.
fn refused_of_payouts() -> Vec<(Value, &'static str)> {
    let mut cases: Vec<_> = refused().into_iter().filter(|(_, field)| *field != "/payment_method").collect();
    cases.push((json!({"destination": DIGITS}), "/destination"));
    cases.push((json!({"destination": format!("card:{CARD}")}), "/destination"));
    cases
}

#[tokio::test]
async fn card_numbers_in_payouts_are_refused_never_echoed_and_never_logged() {
    let logs = Logs::capture();
    let s = Server::start().await;
    let account = s.client.funded("EUR", 100).await;
    let before = s.db.rows().await;
    for (change, field) in refused_of_payouts() {
        let reply = s.client.pay_out(&with(payout(&account, 5), change)).send().await;
        reply.refused(422, "card_number_refused");
        assert_eq!(reply.fields(), [field]);
        assert!(!leaks(&format!("{reply:?}")), "{reply:?}");
    }
    let both = s.client.pay_out(&with(payout(&account, 0), json!({"destination": CARD}))).send().await;
    both.refused(422, "card_number_refused");
    let mut fields = both.fields();
    fields.sort();
    assert_eq!(fields, ["/amount_minor", "/destination"]);
    for named in [json!({(DIGITS): 1}), json!({"account_id": DIGITS}), json!({"gateway": DIGITS})] {
        let reply = s.client.pay_out(&with(payout(&account, 5), named)).send().await;
        assert!(reply.status == 422 && !leaks(&format!("{reply:?}")), "{reply:?}");
    }
    for path in [
        format!("/api/v1/payouts/{DIGITS}"),
        format!("/api/v1/payouts?reference={DIGITS}"),
        format!("/api/v1/payouts?account_id={DIGITS}&cursor={DIGITS}&status={DIGITS}&{DIGITS}=1"),
    ] {
        assert!(!leaks(&format!("{:?}", s.client.get(&path).send().await)), "{path}");
    }
    assert_eq!(s.db.rows().await, before);
    assert!(!leaks(&s.db.dump().await), "stored");

    // A reference is an id that others made: stored as what it is, and logged nowhere.
    let odd = with(payout(&account, 5), json!({"reference": DIGITS}));
    let id = s.client.pay_out(&odd).idem(DIGITS).send().await.is(202).text("payout_id");
    s.client.payout_in(&id, "succeeded").await;
    s.client
        .pay_out(&with(odd.clone(), json!({"amount_minor": 6})))
        .send()
        .await
        .refused(409, "order_conflict");
    s.client
        .pay_out(&with(odd, json!({"amount_minor": 6})))
        .idem(DIGITS)
        .send()
        .await
        .refused(409, "idempotency_mismatch");
    for text in ["4111 1111 1111 1112", "00000000-4111-1111-1111-111111111111", "a4111111111111111"] {
        let fits = json!({"destination": text, "description": text, "metadata": {"k": text}});
        s.client.pay_out(&with(payout(&account, 1), fits)).send().await.is(202);
    }
    let text = logs.text();
    assert!(text.contains("request answered"), "the log was captured");
    assert!(!leaks(&text), "logged: {}", text.lines().find(|line| leaks(line)).unwrap_or_default());
    for key in [&s.client.key, &s.operator.key, &s.other.key] {
        assert!(!text.contains(key.as_str()), "an API key was logged");
    }
}

#[tokio::test]
async fn card_numbers_are_refused_and_never_echoed() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    for (change, field) in refused() {
        let reply = s.client.pay(&with(order(100), change)).send().await;
        reply.refused(422, "card_number_refused");
        assert_eq!(reply.fields(), [field]);
        assert!(!leaks(&format!("{reply:?}")), "{reply:?}");
    }
    // Beside other complaints it still decides the code; an unknown field of that name is not echoed either.
    let both = s.client.pay(&with(order(0), json!({"description": CARD}))).send().await;
    both.refused(422, "card_number_refused");
    assert_eq!(both.fields(), ["/amount_minor", "/description"]);
    let named = s.client.pay(&with(order(100), json!({(DIGITS): 1}))).send().await;
    named.invalid("");
    assert!(!leaks(&format!("{named:?}")));
    let twice = format!(r#"{{"amount_minor":1,"currency":"EUR","metadata":{{"{CARD}":1,"{CARD}":2}}}}"#);
    assert!(!leaks(&format!("{:?}", s.client.post_raw("/api/v1/payments", twice).send().await)));
    assert_eq!(s.db.rows().await, before);
}

#[tokio::test]
async fn what_only_looks_like_a_card_is_taken() {
    let s = Server::start().await;
    for text in [
        "4111 1111 1111 1112",
        "00000000-4111-1111-1111-111111111111",
        "a4111111111111111",
        "tel 0049 170 1234567",
        "4111  1111 1111 1111",
    ] {
        s.client
            .pay(&with(order(100), json!({"description": text, "metadata": {"k": text}})))
            .send()
            .await
            .is(202);
    }
    // Ids that others made are not refused: an all-digit one would fail by chance.
    s.client.pay(&with(order(100), json!({"order_id": DIGITS}))).idem(DIGITS).send().await.is(202);
}

/// The canary: every place of a request that can carry a secret carries one; no log line and no table has it.
#[tokio::test]
async fn no_secret_reaches_the_log_or_the_database() {
    let logs = Logs::capture();
    let s = Server::start().await;
    for (change, _) in refused() {
        s.client.pay(&with(order(100), change)).send().await.is(422);
    }
    for path in [
        format!("/api/v1/payments/{DIGITS}"),
        format!("/{DIGITS}"),
        format!("/webhooks/{DIGITS}"),
        format!("/api/v1/payments?order_id={DIGITS}"),
        format!("/api/v1/payments?{DIGITS}=1&api_key={}", s.client.key),
        format!("/api/v1/payments?cursor={DIGITS}&status={DIGITS}"),
    ] {
        s.client
            .get(&path)
            .header("User-Agent", CARD)
            .header("X-Request-Id", DIGITS)
            .header("Referer", DIGITS)
            .send()
            .await;
    }
    s.client.get("/api/v1/payments").key(DIGITS).send().await.is(401);
    s.client.pay(&order(100)).idem("x").header("Prefer", format!("wait={DIGITS}")).send().await.is(202);
    s.client.pay(&order(100)).idem(&format!("{DIGITS}é")).send().await.invalid("header:Idempotency-Key");
    s.client.post_raw("/api/v1/payments", format!("{{\"description\": {DIGITS} x")).send().await.is(400);
    s.client.pay(&order(100)).without("Content-Type").header("Content-Type", DIGITS).send().await.is(415);
    s.client.call(DIGITS, "/api/v1/payments").send().await.is(405);
    assert!(!leaks(&s.db.dump().await), "stored");

    // An order's id may look like one; it is stored as what it is and logged nowhere.
    s.client.pay(&with(order(100), json!({"order_id": DIGITS}))).idem(DIGITS).send().await.is(202);
    s.client.pay(&with(order(999), json!({"order_id": DIGITS}))).send().await.refused(409, "order_conflict");
    s.client.pay(&order(999)).idem(DIGITS).send().await.refused(409, "idempotency_mismatch");

    let text = logs.text();
    assert!(text.contains("request answered") && text.contains("request.id"), "the log was captured");
    assert!(!leaks(&text), "logged: {}", text.lines().find(|line| leaks(line)).unwrap_or_default());
    for key in [&s.client.key, &s.operator.key, &s.other.key] {
        assert!(!text.contains(key.as_str()), "an API key was logged");
        assert!(!s.db.dump().await.contains(key.as_str()), "an API key was stored");
    }
}

#[tokio::test]
async fn a_request_is_logged_once_with_its_id_and_route() {
    let logs = Logs::capture();
    let s = Server::start().await;
    let id = s.client.pay(&order(100)).header("X-Request-Id", "log-1").send().await.text("payment_id");
    s.client.get(&format!("/api/v1/payments/{id}")).header("X-Request-Id", "log-2").send().await;
    let text = logs.text();
    for (request, method, path, status) in
        [("log-1", "POST", "/api/v1/payments", "202"), ("log-2", "GET", "/api/v1/payments/{id}", "200")]
    {
        let lines: Vec<&str> =
            text.lines().filter(|l| l.contains("request answered") && l.contains(request)).collect();
        assert_eq!(lines.len(), 1, "{request}: {text}");
        for part in [method, path, status, "duration_ms="] {
            assert!(lines[0].contains(part), "{part}: {}", lines[0]);
        }
    }
}

#[tokio::test]
async fn client_text_cannot_forge_a_log_line() {
    let logs = Logs::capture();
    let s = Server::start().await;
    let forged = "x\r\n2026-01-01T00:00:00Z ERROR forged";
    s.client
        .pay(&with(
            order(100),
            json!({"description": forged, "order_id": forged, "metadata": {(forged): forged}}),
        ))
        .send()
        .await
        .is(202);
    s.client.pay(&with(order(100), json!({(forged): 1}))).send().await.is(422);
    s.client.get("/api/v1/payments?x%0d%0aforged=1&status=%0aforged").send().await.is(422);
    let text = logs.text();
    assert!(text.contains("request answered") && !text.contains("forged"), "{text}");
}
