//! `POST /api/v1/payouts`.
//!
//! The first answer to a key is 202 with the body of the creation; every repeat gets the same bytes. Whether the
//! account has enough is found when the payout is debited, so a lack of funds is a state and no error of this request.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use tallystick_payments::payout::{CreatePayout, Payout};
use tallystick_payments::tenants::Caller;
use tallystick_payments::{CreateError, Engine};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::http::extract::{Write, created, detached};
use crate::http::fields::Fields;
use crate::http::problem::Problem;
use crate::http::v1::PAYOUTS;
use crate::http::webhook_url::webhook_url;

const MAX_DESCRIPTION: usize = 1_000;
const MAX_REFERENCE: usize = 128;
const MAX_DESTINATION: usize = 255;
const MAX_GATEWAY: usize = 64;

/// Names of the body's fields; a test holds them against [`NewPayout`].
pub(in crate::http) const FIELDS: &[&str] = &[
    "account_id",
    "destination",
    "amount",
    "amount_minor",
    "currency",
    "reference",
    "description",
    "metadata",
    "gateway",
    "webhook_url",
];

/// Body of a request to create a payout. `null` is the same as absent, except in the fields of the amount.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(
    example = json!({"account_id": "0198c5a0-5f3e-7cc1-9f57-2d1f0a4c8e11", "destination": "ba_4711", "amount": "250.00", "currency": "EUR", "reference": "invoice 1001"})
)]
pub struct NewPayout {
    /// The account that is debited: a liability, equity or revenue account in the payout's currency.
    pub account_id: Uuid,
    /// The bank's token for the payee's account. Never a card number.
    #[schema(min_length = 1, max_length = 255)]
    pub destination: String,
    /// Major units in plain digits, at most the currency's decimals. Either this or `amount_minor`.
    #[schema(examples("250.00"))]
    pub amount: Option<String>,
    /// Minor units, 1 to 10^15. Either this or `amount`.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_000_i64)]
    pub amount_minor: Option<i64>,
    /// ISO 4217, in capital letters; the account's.
    #[schema(examples("EUR"), pattern = "^[A-Z]{3}$")]
    pub currency: String,
    /// Your reference. It has at most one payout that has not failed, been canceled or come back.
    #[schema(min_length = 1, max_length = 128)]
    pub reference: Option<String>,
    /// For people. No card numbers.
    #[schema(min_length = 1, max_length = 1000)]
    pub description: Option<String>,
    /// A JSON object of your own, at most 16 KiB as compact JSON. No card numbers.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<serde_json::Value>,
    /// The gateway account; the default of the settings when absent.
    #[schema(min_length = 1, max_length = 64)]
    pub gateway: Option<String>,
    /// Gets the final states of this payout: an absolute http(s) URL.
    #[schema(max_length = 2048)]
    pub webhook_url: Option<String>,
}

/// Creates a payout.
///
/// Answered before the account is debited and before any bank has heard of it: 202 with the payout in `pending`. Where
/// the tenant asks for approval it is in `requires_approval`, and is neither debited nor sent. When the account has not
/// enough at the time of the debit the payout becomes `failed` with `insufficient_funds`. A repeat with the same key
/// and request gets 200, `Idempotency-Replayed: true` and the same bytes. When the reference has an active payout
/// already, that payout is the answer, with 200 and `Existing-Payment: true`.
#[utoipa::path(
    post,
    operation_id = "create_payout",
    path = "/api/v1/payouts",
    tag = "payouts",
    params(("Idempotency-Key" = String, Header, description = "1 to 255 printable ASCII characters; the same for every repeat")),
    request_body = NewPayout,
    responses(
        (status = 202, description = "Created", body = Payout, headers(("Location" = String, description = "Address of the payout"))),
        (status = 200, description = "A repeat, or the reference's active payout", body = Payout, headers(
            ("Idempotency-Replayed" = String, description = "`true` on a repeat"),
            ("Existing-Payment" = String, description = "`true` when the reference had this payout"),
        )),
        (status = 404, description = "An account that this tenant does not have"),
        (status = 409, description = "`idempotency_mismatch`, `idempotency_in_flight` or `order_conflict`"),
    )
)]
pub(in crate::http) async fn create(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    request: Write,
) -> Result<Response, Problem> {
    let (key, fields) = request.open(FIELDS);
    let request = read(fields)?;
    let answer = detached(async move { engine.create_payout(caller.tenant, &key, request).await }).await?;
    let answer = answer.map_err(|error| match error {
        CreateError::UnknownAccount(_) => Problem::not_found_at("/account_id"),
        other => other.into(),
    })?;
    // Ties the request's log line to those of the payout.
    tracing::Span::current().record("payout.id", tracing::field::display(answer.id));
    Ok(created(&answer, PAYOUTS))
}

fn read(mut fields: Fields) -> Result<CreatePayout, Problem> {
    let account_id = fields.required_uuid("account_id");
    let destination = fields.required_cardless_text("destination", 1, MAX_DESTINATION);
    let amount = fields.money();
    let reference = fields.text("reference", 1, MAX_REFERENCE);
    let description = fields.cardless_text("description", 1, MAX_DESCRIPTION);
    let metadata = fields.metadata("metadata");
    let gateway = fields.text("gateway", 1, MAX_GATEWAY);
    let webhook_url = webhook_url(&mut fields);
    let (Some(account_id), Some(destination), Some(amount)) = (account_id, destination, amount) else {
        return Err(fields.refused());
    };
    fields.finish()?;
    Ok(CreatePayout {
        account_id,
        destination,
        amount,
        reference,
        description,
        metadata,
        gateway,
        webhook_url,
    })
}
