//! `POST /api/v1/journals/{id}/reverse`.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use tallystick_ledger::Journal;
use tallystick_payments::Engine;
use tallystick_payments::tenants::Caller;
use utoipa::ToSchema;

use crate::http::extract::{PathId, Write, created, detached};
use crate::http::problem::Problem;
use crate::http::v1::JOURNALS;

const MAX_REASON: usize = 1_000;

/// Names of the body's fields; a test holds them against [`Reversal`].
pub(in crate::http) const FIELDS: &[&str] = &["reason"];

/// Body of a request to reverse a journal.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reason": "posted to the wrong account"}))]
pub struct Reversal {
    /// For people. No card numbers.
    #[schema(min_length = 1, max_length = 1000)]
    pub reason: String,
}

/// Posts the mirror of a journal, once.
///
/// A journal that was reversed already answers 200 with its first reversal.
#[utoipa::path(
    post,
    operation_id = "reverse_journal",
    path = "/api/v1/journals/{id}/reverse",
    tag = "ledger",
    params(
        ("id" = String, Path, format = Uuid, description = "The journal to reverse"),
        ("Idempotency-Key" = String, Header, description = "1 to 255 printable ASCII characters; the same for every repeat"),
    ),
    request_body = Reversal,
    responses(
        (status = 201, description = "The reversal", body = Journal, headers(("Location" = String, description = "Address of the reversal"))),
        (status = 200, description = "A repeat, or the first reversal", body = Journal, headers(("Idempotency-Replayed" = String, description = "`true` on a repeat with the same key"))),
        (status = 404, description = "No such journal of this tenant"),
        (status = 409, description = "`invalid_state`, `idempotency_mismatch` or `idempotency_in_flight`"),
    )
)]
pub(in crate::http) async fn reverse(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    PathId(id): PathId,
    request: Write,
) -> Result<Response, Problem> {
    let (key, mut fields) = request.open(FIELDS);
    let Some(reason) = fields.required_cardless_text("reason", 1, MAX_REASON) else {
        return Err(fields.refused());
    };
    fields.finish()?;
    let answer =
        detached(async move { engine.reverse_journal(caller.tenant, &key, id, reason).await }).await??;
    Ok(created(&answer, JOURNALS))
}
