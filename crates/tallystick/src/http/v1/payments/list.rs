//! `GET /api/v1/payments`.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use tallystick_payments::Engine;
use tallystick_payments::ids::PaymentId;
use tallystick_payments::payment::{Payment, PaymentFilter, PaymentStatus};
use tallystick_payments::tenants::Caller;
use utoipa::ToSchema;

use crate::http::cursor;
use crate::http::extract::{Params, cut, json};
use crate::http::problem::Problem;

/// A page of payments.
#[derive(Serialize, ToSchema)]
pub struct PaymentPage {
    /// Newest first.
    pub data: Vec<Payment>,
    /// What to ask the next page with; `null` on the last one.
    pub next_cursor: Option<String>,
}

/// The tenant's payments, newest first.
#[utoipa::path(
    get,
    operation_id = "list_payments",
    path = "/api/v1/payments",
    tag = "payments",
    params(
        ("status" = Option<PaymentStatus>, Query, description = "Only payments in this status"),
        ("order_id" = Option<String>, Query, description = "Only payments of this order"),
        ("gateway" = Option<String>, Query, description = "Only payments of this gateway account"),
        ("limit" = Option<i64>, Query, minimum = 1, maximum = 200, description = "Items of the page, 50 by default"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ),
    responses((status = 200, body = PaymentPage))
)]
pub(in crate::http) async fn list(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    mut params: Params,
) -> Result<Response, Problem> {
    let filter = PaymentFilter {
        status: params.read("status", "choice", "must be a status of a payment", status),
        order_id: params.take("order_id"),
        gateway: params.take("gateway"),
    };
    let before = params.cursor("cursor", cursor::id).map(PaymentId);
    let limit = params.limit();
    params.finish()?;
    let found = engine.payments(caller.tenant, &filter, before, limit + 1).await?;
    let (data, next_cursor) = cut(found, limit, |payment| payment.payment_id.0);
    json(&PaymentPage { data, next_cursor })
}

fn status(text: &str) -> Option<PaymentStatus> {
    PaymentStatus::ALL.into_iter().find(|status| status.as_str() == text)
}
