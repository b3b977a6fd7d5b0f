//! Breaks: differences between what we hold and what a gateway says, each worked to zero by a person.

use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::ids::{BreakId, PaymentId, PayoutId};
use crate::operation::OperationId;

pub(crate) mod repo;

/// A break as the API shows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Break {
    /// Its id.
    pub break_id: BreakId,
    /// What differs: `wrong_amount`, `currency_mismatch`, `late_capture`, `late_payout`.
    pub kind: String,
    /// `open` or `resolved`.
    pub status: String,
    /// The payment, if it is about one.
    pub payment_id: Option<PaymentId>,
    /// The payout, if it is about one.
    pub payout_id: Option<PayoutId>,
    /// The refund, if it is about one.
    pub refund_id: Option<Uuid>,
    /// The gateway's id.
    pub gateway_reference: Option<String>,
    /// Currency of the expected amount.
    pub currency: String,
    /// What we expected, in minor units.
    pub expected_minor: i64,
    /// What the gateway named, in minor units of the currency that it named.
    pub actual_minor: Option<i64>,
    /// What a person might do.
    pub proposal: String,
    /// Whole days since it was found.
    pub age_days: i64,
    /// Who works on it.
    pub assignee: Option<String>,
    /// When it was found.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it was resolved.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub resolved_at: Option<Timestamp>,
}

/// A break to open.
#[derive(Clone, Debug)]
pub(crate) struct NewBreak {
    pub break_id: Uuid,
    pub tenant_id: Uuid,
    pub kind: &'static str,
    pub operation: OperationId,
    pub gateway: String,
    pub gateway_reference: Option<String>,
    pub currency: String,
    pub expected_minor: i64,
    pub actual_minor: Option<i64>,
    pub actual_currency: Option<String>,
    pub proposal: &'static str,
    pub at: Timestamp,
}
