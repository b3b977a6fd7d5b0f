//! A payment as the API shows it, and a request to create one.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tallystick_money::{Currency, Money};
use utoipa::ToSchema;

use super::state::PaymentStatus;
use crate::ids::{BreakId, PaymentId};

/// When the money is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Capture {
    /// At once.
    Automatic,
    /// Held first, taken by a capture.
    Manual,
}

impl Capture {
    /// The word in the API and in SQL.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Automatic => "automatic",
            Self::Manual => "manual",
        }
    }
}

/// A checked request to create a payment.
#[derive(Clone, Debug)]
pub struct CreatePayment {
    /// What to take.
    pub amount: Money,
    /// 1 to 1,000 characters for people.
    pub description: Option<String>,
    /// A JSON object of the client's own.
    pub metadata: Option<serde_json::Value>,
    /// The client's order: one active payment per order.
    pub order_id: Option<String>,
    /// The gateway's token; the default of the settings when absent.
    pub payment_method: Option<String>,
    /// The gateway account; the default of the settings when absent.
    pub gateway: Option<String>,
    /// When the money is taken.
    pub capture: Capture,
    /// Gets the final states of this payment.
    pub webhook_url: Option<String>,
}

/// Why a payment failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Failure {
    /// The gateway's code, or our own word.
    pub code: String,
    /// Text for people.
    pub message: String,
}

/// A person must look at this object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Attention {
    /// What is wrong: `amount_mismatch`, `currency_mismatch`, `late_capture`.
    pub code: String,
    /// The break that tells more.
    pub break_id: BreakId,
}

/// A payment: money in, one attempt to collect an amount.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Payment {
    /// Its id, and the gateway key of its charge.
    pub payment_id: PaymentId,
    /// Where it stands.
    pub status: PaymentStatus,
    /// Major units, exactly the currency's digits.
    pub amount: String,
    /// Minor units.
    pub amount_minor: i64,
    /// ISO 4217.
    #[schema(value_type = String, examples("EUR"))]
    pub currency: Currency,
    /// Minor units held at the gateway.
    pub authorized_minor: i64,
    /// Minor units taken.
    pub captured_minor: i64,
    /// Minor units given back.
    pub refunded_minor: i64,
    /// When the money is taken.
    pub capture: Capture,
    /// For people.
    pub description: Option<String>,
    /// The client's own JSON object.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<serde_json::Value>,
    /// The client's order.
    pub order_id: Option<String>,
    /// The gateway's token.
    pub payment_method: String,
    /// The gateway account.
    pub gateway: String,
    /// The gateway's own id.
    pub gateway_reference: Option<String>,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// Set when a person must look.
    pub attention: Option<Attention>,
    /// Since when the outcome is not known.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub unknown_since: Option<Timestamp>,
    /// When the client asked to cancel it.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub cancel_requested_at: Option<Timestamp>,
    /// Gets the final states.
    pub webhook_url: Option<String>,
    /// When we accepted it.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it last changed.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    /// When it became final.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub processed_at: Option<Timestamp>,
    /// Moves of status, 1 = creation.
    pub version: i32,
}

/// One move of a status.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct HistoryRow {
    /// 1 = creation, without a gap.
    pub version: i32,
    /// The status moved to.
    pub status: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// How we know: request, reply, status_query, webhook, settlement, operator, ledger, expiry.
    pub evidence: String,
}

/// One call to a gateway, without secrets.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Attempt {
    /// `submit` or `ask`.
    pub action: String,
    /// When the call began.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// How long it took.
    pub duration_ms: i32,
    /// What came of it.
    pub outcome: String,
    /// The cause, in a few words.
    pub detail: Option<String>,
}
