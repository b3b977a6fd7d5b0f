//! The outermost layer: gives each request its id and span, counts it, logs it once, and writes problem bodies.
//!
//! The log line has the route's template instead of the path, and no query, header or body: nothing that a client
//! sent, except its plain request id, can get into the log from here.

use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;
use tracing::field::Empty;

use super::problem::Problem;
use super::request_id::{HEADER, RequestId};

/// Shown instead of the path when no route matched.
const NO_ROUTE: &str = "(none)";

/// The layer.
pub async fn access(request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers());
    let method = method(request.method());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
    let span = tracing::info_span!(
        "request",
        request.id = id.as_str(),
        tenant.id = Empty,
        payment.id = Empty,
        payout.id = Empty
    );
    let started = Instant::now();
    let mut response = next.run(request).instrument(span.clone()).await;
    write_problem(&mut response, &id);
    let headers = response.headers_mut();
    headers.insert(HEADER, id.header());
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));

    let (status, took) = (response.status().as_u16(), started.elapsed());
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    span.in_scope(|| tracing::info!(method, path = route, status, duration_ms, "request answered"));
    let labels = [("method", method.to_owned()), ("route", route.to_owned()), ("status", status.to_string())];
    ::metrics::counter!("tallystick_http_requests_total", &labels).increment(1);
    ::metrics::histogram!("tallystick_http_request_seconds", "method" => method, "route" => route.to_owned())
        .record(took);
    response
}

/// The methods that exist here; a client cannot make up new metric labels or log words.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// A problem travels as an extension, because only here the request's id is known.
fn write_problem(response: &mut Response, id: &RequestId) {
    let problem = match response.extensions_mut().remove::<Problem>() {
        Some(problem) => problem,
        // The router's own answer; it has set `Allow`.
        None if response.status() == StatusCode::METHOD_NOT_ALLOWED => Problem::method_not_allowed(),
        None => return,
    };
    problem.write(response, id.as_str());
}
