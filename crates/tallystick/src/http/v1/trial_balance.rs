//! `GET /api/v1/trial-balance`.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use tallystick_ledger::TrialBalance;
use tallystick_payments::Engine;
use tallystick_payments::tenants::Caller;

use crate::http::extract::{Params, json};
use crate::http::problem::Problem;

/// All accounts of the tenant in one currency; debits and credits are equal.
#[utoipa::path(
    get,
    operation_id = "get_trial_balance",
    path = "/api/v1/trial-balance",
    tag = "ledger",
    params(
        ("currency" = String, Query, description = "ISO 4217, in capital letters"),
        ("at" = Option<String>, Query, format = DateTime, description = "An RFC 3339 time; now when absent"),
    ),
    responses((status = 200, body = TrialBalance))
)]
pub(in crate::http) async fn trial_balance(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    mut params: Params,
) -> Result<Response, Problem> {
    let message = "must be an ISO 4217 code in capital letters, such as EUR, of a currency with minor units";
    let given = params.has("currency");
    let currency = params.read("currency", "currency", message, |text| text.parse().ok());
    if !given {
        params.refuse("currency", "required", "is required");
    }
    let at = params.at();
    let Some(currency) = currency else { return Err(params.refused()) };
    params.finish()?;
    json(&engine.trial_balance(caller.tenant, currency, at).await?)
}
