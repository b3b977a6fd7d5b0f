//! `POST /api/v1/accounts`.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use tallystick_ledger::{Account, AccountKind};
use tallystick_money::MAX_MINOR;
use tallystick_payments::Engine;
use tallystick_payments::bookkeeping::OpenAccount;
use tallystick_payments::tenants::Caller;
use utoipa::ToSchema;

use crate::http::extract::{Write, created, detached};
use crate::http::fields::Fields;
use crate::http::problem::Problem;
use crate::http::v1::ACCOUNTS;

const MAX_NAME: usize = 255;
const KINDS: [(&str, AccountKind); 5] = [
    ("asset", AccountKind::Asset),
    ("liability", AccountKind::Liability),
    ("equity", AccountKind::Equity),
    ("revenue", AccountKind::Revenue),
    ("expense", AccountKind::Expense),
];

/// Names of the body's fields; a test holds them against [`NewAccount`].
pub(in crate::http) const FIELDS: &[&str] = &["name", "kind", "currency", "minimum_minor", "metadata"];

/// Body of a request to open an account.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(
    example = json!({"name": "customer 4711", "kind": "liability", "currency": "EUR", "minimum_minor": 0})
)]
pub struct NewAccount {
    /// For people.
    #[schema(min_length = 1, max_length = 255)]
    pub name: String,
    /// Decides which side of the balance is positive.
    pub kind: AccountKind,
    /// ISO 4217, in capital letters; fixed for ever.
    #[schema(examples("EUR"), pattern = "^[A-Z]{3}$")]
    pub currency: String,
    /// Least balance that a decision may leave, natural side, in minor units, not above 0; `null`: no limit.
    #[schema(minimum = -1_000_000_000_000_000_i64, maximum = 0)]
    pub minimum_minor: Option<i64>,
    /// A JSON object of your own, at most 16 KiB as compact JSON. No card numbers.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<serde_json::Value>,
}

/// Opens an account.
#[utoipa::path(
    post,
    operation_id = "open_account",
    path = "/api/v1/accounts",
    tag = "ledger",
    params(("Idempotency-Key" = String, Header, description = "1 to 255 printable ASCII characters; the same for every repeat")),
    request_body = NewAccount,
    responses(
        (status = 201, description = "Opened", body = Account, headers(("Location" = String, description = "Address of the account"))),
        (status = 200, description = "A repeat", body = Account, headers(("Idempotency-Replayed" = String, description = "`true`"))),
        (status = 409, description = "`idempotency_mismatch` or `idempotency_in_flight`"),
    )
)]
pub(in crate::http) async fn open(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    request: Write,
) -> Result<Response, Problem> {
    let (key, fields) = request.open(FIELDS);
    let request = read(fields)?;
    let answer = detached(async move { engine.open_account(caller.tenant, &key, request).await }).await??;
    Ok(created(&answer, ACCOUNTS))
}

fn read(mut fields: Fields) -> Result<OpenAccount, Problem> {
    let name = fields.required_text("name", 1, MAX_NAME);
    let kind = fields.required_choice("kind", &KINDS);
    let currency = fields.currency("currency");
    let minimum_minor = fields.integer("minimum_minor", -MAX_MINOR, 0);
    let metadata = fields.metadata("metadata");
    let (Some(name), Some(kind), Some(currency)) = (name, kind, currency) else {
        return Err(fields.refused());
    };
    fields.finish()?;
    Ok(OpenAccount { name, kind, currency, minimum_minor, metadata })
}
