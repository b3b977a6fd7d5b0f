//! Bodies and texts: stored exactly, or refused by name.

use serde_json::{Value, json};

use super::{order, payout, with};
use crate::support::client::Reply;
use crate::support::server::Server;

async fn raw(s: &Server, body: impl Into<Vec<u8>>) -> Reply {
    s.client.post_raw("/api/v1/payments", body).send().await
}

/// A payment's body whose member is this JSON text.
fn member(name: &str, json: &str) -> String {
    format!(r#"{{"amount_minor":100,"currency":"EUR","{name}":{json}}}"#)
}

/// C132: NUL cannot be stored; the field is named and nothing is.
#[tokio::test]
async fn c132_nul_in_json() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    for field in ["description", "order_id", "payment_method", "gateway", "webhook_url", "capture"] {
        raw(&s, member(field, r#""a\u0000b""#)).await.invalid(&format!("/{field}"));
    }
    raw(&s, member("metadata", r#"{"k":"a\u0000b"}"#)).await.invalid("/metadata/k");
    raw(&s, member("metadata", r#"{"k":[{"x":"\u0000"}]}"#)).await.invalid("/metadata/k/0/x");
    raw(&s, member("metadata", r#"{"a\u0000":1}"#)).await.invalid("/metadata");
    for lone in [r#""\ud800""#, r#""\udc00x""#, r#""\ud800\ud800""#] {
        raw(&s, member("description", lone)).await.invalid("/description");
    }
    raw(&s, b"{\"amount_minor\":100,\"currency\":\"EUR\",\"description\":\"a\0b\"}".to_vec())
        .await
        .refused(400, "malformed_json");
    assert_eq!(s.db.rows().await, before);
}

/// C136: deeper than 64 levels is refused, and the process goes on.
#[tokio::test]
async fn c136_deep_json() {
    let s = Server::start().await;
    let nested = |n: usize| member("metadata", &format!("{}1{}", r#"{"a":"#.repeat(n), "}".repeat(n)));
    raw(&s, nested(63)).await.is(202);
    for depth in [64, 100, 127, 128, 129, 10_000] {
        raw(&s, nested(depth)).await.refused(400, "malformed_json");
    }
    raw(&s, "[".repeat(1_000_000)).await.refused(400, "malformed_json");
    raw(&s, r#"{"a":"#.repeat(200_000)).await.refused(400, "malformed_json");
    s.client.pay(&order(100)).send().await.is(202);
}

/// C137: metadata comes back exactly, up to its limit.
#[tokio::test]
async fn c137_big_and_odd_metadata() {
    let s = Server::start().await;
    let odd = r#"{"__proto__":{"x":1},"constructor":null,"":"empty","big":12345678901234567890,"neg":-98765432109876543210,"dec":1.10,"exp":1e+308,"list":[[],{},"",true],"ünï":"👩‍👩‍👧‍👦","a/b~c":"\u2028"}"#;
    let reply = raw(&s, member("metadata", odd)).await;
    let id = reply.is(202).text("payment_id");
    let expected: Value = serde_json::from_str(odd).unwrap();
    assert_eq!(
        reply.json()["metadata"].to_string(),
        expected.to_string(),
        "spelling of numbers and order of keys"
    );
    let read = s.client.payment(&id).await;
    assert_eq!(read["metadata"].to_string(), expected.to_string());

    let fits = format!(r#"{{"k":"{}"}}"#, "x".repeat(16 * 1024 - 8));
    raw(&s, member("metadata", &fits)).await.is(202);
    let over = format!(r#"{{"k":"{}"}}"#, "x".repeat(16 * 1024 - 7));
    raw(&s, member("metadata", &over)).await.invalid("/metadata");
    let many: Vec<String> = (0..50_000).map(|n| format!(r#""k{n}":1"#)).collect();
    raw(&s, member("metadata", &format!("{{{}}}", many.join(",")))).await.invalid("/metadata");
    for bad in ["[]", "\"text\"", "1", "true"] {
        raw(&s, member("metadata", bad)).await.invalid("/metadata");
    }
    raw(&s, member("metadata", &format!(r#"{{"k":"{}"}}"#, "x".repeat(1024 * 1024))))
        .await
        .refused(413, "body_too_large");
    // Would be read back from the database as a number, or not at all.
    raw(&s, member("metadata", r#"{"a":{"$serde_json::private::Number":"x"}}"#)).await.invalid("/metadata/a");
}

/// C138: what is no JSON in UTF-8 is refused.
#[tokio::test]
async fn c138_bad_utf8_and_wrong_content_type() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    let utf16: Vec<u8> = order(100).to_string().encode_utf16().flat_map(u16::to_le_bytes).collect();
    for body in [
        b"\xc3\x28".to_vec(),
        b"\xff\xfe".to_vec(),
        utf16,
        Vec::new(),
        b"   ".to_vec(),
        b"\xef\xbb\xbf{}".to_vec(),
    ] {
        raw(&s, body).await.refused(400, "malformed_json");
    }
    let call = s.client.pay(&order(100)).without("Content-Type");
    call.clone().send().await.refused(415, "unsupported_media_type");
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-16",
        "application/xml",
        "",
    ] {
        call.clone().header("Content-Type", kind).send().await.refused(415, "unsupported_media_type");
    }
    let gzip = s.client.post_raw("/api/v1/payments", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03".to_vec());
    gzip.header("Content-Encoding", "gzip").send().await.refused(415, "unsupported_media_type");
    assert_eq!(s.db.rows().await, before);
    call.header("Content-Type", "Application/JSON; Charset=\"UTF-8\"").send().await.is(202);
}

#[tokio::test]
async fn malformed_json_is_no_json() {
    let s = Server::start().await;
    for body in [
        "{",
        "[",
        r#"{"amount_minor":100,}"#,
        r#"{"amount_minor":100,"currency":"EUR"} x"#,
        "{'a':1}",
        "NaN",
        "{\"a\":01}",
        "{\"a\":\"\n\"}",
    ] {
        raw(&s, body).await.refused(400, "malformed_json");
    }
    for body in ["null", "[]", "\"x\"", "1", "true"] {
        raw(&s, body).await.invalid("");
    }
}

#[tokio::test]
async fn doubled_keys_are_refused_at_any_depth() {
    let s = Server::start().await;
    let before = s.db.rows().await;
    raw(&s, r#"{"amount":"1.00","amount":"900.00","currency":"EUR"}"#).await.invalid("/amount");
    raw(&s, r#"{"amount_minor":100,"\u0061mount_minor":900,"currency":"EUR"}"#)
        .await
        .invalid("/amount_minor");
    raw(&s, member("metadata", r#"{"a":{"b":[{"c":1,"c":1}]}}"#)).await.invalid("/metadata/a/b/0/c");
    assert_eq!(s.db.rows().await, before);
}

/// What holds for the body of a payment holds for that of a payout.
#[tokio::test]
async fn bodies_of_payouts_are_read_as_strictly() {
    let s = Server::start().await;
    let account = s.client.funded("EUR", 100).await;
    let before = s.db.rows().await;
    let raw = async |body: &str| s.client.post_raw("/api/v1/payouts", body.as_bytes().to_vec()).send().await;
    let member = |name: &str, json: &str| {
        let known = format!(r#""account_id":"{account}","amount_minor":5,"currency":"EUR""#);
        let destination = if name == "destination" { "" } else { r#""destination":"approve","# };
        format!(r#"{{{destination}{known},"{name}":{json}}}"#)
    };
    for field in ["destination", "reference", "description", "gateway", "webhook_url"] {
        raw(&member(field, r#""a\u0000b""#)).await.invalid(&format!("/{field}"));
        raw(&member(field, r#""\ud800""#)).await.invalid(&format!("/{field}"));
    }
    raw(&member("metadata", r#"{"k":[{"x":"\u0000"}]}"#)).await.invalid("/metadata/k/0/x");
    raw(&member("metadata", r#"{"a":{"b":[{"c":1,"c":1}]}}"#)).await.invalid("/metadata/a/b/0/c");
    // Doubled fields, spelled in one way and in two.
    for (name, json) in [
        ("amount_minor", "900"),
        ("account_id", "\"0198c5a0-5f3e-7cc1-9f57-2d1f0a4c8e11\""),
        ("currency", "\"EUR\""),
        (r"\u0061mount_minor", "900"),
    ] {
        let field = name.replace(r"\u0061", "a");
        raw(&member(name, json)).await.invalid(&format!("/{field}"));
    }
    let unknown = raw(&member("order_id", "\"x\"")).await;
    assert_eq!(unknown.invalid("/order_id").json()["errors"][0]["rule"], "unknown_field");
    for body in ["{", "[", "", &format!("{} x", member("description", "\"x\"")), &"[".repeat(100_000)] {
        raw(body).await.refused(400, "malformed_json");
    }
    for body in ["null", "[]", "7"] {
        raw(body).await.invalid("");
    }
    let deep = format!("{}1{}", r#"{"a":"#.repeat(64), "}".repeat(64));
    raw(&member("metadata", &deep)).await.refused(400, "malformed_json");
    let call = s.client.pay_out(&payout(&account, 5)).without("Content-Type");
    call.clone().send().await.refused(415, "unsupported_media_type");
    call.header("Content-Type", "text/csv").send().await.refused(415, "unsupported_media_type");
    assert_eq!(s.db.rows().await, before, "nothing was stored");

    // What is taken comes back exactly, from the answer and from the database.
    let odd = r#"{"__proto__":{"x":1},"big":12345678901234567890,"dec":1.10,"list":[[],{},""],"ünï":"👩‍👩‍👧‍👦"}"#;
    let text = "a\u{202e}b '; DROP TABLE payout; -- \u{1f}\t👩‍👩‍👧‍👦";
    let body =
        with(payout(&account, 5), json!({"reference": text, "description": text, "destination": text}));
    let body = with(body, json!({"metadata": serde_json::from_str::<Value>(odd).unwrap()}));
    let created = s.client.pay_out(&body).send().await;
    let read = s.client.payout(&created.is(202).text("payout_id")).await;
    for shown in [&created.json(), &read] {
        for field in ["reference", "description", "destination"] {
            assert_eq!(shown[field], json!(text), "{field}");
        }
        assert_eq!(shown["metadata"].to_string(), body["metadata"].to_string());
    }
}

/// Texts that break other systems are text.
#[tokio::test]
async fn texts_come_back_exactly() {
    let s = Server::start().await;
    let long = "é".repeat(1000);
    for text in [
        "emoji 👩‍👩‍👧‍👦",
        "العربية",
        "a\u{202e}b",
        "'; DROP TABLE payment; --",
        "line\r\nbreak",
        "${jndi:ldap://x}",
        "<script>",
        "\u{1f}\t",
        "\u{2028}\u{feff}",
        "\\\"",
        long.as_str(),
    ] {
        let reply = s
            .client
            .pay(&with(
                order(100),
                json!({"description": text, "order_id": text.chars().take(100).collect::<String>()}),
            ))
            .send()
            .await;
        let id = reply.is(202).text("payment_id");
        let read = s.client.payment(&id).await;
        assert_eq!(read["description"], json!(text));
    }
    for (field, most) in [("description", 1000), ("order_id", 128), ("payment_method", 255), ("gateway", 64)]
    {
        s.client
            .pay(&with(order(100), json!({field: "é".repeat(most + 1)})))
            .send()
            .await
            .invalid(&format!("/{field}"));
        s.client.pay(&with(order(100), json!({field: ""}))).send().await.invalid(&format!("/{field}"));
        s.client.pay(&with(order(100), json!({field: 7}))).send().await.invalid(&format!("/{field}"));
    }
}

#[tokio::test]
async fn webhook_urls_are_plain() {
    let s = Server::start().await;
    let account = s.client.funded("EUR", 100).await;
    for url in ["https://shop.example/hook?x=1", "http://127.0.0.1:9/hook"] {
        s.client.pay(&with(order(100), json!({"webhook_url": url}))).send().await.is(202);
        s.client.pay_out(&with(payout(&account, 1), json!({"webhook_url": url}))).send().await.is(202);
    }
    let long = format!("https://shop.example/{}", "x".repeat(2048));
    for url in [
        "",
        "shop.example",
        "/hook",
        "ftp://shop.example",
        "gopher://x",
        "file:///etc/passwd",
        "http://",
        "http://good.com@127.0.0.1",
        "http://good.com\\@127.0.0.1",
        "http://u:p@x.example",
        "http://x.example/\r\nX-Evil: 1",
        "http://x.example/a b",
        "http://x:99999/",
        &long,
    ] {
        s.client.pay(&with(order(100), json!({"webhook_url": url}))).send().await.invalid("/webhook_url");
        s.client
            .pay_out(&with(payout(&account, 1), json!({"webhook_url": url})))
            .send()
            .await
            .invalid("/webhook_url");
    }
}
