//! Charges: money is taken at once, or held until it is captured or voided.

use super::execute::{Checked, Done, Refusal};
use crate::model::{EffectKind, Fact, Operation, Status, Submit};

/// Any charge may happen.
pub(super) fn check(submit: &Submit) -> Result<Checked, Refusal> {
    amount(submit)
}

/// Amount and currency as asked for.
pub(super) fn amount(submit: &Submit) -> Result<Checked, Refusal> {
    match (submit.amount_minor, &submit.currency) {
        (Some(amount_minor), Some(currency)) => Ok(Checked { amount_minor, currency: currency.clone() }),
        _ => Err(Refusal::declined("invalid_amount", "an amount and a currency are needed")),
    }
}

/// Takes or holds the amount.
pub(super) const fn done(charge: &mut Operation) -> Done {
    if charge.submit.capture {
        charge.captured_minor = charge.amount_minor;
        return Done { status: Status::Captured, effect: EffectKind::Charge, fact: Fact::Captured };
    }
    Done { status: Status::Authorized, effect: EffectKind::Authorize, fact: Fact::Authorized }
}
