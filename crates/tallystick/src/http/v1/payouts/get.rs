//! `GET /api/v1/payouts/{id}`.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use tallystick_ledger::Journal;
use tallystick_payments::Engine;
use tallystick_payments::ids::PayoutId;
use tallystick_payments::payment::{Attempt, HistoryRow};
use tallystick_payments::payout::Payout;
use tallystick_payments::tenants::Caller;
use utoipa::ToSchema;

use crate::http::expand;
use crate::http::extract::{Params, PathId, json};
use crate::http::problem::Problem;

/// What `expand` may name.
const EXPANSIONS: [&str; 4] = ["history", "attempts", "journals", "events"];

/// A payout with what `expand` asked for; what it did not ask for is left out.
#[derive(Serialize, ToSchema)]
pub struct ExpandedPayout {
    /// The payout.
    #[serde(flatten)]
    pub payout: Payout,
    /// Moves of its status, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<HistoryRow>>,
    /// Calls to the bank, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Vec<Attempt>>,
    /// Its journals, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journals: Option<Vec<Journal>>,
    /// Its events, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<crate::http::v1::events::Event>>)]
    pub events: Option<Vec<Value>>,
}

/// One payout, as it is now.
#[utoipa::path(
    get,
    operation_id = "get_payout",
    path = "/api/v1/payouts/{id}",
    tag = "payouts",
    params(
        ("id" = String, Path, format = Uuid, description = "The payout"),
        ("expand" = Option<String>, Query, description = "Names separated by commas: `history`, `attempts`, `journals`, `events`"),
    ),
    responses((status = 200, body = ExpandedPayout), (status = 404, description = "No such payout of this tenant"))
)]
pub(in crate::http) async fn get(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    PathId(id): PathId,
    mut params: Params,
) -> Result<Response, Problem> {
    let names = expand::take(&mut params, &EXPANSIONS);
    params.finish()?;
    let tenant = caller.tenant;
    let payout = engine.payout(tenant, PayoutId(id)).await?.ok_or_else(Problem::not_found)?;
    let asked = |name: &str| names.contains(&name);
    let expanded = ExpandedPayout {
        payout,
        history: if asked("history") { Some(engine.history(id).await?) } else { None },
        attempts: if asked("attempts") { Some(engine.attempts(id).await?) } else { None },
        journals: if asked("journals") { Some(engine.journals_of(tenant, id).await?) } else { None },
        events: if asked("events") { Some(engine.events_of(tenant, id).await?) } else { None },
    };
    json(&expanded)
}
