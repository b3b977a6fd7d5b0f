//! `GET /health/live` and `GET /health/ready`: for supervisors and load balancers, without a key.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use tallystick_payments::Engine;
use utoipa::ToSchema;

use super::AppState;
use super::extract::json_bytes;

/// How long the question may take; a database that does not answer makes us not ready, not silent.
const DEADLINE: Duration = Duration::from_secs(3);

/// How this process is.
#[derive(Serialize, ToSchema)]
pub struct Health {
    /// `live`, `ready` or `not_ready`.
    pub status: &'static str,
    /// Why it is not ready.
    pub reason: Option<String>,
}

impl Health {
    fn response(&self, status: StatusCode) -> Response {
        json_bytes(status, serde_json::to_vec(self).expect("strings always serialize"))
    }
}

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/health/live", get(live)).route("/health/ready", get(ready))
}

/// Whether the process runs. Asks nothing else.
#[utoipa::path(get, operation_id = "is_live", path = "/health/live", tag = "operation", responses((status = 200, body = Health)), security(()))]
pub(super) async fn live() -> Response {
    Health { status: "live", reason: None }.response(StatusCode::OK)
}

/// Whether requests can be served: the database answers, is the one that the rows were written in, and has room for
/// the events of the next days.
#[utoipa::path(
    get,
    operation_id = "is_ready",
    path = "/health/ready",
    tag = "operation",
    responses((status = 200, body = Health), (status = 503, description = "Not ready; `reason` says why", body = Health)),
    security(())
)]
pub(super) async fn ready(State(engine): State<Engine>) -> Response {
    let reason = match tokio::time::timeout(DEADLINE, engine.readiness()).await {
        Ok(Ok(())) => return Health { status: "ready", reason: None }.response(StatusCode::OK),
        Ok(Err(reason)) => reason,
        Err(_) => "the database did not answer in time".to_owned(),
    };
    tracing::warn!(reason, "not ready");
    Health { status: "not_ready", reason: Some(reason) }.response(StatusCode::SERVICE_UNAVAILABLE)
}
