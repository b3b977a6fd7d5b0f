//! `GET /api/v1/accounts/{id}`.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use tallystick_ledger::Account;
use tallystick_payments::Engine;
use tallystick_payments::tenants::Caller;

use crate::http::extract::{Params, PathId, json};
use crate::http::problem::Problem;

/// One account.
#[utoipa::path(
    get,
    operation_id = "get_account",
    path = "/api/v1/accounts/{id}",
    tag = "ledger",
    params(("id" = String, Path, format = Uuid, description = "The account")),
    responses((status = 200, body = Account), (status = 404, description = "No such account of this tenant"))
)]
pub(in crate::http) async fn get(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    PathId(id): PathId,
    params: Params,
) -> Result<Response, Problem> {
    params.finish()?;
    json(&engine.account(caller.tenant, id).await?.ok_or_else(Problem::not_found)?)
}
