//! Payouts: money is sent to a destination; it may come back.

use super::charge::amount;
use super::execute::{Checked, Done, Refusal};
use crate::model::{EffectKind, Fact, Status, Submit};
use crate::settings::Settings;

/// Only multiples where the currency's payouts must be such.
pub(super) fn check(settings: &Settings, submit: &Submit) -> Result<Checked, Refusal> {
    let wanted = amount(submit)?;
    match settings.payout_multiple.get(&wanted.currency) {
        Some(multiple) if wanted.amount_minor.checked_rem(*multiple) != Some(0) => Err(Refusal::declined(
            "amount_not_multiple",
            &format!("payouts in {} are multiples of {multiple} minor units", wanted.currency),
        )),
        _ => Ok(wanted),
    }
}

/// Sends the amount.
pub(super) const fn done() -> Done {
    Done { status: Status::Paid, effect: EffectKind::Payout, fact: Fact::Settled }
}
