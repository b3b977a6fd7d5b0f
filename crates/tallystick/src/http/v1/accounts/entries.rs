//! `GET /api/v1/accounts/{id}/entries`.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use tallystick_ledger::AccountEntry;
use tallystick_payments::Engine;
use tallystick_payments::tenants::Caller;
use utoipa::ToSchema;

use crate::http::cursor;
use crate::http::extract::{Params, PathId, json};
use crate::http::problem::Problem;

/// A page of an account's statement.
#[derive(Serialize, ToSchema)]
pub struct EntryPage {
    /// Newest first.
    pub data: Vec<AccountEntry>,
    /// What to ask the next page with; `null` on the last one.
    pub next_cursor: Option<String>,
}

/// An account's entries, newest first.
#[utoipa::path(
    get,
    operation_id = "list_account_entries",
    path = "/api/v1/accounts/{id}/entries",
    tag = "ledger",
    params(
        ("id" = String, Path, format = Uuid, description = "The account"),
        ("limit" = Option<i64>, Query, minimum = 1, maximum = 200, description = "Items of the page, 50 by default"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ),
    responses((status = 200, body = EntryPage), (status = 404, description = "No such account of this tenant"))
)]
pub(in crate::http) async fn entries(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    PathId(id): PathId,
    mut params: Params,
) -> Result<Response, Problem> {
    let cursor = params.cursor("cursor", cursor::unwrap);
    let limit = params.limit();
    params.finish()?;
    let page = engine.account_entries(caller.tenant, id, cursor.as_deref(), limit).await?;
    let page = page.ok_or_else(Problem::not_found)?;
    json(&EntryPage { data: page.data, next_cursor: page.next_cursor.as_deref().map(cursor::wrap) })
}
