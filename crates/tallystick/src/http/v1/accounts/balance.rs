//! `GET /api/v1/accounts/{id}/balance`.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use tallystick_ledger::Balance;
use tallystick_payments::Engine;
use tallystick_payments::tenants::Caller;

use crate::http::extract::{Params, PathId, json};
use crate::http::problem::Problem;

/// An account's balance, now or as it was recorded at an instant.
///
/// `complete` is false when a transaction that began before the instant may still add to it.
#[utoipa::path(
    get,
    operation_id = "get_account_balance",
    path = "/api/v1/accounts/{id}/balance",
    tag = "ledger",
    params(
        ("id" = String, Path, format = Uuid, description = "The account"),
        ("at" = Option<String>, Query, format = DateTime, description = "An RFC 3339 time; now when absent"),
    ),
    responses((status = 200, body = Balance), (status = 404, description = "No such account of this tenant"))
)]
pub(in crate::http) async fn balance(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    PathId(id): PathId,
    mut params: Params,
) -> Result<Response, Problem> {
    let at = params.at();
    params.finish()?;
    json(&engine.balance(caller.tenant, id, at).await?.ok_or_else(Problem::not_found)?)
}
