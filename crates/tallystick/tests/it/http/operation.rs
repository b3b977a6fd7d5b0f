//! Health, metrics, the documentation pages, and what every answer has.

use serde_json::json;
use uuid::Uuid;

use super::order;
use crate::support::server::Server;

#[tokio::test]
async fn supervisors_need_no_key() {
    let s = Server::start().await;
    let live = s.client.get("/health/live").without("X-API-Key").send().await;
    assert_eq!(live.is(200).json(), json!({"status": "live", "reason": null}));
    let ready = s.client.get("/health/ready").without("X-API-Key").send().await;
    match s.engine.readiness().await {
        Ok(()) => assert_eq!(ready.is(200).json(), json!({"status": "ready", "reason": null})),
        // A server for tests may be set to lose commits, which is never ready.
        Err(reason) => assert_eq!(ready.is(503).json(), json!({"status": "not_ready", "reason": reason})),
    }
    let metrics = s.client.get("/metrics").without("X-API-Key").send().await;
    assert!(metrics.is(200).header("content-type").unwrap().starts_with("text/plain"));
}

#[tokio::test]
async fn the_documentation_is_served() {
    let s = Server::start().await;
    let document = s.client.get("/openapi.json").without("X-API-Key").send().await;
    assert!(document.is(200).text("openapi").starts_with("3.1"));
    let page = s.client.get("/docs").without("X-API-Key").send().await;
    assert!(page.is(200).header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    let text = String::from_utf8(page.body).unwrap();
    assert!(text.contains("/api/v1/payments/{id}") && text.contains("card_number_refused"));
    let style = s.client.get("/docs/style.css").without("X-API-Key").send().await;
    assert!(style.is(200).header("content-type").unwrap().starts_with("text/css"));
}

#[tokio::test]
async fn every_answer_has_a_request_id() {
    let s = Server::start().await;
    for path in ["/health/live", "/api/v1/payments", "/nowhere", "/openapi.json"] {
        let made = s.client.get(path).send().await;
        assert!(Uuid::parse_str(made.header("x-request-id").unwrap()).is_ok(), "{path}");
        let taken = s.client.get(path).header("X-Request-Id", "try.1_a-B").send().await;
        assert_eq!(taken.header("x-request-id"), Some("try.1_a-B"));
        assert_eq!(taken.header("x-content-type-options"), Some("nosniff"));
    }
    for odd in ["", "a b", "x;y", "4111111111111111", &"x".repeat(129)] {
        let reply = s.client.get("/nowhere").header("X-Request-Id", odd).send().await;
        assert!(Uuid::parse_str(reply.header("x-request-id").unwrap()).is_ok(), "{odd}");
    }
    let created = s.client.pay(&order(100)).header("X-Request-Id", "mine").send().await;
    assert_eq!((created.status, created.header("x-request-id")), (202, Some("mine")));
}

#[tokio::test]
async fn unknown_addresses_and_methods_are_problems() {
    let s = Server::start().await;
    for path in ["/", "/api", "/api/v1", "/api/v2/payments", "/api/v1/payments/", "//api/v1/payments"] {
        s.client.get(path).send().await.refused(404, "not_found");
    }
    for (method, path, allow) in [
        ("DELETE", "/api/v1/payments", "GET,HEAD,POST"),
        ("PUT", "/api/v1/events", "GET,HEAD"),
        ("PATCH", "/health/live", "GET,HEAD"),
        ("BREW", "/api/v1/payments", "GET,HEAD,POST"),
    ] {
        let reply = s.client.call(method, path).send().await;
        reply.refused(405, "method_not_allowed");
        let mut allowed: Vec<&str> = reply.header("allow").unwrap().split(',').collect();
        allowed.sort_unstable();
        assert_eq!(allowed.join(","), allow, "{method} {path}");
    }
}
