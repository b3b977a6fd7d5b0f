//! `GET /api/v1/breaks`: what a person must look at. Operator scope.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use tallystick_payments::Engine;
use tallystick_payments::breaks::Break;
use tallystick_payments::ids::BreakId;
use tallystick_payments::tenants::Caller;
use utoipa::ToSchema;

use crate::http::auth::need_operator;
use crate::http::cursor;
use crate::http::extract::{Params, cut, json};
use crate::http::problem::Problem;

/// A page of breaks.
#[derive(Serialize, ToSchema)]
pub struct BreakPage {
    /// Newest first.
    pub data: Vec<Break>,
    /// What to ask the next page with; `null` on the last one.
    pub next_cursor: Option<String>,
}

const STATUSES: [&str; 2] = ["open", "resolved"];

/// Differences between what we hold and what a gateway says, newest first.
#[utoipa::path(
    get,
    operation_id = "list_breaks",
    path = "/api/v1/breaks",
    tag = "breaks",
    params(
        ("status" = Option<String>, Query, description = "`open` or `resolved`"),
        ("limit" = Option<i64>, Query, minimum = 1, maximum = 200, description = "Items of the page, 50 by default"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ),
    responses((status = 200, body = BreakPage), (status = 403, description = "The key's scope is not `operator`"))
)]
pub(in crate::http) async fn list(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    mut params: Params,
) -> Result<Response, Problem> {
    need_operator(&caller)?;
    let status = params.read("status", "choice", "must be open or resolved", |text| {
        STATUSES.into_iter().find(|status| *status == text)
    });
    let before = params.cursor("cursor", cursor::id).map(BreakId);
    let limit = params.limit();
    params.finish()?;
    let found = engine.breaks(caller.tenant, status, before, limit + 1).await?;
    let (data, next_cursor) = cut(found, limit, |item| item.break_id.0);
    json(&BreakPage { data, next_cursor })
}
