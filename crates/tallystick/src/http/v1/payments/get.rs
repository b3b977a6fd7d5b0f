//! `GET /api/v1/payments/{id}`.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use tallystick_ledger::Journal;
use tallystick_payments::Engine;
use tallystick_payments::ids::PaymentId;
use tallystick_payments::payment::{Attempt, HistoryRow, Payment};
use tallystick_payments::tenants::Caller;
use utoipa::ToSchema;

use crate::http::expand;
use crate::http::extract::{Params, PathId, json};
use crate::http::problem::Problem;

/// What `expand` may name.
const EXPANSIONS: [&str; 6] = ["history", "attempts", "journals", "events", "refunds", "captures"];

/// A payment with what `expand` asked for; what it did not ask for is left out.
#[derive(Serialize, ToSchema)]
pub struct ExpandedPayment {
    /// The payment.
    #[serde(flatten)]
    pub payment: Payment,
    /// Moves of its status, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<HistoryRow>>,
    /// Calls to the gateway, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Vec<Attempt>>,
    /// Its journals, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journals: Option<Vec<Journal>>,
    /// Its events, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<crate::http::v1::events::Event>>)]
    pub events: Option<Vec<Value>>,
    /// Its refunds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub refunds: Option<Vec<Value>>,
    /// Its captures.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub captures: Option<Vec<Value>>,
}

/// One payment, as it is now.
#[utoipa::path(
    get,
    operation_id = "get_payment",
    path = "/api/v1/payments/{id}",
    tag = "payments",
    params(
        ("id" = String, Path, format = Uuid, description = "The payment"),
        ("expand" = Option<String>, Query, description = "Names separated by commas: `history`, `attempts`, `journals`, `events`, `refunds`, `captures`"),
    ),
    responses((status = 200, body = ExpandedPayment), (status = 404, description = "No such payment of this tenant"))
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
    let payment = engine.payment(tenant, PaymentId(id)).await?.ok_or_else(Problem::not_found)?;
    let asked = |name: &str| names.contains(&name);
    // None of these exists yet for any payment.
    let none = |name: &str| asked(name).then(Vec::new);
    let expanded = ExpandedPayment {
        payment,
        history: if asked("history") { Some(engine.history(id).await?) } else { None },
        attempts: if asked("attempts") { Some(engine.attempts(id).await?) } else { None },
        journals: if asked("journals") { Some(engine.journals_of(tenant, id).await?) } else { None },
        events: if asked("events") { Some(engine.events_of(tenant, id).await?) } else { None },
        refunds: none("refunds"),
        captures: none("captures"),
    };
    json(&expanded)
}
