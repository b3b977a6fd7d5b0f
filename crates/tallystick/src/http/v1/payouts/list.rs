//! `GET /api/v1/payouts`.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use tallystick_payments::Engine;
use tallystick_payments::ids::PayoutId;
use tallystick_payments::payout::{Payout, PayoutFilter, PayoutStatus};
use tallystick_payments::tenants::Caller;
use utoipa::ToSchema;

use crate::http::cursor;
use crate::http::extract::{Params, cut, json};
use crate::http::fields::uuid;
use crate::http::problem::Problem;

/// A page of payouts.
#[derive(Serialize, ToSchema)]
pub struct PayoutPage {
    /// Newest first.
    pub data: Vec<Payout>,
    /// What to ask the next page with; `null` on the last one.
    pub next_cursor: Option<String>,
}

/// The tenant's payouts, newest first.
#[utoipa::path(
    get,
    operation_id = "list_payouts",
    path = "/api/v1/payouts",
    tag = "payouts",
    params(
        ("status" = Option<PayoutStatus>, Query, description = "Only payouts in this status"),
        ("reference" = Option<String>, Query, description = "Only payouts of this reference"),
        ("account_id" = Option<String>, Query, format = Uuid, description = "Only payouts from this account"),
        ("gateway" = Option<String>, Query, description = "Only payouts of this gateway account"),
        ("limit" = Option<i64>, Query, minimum = 1, maximum = 200, description = "Items of the page, 50 by default"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ),
    responses((status = 200, body = PayoutPage))
)]
pub(in crate::http) async fn list(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    mut params: Params,
) -> Result<Response, Problem> {
    let filter = PayoutFilter {
        status: params.read("status", "choice", "must be a status of a payout", status),
        reference: params.take("reference"),
        account_id: params.read("account_id", "uuid", "must be a UUID", uuid),
        gateway: params.take("gateway"),
    };
    let before = params.cursor("cursor", cursor::id).map(PayoutId);
    let limit = params.limit();
    params.finish()?;
    let found = engine.payouts(caller.tenant, &filter, before, limit + 1).await?;
    let (data, next_cursor) = cut(found, limit, |payout| payout.payout_id.0);
    json(&PayoutPage { data, next_cursor })
}

fn status(text: &str) -> Option<PayoutStatus> {
    PayoutStatus::ALL.into_iter().find(|status| status.as_str() == text)
}
