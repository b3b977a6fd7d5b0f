//! What happens at the gateway by itself: `POST /_facts`.
//!
//! A fact changes the book where the operation stands so that it can, and is told in any case: a repeated or late
//! fact is exactly what a caller must be able to bear.

use serde::Deserialize;

use super::execute::Refusal;
use super::tell::{News, When, reference};
use super::{Engine, State};
use crate::book::Change;
use crate::clock::Micros;
use crate::journal_file::JournalError;
use crate::model::{Decline, Effect, EffectKind, EffectState, Fact, Gateway, Kind, Operation, Status};

/// Body of `POST /_facts`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactRequest {
    /// What happens.
    pub fact: Fact,
    /// To which operation.
    pub key: String,
    /// At which account; absent: the one that knows the key.
    pub gateway: Option<Gateway>,
    /// Amount in minor units where the fact has one of its own.
    pub amount_minor: Option<i64>,
    /// Fee in minor units.
    pub fee_minor: Option<i64>,
    /// Whether the event is sent; it is made in any case.
    #[serde(default = "yes")]
    pub deliver: bool,
}

const fn yes() -> bool {
    true
}

/// What a fact led to.
#[derive(Clone, Debug)]
pub struct FactMade {
    /// Ids of its events.
    pub event_ids: Vec<String>,
    /// Effects that it made or took back.
    pub effects: Vec<Effect>,
}

/// Why a fact is refused.
#[derive(Debug, thiserror::Error)]
pub enum FactError {
    /// The key is not known.
    #[error("no operation with this key")]
    NotFound,
    /// The fact does not fit the operation.
    #[error("{0}")]
    Invalid(String),
    /// The journal file can no longer be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// A fact being made.
struct Making<'a> {
    request: &'a FactRequest,
    now: Micros,
    when: When,
    changes: Vec<Change>,
}

impl Engine {
    /// Makes a fact happen.
    ///
    /// # Errors
    /// When the key is unknown, the fact does not fit, or the journal file can no longer be written.
    pub async fn fact(&self, request: &FactRequest) -> Result<FactMade, FactError> {
        let (made, position) = {
            let now = self.now();
            let mut guard = self.lock();
            let state = &mut *guard;
            let when = if request.deliver { When::AtOnce } else { When::Never };
            let mut making = Making { request, now, when, changes: Vec::new() };
            let gateways = request.gateway.map_or(Gateway::ALL.to_vec(), |gateway| vec![gateway]);
            let found = gateways.iter().find_map(|gateway| state.book.operation(*gateway, &request.key));
            let mut operation = found.cloned().ok_or(FactError::NotFound)?;
            if request.amount_minor.is_some_and(|amount| amount <= 0)
                || request.fee_minor.is_some_and(|fee| fee < 0)
            {
                return Err(FactError::Invalid("amounts are positive".to_owned()));
            }
            state.happen(&mut making, &mut operation)?;
            state.apply(&mut making.changes, Change::Operation(Box::new(operation)));
            let made = state.made(&making.changes);
            let position = state.append(&making.changes, true);
            self.wake_for(state);
            (made, position)
        };
        self.durable(position).await?;
        Ok(made)
    }
}

impl State {
    fn made(&self, changes: &[Change]) -> FactMade {
        let (mut event_ids, mut effects) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::Event(event) => event_ids.push(event.id.clone()),
                Change::Effect(Effect { seq, .. }) | Change::Undone { seq, .. } => {
                    effects.extend(self.book.effects.get(*seq).cloned());
                }
                _ => {}
            }
        }
        FactMade { event_ids, effects }
    }

    fn happen(&mut self, making: &mut Making<'_>, operation: &mut Operation) -> Result<(), FactError> {
        let kind = operation.submit.kind;
        let fact = making.request.fact;
        match (fact, kind) {
            (Fact::Captured, Kind::Charge | Kind::Capture) => self.captured(making, operation),
            (Fact::Declined, Kind::Charge | Kind::Capture | Kind::Void | Kind::Refund)
            | (Fact::Rejected, Kind::Payout)
                if operation.status.is_open() =>
            {
                operation.next = None;
                let decline = Decline::new("declined", "refused by the other side's bank");
                let when = making.when;
                self.decline(&mut making.changes, operation, decline, making.now, when);
                Ok(())
            }
            (Fact::Declined, Kind::Charge | Kind::Capture | Kind::Void | Kind::Refund) => {
                self.told(making, operation, None, None)
            }
            (Fact::CaptureFailed, Kind::Charge | Kind::Capture) => self.capture_failed(making, operation),
            (Fact::Refund, Kind::Charge) => self.refunded(making, operation),
            (Fact::RefundFailed, Kind::Charge | Kind::Refund) => self.refund_failed(making, operation),
            (Fact::DisputeOpened | Fact::DisputeWon | Fact::DisputeLost, Kind::Charge) => {
                let dispute = match operation.dispute.clone() {
                    Some(dispute) if fact != Fact::DisputeOpened => dispute,
                    _ => reference("dp"),
                };
                operation.dispute = Some(dispute.clone());
                let amount_minor = operation.captured_minor;
                self.told(making, operation, Some(amount_minor), Some(dispute))
            }
            (Fact::Settled, Kind::Charge | Kind::Capture | Kind::Payout) => self.settled(making, operation),
            (Fact::Rejected | Fact::Returned, Kind::Payout) => self.returned(making, operation),
            (Fact::Expired | Fact::Voided, Kind::Charge) => self.let_go(making, operation),
            _ => {
                let message = format!("{} does not happen to a {}", fact.as_str(), kind.as_str());
                Err(FactError::Invalid(message))
            }
        }
    }

    /// Tells the fact, with the amount of the request before the one given.
    fn told(
        &mut self,
        making: &mut Making<'_>,
        operation: &Operation,
        amount_minor: Option<i64>,
        reference: Option<String>,
    ) -> Result<(), FactError> {
        let request = making.request;
        let amount_minor = request.amount_minor.or(amount_minor);
        let news = News { fact: request.fact, amount_minor, reference, fee_minor: request.fee_minor };
        self.tell(&mut making.changes, operation, news, making.when, making.now);
        Ok(())
    }

    /// Carries an operation out that was open or refused, whatever the gateway said before.
    fn happens_after_all(
        &mut self,
        making: &mut Making<'_>,
        operation: &mut Operation,
        when: When,
    ) -> Result<(), FactError> {
        operation.next = None;
        self.execute(&mut making.changes, operation, making.now, when).map_err(|refusal| match refusal {
            Refusal::Declined(decline) => FactError::Invalid(decline.message),
            Refusal::NotFound | Refusal::NotYet => FactError::Invalid("its charge cannot take it".to_owned()),
        })
    }

    fn captured(&mut self, making: &mut Making<'_>, operation: &mut Operation) -> Result<(), FactError> {
        match (operation.submit.kind, operation.status) {
            (_, Status::Captured) => self.told(making, operation, None, None),
            (Kind::Capture, _) => self.happens_after_all(making, operation, making.when),
            (_, status) => {
                // At the gateway itself somebody captures what is held, or takes what was not decided or refused.
                let held = status == Status::Authorized;
                let left = operation.amount_minor.saturating_sub(operation.captured_minor);
                let amount_minor = making.request.amount_minor.unwrap_or(left);
                if held && amount_minor > left {
                    return Err(FactError::Invalid("more than what is held and not captured".to_owned()));
                }
                let kind = if held { EffectKind::Capture } else { EffectKind::Charge };
                let own = operation.reference.clone();
                let seq = self.effect(&mut making.changes, operation, kind, amount_minor, &own, making.now);
                operation.captured_minor = operation.captured_minor.saturating_add(amount_minor);
                (operation.decline, operation.next) = (None, None);
                if !held || operation.captured_minor == operation.amount_minor {
                    (operation.status, operation.effect) = (Status::Captured, Some(seq));
                }
                self.told(making, operation, Some(amount_minor), None)
            }
        }
    }

    /// The effect of an operation while it stands and is of a kind.
    fn standing(&self, operation: &Operation, kinds: &[EffectKind]) -> Option<Effect> {
        let effect = self.book.effects.get(operation.effect?)?;
        (effect.state == EffectState::Done && kinds.contains(&effect.kind)).then(|| effect.clone())
    }

    fn charge_of(&self, operation: &Operation) -> Option<Operation> {
        let key = operation.submit.charge_key.as_deref()?;
        self.book.operation(operation.gateway, key).cloned()
    }

    fn capture_failed(
        &mut self,
        making: &mut Making<'_>,
        operation: &mut Operation,
    ) -> Result<(), FactError> {
        let Some(effect) = self.standing(operation, &[EffectKind::Charge, EffectKind::Capture]) else {
            if operation.status == Status::CaptureFailed {
                return self.told(making, operation, None, None);
            }
            return Err(FactError::Invalid("nothing was captured under this key".to_owned()));
        };
        self.apply(&mut making.changes, Change::Undone { seq: effect.seq, at: making.now });
        operation.status = Status::CaptureFailed;
        operation.captured_minor = operation.captured_minor.saturating_sub(effect.amount_minor);
        if let Some(mut charge) = self.charge_of(operation) {
            charge.captured_minor = charge.captured_minor.saturating_sub(effect.amount_minor);
            self.apply(&mut making.changes, Change::Operation(Box::new(charge)));
        }
        self.told(making, operation, Some(effect.amount_minor), None)
    }

    fn refunded(&mut self, making: &mut Making<'_>, charge: &mut Operation) -> Result<(), FactError> {
        let left = charge.captured_minor.saturating_sub(charge.refunded_minor);
        let amount_minor = making.request.amount_minor.unwrap_or(left);
        if amount_minor > left || amount_minor == 0 {
            return Err(FactError::Invalid("more than what is captured and not refunded".to_owned()));
        }
        let own = reference("re");
        self.effect(&mut making.changes, charge, EffectKind::Refund, amount_minor, &own, making.now);
        charge.refunded_minor = charge.refunded_minor.saturating_add(amount_minor);
        self.told(making, charge, Some(amount_minor), Some(own))
    }

    fn refund_failed(&mut self, making: &mut Making<'_>, operation: &mut Operation) -> Result<(), FactError> {
        let effects = self.book.effects.page(0, Some(&operation.key), usize::MAX);
        let mine =
            |effect: &&Effect| effect.kind == EffectKind::Refund && effect.gateway == operation.gateway;
        let refunds: Vec<_> = effects.into_iter().filter(mine).cloned().collect();
        let Some(last) = refunds.last() else {
            return Err(FactError::Invalid("nothing was refunded under this key".to_owned()));
        };
        let standing = refunds.iter().rev().find(|effect| effect.state == EffectState::Done);
        let Some(effect) = standing else {
            return self.told(making, operation, Some(last.amount_minor), Some(last.reference.clone()));
        };
        self.apply(&mut making.changes, Change::Undone { seq: effect.seq, at: making.now });
        operation.refunded_minor = operation.refunded_minor.saturating_sub(effect.amount_minor);
        if operation.submit.kind == Kind::Refund {
            operation.status = Status::RefundFailed;
        }
        if let Some(mut charge) = self.charge_of(operation) {
            charge.refunded_minor = charge.refunded_minor.saturating_sub(effect.amount_minor);
            self.apply(&mut making.changes, Change::Operation(Box::new(charge)));
        }
        self.told(making, operation, Some(effect.amount_minor), Some(effect.reference.clone()))
    }

    fn settled(&mut self, making: &mut Making<'_>, operation: &mut Operation) -> Result<(), FactError> {
        operation.fee_minor = making.request.fee_minor.or(operation.fee_minor);
        if operation.submit.kind != Kind::Payout
            || matches!(operation.status, Status::Paid | Status::Returned)
        {
            return self.told(making, operation, None, None);
        }
        // Told below, with the fee.
        let open = operation.status.is_open();
        let then = operation.next.filter(|_| open).and_then(|step| step.then);
        self.paid(making, operation);
        operation.next = then.map(|(act, after)| crate::model::Step {
            due: making.now.saturating_add(after),
            act,
            then: None,
        });
        self.told(making, operation, None, None)
    }

    fn paid(&mut self, making: &mut Making<'_>, payout: &mut Operation) {
        let (amount_minor, own) = (payout.amount_minor, payout.reference.clone());
        let seq =
            self.effect(&mut making.changes, payout, EffectKind::Payout, amount_minor, &own, making.now);
        (payout.status, payout.decline, payout.next) = (Status::Paid, None, None);
        payout.effect = Some(seq);
    }

    fn returned(&mut self, making: &mut Making<'_>, payout: &mut Operation) -> Result<(), FactError> {
        payout.next = None;
        if payout.status.is_open() {
            self.paid(making, payout);
        }
        if payout.status == Status::Paid {
            self.come_back(&mut making.changes, payout, making.now);
        }
        self.told(making, payout, None, None)
    }

    fn let_go(&mut self, making: &mut Making<'_>, charge: &mut Operation) -> Result<(), FactError> {
        if charge.status == Status::Authorized {
            if let Some(seq) = charge.effect {
                self.apply(&mut making.changes, Change::Undone { seq, at: making.now });
            }
            charge.status = match (charge.captured_minor > 0, making.request.fact) {
                (true, _) => Status::Captured,
                (false, Fact::Expired) => Status::Expired,
                (false, _) => Status::Voided,
            };
        } else if !matches!(charge.status, Status::Expired | Status::Voided) {
            return Err(FactError::Invalid("nothing is held".to_owned()));
        }
        let left = charge.amount_minor.saturating_sub(charge.captured_minor);
        self.told(making, charge, Some(left), None)
    }
}
