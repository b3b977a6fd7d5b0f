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
    let expand = params.read("expand", "choice", &message(), expansions).unwrap_or_default();
    params.finish()?;
    let (tenant, id) = (caller.tenant, PaymentId(id));
    let payment = engine.payment(tenant, id).await?.ok_or_else(Problem::not_found)?;
    let asked = |name: &str| expand.contains(&name);
    // None of these exists yet for any payment.
    let none = |name: &str| asked(name).then(Vec::new);
    let expanded = ExpandedPayment {
        payment,
        history: if asked("history") { Some(engine.history(id).await?) } else { None },
        attempts: if asked("attempts") { Some(engine.attempts(id).await?) } else { None },
        journals: if asked("journals") { Some(engine.payment_journals(tenant, id).await?) } else { None },
        events: if asked("events") { Some(engine.payment_events(tenant, id).await?) } else { None },
        refunds: none("refunds"),
        captures: none("captures"),
    };
    json(&expanded)
}

fn message() -> String {
    format!("must be names out of: {}", EXPANSIONS.join(", "))
}

fn expansions(text: &str) -> Option<Vec<&'static str>> {
    text.split(',').map(|name| EXPANSIONS.into_iter().find(|known| *known == name)).collect()
}

#[cfg(test)]
mod tests {
    use super::expansions;

    #[test]
    fn only_known_names_expand() {
        assert_eq!(expansions("events,history"), Some(vec!["events", "history"]));
        for bad in ["", "x", "history,", "history, events", "History"] {
            assert_eq!(expansions(bad), None, "{bad}");
        }
    }
}
