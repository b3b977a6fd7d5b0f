//! Voids: what is held and not captured is let go.

use super::execute::{Checked, Done, Refusal};
use crate::model::{EffectKind, Fact, Operation, Status};

/// Only while something is held.
pub(super) fn check(charge: &Operation) -> Result<Checked, Refusal> {
    match charge.status {
        Status::Authorized => Ok(Checked {
            amount_minor: charge.amount_minor.saturating_sub(charge.captured_minor),
            currency: charge.currency.clone(),
        }),
        Status::Voided => Err(Refusal::declined("already_voided", "the authorization was voided")),
        Status::Expired => Err(Refusal::declined("authorization_expired", "the authorization has run out")),
        Status::Captured => Err(Refusal::declined("already_captured", "the charge is captured")),
        _ => Err(Refusal::declined("not_authorized", "nothing is held")),
    }
}

/// Lets go; what was captured before stays captured.
pub(super) const fn done(charge: &mut Operation) -> Done {
    charge.status = if charge.captured_minor > 0 { Status::Captured } else { Status::Voided };
    Done { status: Status::Voided, effect: EffectKind::Void, fact: Fact::Voided }
}
