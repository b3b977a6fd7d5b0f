//! Captures: all or a part of what an authorization holds, never more.

use super::charge::amount;
use super::execute::{Checked, Done, Refusal};
use crate::model::{EffectKind, Fact, Operation, Status, Submit};

/// Only what is held and not captured yet, in its currency.
pub(super) fn check(charge: &Operation, submit: &Submit) -> Result<Checked, Refusal> {
    let wanted = amount(submit)?;
    let left = charge.amount_minor.saturating_sub(charge.captured_minor);
    match charge.status {
        Status::Voided => Err(Refusal::declined("already_voided", "the authorization was voided")),
        Status::Expired => Err(Refusal::declined("authorization_expired", "the authorization has run out")),
        Status::Captured => Err(Refusal::declined("already_captured", "the charge is captured")),
        Status::Authorized if wanted.currency != charge.currency => {
            Err(Refusal::declined("currency_mismatch", "the authorization has another currency"))
        }
        Status::Authorized if wanted.amount_minor > left => {
            Err(Refusal::declined("capture_exceeds_authorized", "more than what is held and not captured"))
        }
        Status::Authorized => Ok(wanted),
        _ => Err(Refusal::declined("not_authorized", "nothing is held")),
    }
}

/// Takes the amount; the charge is captured when nothing is left or nothing more will come.
pub(super) const fn done(charge: &mut Operation, capture: &Operation) -> Done {
    charge.captured_minor = charge.captured_minor.saturating_add(capture.amount_minor);
    if capture.submit.last || charge.captured_minor >= charge.amount_minor {
        charge.status = Status::Captured;
    }
    Done { status: Status::Captured, effect: EffectKind::Capture, fact: Fact::Captured }
}
