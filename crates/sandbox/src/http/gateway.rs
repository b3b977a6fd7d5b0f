//! The gateway API, which the product's adapter speaks: `/gateways/{account}/…`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::routing::{get, post};
use bytes::Bytes;
use iso_currency::Currency;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq;

use super::App;
use crate::engine::{Arrival, Decision, Reply};
use crate::model::{Asked, Gateway, Kind, Submit};

const MOST_MINOR: i64 = 1_000_000_000_000_000;

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/gateways/{account}/charges", post(charges))
        .route("/gateways/{account}/captures", post(captures))
        .route("/gateways/{account}/voids", post(voids))
        .route("/gateways/{account}/refunds", post(refunds))
        .route("/gateways/{account}/payouts", post(payouts))
        .route("/gateways/{account}/operations/{key}", get(status))
        .route("/gateways/{account}/balance", get(balance))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChargeBody {
    amount_minor: i64,
    currency: String,
    payment_method: String,
    #[serde(default = "yes")]
    capture: bool,
}

const fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaptureBody {
    charge_key: String,
    amount_minor: i64,
    currency: String,
    #[serde(default, rename = "final")]
    last: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VoidBody {
    charge_key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefundBody {
    charge_key: String,
    amount_minor: i64,
    currency: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PayoutBody {
    destination: String,
    amount_minor: i64,
    currency: String,
}

impl From<ChargeBody> for Submit {
    fn from(body: ChargeBody) -> Self {
        let mut submit = with_amount(Kind::Charge, body.amount_minor, body.currency);
        (submit.instrument, submit.capture) = (body.payment_method, body.capture);
        submit
    }
}

impl From<CaptureBody> for Submit {
    fn from(body: CaptureBody) -> Self {
        let mut submit = with_amount(Kind::Capture, body.amount_minor, body.currency);
        (submit.charge_key, submit.last) = (Some(body.charge_key), body.last);
        submit
    }
}

impl From<VoidBody> for Submit {
    fn from(body: VoidBody) -> Self {
        let none = with_amount(Kind::Void, 0, String::new());
        Self { amount_minor: None, currency: None, charge_key: Some(body.charge_key), ..none }
    }
}

impl From<RefundBody> for Submit {
    fn from(body: RefundBody) -> Self {
        let mut submit = with_amount(Kind::Refund, body.amount_minor, body.currency);
        submit.charge_key = Some(body.charge_key);
        submit
    }
}

impl From<PayoutBody> for Submit {
    fn from(body: PayoutBody) -> Self {
        let mut submit = with_amount(Kind::Payout, body.amount_minor, body.currency);
        submit.instrument = body.destination;
        submit
    }
}

const fn with_amount(kind: Kind, amount_minor: i64, currency: String) -> Submit {
    Submit {
        kind,
        amount_minor: Some(amount_minor),
        currency: Some(currency),
        instrument: String::new(),
        capture: false,
        charge_key: None,
        last: false,
    }
}

type Shared = State<Arc<App>>;

async fn charges(State(app): Shared, Path(account): Path<String>, headers: HeaderMap, body: Bytes) -> Reply {
    submit::<ChargeBody>(app, Kind::Charge, &account, &headers, &body).await
}

async fn captures(State(app): Shared, Path(account): Path<String>, headers: HeaderMap, body: Bytes) -> Reply {
    submit::<CaptureBody>(app, Kind::Capture, &account, &headers, &body).await
}

async fn voids(State(app): Shared, Path(account): Path<String>, headers: HeaderMap, body: Bytes) -> Reply {
    submit::<VoidBody>(app, Kind::Void, &account, &headers, &body).await
}

async fn refunds(State(app): Shared, Path(account): Path<String>, headers: HeaderMap, body: Bytes) -> Reply {
    submit::<RefundBody>(app, Kind::Refund, &account, &headers, &body).await
}

async fn payouts(State(app): Shared, Path(account): Path<String>, headers: HeaderMap, body: Bytes) -> Reply {
    submit::<PayoutBody>(app, Kind::Payout, &account, &headers, &body).await
}

async fn submit<B: DeserializeOwned + Into<Submit>>(
    app: Arc<App>,
    kind: Kind,
    account: &str,
    headers: &HeaderMap,
    body: &Bytes,
) -> Reply {
    let Some(gateway) = Gateway::from_word(account) else { return no_account() };
    let key = idempotency_key(headers);
    let arrival = app.engine.arrive(gateway, kind.into(), key.as_deref().unwrap_or(""));
    let checked = authorized(&app, headers)
        .and_then(|()| {
            key.ok_or_else(|| invalid("Idempotency-Key: 1 to 255 printable ASCII characters, once"))
        })
        .and_then(|_| parse::<B>(body))
        .and_then(|submit| app.engine.begin(&arrival, &submit).map(|()| submit));
    let submit = match checked {
        Ok(submit) => submit,
        Err(reply) => {
            app.engine.refuse(&arrival, reply.answer().unwrap_or(500));
            return reply;
        }
    };
    // On a task of its own: what has arrived is carried out, even when the caller hangs up.
    let task = tokio::spawn(async move {
        pause(arrival.pause).await;
        let decision = app.engine.submit(&arrival, &submit);
        carry_out(&app, &arrival, decision).await
    });
    task.await.unwrap_or(Reply::Reset)
}

async fn pause(length: Duration) {
    if !length.is_zero() {
        tokio::time::sleep(length).await;
    }
}

/// Waits until a decision is durable, delivers what comes first, and answers when the time has come.
async fn carry_out(app: &Arc<App>, arrival: &Arrival, decision: Decision) -> Reply {
    if app.engine.durable(decision.position).await.is_err() {
        return Reply::Reset;
    }
    if let Some(send) = decision.deliver_first {
        Arc::clone(&app.deliverer).deliver_before_answer(send).await;
    }
    pause(decision.delay.saturating_add(arrival.pause)).await;
    decision.reply
}

async fn status(
    State(app): Shared,
    Path((account, key)): Path<(String, String)>,
    headers: HeaderMap,
) -> Reply {
    let Some(gateway) = Gateway::from_word(&account) else { return no_account() };
    let arrival = app.engine.arrive(gateway, Asked::Status, &key);
    if let Err(reply) = authorized(&app, &headers) {
        app.engine.refuse(&arrival, reply.answer().unwrap_or(500));
        return reply;
    }
    pause(arrival.pause).await;
    let decision = app.engine.status(&arrival);
    carry_out(&app, &arrival, decision).await
}

#[derive(Deserialize)]
struct CurrencyQuery {
    currency: Option<String>,
}

async fn balance(
    State(app): Shared,
    Path(account): Path<String>,
    headers: HeaderMap,
    Query(query): Query<CurrencyQuery>,
) -> Reply {
    let Some(gateway) = Gateway::from_word(&account) else { return no_account() };
    if let Err(reply) = authorized(&app, &headers) {
        return reply;
    }
    super::control::balance_of(&app, Some(gateway), query.currency.as_deref()).await
}

fn no_account() -> Reply {
    Reply::error(404, "not_found", "no such gateway account")
}

fn invalid(message: &str) -> Reply {
    Reply::error(422, "invalid", message)
}

fn authorized(app: &App, headers: &HeaderMap) -> Result<(), Reply> {
    let given = headers.get("authorization").and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or("");
    match bool::from(given.as_bytes().ct_eq(app.secret.as_bytes())) {
        true => Ok(()),
        false => {
            Err(Reply::error(401, "unauthorized", "Authorization: Bearer <the sandbox's secret> is needed"))
        }
    }
}

/// The gateway key: 1 to 255 printable ASCII characters; a value in double quotes means its inside.
fn idempotency_key(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all("idempotency-key").iter();
    let (value, None) = (values.next()?.to_str().ok()?, values.next()) else { return None };
    let inside = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    let good = (1..=255).contains(&inside.len()) && inside.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    good.then(|| inside.to_owned())
}

fn parse<B: DeserializeOwned + Into<Submit>>(body: &Bytes) -> Result<Submit, Reply> {
    let body = serde_json::from_slice::<B>(body).map_err(|e| invalid(&e.to_string()))?;
    let submit: Submit = body.into();
    let wrong = if submit.amount_minor.is_some_and(|amount| !(1..=MOST_MINOR).contains(&amount)) {
        Some("amount_minor: from 1 to 10^15")
    } else if submit.currency.as_deref().is_some_and(|code| Currency::from_code(code).is_none()) {
        Some("currency: an ISO 4217 code")
    } else if submit.instrument.len() > 255 || submit.charge_key.as_deref().is_some_and(str::is_empty) {
        Some("payment_method, destination and charge_key: 1 to 255 characters")
    } else if matches!(submit.kind, Kind::Charge | Kind::Payout) && submit.instrument.is_empty() {
        Some("payment_method or destination: 1 to 255 characters")
    } else {
        None
    };
    wrong.map_or(Ok(submit), |message| Err(invalid(message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_printable_and_may_be_quoted() {
        let key = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("idempotency-key", value.parse().expect("a header"));
            }
            idempotency_key(&headers)
        };
        assert_eq!(key(&["abc"]).as_deref(), Some("abc"));
        assert_eq!(key(&["\"abc\""]).as_deref(), Some("abc"));
        for wrong in [&[][..], &[""], &["\"\""], &["a", "b"], &[&"x".repeat(256)]] {
            assert_eq!(key(wrong), None);
        }
    }

    #[test]
    fn bodies_are_strict() {
        let good = br#"{"amount_minor": 100, "currency": "EUR", "payment_method": "tok_ok"}"#;
        let submit = parse::<ChargeBody>(&Bytes::from_static(good)).expect("a charge");
        assert!(submit.capture);
        for wrong in [
            r#"{"amount_minor": 0, "currency": "EUR", "payment_method": "tok_ok"}"#,
            r#"{"amount_minor": 1.5, "currency": "EUR", "payment_method": "tok_ok"}"#,
            r#"{"amount_minor": 1, "currency": "eur", "payment_method": "tok_ok"}"#,
            r#"{"amount_minor": 1, "currency": "EUR", "payment_method": ""}"#,
            r#"{"amount_minor": 1, "currency": "EUR", "payment_method": "tok_ok", "more": 1}"#,
            "{",
        ] {
            let reply = parse::<ChargeBody>(&Bytes::from(wrong)).unwrap_err();
            assert_eq!(reply.answer(), Some(422), "{wrong}");
        }
    }
}
