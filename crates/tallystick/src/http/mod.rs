//! The HTTP API: what a request passes on its way in, and what an answer passes on its way out.
//!
//! From the outside in:
//! 1. [`access`]: request id, span, access log, metrics; turns a [`problem::Problem`] into its body.
//! 2. `drain`: reads and drops what is left of a refused body, so that the answer arrives.
//! 3. a panic becomes a 500 without details.
//! 4. only for `/api` and `/webhooks`: the [`limits`] (requests at once, time per request).
//! 5. only for `/api`: [`auth`] (API key, rate per key).
//! 6. the endpoint, one file each under [`v1`].
//!
//! Handlers see no connection and no SQL; they read and check the request, call one method of the
//! [`Engine`](tallystick_payments::Engine) and write the answer. What writes runs in a task of its own, so a client
//! that hangs up changes nothing. Status codes of refusals are known in [`problem`] only.

pub mod access;
pub mod auth;
mod body;
pub mod card;
mod cursor;
mod drain;
mod expand;
mod extract;
mod fields;
mod health;
mod hooks;
mod idempotency_key;
mod json;
pub mod limits;
mod metrics;
pub mod openapi;
mod pages;
mod prefer;
pub mod problem;
mod request_id;
mod serve;
mod state;
pub mod v1;
mod webhook_url;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use tower_http::catch_panic::CatchPanicLayer;

use problem::Problem;
pub use serve::serve;
pub use state::{AppState, HttpSettings};

/// The whole API, with what [`operations`] has.
pub fn router(state: AppState) -> Router {
    let api = v1::routes().route_layer(from_fn_with_state(state.clone(), auth::authenticate));
    let limited = api.merge(hooks::routes()).route_layer(from_fn_with_state(state.clone(), limits::admit));
    finish(limited.merge(openapi::routes()).merge(pages::routes()), state)
}

/// Only what supervisors and monitoring ask: for processes without the API.
pub fn operations(state: AppState) -> Router {
    finish(Router::new(), state)
}

fn finish(routes: Router<AppState>, state: AppState) -> Router {
    dressed(routes.merge(health::routes()).merge(metrics::routes())).with_state(state)
}

/// The layers that every answer passes, also that no route is there.
fn dressed<S: Clone + Send + Sync + 'static>(routes: Router<S>) -> Router<S> {
    routes
        .fallback(async || Problem::not_found())
        .layer(CatchPanicLayer::custom(problem::of_panic))
        .layer(from_fn(drain::drain))
        .layer(from_fn(access::access))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use axum::response::Response;
    use axum::routing::get;
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tower::ServiceExt;

    use super::*;

    async fn ask(method: &str, path: &str) -> (Response<()>, Value) {
        let app: Router =
            dressed(Router::new().route("/panics", get(async || -> () { panic!("secret words") })));
        let request =
            Request::builder().method(method).uri(path).header("x-request-id", "r-1").body(Body::empty());
        let (parts, body) = app.oneshot(request.unwrap()).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (Response::from_parts(parts, ()), serde_json::from_slice(&bytes).unwrap())
    }

    #[tokio::test]
    async fn whatever_goes_wrong_is_a_problem_with_the_requests_id() {
        for (method, path, status, code) in [
            ("GET", "/panics", StatusCode::INTERNAL_SERVER_ERROR, "internal"),
            ("GET", "/nowhere", StatusCode::NOT_FOUND, "not_found"),
            ("POST", "/panics", StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
        ] {
            let (response, body) = ask(method, path).await;
            assert_eq!((response.status(), body["code"].as_str()), (status, Some(code)));
            assert_eq!(response.headers()["content-type"], "application/problem+json");
            assert_eq!(response.headers()["x-request-id"], "r-1");
            assert_eq!(body["request_id"], "r-1");
            assert_eq!(body["type"], format!("urn:tallystick:problem:{code}"));
            assert!(!body.to_string().contains("secret"));
            let allow = response.headers().get("allow").map(|v| v.to_str().unwrap());
            assert_eq!(allow, (code == "method_not_allowed").then_some("GET,HEAD"));
        }
    }
}
