//! `POST /api/v1/payments`.
//!
//! The first answer to a key is 202 with the body of the creation; every repeat gets the same bytes. `Prefer: wait`
//! changes only what *this* answer shows: the payment as it is when its status leaves `pending` or the time is over.
//! What is stored under the key stays the creation.

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use tallystick_payments::ids::PaymentId;
use tallystick_payments::payment::{Capture, CreatePayment, Payment};
use tallystick_payments::tenants::Caller;
use tallystick_payments::{Answer, Engine};
use utoipa::ToSchema;

use crate::http::extract::{Write, created, detached};
use crate::http::fields::Fields;
use crate::http::limits::{Deadline, Limits};
use crate::http::prefer::Wait;
use crate::http::problem::Problem;
use crate::http::v1::PAYMENTS;
use crate::http::webhook_url::webhook_url;

const MAX_DESCRIPTION: usize = 1_000;
const MAX_ID: usize = 128;
const MAX_METHOD: usize = 255;
const MAX_GATEWAY: usize = 64;
const CAPTURES: [(&str, Capture); 2] = [("automatic", Capture::Automatic), ("manual", Capture::Manual)];

/// Names of the body's fields; a test holds them against [`NewPayment`].
pub(in crate::http) const FIELDS: &[&str] = &[
    "amount",
    "amount_minor",
    "currency",
    "description",
    "metadata",
    "order_id",
    "payment_method",
    "capture",
    "gateway",
    "webhook_url",
];

/// Body of a request to create a payment. `null` is the same as absent, except in the fields of the amount.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(
    example = json!({"amount": "100.00", "currency": "EUR", "description": "Order 1001", "order_id": "1001", "payment_method": "pm_4711"})
)]
pub struct NewPayment {
    /// Major units in plain digits, at most the currency's decimals. Either this or `amount_minor`.
    #[schema(examples("100.00"))]
    pub amount: Option<String>,
    /// Minor units, 1 to 10^15. Either this or `amount`.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_000_i64)]
    pub amount_minor: Option<i64>,
    /// ISO 4217, in capital letters.
    #[schema(examples("EUR"), pattern = "^[A-Z]{3}$")]
    pub currency: String,
    /// For people. No card numbers.
    #[schema(min_length = 1, max_length = 1000)]
    pub description: Option<String>,
    /// A JSON object of your own, at most 16 KiB as compact JSON. No card numbers.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<serde_json::Value>,
    /// Your order. It has at most one payment that has not failed or been canceled.
    #[schema(min_length = 1, max_length = 128)]
    pub order_id: Option<String>,
    /// The gateway's token for the payer's means of payment. Never a card number.
    #[schema(min_length = 1, max_length = 255)]
    pub payment_method: Option<String>,
    /// When the money is taken; at once by default.
    pub capture: Option<Capture>,
    /// The gateway account; the default of the settings when absent.
    #[schema(min_length = 1, max_length = 64)]
    pub gateway: Option<String>,
    /// Gets the final states of this payment: an absolute http(s) URL.
    #[schema(max_length = 2048)]
    pub webhook_url: Option<String>,
}

/// Creates a payment.
///
/// Answered before any gateway has heard of it: 202 with the payment in `pending`. A repeat with the same key and
/// request gets 200, `Idempotency-Replayed: true` and the same bytes. When the order has an active payment already,
/// that payment is the answer, with 200 and `Existing-Payment: true`.
#[utoipa::path(
    post,
    operation_id = "create_payment",
    path = "/api/v1/payments",
    tag = "payments",
    params(
        ("Idempotency-Key" = String, Header, description = "1 to 255 printable ASCII characters; the same for every repeat"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`, 1 to 30 seconds: answer when the status leaves `pending`"),
    ),
    request_body = NewPayment,
    responses(
        (status = 202, description = "Created", body = Payment, headers(
            ("Location" = String, description = "Address of the payment"),
            ("Preference-Applied" = String, description = "`wait=N`, when it waited"),
        )),
        (status = 200, description = "A repeat, or the order's active payment", body = Payment, headers(
            ("Idempotency-Replayed" = String, description = "`true` on a repeat"),
            ("Existing-Payment" = String, description = "`true` when the order had this payment"),
        )),
        (status = 409, description = "`idempotency_mismatch`, `idempotency_in_flight` or `order_conflict`"),
    )
)]
pub(in crate::http) async fn create(
    State(engine): State<Engine>,
    State(limits): State<Limits>,
    Extension(caller): Extension<Caller>,
    Extension(deadline): Extension<Deadline>,
    headers: HeaderMap,
    request: Write,
) -> Result<Response, Problem> {
    let (key, fields) = request.open(FIELDS);
    let request = read(fields)?;
    let writer = engine.clone();
    let answer = detached(async move { writer.create_payment(caller.tenant, &key, request).await }).await??;
    // Ties the request's log line to those of the payment.
    tracing::Span::current().record("payment.id", tracing::field::display(answer.id));
    match Wait::of(&headers) {
        Some(wait) => waited(&engine, &limits, &caller, deadline, answer, wait).await,
        None => Ok(created(&answer, PAYMENTS)),
    }
}

fn read(mut fields: Fields) -> Result<CreatePayment, Problem> {
    let amount = fields.money();
    let request = CreatePayment {
        description: fields.cardless_text("description", 1, MAX_DESCRIPTION),
        metadata: fields.metadata("metadata"),
        order_id: fields.text("order_id", 1, MAX_ID),
        payment_method: fields.cardless_text("payment_method", 1, MAX_METHOD),
        capture: fields.choice("capture", &CAPTURES).unwrap_or(Capture::Automatic),
        gateway: fields.text("gateway", 1, MAX_GATEWAY),
        webhook_url: webhook_url(&mut fields),
        amount: match amount {
            Some(amount) => amount,
            None => return Err(fields.refused()),
        },
    };
    fields.finish()?;
    Ok(request)
}

/// The answer with the payment as it is after the wait. When it cannot be read, the creation is still true.
async fn waited(
    engine: &Engine,
    limits: &Limits,
    caller: &Caller,
    deadline: Deadline,
    answer: Answer,
    wait: Wait,
) -> Result<Response, Problem> {
    let id = PaymentId(answer.id);
    let permit = limits.try_wait();
    let current = match &permit {
        Some(_) => engine.wait_for_payment(caller.tenant, id, deadline.cap(wait.duration())).await,
        None => engine.payment(caller.tenant, id).await,
    };
    let current = match current {
        Ok(Some(payment)) => serde_json::to_vec(&payment).map_err(|error| Problem::internal(&error))?,
        Ok(None) => return Ok(created(&answer, PAYMENTS)),
        Err(error) => {
            tracing::warn!(
                error = tallystick_runner::looper::chain(&error),
                "a created payment could not be read back"
            );
            return Ok(created(&answer, PAYMENTS));
        }
    };
    let mut response = created(&Answer { body: current.into(), ..answer }, PAYMENTS);
    if permit.is_some() {
        response.headers_mut().insert("preference-applied", wait.applied());
    }
    Ok(response)
}
