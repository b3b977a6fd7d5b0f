//! The sandbox gateway: the card gateway and bank that the project ships for trying things out.
//!
//! Its protocol is described in `crates/sandbox/README.md`. It replays the first result of a key within its
//! key retention, answers status by key without limit of time, and signs webhooks as Standard Webhooks.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::{Account, AdapterError};
use crate::http::{self, NoAnswer, Received};
use crate::signature::{self, WebhookSecret};
use crate::text;
use crate::{
    Answer, Approval, Capability, Decline, Gateway, LostCause, NotSentCause, Operation, Outcome, Replay,
    Report, ReportKind, Stage, Submit, WebhookError, WebhookMessage,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A longer `Retry-After` is cut: the gateway does not get to park our work for ever.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

struct Sandbox {
    name: String,
    base: Url,
    secret: SecretString,
    webhook_secrets: Vec<WebhookSecret>,
    tolerance: i64,
    capability: Capability,
    client: Client,
}

pub(super) fn build(account: &Account) -> Result<Arc<dyn Gateway>, AdapterError> {
    let text = format!("{}/gateways/{}/", account.base_url.trim_end_matches('/'), account.name);
    let base = Url::parse(&text).map_err(|e| account.refuse(format_args!("base_url: {e}")))?;
    if !matches!(base.scheme(), "http" | "https") {
        return Err(account.refuse("base_url: must begin with http:// or https://"));
    }
    Ok(Arc::new(Sandbox {
        name: account.name.clone(),
        base,
        secret: account.secret.clone(),
        webhook_secrets: account.parsed_webhook_secrets()?,
        tolerance: account.webhook_tolerance_seconds,
        capability: Capability {
            key_retention: account.key_retention(),
            replay: if account.re_executes { Replay::ReExecutes } else { Replay::SameResult },
            query_by_key: true,
            definite_declines: "402 with decline.code",
        },
        client: http::client(CONNECT_TIMEOUT).map_err(|e| account.refuse(e))?,
    }))
}

#[derive(Serialize)]
struct PayoutBody<'a> {
    amount_minor: i64,
    currency: &'a str,
    destination: &'a str,
}

#[derive(Serialize)]
struct ChargeBody<'a> {
    amount_minor: i64,
    currency: &'a str,
    payment_method: &'a str,
    capture: bool,
}

/// Only what decides is read; members that the sandbox adds later do no harm.
#[derive(Deserialize)]
struct ObjectBody {
    key: String,
    reference: Option<String>,
    status: String,
    amount_minor: i64,
    currency: String,
    decline: Option<DeclineBody>,
}

#[derive(Deserialize)]
struct DeclineBody {
    code: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: String,
}

#[derive(Deserialize)]
struct EventBody {
    r#type: String,
    key: Option<String>,
    reference: Option<String>,
    amount_minor: Option<i64>,
    currency: Option<String>,
    code: Option<String>,
}

/// What an object body says, before submit and query put it in their own words.
enum Said {
    Approved(Approval),
    Declined(Decline),
    Pending(Option<String>),
    Unclear(LostCause),
}

fn decline_of(code: &str, message: &str) -> Decline {
    Decline {
        code: text::words(code, text::MAX_CODE).unwrap_or_else(|| "declined".into()),
        message: text::words(message, text::MAX_MESSAGE).unwrap_or_default(),
    }
}

fn read_object(key: &str, body: &[u8]) -> Said {
    let object: ObjectBody = match serde_json::from_slice(body) {
        Ok(object) => object,
        Err(e) => return Said::Unclear(LostCause::Unreadable(e.to_string())),
    };
    if object.key != key {
        return Said::Unclear(LostCause::OtherKey);
    }
    // What cannot be kept cannot be looked up either: such an answer proves nothing, and the key is asked about again.
    if object.reference.as_deref().is_some_and(|r| !text::is_reference(r))
        || !text::is_currency(&object.currency)
    {
        return Said::Unclear(LostCause::Unreadable("a reference or currency that is none".into()));
    }
    let stage = match object.status.as_str() {
        "captured" => Stage::Captured,
        "authorized" => Stage::Authorized,
        "paid" => Stage::Paid,
        "returned" => Stage::Returned,
        "pending" | "accepted" => return Said::Pending(object.reference),
        "declined" | "rejected" => {
            let decline =
                object.decline.unwrap_or(DeclineBody { code: String::new(), message: String::new() });
            return Said::Declined(decline_of(&decline.code, &decline.message));
        }
        other => return Said::Unclear(LostCause::Unreadable(format!("status {other:?}"))),
    };
    match object.reference {
        Some(reference) => Said::Approved(Approval {
            reference,
            stage,
            amount_minor: object.amount_minor,
            currency: object.currency,
        }),
        None => Said::Unclear(LostCause::Unreadable("approved without a reference".into())),
    }
}

impl Sandbox {
    fn url(&self, parts: &[&str]) -> Url {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("an http URL has a path").pop_if_empty().extend(parts);
        url
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        request.bearer_auth(self.secret.expose_secret())
    }

    fn submit_outcome(key: &str, received: &Received) -> Outcome {
        match received.status {
            StatusCode::OK | StatusCode::ACCEPTED => match read_object(key, &received.body) {
                Said::Approved(approval) => Outcome::Approved(approval),
                Said::Pending(reference) => Outcome::Accepted { reference },
                // A decline comes with 402; with 2xx it is a contradiction in itself.
                Said::Declined(_) => {
                    Outcome::Lost(LostCause::Unreadable("declined with a 2xx status".into()))
                }
                Said::Unclear(cause) => Outcome::Lost(cause),
            },
            StatusCode::PAYMENT_REQUIRED => match read_object(key, &received.body) {
                Said::Declined(decline) => Outcome::Declined(decline),
                Said::Unclear(cause) => Outcome::Lost(cause),
                Said::Approved(_) | Said::Pending(_) => {
                    Outcome::Lost(LostCause::Unreadable("402 without a decline".into()))
                }
            },
            StatusCode::TOO_MANY_REQUESTS => {
                Outcome::NotSent(NotSentCause::RateLimited { retry_after: retry_after(received) })
            }
            other => Outcome::Lost(LostCause::Status(other.as_u16())),
        }
    }
}

fn retry_after(received: &Received) -> Option<Duration> {
    let seconds = received.headers.get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

#[async_trait]
impl Gateway for Sandbox {
    fn name(&self) -> &str {
        &self.name
    }

    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn submit(&self, submit: &Submit, deadline: Duration) -> Outcome {
        let request = match &submit.operation {
            Operation::Charge { payment_method, capture } => {
                self.client.post(self.url(&["charges"])).json(&ChargeBody {
                    amount_minor: submit.amount.minor,
                    currency: submit.amount.currency.code(),
                    payment_method,
                    capture: *capture,
                })
            }
            Operation::Payout { destination } => self.client.post(self.url(&["payouts"])).json(&PayoutBody {
                amount_minor: submit.amount.minor,
                currency: submit.amount.currency.code(),
                destination,
            }),
        };
        let request = self.authorized(request).header("Idempotency-Key", &submit.key);
        match http::exchange(request, deadline).await {
            Ok(received) => Self::submit_outcome(&submit.key, &received),
            Err(NoAnswer::NotSent(cause)) => Outcome::NotSent(cause),
            Err(NoAnswer::Lost(cause)) => Outcome::Lost(cause),
        }
    }

    async fn query(&self, key: &str, deadline: Duration) -> Answer {
        let request = self.authorized(self.client.get(self.url(&["operations", key])));
        let received = match http::exchange(request, deadline).await {
            Ok(received) => received,
            Err(NoAnswer::NotSent(NotSentCause::Connect(reason))) => return Answer::Unanswered(reason),
            Err(NoAnswer::NotSent(NotSentCause::RateLimited { .. })) => {
                return Answer::Unanswered("rate limited".into());
            }
            Err(NoAnswer::Lost(cause)) => return Answer::Unanswered(cause.name().into()),
        };
        match received.status {
            StatusCode::OK => match read_object(key, &received.body) {
                Said::Approved(approval) => Answer::Approved(approval),
                Said::Declined(decline) => Answer::Declined(decline),
                Said::Pending(reference) => Answer::Pending { reference },
                Said::Unclear(cause) => Answer::Unanswered(cause.name().into()),
            },
            // A 404 of a proxy in between looks the same but for its body.
            StatusCode::NOT_FOUND => match serde_json::from_slice::<ErrorBody>(&received.body) {
                Ok(body) if body.error == "not_found" => Answer::NotFound,
                _ => Answer::Unanswered("status 404 without the gateway's own body".into()),
            },
            other => Answer::Unanswered(format!("status {}", other.as_u16())),
        }
    }

    fn verify_webhook(&self, message: WebhookMessage<'_>, now: i64) -> Result<(), WebhookError> {
        signature::verify(&self.webhook_secrets, message, now, self.tolerance)
    }

    fn read_webhook(&self, body: &Bytes) -> Result<Vec<Report>, WebhookError> {
        let event: EventBody =
            serde_json::from_slice(body).map_err(|e| WebhookError::Malformed(e.to_string()))?;
        let mut ids = event.key.iter().chain(&event.reference);
        if ids.any(|id| !text::is_reference(id)) || event.currency.iter().any(|c| !text::is_currency(c)) {
            return Err(WebhookError::Malformed("a key, reference or currency that is none".into()));
        }
        let approved = |stage| match (event.amount_minor, &event.currency) {
            (Some(amount_minor), Some(currency)) => {
                Ok(ReportKind::Approved { stage, amount_minor, currency: currency.clone() })
            }
            _ => Err(WebhookError::Malformed("amount_minor and currency are missing".into())),
        };
        let refused = |message| {
            ReportKind::Declined(decline_of(event.code.as_deref().unwrap_or(&event.r#type), message))
        };
        let kind = match event.r#type.as_str() {
            "captured" => approved(Stage::Captured)?,
            "authorized" => approved(Stage::Authorized)?,
            "settled" => approved(Stage::Paid)?,
            "returned" => approved(Stage::Returned)?,
            "declined" => refused("the gateway declined the charge"),
            "rejected" => refused("the bank rejected the payout"),
            "pending" => ReportKind::Pending,
            other => ReportKind::Other(other.to_owned()),
        };
        Ok(vec![Report { key: event.key, reference: event.reference, kind }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_about_another_key_or_without_reference_proves_nothing() {
        let body = br#"{"key":"a","reference":null,"status":"captured","amount_minor":1,"currency":"EUR"}"#;
        assert!(matches!(read_object("b", body), Said::Unclear(LostCause::OtherKey)));
        assert!(matches!(read_object("a", body), Said::Unclear(LostCause::Unreadable(_))));
        assert!(matches!(read_object("a", &body[..40]), Said::Unclear(LostCause::Unreadable(_))));
    }

    #[test]
    fn text_that_cannot_be_kept_proves_nothing_and_declines_are_cleaned() {
        for bad in [r#""reference":"a\u0000b","currency":"EUR""#, r#""reference":"r","currency":"E\u0000R""#]
        {
            let body = format!(r#"{{"key":"a",{bad},"status":"captured","amount_minor":1}}"#);
            assert!(
                matches!(read_object("a", body.as_bytes()), Said::Unclear(LostCause::Unreadable(_))),
                "{bad}"
            );
        }
        let no = br#"{"key":"a","reference":null,"status":"declined","amount_minor":1,"currency":"EUR","decline":{"code":"","message":"4242424242424242"}}"#;
        let Said::Declined(decline) = read_object("a", no) else { panic!("a decline") };
        assert_eq!((decline.code.as_str(), decline.message.as_str()), ("declined", "[digits removed]"));
    }
}
