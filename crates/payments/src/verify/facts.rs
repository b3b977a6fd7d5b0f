//! What of a payment or payout others are held against.

use uuid::Uuid;

use crate::operation::OperationKind;
use crate::payment::PaymentStatus;
use crate::payout::PayoutStatus;

/// An operation, as far as journals and the gateway's book are about it.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub tenant_id: Uuid,
    pub id: Uuid,
    pub currency: String,
    pub gateway: String,
    pub gateway_reference: Option<String>,
    pub of: Of,
}

/// What only its kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Payment { status: PaymentStatus, authorized_minor: i64, captured_minor: i64 },
    Payout { status: PayoutStatus, account_id: Uuid, amount_minor: i64, failure_code: Option<String> },
}

impl Facts {
    pub(super) fn kind(&self) -> OperationKind {
        match self.of {
            Of::Payment { .. } => OperationKind::Charge,
            Of::Payout { .. } => OperationKind::Payout,
        }
    }

    /// Money moved or is held, as far as we know.
    pub(super) fn claims_money(&self) -> bool {
        match self.of {
            Of::Payment { status, captured_minor, .. } => {
                captured_minor > 0 || status == PaymentStatus::Authorized
            }
            Of::Payout { status, .. } => {
                matches!(status, PayoutStatus::Succeeded | PayoutStatus::Returned)
            }
        }
    }

    /// No money moved, and none may: it ended without, or nobody has consented to it yet.
    pub(super) fn excludes_money(&self) -> bool {
        match self.of {
            Of::Payment { status, .. } => matches!(status, PaymentStatus::Failed | PaymentStatus::Canceled),
            Of::Payout { status, .. } => matches!(
                status,
                PayoutStatus::Failed | PayoutStatus::Canceled | PayoutStatus::RequiresApproval
            ),
        }
    }
}
