//! `GET /api/v1/journals/{id}`.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use tallystick_ledger::Journal;
use tallystick_payments::Engine;
use tallystick_payments::tenants::Caller;

use crate::http::extract::{Params, PathId, json};
use crate::http::problem::Problem;

/// One journal with its entries.
#[utoipa::path(
    get,
    operation_id = "get_journal",
    path = "/api/v1/journals/{id}",
    tag = "ledger",
    params(("id" = String, Path, format = Uuid, description = "The journal")),
    responses((status = 200, body = Journal), (status = 404, description = "No such journal of this tenant"))
)]
pub(in crate::http) async fn get(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    PathId(id): PathId,
    params: Params,
) -> Result<Response, Problem> {
    params.finish()?;
    json(&engine.journal(caller.tenant, id).await?.ok_or_else(Problem::not_found)?)
}
