//! `POST /webhooks/{gateway}`: what a gateway tells us. Answered 2xx once it is stored; who sent it is checked over
//! the raw bytes before anything is read from them.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::post;
use tallystick_gateway::WebhookMessage;
use tallystick_payments::Engine;

use super::extract::{detached, json_bytes};
use super::problem::Problem;
use super::{AppState, body};

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/webhooks/{gateway}", post(receive))
}

/// Takes one event of a gateway account (Standard Webhooks).
///
/// Nothing is stored unless the signature holds. A repeat of an event is answered 2xx and changes nothing. After
/// anything but 2xx the sender keeps the event and sends it again.
#[utoipa::path(
    post,
    operation_id = "receive_webhook",
    path = "/webhooks/{gateway}",
    tag = "webhooks in",
    params(
        ("gateway" = String, Path, description = "Name of the gateway account"),
        ("webhook-id" = String, Header, description = "The event's id"),
        ("webhook-timestamp" = String, Header, description = "Seconds since 1970"),
        ("webhook-signature" = String, Header, description = "Signatures `v1,<base64>`, separated by spaces"),
    ),
    request_body(content = Object, description = "As the gateway sends it"),
    responses(
        (status = 200, description = "Stored"),
        (status = 400, description = "Signed, but not readable: `malformed_json`"),
        (status = 401, description = "The signature does not hold; nothing was stored"),
        (status = 404, description = "No such gateway account"),
        (status = 413, description = "Larger than 1 MiB"),
    ),
    security(())
)]
pub(super) async fn receive(
    State(engine): State<Engine>,
    Path(gateway): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let body = body::read(body).await?;
    let headers = parts.headers;
    detached(async move {
        let message = WebhookMessage {
            id: one(&headers, "webhook-id"),
            timestamp: one(&headers, "webhook-timestamp"),
            signature: one(&headers, "webhook-signature"),
            body: &body,
        };
        engine.receive_webhook(&gateway, message).await
    })
    .await??;
    Ok(json_bytes(StatusCode::OK, "{}"))
}

/// A header that is there once. Two of them are none: nobody can tell which one was signed.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}
