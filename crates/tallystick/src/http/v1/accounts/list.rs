//! `GET /api/v1/accounts`.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use tallystick_ledger::Account;
use tallystick_payments::Engine;
use tallystick_payments::tenants::Caller;
use utoipa::ToSchema;

use crate::http::cursor;
use crate::http::extract::{Params, json};
use crate::http::problem::Problem;

/// A page of accounts.
#[derive(Serialize, ToSchema)]
pub struct AccountPage {
    /// Newest first.
    pub data: Vec<Account>,
    /// What to ask the next page with; `null` on the last one.
    pub next_cursor: Option<String>,
}

/// The tenant's accounts, newest first.
#[utoipa::path(
    get,
    operation_id = "list_accounts",
    path = "/api/v1/accounts",
    tag = "ledger",
    params(
        ("limit" = Option<i64>, Query, minimum = 1, maximum = 200, description = "Items of the page, 50 by default"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ),
    responses((status = 200, body = AccountPage))
)]
pub(in crate::http) async fn list(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    mut params: Params,
) -> Result<Response, Problem> {
    let cursor = params.cursor("cursor", cursor::unwrap);
    let limit = params.limit();
    params.finish()?;
    let page = engine.accounts(caller.tenant, cursor.as_deref(), limit).await?;
    json(&AccountPage { data: page.data, next_cursor: page.next_cursor.as_deref().map(cursor::wrap) })
}
