//! The control routes for tests and people: book, requests, settings, faults, facts, receiver. They need no secret.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::App;
use crate::book::{Change, Totals};
use crate::clock::{micros, parse_duration, rfc3339};
use crate::engine::{FactError, FactRequest, Reply};
use crate::faults::{DEFAULT_DELAY, Fault, Mix, Rule, Target};
use crate::journal_file::{JournalError, Progress};
use crate::model::{Effect, Gateway, Request};
use crate::seed::Part;
use crate::settlement;

const PAGE: usize = 1000;
const LONGEST_PAGE: usize = 10_000;
/// The clock goes ahead at most so far in all: a hundred years in microseconds.
const FARTHEST: i64 = 100 * 366 * 24 * 3600 * 1_000_000;

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(index))
        .route("/_health", get(health))
        .route("/_book", get(book))
        .route("/_requests", get(requests))
        .route("/_balance", get(balance))
        .route("/_settlement", get(settlement_file))
        .route("/_settings", get(settings).put(change_settings))
        .route("/_faults", get(faults).post(add_fault).delete(clear_faults))
        .route("/_mix", get(mix).post(set_mix))
        .route("/_clock", get(clock).post(advance))
        .route("/_facts", post(fact))
        .route("/_receiver", get(manner).put(set_manner).delete(forget_received))
        .route("/_receiver/hook", post(receive))
        .route("/_receiver/events", get(received).delete(forget_received))
}

const INDEX: &str = "\
Tallystick sandbox: a card gateway and a bank that misbehave on request.

Gateway API (Authorization: Bearer <secret>; accounts sandbox, sandbox-reexecutes):
  POST /gateways/{account}/charges | captures | voids | refunds | payouts    (Idempotency-Key)
  GET  /gateways/{account}/operations/{key}    GET /gateways/{account}/balance?currency=
What happened:
  GET  /_book?after=0&key=&limit=    GET /_requests?after=0&key=&limit=    GET /_events?after=0&key=&limit=
  GET  /_balance?currency=           GET /_settlement?date=YYYY-MM-DD
Behaviour:
  GET, PUT /_settings    GET, POST, DELETE /_faults    GET, POST /_mix    GET, POST /_clock
  POST /_facts    POST /_events/{id}/redeliver    POST /_sign
Receiver of merchant webhooks:
  POST /_receiver/hook    GET, DELETE /_receiver/events?payment_id=    GET, PUT /_receiver
";

async fn index() -> &'static str {
    INDEX
}

async fn health(State(app): Shared) -> Reply {
    let Progress { lines, syncs } = app.engine.progress();
    reply(200, &json!({"status": "ok", "journal": {"lines": lines, "syncs": syncs}}))
}

type Shared = State<Arc<App>>;
type Params = Query<HashMap<String, String>>;

/// A JSON answer.
pub(super) fn reply(status: u16, value: &Value) -> Reply {
    Reply::Json(status, value.to_string().into_bytes())
}

/// 422 that names what is wrong.
pub(super) fn invalid(field: &str, message: &str) -> Reply {
    reply(422, &json!({"error": "invalid", "message": message, "field": format!("/{field}")}))
}

/// 503: nothing can be stored any more.
pub(super) fn away(error: &JournalError) -> Reply {
    Reply::error(503, "unavailable", &error.to_string())
}

/// A body as a value of its type, or the answer that says what is wrong.
pub(super) fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Reply> {
    let text = if body.is_empty() { b"{}" } else { &body[..] };
    serde_json::from_slice(text).map_err(|e| match e.is_data() {
        true => Reply::error(422, "invalid", &e.to_string()),
        false => Reply::error(400, "malformed_json", &e.to_string()),
    })
}

/// Key, position and length of a page.
pub(super) fn page(params: &HashMap<String, String>) -> Result<(u64, Option<&str>, usize), Reply> {
    let after = params.get("after").map_or(Ok(0), |text| text.parse::<u64>());
    let limit = params.get("limit").map_or(Ok(PAGE), |text| text.parse::<usize>());
    let after = after.map_err(|_| invalid("after", "a number"))?;
    let limit = limit.map_err(|_| invalid("limit", "a number"))?;
    let key = params.get("key").map(String::as_str).filter(|key| !key.is_empty());
    Ok((after, key, limit.clamp(1, LONGEST_PAGE)))
}

fn effect_json(effect: &Effect) -> Value {
    json!({
        "seq": effect.seq, "at": rfc3339(effect.at), "kind": effect.kind, "key": effect.key,
        "reference": effect.reference, "amount_minor": effect.amount_minor, "currency": effect.currency,
        "state": effect.state, "gateway": effect.gateway,
    })
}

fn request_json(request: &Request) -> Value {
    json!({
        "seq": request.seq, "at": rfc3339(request.at), "operation": request.operation, "key": request.key,
        "answer": request.answer, "gateway": request.gateway,
    })
}

async fn book(State(app): Shared, Query(params): Params) -> Result<Reply, Reply> {
    let (after, key, limit) = page(&params)?;
    let look = |book: &crate::book::Book| -> Vec<Effect> {
        book.effects.page(after, key, limit).into_iter().cloned().collect()
    };
    let effects = app.engine.read_durable(look).await.map_err(|e| away(&e))?;
    let next = effects.last().map(|effect| effect.seq);
    let effects: Vec<_> = effects.iter().map(effect_json).collect();
    Ok(reply(200, &json!({"effects": effects, "next": next})))
}

async fn requests(State(app): Shared, Query(params): Params) -> Result<Reply, Reply> {
    let (after, key, limit) = page(&params)?;
    let found: Vec<Request> =
        app.engine.read(|book| book.requests.page(after, key, limit).into_iter().cloned().collect());
    let next = found.last().map(|request| request.seq);
    let found: Vec<_> = found.iter().map(request_json).collect();
    Ok(reply(200, &json!({"requests": found, "next": next})))
}

async fn balance(State(app): Shared, Query(params): Params) -> Reply {
    balance_of(&app, None, params.get("currency").map(String::as_str)).await
}

/// The balance of one account or of both, in one currency or in each.
pub(super) async fn balance_of(app: &App, gateway: Option<Gateway>, currency: Option<&str>) -> Reply {
    let totals = match app.engine.read_durable(|book| book.totals(gateway)).await {
        Ok(totals) => totals,
        Err(error) => return away(&error),
    };
    let show = |currency: &str, totals: Totals| {
        json!({
            "currency": currency, "balance_minor": totals.balance_minor(), "captured_minor": totals.captured_minor,
            "refunded_minor": totals.refunded_minor, "paid_out_minor": totals.paid_out_minor,
            "returned_minor": totals.returned_minor,
        })
    };
    match currency.filter(|currency| !currency.is_empty()) {
        Some(currency) => reply(200, &show(currency, totals.get(currency).copied().unwrap_or_default())),
        None => {
            let all: Vec<_> = totals.iter().map(|(currency, totals)| show(currency, *totals)).collect();
            reply(200, &json!({"balances": all}))
        }
    }
}

async fn settlement_file(State(app): Shared, Query(params): Params) -> Response {
    let date = params.get("date").map(String::as_str).filter(|date| !date.is_empty());
    if date.is_some_and(|date| date.parse::<jiff::civil::Date>().is_err() || date.len() != 10) {
        return invalid("date", "a date like 2026-01-31").into_response();
    }
    match app.engine.read_durable(|book| settlement::file(book, date)).await {
        Ok(file) => ([("content-type", "text/csv; charset=utf-8")], file).into_response(),
        Err(error) => away(&error).into_response(),
    }
}

async fn settings(State(app): Shared) -> Reply {
    reply(200, &json!(app.engine.read(|book| book.settings.clone())))
}

/// What a change of the book may end with.
struct Refused(Reply);

impl From<JournalError> for Refused {
    fn from(error: JournalError) -> Self {
        Self(away(&error))
    }
}

async fn change_settings(State(app): Shared, body: Bytes) -> Result<Reply, Reply> {
    let change = parse::<Map<String, Value>>(&body)?;
    let made = app.engine.change(|book| {
        let new = book.settings.changed(change).map_err(|(name, why)| Refused(invalid(&name, &why)))?;
        Ok((Change::Settings(Box::new(new.clone())), new))
    });
    made.await.map(|new| reply(200, &json!(new))).map_err(|Refused(reply)| reply)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultBody {
    operation: Option<Target>,
    key: Option<String>,
    destination: Option<String>,
    fault: String,
    delay: Option<String>,
    probability: Option<Part>,
    times: Option<u32>,
}

async fn add_fault(State(app): Shared, body: Bytes) -> Result<Reply, Reply> {
    let body = parse::<FaultBody>(&body)?;
    let operation = body.operation.unwrap_or(Target::Any);
    let fault = Fault::parse(operation, &body.fault);
    let fault = fault.ok_or_else(|| invalid("fault", "no such fault of this operation"))?;
    let delay = body.delay.map_or(Ok(DEFAULT_DELAY), |text| parse_duration(&text));
    let delay = delay.map_err(|why| invalid("delay", &why))?;
    if body.times == Some(0) {
        return Err(invalid("times", "at least 1"));
    }
    let rule = Rule {
        id: format!("fault_{}", Uuid::now_v7().simple()),
        operation,
        key: body.key,
        destination: body.destination,
        fault,
        delay,
        probability: body.probability.unwrap_or(Part::WHOLE),
        times: body.times,
    };
    let id = rule.id.clone();
    store(&app, Change::Rule(Box::new(rule))).await?;
    Ok(reply(201, &json!({"id": id})))
}

async fn store(app: &App, change: Change) -> Result<(), Reply> {
    let made = app.engine.change(|_| Ok::<_, JournalError>((change, ())));
    made.await.map_err(|e| away(&e))
}

fn rule_json(rule: &Rule) -> Value {
    let fault = match rule.fault {
        Fault::Submit(fault) => fault.as_str(),
        Fault::Status(fault) => fault.as_str(),
        Fault::Webhook(fault) => fault.as_str(),
    };
    json!({
        "id": rule.id, "operation": rule.operation, "key": rule.key, "destination": rule.destination, "fault": fault,
        "delay": humantime::format_duration(rule.delay).to_string(), "probability": rule.probability,
        "times": rule.times,
    })
}

async fn faults(State(app): Shared) -> Reply {
    let rules: Vec<_> = app.engine.read(|book| book.faults.rules.iter().map(rule_json).collect());
    reply(200, &json!({"faults": rules}))
}

async fn clear_faults(State(app): Shared) -> Result<StatusCode, Reply> {
    store(&app, Change::RulesCleared).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MixBody {
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    rates: BTreeMap<String, Part>,
}

async fn mix(State(app): Shared) -> Reply {
    reply(200, &json!(app.engine.read(|book| book.faults.mix.clone())))
}

async fn set_mix(State(app): Shared, body: Bytes) -> Result<Reply, Reply> {
    let MixBody { seed, rates } = parse(&body)?;
    let mix = Mix { seed, rates };
    mix.check().map_err(|why| invalid("rates", &why))?;
    store(&app, Change::Mix(mix.clone())).await?;
    Ok(reply(200, &json!(mix)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockBody {
    advance: String,
}

async fn clock(State(app): Shared) -> Reply {
    reply(200, &json!({"now": rfc3339(app.engine.now())}))
}

async fn advance(State(app): Shared, body: Bytes) -> Result<Reply, Reply> {
    let body = parse::<ClockBody>(&body)?;
    let span = parse_duration(&body.advance).map_err(|why| invalid("advance", &why))?;
    let made = app.engine.change(|book| {
        let offset = book.offset.checked_add(micros(span)).filter(|offset| *offset <= FARTHEST);
        let offset = offset.ok_or_else(|| Refused(invalid("advance", "at most a hundred years in all")))?;
        Ok((Change::Clock(offset), ()))
    });
    made.await.map_err(|Refused(reply)| reply)?;
    Ok(reply(200, &json!({"now": rfc3339(app.engine.now())})))
}

async fn fact(State(app): Shared, body: Bytes) -> Result<Reply, Reply> {
    let request = parse::<FactRequest>(&body)?;
    match app.engine.fact(&request).await {
        Ok(made) => {
            let effects: Vec<_> = made.effects.iter().map(effect_json).collect();
            Ok(reply(201, &json!({"event_ids": made.event_ids, "effects": effects})))
        }
        Err(FactError::NotFound) => Err(Reply::error(404, "not_found", "no operation with this key")),
        Err(FactError::Invalid(why)) => Err(Reply::error(422, "invalid", &why)),
        Err(FactError::Journal(error)) => Err(away(&error)),
    }
}

async fn manner(State(app): Shared) -> Reply {
    reply(200, &json!(app.receiver.manner()))
}

async fn set_manner(State(app): Shared, body: Bytes) -> Result<Reply, Reply> {
    let change = parse::<Map<String, Value>>(&body)?;
    let new = app.receiver.manner().changed(change).map_err(|(name, why)| invalid(&name, &why))?;
    app.receiver.set_manner(new.clone());
    Ok(reply(200, &json!(new)))
}

async fn receive(State(app): Shared, headers: HeaderMap, body: Bytes) -> Result<StatusCode, Reply> {
    let text = |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    let body = String::from_utf8_lossy(&body).into_owned();
    let (status, delay) = app.receiver.take(headers, body, app.engine.now());
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    StatusCode::from_u16(status).map_err(|_| invalid("status", "an HTTP status"))
}

async fn received(State(app): Shared, Query(params): Params) -> Reply {
    let payment = params.get("payment_id").map(String::as_str).filter(|payment| !payment.is_empty());
    let items = app.receiver.items(payment);
    reply(200, &json!({"count": items.len(), "items": items}))
}

async fn forget_received(State(app): Shared) -> StatusCode {
    app.receiver.clear();
    StatusCode::NO_CONTENT
}
