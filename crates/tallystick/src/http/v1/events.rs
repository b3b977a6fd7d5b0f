//! `GET /api/v1/events`: the pull feed.

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tallystick_outbox::{Cursor, Page};
use tallystick_payments::Engine;
use tallystick_payments::tenants::Caller;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::http::extract::{Params, json_bytes};
use crate::http::problem::Problem;

/// One move of one object. Beside these members it names the object: `payment_id`, `break_id` …
#[derive(ToSchema)]
#[schema(example = json!({
    "type": "payment.succeeded", "event_id": "0198f2c5-6f3a-7c1e-8000-000000000001",
    "payment_id": "0198f2c5-6f3a-7c1e-8000-000000000000", "status": "succeeded", "amount": "100.00",
    "amount_minor": 10000, "currency": "EUR", "sequence": 2, "occurred_at": "2026-01-02T03:04:05.678901Z"
}))]
pub struct Event {
    /// Kind of the object and `created` or the status moved to.
    pub r#type: String,
    /// What repeats are recognised by.
    pub event_id: Uuid,
    /// The status moved to.
    pub status: String,
    /// Major units, exactly the currency's digits.
    pub amount: String,
    /// Minor units.
    pub amount_minor: i64,
    /// ISO 4217.
    pub currency: String,
    /// The object's version after the move: 1, 2, 3 …
    pub sequence: i32,
    /// When.
    #[schema(format = DateTime)]
    pub occurred_at: String,
}

/// A page of the feed.
#[derive(ToSchema)]
pub struct EventPage {
    /// Oldest first.
    pub data: Vec<Event>,
    /// Where to read on; good also when `data` is empty.
    pub next_cursor: String,
}

/// The tenant's events, oldest first, in order per object. Never skips one, whoever is still writing.
///
/// You keep the position: ask with the last `next_cursor` that you have worked off. The same position gives the same
/// events each time.
#[utoipa::path(
    get,
    operation_id = "list_events",
    path = "/api/v1/events",
    tag = "events",
    params(
        ("after" = Option<String>, Query, description = "`next_cursor` of the page before; from the oldest event when absent"),
        ("limit" = Option<i64>, Query, minimum = 1, maximum = 200, description = "Items of the page, 50 by default"),
    ),
    responses((status = 200, body = EventPage))
)]
pub(in crate::http) async fn events(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    mut params: Params,
) -> Result<Response, Problem> {
    let after = params.cursor("after", |text| text.parse().ok()).unwrap_or(Cursor::start());
    let limit = params.limit();
    params.finish()?;
    let page = engine.events(caller.tenant, after, limit).await?;
    Ok(json_bytes(StatusCode::OK, body(&page)))
}

/// The stored bytes as they are: reading and writing them again could only change them.
fn body(page: &Page) -> Bytes {
    let events: Vec<&[u8]> = page.events.iter().map(|event| event.payload.as_slice()).collect();
    let next = format!("],\"next_cursor\":\"{}\"}}", page.next);
    [&b"{\"data\":["[..], &events.join(&b","[..]), next.as_bytes()].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_json() {
        let page = Page { events: Vec::new(), next: Cursor::start() };
        let value: serde_json::Value = serde_json::from_slice(&body(&page)).unwrap();
        assert_eq!(value, serde_json::json!({"data": [], "next_cursor": Cursor::start().to_string()}));
    }
}
