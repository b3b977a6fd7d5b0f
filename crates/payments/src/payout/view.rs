//! A payout as the API shows it, and a request to create one.

use jiff::Timestamp;
use serde::Serialize;
use tallystick_money::{Currency, Money};
use utoipa::ToSchema;
use uuid::Uuid;

use super::state::PayoutStatus;
use crate::ids::PayoutId;
use crate::payment::{Attention, Failure};

/// A checked request to create a payout.
#[derive(Clone, Debug)]
pub struct CreatePayout {
    /// The account that is debited: one of the tenant's, in the amount's currency.
    pub account_id: Uuid,
    /// The bank's token for the payee's account.
    pub destination: String,
    /// What to send.
    pub amount: Money,
    /// The client's reference: one active payout per reference.
    pub reference: Option<String>,
    /// 1 to 1,000 characters for people.
    pub description: Option<String>,
    /// A JSON object of the client's own.
    pub metadata: Option<serde_json::Value>,
    /// The gateway account; the default of the settings when absent.
    pub gateway: Option<String>,
    /// Gets the final states of this payout.
    pub webhook_url: Option<String>,
}

/// A payout: money out, debited from an account and sent once.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Payout {
    /// Its id, and its gateway key.
    pub payout_id: PayoutId,
    /// Where it stands.
    pub status: PayoutStatus,
    /// The account that is debited.
    pub account_id: Uuid,
    /// The bank's token for the payee's account.
    pub destination: String,
    /// Major units, exactly the currency's digits.
    pub amount: String,
    /// Minor units.
    pub amount_minor: i64,
    /// ISO 4217.
    #[schema(value_type = String, examples("EUR"))]
    pub currency: Currency,
    /// The client's reference.
    pub reference: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// The client's own JSON object.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<serde_json::Value>,
    /// The batch that it belongs to.
    pub batch_id: Option<Uuid>,
    /// The gateway account.
    pub gateway: String,
    /// The gateway's own id.
    pub gateway_reference: Option<String>,
    /// Why it failed or came back.
    pub failure: Option<Failure>,
    /// Set when a person must look.
    pub attention: Option<Attention>,
    /// Since when the outcome is not known.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub unknown_since: Option<Timestamp>,
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
