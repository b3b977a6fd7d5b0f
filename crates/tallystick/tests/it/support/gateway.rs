//! A gateway in memory that does what the payment method says, and remembers what it did.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use tallystick_gateway::signature::{self, WebhookSecret};
use tallystick_gateway::{
    Answer, Approval, Capability, Decline, Gateway, LostCause, Operation, Outcome, Replay, Report,
    ReportKind, Stage, Submit, WebhookError, WebhookMessage,
};
use tokio::sync::watch;

/// Its name.
pub const NAME: &str = "test";
/// What it signs webhooks with.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Payment methods: `approve`, `decline`, `lose` (done, but the reply is lost), `accept` (acknowledged, and stays so),
/// `hold` (answers when told to).
pub struct ScriptedGateway {
    capability: Capability,
    done: Mutex<Vec<Approval>>,
    keys: Mutex<Vec<String>>,
    held: watch::Sender<bool>,
}

impl ScriptedGateway {
    /// One that has done nothing yet.
    pub fn new() -> Self {
        let capability = Capability {
            key_retention: Duration::from_secs(24 * 3600),
            replay: Replay::SameResult,
            query_by_key: true,
            definite_declines: "declined",
        };
        Self { capability, done: Mutex::default(), keys: Mutex::default(), held: watch::Sender::new(true) }
    }

    /// Effects on money under a key.
    pub fn effects(&self, key: &str) -> usize {
        self.keys.lock().unwrap().iter().filter(|k| *k == key).count()
    }

    /// All effects on money.
    pub fn all_effects(&self) -> usize {
        self.keys.lock().unwrap().len()
    }

    /// Answers what is held, from now on.
    pub fn release(&self) {
        self.held.send_replace(false);
    }

    fn capture(&self, submit: &Submit, stage: Stage) -> Approval {
        let approval = Approval {
            reference: format!("ref-{}", submit.key),
            stage,
            amount_minor: submit.amount.minor,
            currency: submit.amount.currency.code().to_owned(),
        };
        self.keys.lock().unwrap().push(submit.key.clone());
        self.done.lock().unwrap().push(approval.clone());
        approval
    }
}

#[async_trait]
impl Gateway for ScriptedGateway {
    fn name(&self) -> &str {
        NAME
    }

    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn submit(&self, submit: &Submit, deadline: Duration) -> Outcome {
        let (wish, stage) = match &submit.operation {
            Operation::Charge { payment_method, capture: true } => (payment_method, Stage::Captured),
            Operation::Charge { payment_method, capture: false } => (payment_method, Stage::Authorized),
            Operation::Payout { destination } => (destination, Stage::Paid),
        };
        match wish.as_str() {
            "decline" => Outcome::Declined(Decline { code: "declined".into(), message: "no".into() }),
            "accept" => Outcome::Accepted { reference: None },
            "lose" => {
                self.capture(submit, stage);
                Outcome::Lost(LostCause::Timeout)
            }
            "hold" => {
                let mut held = self.held.subscribe();
                let released = tokio::time::timeout(deadline, held.wait_for(|held| !held)).await;
                match released.is_ok_and(|told| told.is_ok()) {
                    true => Outcome::Approved(self.capture(submit, stage)),
                    false => Outcome::Lost(LostCause::Timeout),
                }
            }
            _ => Outcome::Approved(self.capture(submit, stage)),
        }
    }

    async fn query(&self, key: &str, _: Duration) -> Answer {
        let reference = format!("ref-{key}");
        match self.done.lock().unwrap().iter().find(|approval| approval.reference == reference) {
            Some(approval) => Answer::Approved(approval.clone()),
            None => Answer::Pending { reference: None },
        }
    }

    fn verify_webhook(&self, message: WebhookMessage<'_>, now: i64) -> Result<(), WebhookError> {
        signature::verify(&[secret()], message, now, 300)
    }

    fn read_webhook(&self, body: &Bytes) -> Result<Vec<Report>, WebhookError> {
        let malformed = |_| WebhookError::Malformed("no event".into());
        let event: Value = serde_json::from_slice(body).map_err(malformed)?;
        let text = |name: &str| event[name].as_str().map(str::to_owned);
        let kind = match event["type"].as_str() {
            Some("captured") => ReportKind::Approved {
                stage: Stage::Captured,
                amount_minor: event["amount_minor"].as_i64().unwrap_or_default(),
                currency: text("currency").unwrap_or_default(),
            },
            Some("settled") => ReportKind::Approved {
                stage: Stage::Paid,
                amount_minor: event["amount_minor"].as_i64().unwrap_or_default(),
                currency: text("currency").unwrap_or_default(),
            },
            other => ReportKind::Other(other.unwrap_or_default().to_owned()),
        };
        Ok(vec![Report { key: text("key"), reference: text("reference"), kind }])
    }
}

/// The secret as a value.
pub fn secret() -> WebhookSecret {
    SECRET.parse().expect("a constant of the right form")
}
