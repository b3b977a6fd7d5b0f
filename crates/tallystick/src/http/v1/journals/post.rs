//! `POST /api/v1/journals`.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use tallystick_ledger::{Direction, Journal, MAX_ENTRIES};
use tallystick_payments::Engine;
use tallystick_payments::bookkeeping::{BookError, PostEntry, PostJournal};
use tallystick_payments::tenants::Caller;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::http::extract::{Write, created, detached};
use crate::http::fields::Fields;
use crate::http::problem::Problem;
use crate::http::v1::JOURNALS;

const MAX_SOURCE: usize = 255;
const MAX_DESCRIPTION: usize = 1_000;
const DIRECTIONS: [(&str, Direction); 2] = [("D", Direction::Debit), ("C", Direction::Credit)];

/// Names of the body's fields; a test holds them against [`NewJournal`].
pub(in crate::http) const FIELDS: &[&str] = &["source", "description", "effective_at", "metadata", "entries"];
/// Names of the fields of an entry; a test holds them against [`NewEntry`].
pub(in crate::http) const ENTRY_FIELDS: &[&str] = &["account_id", "direction", "amount_minor"];

/// Body of a request to post a journal.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewJournal {
    /// Your own name for the money event: a journal of the same source is posted once.
    #[schema(min_length = 1, max_length = 255)]
    pub source: Option<String>,
    /// For people. No card numbers.
    #[schema(min_length = 1, max_length = 1000)]
    pub description: String,
    /// When it took effect, if that is another time than now.
    #[schema(format = DateTime)]
    pub effective_at: Option<String>,
    /// A JSON object of your own, at most 16 KiB as compact JSON. No card numbers.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<serde_json::Value>,
    /// Debits and credits, equal per currency.
    #[schema(min_items = 2, max_items = 1000)]
    pub entries: Vec<NewEntry>,
}

/// One line of a journal to be posted.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEntry {
    /// An account of this tenant.
    pub account_id: Uuid,
    /// `D` (debit) or `C` (credit).
    pub direction: Direction,
    /// Minor units, 1 to 10^15.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_000_i64)]
    pub amount_minor: i64,
}

/// Posts a balanced journal.
///
/// It is there for good; a mistake is put right by reversing it. An account with a minimum keeps it, or nothing is
/// posted.
#[utoipa::path(
    post,
    operation_id = "post_journal",
    path = "/api/v1/journals",
    tag = "ledger",
    params(("Idempotency-Key" = String, Header, description = "1 to 255 printable ASCII characters; the same for every repeat")),
    request_body = NewJournal,
    responses(
        (status = 201, description = "Posted", body = Journal, headers(("Location" = String, description = "Address of the journal"))),
        (status = 200, description = "A repeat", body = Journal, headers(("Idempotency-Replayed" = String, description = "`true` on a repeat with the same key"))),
        (status = 404, description = "An account that this tenant does not have"),
        (status = 409, description = "`journal_conflict`, `idempotency_mismatch` or `idempotency_in_flight`"),
    )
)]
pub(in crate::http) async fn post(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    request: Write,
) -> Result<Response, Problem> {
    let (key, fields) = request.open(FIELDS);
    let request = read(fields)?;
    let accounts: Vec<Uuid> = request.entries.iter().map(|entry| entry.account_id).collect();
    let answer = detached(async move { engine.post_journal(caller.tenant, &key, request).await }).await?;
    let answer = answer.map_err(|error| match error {
        BookError::UnknownAccount(id) => unknown_account(&accounts, id),
        other => other.into(),
    })?;
    Ok(created(&answer, JOURNALS))
}

fn unknown_account(accounts: &[Uuid], id: Uuid) -> Problem {
    match accounts.iter().position(|account| *account == id) {
        Some(index) => Problem::not_found_at(format!("/entries/{index}/account_id")),
        None => Problem::not_found_at("/entries"),
    }
}

fn read(mut fields: Fields) -> Result<PostJournal, Problem> {
    let source = fields.text("source", 1, MAX_SOURCE);
    let description = fields.required_cardless_text("description", 1, MAX_DESCRIPTION);
    let effective_at = fields.time("effective_at");
    let metadata = fields.metadata("metadata");
    let entries = fields.objects("entries", (2, MAX_ENTRIES), ENTRY_FIELDS, entry);
    let (Some(description), Some(entries)) = (description, entries) else { return Err(fields.refused()) };
    fields.finish()?;
    Ok(PostJournal { source, description, effective_at, metadata, entries })
}

fn entry(fields: &mut Fields) -> Option<PostEntry> {
    let account_id = fields.required_uuid("account_id");
    let direction = fields.required_choice("direction", &DIRECTIONS);
    let amount_minor = fields.required_amount("amount_minor");
    Some(PostEntry { account_id: account_id?, direction: direction?, amount_minor: amount_minor? })
}
