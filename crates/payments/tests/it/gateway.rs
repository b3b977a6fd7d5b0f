//! A gateway in memory that does as the payment's method says, and keeps a book of what it really did.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use tallystick_gateway::signature::{self, WebhookSecret};
use tallystick_gateway::{
    Answer, Approval, Capability, Decline, Gateway, LostCause, NotSentCause, Operation, Outcome, Replay,
    Report, ReportKind, Stage, Submit, WebhookError, WebhookMessage,
};
use tokio::sync::Semaphore;

pub const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    pub amount_minor: i64,
    pub currency: String,
    pub reference: String,
    pub stage: Stage,
}

#[derive(Default)]
struct State {
    /// What happened to money, per key: more than one entry is a double charge.
    book: HashMap<String, Vec<Effect>>,
    declined: HashMap<String, Decline>,
    submits: HashMap<String, usize>,
    queries: HashMap<String, usize>,
}

pub struct Scripted {
    name: String,
    capability: Capability,
    state: Mutex<State>,
    /// Nobody listens there.
    pub closed: AtomicBool,
    /// Questions get no answer.
    pub mute: AtomicBool,
    /// Questions that are answered `not_found` whatever the book says, before the truth is told.
    pub lagging: AtomicUsize,
    /// Calls that wait here until a test lets them go.
    pub gate: Semaphore,
    pub waiting: AtomicUsize,
}

impl Scripted {
    pub fn new(name: &str, replay: Replay) -> Arc<Self> {
        Self::retaining(name, replay, Duration::from_secs(86_400))
    }

    pub fn retaining(name: &str, replay: Replay, key_retention: Duration) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            capability: Capability {
                key_retention,
                replay,
                query_by_key: true,
                definite_declines: "decline",
            },
            state: Mutex::default(),
            closed: AtomicBool::new(false),
            mute: AtomicBool::new(false),
            lagging: AtomicUsize::new(0),
            gate: Semaphore::new(0),
            waiting: AtomicUsize::new(0),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn effects(&self, key: &str) -> Vec<Effect> {
        self.state().book.get(key).cloned().unwrap_or_default()
    }

    pub fn keys(&self) -> Vec<String> {
        self.state().book.keys().cloned().collect()
    }

    pub fn submits(&self, key: &str) -> usize {
        self.state().submits.get(key).copied().unwrap_or(0)
    }

    pub fn queries(&self, key: &str) -> usize {
        self.state().queries.get(key).copied().unwrap_or(0)
    }

    fn charge(&self, submit: &Submit) -> Approval {
        let mut state = self.state();
        let effects = state.book.entry(submit.key.clone()).or_default();
        let effect = Effect {
            amount_minor: submit.amount.minor,
            currency: submit.amount.currency.code().into(),
            reference: format!("ref-{}-{}", submit.key, effects.len()),
            stage: stage(submit),
        };
        if effects.is_empty() || self.capability.replay == Replay::ReExecutes {
            effects.push(effect);
        }
        approval(&effects[0])
    }

    /// Makes the gateway do the charge by itself (late processing).
    pub fn charge_late(&self, key: &str, amount_minor: i64, currency: &str) -> String {
        self.do_late(key, amount_minor, currency, Stage::Captured)
    }

    /// Makes the bank pay by itself.
    pub fn pay_late(&self, key: &str, amount_minor: i64) -> String {
        self.do_late(key, amount_minor, "EUR", Stage::Paid)
    }

    fn do_late(&self, key: &str, amount_minor: i64, currency: &str, stage: Stage) -> String {
        let reference = format!("ref-{key}-0");
        let effect = Effect { amount_minor, currency: currency.into(), reference: reference.clone(), stage };
        self.state().book.entry(key.into()).or_default().push(effect);
        reference
    }

    async fn behave(&self, submit: &Submit, method: &str, nth: usize) -> Outcome {
        match method {
            "ok" => Outcome::Approved(self.charge(submit)),
            "decline" => {
                let decline = Decline { code: "declined".into(), message: "no".into() };
                self.state().declined.insert(submit.key.clone(), decline.clone());
                Outcome::Declined(decline)
            }
            // Effect, then silence: a decline that follows is about the repeat.
            "lost" => {
                self.charge(submit);
                Outcome::Lost(LostCause::Timeout)
            }
            "lost_then_declined" if nth == 1 => {
                self.charge(submit);
                Outcome::Lost(LostCause::Status(502))
            }
            "lost_then_declined" => {
                Outcome::Declined(Decline { code: "duplicate".into(), message: String::new() })
            }
            "vanish_once" if nth == 1 => Outcome::Lost(LostCause::Timeout),
            "vanish_always" => Outcome::Lost(LostCause::Status(503)),
            "accept" => Outcome::Accepted { reference: Some(format!("ref-{}-0", submit.key)) },
            "other_amount" => {
                let mut approval = self.charge(submit);
                approval.amount_minor -= 1_000;
                Outcome::Approved(approval)
            }
            "other_currency" => {
                let mut approval = self.charge(submit);
                approval.currency = "USD".into();
                Outcome::Approved(approval)
            }
            "busy" if nth == 1 => {
                Outcome::NotSent(NotSentCause::RateLimited { retry_after: Some(Duration::from_millis(300)) })
            }
            // Does its work, and answers once a test lets it.
            "gated" => {
                let approval = self.charge(submit);
                self.waiting.fetch_add(1, Ordering::SeqCst);
                self.gate.acquire().await.expect("never closed").forget();
                Outcome::Approved(approval)
            }
            _ => Outcome::Approved(self.charge(submit)),
        }
    }
}

fn stage(submit: &Submit) -> Stage {
    match &submit.operation {
        Operation::Charge { capture: true, .. } => Stage::Captured,
        Operation::Charge { capture: false, .. } => Stage::Authorized,
        Operation::Payout { .. } => Stage::Paid,
    }
}

fn approval(effect: &Effect) -> Approval {
    Approval {
        reference: effect.reference.clone(),
        stage: effect.stage,
        amount_minor: effect.amount_minor,
        currency: effect.currency.clone(),
    }
}

#[async_trait]
impl Gateway for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn submit(&self, submit: &Submit, deadline: Duration) -> Outcome {
        if self.closed.load(Ordering::SeqCst) {
            return Outcome::NotSent(NotSentCause::Connect("connection refused".into()));
        }
        let (Operation::Charge { payment_method: wish, .. } | Operation::Payout { destination: wish }) =
            &submit.operation;
        let nth = {
            let mut state = self.state();
            let n = state.submits.entry(submit.key.clone()).or_default();
            *n += 1;
            *n
        };
        let work = self.behave(submit, wish, nth);
        tokio::time::timeout(deadline, work).await.unwrap_or(Outcome::Lost(LostCause::Timeout))
    }

    async fn query(&self, key: &str, _deadline: Duration) -> Answer {
        *self.state().queries.entry(key.into()).or_default() += 1;
        if self.closed.load(Ordering::SeqCst) || self.mute.load(Ordering::SeqCst) {
            return Answer::Unanswered("nobody there".into());
        }
        if self.lagging.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
            return Answer::NotFound;
        }
        let state = self.state();
        match (state.book.get(key).and_then(|e| e.first()), state.declined.get(key)) {
            (Some(effect), _) => Answer::Approved(approval(effect)),
            (None, Some(decline)) => Answer::Declined(decline.clone()),
            (None, None) => Answer::NotFound,
        }
    }

    fn verify_webhook(&self, message: WebhookMessage<'_>, now: i64) -> Result<(), WebhookError> {
        signature::verify(&[SECRET.parse::<WebhookSecret>().unwrap()], message, now, 300)
    }

    fn read_webhook(&self, body: &Bytes) -> Result<Vec<Report>, WebhookError> {
        let event: Value =
            serde_json::from_slice(body).map_err(|e| WebhookError::Malformed(e.to_string()))?;
        let text = |name: &str| event[name].as_str().map(str::to_owned);
        let approved = |stage| ReportKind::Approved {
            stage,
            amount_minor: event["amount_minor"].as_i64().unwrap_or(0),
            currency: text("currency").unwrap_or_default(),
        };
        let kind = match event["type"].as_str() {
            Some("captured") => approved(Stage::Captured),
            Some("authorized") => approved(Stage::Authorized),
            Some("settled") => approved(Stage::Paid),
            Some("returned") => approved(Stage::Returned),
            Some("declined" | "rejected") => {
                ReportKind::Declined(Decline { code: "declined".into(), message: "no".into() })
            }
            Some("pending") => ReportKind::Pending,
            other => ReportKind::Other(other.unwrap_or("").into()),
        };
        Ok(vec![Report { key: text("key"), reference: text("reference"), kind }])
    }
}
