//! Amounts and currencies: exact or refused.

use serde_json::{Value, json};

use crate::support::client::Reply;
use crate::support::server::Server;

async fn major(s: &Server, amount: Value, currency: &str) -> Reply {
    s.client.pay(&json!({"amount": amount, "currency": currency})).send().await
}

async fn minor(s: &Server, amount: &str) -> Reply {
    let body = format!(r#"{{"amount_minor":{amount},"currency":"EUR"}}"#);
    s.client.post_raw("/api/v1/payments", body).send().await
}

/// C073: prices come through exactly. Every one of them is tried where amounts are read; here the ones that floats
/// are known to miss.
#[tokio::test]
async fn c073_float_cents() {
    let s = Server::start().await;
    for (amount, expected) in [
        ("19.99", 1999),
        ("8.20", 820),
        ("0.07", 7),
        ("1.15", 115),
        ("100.00", 10_000),
        ("9999999999999.99", 999_999_999_999_999_i64),
    ] {
        let reply = major(&s, json!(amount), "EUR").await;
        let body = reply.is(202).json();
        assert_eq!((&body["amount"], &body["amount_minor"]), (&json!(amount), &json!(expected)));
        let id = reply.text("payment_id");
        let done = s.client.payment_in(&id, "succeeded").await;
        assert_eq!((&done["amount"], &done["captured_minor"]), (&json!(amount), &json!(expected)));
        let journals =
            s.client.get(&format!("/api/v1/payments/{id}?expand=journals,events")).send().await.json();
        assert_eq!(journals["journals"][0]["entries"][0]["amount_minor"], json!(expected));
        assert_eq!(journals["events"][1]["amount"], json!(amount));
    }
}

/// C074: currencies without minor digits are not multiplied, and decimals of them are refused.
#[tokio::test]
async fn c074_zero_decimal_currencies() {
    let s = Server::start().await;
    for currency in ["JPY", "VND", "KRW"] {
        let body = major(&s, json!("450000"), currency).await.is(202).json();
        assert_eq!((&body["amount"], &body["amount_minor"]), (&json!("450000"), &json!(450_000)));
        major(&s, json!("16.24"), currency).await.invalid("/amount");
    }
}

/// C075: three decimals stay three.
#[tokio::test]
async fn c075_three_decimals() {
    let s = Server::start().await;
    for (amount, expected) in [("295.991", 295_991), ("295.990", 295_990)] {
        let body = major(&s, json!(amount), "KWD").await.is(202).json();
        assert_eq!((&body["amount"], &body["amount_minor"]), (&json!(amount), &json!(expected)));
    }
}

/// C078: strange spellings are refused and nothing is stored.
#[tokio::test]
async fn c078_strange_decimal_strings() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    let strange = [
        "1e3",
        "0E+1",
        "+100",
        " 100",
        "100 ",
        "1,000",
        "0x10",
        "NaN",
        "Infinity",
        "10abc",
        "",
        "１００",
        "٣",
        "1.",
        ".5",
        "--1",
        "1_000",
        "1.2.3",
        "1\u{a0}000",
        "-",
        ".",
    ];
    for amount in strange {
        major(&s, json!(amount), "EUR").await.invalid("/amount");
    }
    for amount in [json!(null), json!(true), json!(10), json!(10.5), json!([]), json!({}), json!(["1.00"])] {
        major(&s, amount, "EUR").await.invalid("/amount");
    }
    assert_eq!(s.db.rows().await, before);
}

/// C079: beyond the published maximum 422, below it works.
#[tokio::test]
async fn c079_too_large() {
    let s = Server::start().await;
    for amount in ["2147483648", "1000000000000000"] {
        minor(&s, amount).await.is(202);
    }
    for amount in [
        "1000000000000001",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "1e400",
        "1e15",
    ] {
        minor(&s, amount).await.invalid("/amount_minor");
    }
    minor(&s, &"9".repeat(400)).await.invalid("/amount_minor");
    for amount in ["10000000000000.01", "92233720368547758.08"] {
        major(&s, json!(amount), "EUR").await.invalid("/amount");
    }
    major(&s, json!("9".repeat(40)), "EUR").await.invalid("/amount");
    major(&s, json!("9".repeat(400)), "EUR").await.invalid("/amount");
}

/// C081: only positive amounts.
#[tokio::test]
async fn c081_negative_zero_minus_zero() {
    let s = Server::start().await;
    for amount in ["-1", "0", "-0"] {
        minor(&s, amount).await.invalid("/amount_minor");
    }
    for amount in ["-1", "0", "-0", "-0.00", "0.00", "00"] {
        major(&s, json!(amount), "EUR").await.invalid("/amount");
    }
}

/// C082: no silent rounding.
#[tokio::test]
async fn c082_too_many_decimals() {
    let s = Server::start().await;
    for (amount, currency) in
        [("17.999", "USD"), ("1.2345", "KWD"), ("1.0", "JPY"), ("114.9984", "CHF"), ("1.000", "EUR")]
    {
        let reply = major(&s, json!(amount), currency).await;
        reply.invalid("/amount");
        assert_eq!(reply.json()["errors"][0]["rule"], "max_decimals");
    }
    major(&s, json!("1.000"), "KWD").await.is(202);
    assert_eq!(major(&s, json!("7.5"), "EUR").await.is(202).json()["amount_minor"], 750);
}

/// C083: only exact codes of currencies one can pay with.
#[tokio::test]
async fn c083_currency_codes() {
    let s = Server::start().await;
    for currency in [
        json!("eur"),
        json!("XXX"),
        json!("EURO"),
        json!(""),
        json!("BTC"),
        json!(null),
        json!(978),
        json!("EU"),
        json!("ZZZ"),
        json!("EUR "),
        json!("XAU"),
    ] {
        s.client.pay(&json!({"amount_minor": 100, "currency": currency})).send().await.invalid("/currency");
    }
    s.client.pay(&json!({"amount_minor": 100})).send().await.invalid("/currency");
    s.client
        .post_raw("/api/v1/payments", r#"{"amount_minor":100,"currency":"US\u0000"}"#)
        .send()
        .await
        .invalid("/currency");
}

#[tokio::test]
async fn exactly_one_of_the_two_amounts() {
    let s = Server::start().await;
    let both = s.client.pay(&json!({"amount": "1.00", "amount_minor": 100, "currency": "EUR"})).send().await;
    both.invalid("/amount").invalid("/amount_minor");
    s.client
        .pay(&json!({"amount": "1.00", "amount_minor": null, "currency": "EUR"}))
        .send()
        .await
        .invalid("/amount_minor");
    s.client.pay(&json!({"currency": "EUR"})).send().await.invalid("/amount");
    minor(&s, "null").await.invalid("/amount_minor");
}

/// Amounts of payouts are read by the same rules, and come through to journals, events and the account exactly.
#[tokio::test]
async fn payouts_read_amounts_as_exactly() {
    let s = Server::start().await;
    let out = |account: &str, amount: Value, currency: &str| {
        s.client.pay_out(
            &json!({"account_id": account, "destination": "approve", "amount": amount, "currency": currency}),
        )
    };
    for (amount, currency, minor) in [
        ("19.99", "EUR", 1999),
        ("0.07", "EUR", 7),
        ("9999999999999.99", "EUR", 999_999_999_999_999_i64),
        ("450000", "VND", 450_000),
        ("295.991", "KWD", 295_991),
    ] {
        let account = s.client.funded(currency, minor).await;
        let created = out(&account, json!(amount), currency).send().await;
        let shown = created.is(202).json();
        assert_eq!((&shown["amount"], &shown["amount_minor"]), (&json!(amount), &json!(minor)));
        let done = s.client.payout_in(&created.text("payout_id"), "succeeded").await;
        for entry in done["journals"][0]["entries"].as_array().unwrap() {
            assert_eq!(entry["amount_minor"], json!(minor));
        }
        for event in done["events"].as_array().unwrap() {
            assert_eq!((&event["amount"], &event["amount_minor"]), (&json!(amount), &json!(minor)));
        }
        assert_eq!(s.client.balance(&account).await["balance_minor"], 0);
    }
    let accounts = [
        s.client.funded("EUR", 100).await,
        s.client.funded("JPY", 100).await,
        s.client.funded("KWD", 100).await,
    ];
    let before = s.db.rows().await;
    for amount in
        ["1e3", "+1", " 1", "1,0", "NaN", "", "1.", ".5", "-1", "0", "0.00", "-0", "１", "10000000000000.01"]
    {
        out(&accounts[0], json!(amount), "EUR").send().await.invalid("/amount");
    }
    for (account, amount, currency) in
        [(&accounts[0], "1.999", "EUR"), (&accounts[1], "1.0", "JPY"), (&accounts[2], "1.2345", "KWD")]
    {
        let reply = out(account, json!(amount), currency).send().await;
        assert_eq!(reply.invalid("/amount").json()["errors"][0]["rule"], "max_decimals");
    }
    for amount in [json!(null), json!(10.5), json!([]), json!(true)] {
        out(&accounts[0], amount, "EUR").send().await.invalid("/amount");
    }
    for amount in ["1e3", "1.0", "9223372036854775808", "1000000000000001", "-1", "0"] {
        let body = format!(
            r#"{{"account_id":"{}","destination":"approve","currency":"EUR","amount_minor":{amount}}}"#,
            accounts[0]
        );
        s.client.post_raw("/api/v1/payouts", body).send().await.invalid("/amount_minor");
    }
    assert_eq!(s.db.rows().await, before);
}
