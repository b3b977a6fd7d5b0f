//! Effects: checked, carried out, taken back.

use super::{State, capture, charge, payout, refund, tell, void};
use crate::book::{Book, Change};
use crate::clock::Micros;
use crate::model::{
    Decline, Effect, EffectKind, EffectState, Fact, Gateway, Kind, Operation, Status, Submit,
};

/// Why a submit is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Refused for good.
    Declined(Decline),
    /// The charge that it names is not known.
    NotFound,
    /// The charge is not decided yet.
    NotYet,
}

impl Refusal {
    pub(super) fn declined(code: &str, message: &str) -> Self {
        Self::Declined(Decline::new(code, message))
    }
}

/// Amount and currency of what passed the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checked {
    pub amount_minor: i64,
    pub currency: String,
}

/// Whether a submit can be carried out now.
pub(super) fn check(book: &Book, gateway: Gateway, submit: &Submit) -> Result<Checked, Refusal> {
    match submit.kind {
        Kind::Charge => charge::check(submit),
        Kind::Payout => payout::check(&book.settings, submit),
        Kind::Capture => capture::check(parent(book, gateway, submit)?, submit),
        Kind::Void => void::check(parent(book, gateway, submit)?),
        Kind::Refund => refund::check(parent(book, gateway, submit)?, submit),
    }
}

/// The charge that a capture, void or refund is about.
fn parent<'a>(book: &'a Book, gateway: Gateway, submit: &Submit) -> Result<&'a Operation, Refusal> {
    let charge = submit.charge_key.as_deref().and_then(|key| book.operation(gateway, key));
    let charge = charge.filter(|charge| charge.submit.kind == Kind::Charge).ok_or(Refusal::NotFound)?;
    match charge.status.is_open() {
        true => Err(Refusal::NotYet),
        false => Ok(charge),
    }
}

/// What a kind of operation does when it is carried out.
pub(super) struct Done {
    /// The operation's status from then on.
    pub status: Status,
    /// Kind of effect.
    pub effect: EffectKind,
    /// What is told.
    pub fact: Fact,
}

impl State {
    /// Carries an operation out: the effect, what it does to its charge, and the event. The operation is changed but
    /// not yet stored.
    pub(super) fn execute(
        &mut self,
        changes: &mut Vec<Change>,
        operation: &mut Operation,
        now: Micros,
        tell: tell::When,
    ) -> Result<(), Refusal> {
        // A wrong amount is the gateway's own fault and may exceed what it checked.
        let checked = check(&self.book, operation.gateway, &operation.submit)?;
        if operation.submit.kind == Kind::Void {
            operation.amount_minor = checked.amount_minor;
        }
        let done = match operation.submit.kind {
            Kind::Charge => charge::done(operation),
            Kind::Payout => payout::done(),
            kind => {
                let found = parent(&self.book, operation.gateway, &operation.submit)?;
                let mut charge = found.clone();
                let done = match kind {
                    Kind::Capture => capture::done(&mut charge, operation),
                    Kind::Refund => refund::done(&mut charge, operation),
                    _ => void::done(&mut charge),
                };
                (operation.captured_minor, operation.refunded_minor) =
                    (charge.captured_minor, charge.refunded_minor);
                if let Some(seq) = charge.effect.filter(|_| kind == Kind::Void) {
                    self.apply(changes, Change::Undone { seq, at: now });
                }
                self.apply(changes, Change::Operation(Box::new(charge)));
                done
            }
        };
        (operation.status, operation.decline) = (done.status, None);
        let reference = operation.reference.clone();
        let seq = self.effect(changes, operation, done.effect, operation.amount_minor, &reference, now);
        operation.effect = Some(seq);
        self.tell(changes, operation, tell::News::of(done.fact), tell, now);
        Ok(())
    }

    /// Writes an effect under an operation's key; its number.
    pub(super) fn effect(
        &mut self,
        changes: &mut Vec<Change>,
        operation: &Operation,
        kind: EffectKind,
        amount_minor: i64,
        reference: &str,
        now: Micros,
    ) -> u64 {
        let seq = self.book.effects.next_number();
        let effect = Effect {
            seq,
            at: now,
            gateway: operation.gateway,
            kind,
            key: operation.key.clone(),
            reference: reference.to_owned(),
            amount_minor,
            currency: operation.currency.clone(),
            state: EffectState::Done,
            undone_at: None,
        };
        self.apply(changes, Change::Effect(effect));
        seq
    }

    /// Refuses an operation for good and tells so. The operation is changed but not yet stored.
    pub(super) fn decline(
        &mut self,
        changes: &mut Vec<Change>,
        operation: &mut Operation,
        decline: Decline,
        now: Micros,
        tell: tell::When,
    ) {
        let (status, fact) = match operation.submit.kind {
            Kind::Payout => (Status::Rejected, Fact::Rejected),
            _ => (Status::Declined, Fact::Declined),
        };
        (operation.status, operation.decline) = (status, Some(decline));
        self.tell(changes, operation, tell::News::of(fact), tell, now);
    }

    /// A payout that was sent comes back. The operation is changed but not yet stored.
    pub(super) fn come_back(
        &mut self,
        changes: &mut Vec<Change>,
        payout: &mut Operation,
        now: Micros,
    ) -> u64 {
        payout.status = Status::Returned;
        let (amount_minor, reference) = (payout.amount_minor, payout.reference.clone());
        self.effect(changes, payout, EffectKind::PayoutReturn, amount_minor, &reference, now)
    }
}
