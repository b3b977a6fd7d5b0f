//! Refunds: captured money goes back to the payer, never more than was captured.

use super::charge::amount;
use super::execute::{Checked, Done, Refusal};
use crate::model::{EffectKind, Fact, Operation, Status, Submit};

/// Only what is captured and not refunded yet, in its currency.
pub(super) fn check(charge: &Operation, submit: &Submit) -> Result<Checked, Refusal> {
    let wanted = amount(submit)?;
    if wanted.currency != charge.currency {
        return Err(Refusal::declined("currency_mismatch", "the charge has another currency"));
    }
    match wanted.amount_minor > charge.captured_minor.saturating_sub(charge.refunded_minor) {
        true => {
            Err(Refusal::declined("refund_exceeds_captured", "more than what is captured and not refunded"))
        }
        false => Ok(wanted),
    }
}

/// Gives the amount back.
pub(super) const fn done(charge: &mut Operation, refund: &Operation) -> Done {
    charge.refunded_minor = charge.refunded_minor.saturating_add(refund.amount_minor);
    Done { status: Status::Refunded, effect: EffectKind::Refund, fact: Fact::Refund }
}
