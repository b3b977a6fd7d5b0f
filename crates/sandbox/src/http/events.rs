//! The sandbox's own events: listed, delivered again, and signatures on demand.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::App;
use super::control::{away, invalid, page, parse, reply};
use crate::clock::{real_seconds, rfc3339};
use crate::engine::Reply;
use crate::model::{Event, Gateway};
use crate::webhooks::{Signed, Signer};

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/_events", get(events))
        .route("/_events/{id}/redeliver", post(redeliver))
        .route("/_sign", post(sign))
}

fn headers_json(signed: Signed) -> Value {
    Value::Object(
        signed.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect::<Map<_, _>>(),
    )
}

fn event_json(event: &Event, signer: &Signer) -> Value {
    let deliveries: Vec<_> = event
        .deliveries
        .iter()
        .map(|delivery| json!({"at": rfc3339(delivery.at), "status": delivery.status}))
        .collect();
    json!({
        "seq": event.seq, "id": event.id, "type": event.fact, "key": event.key, "reference": event.reference,
        "gateway": event.gateway, "body": event.body,
        "headers": headers_json(signer.sign(&event.id, event.signed_at, &event.body)), "deliveries": deliveries,
    })
}

async fn events(
    State(app): State<Arc<App>>,
    Query(params): Query<HashMap<String, String>>,
) -> Result<Reply, Reply> {
    let (after, key, limit) = page(&params)?;
    let look = |book: &crate::book::Book| -> Vec<Event> {
        book.events.page(after, key, limit).into_iter().cloned().collect()
    };
    let events = app.engine.read_durable(look).await.map_err(|e| away(&e))?;
    let next = events.last().map(|event| event.seq);
    let events: Vec<_> = events.iter().map(|event| event_json(event, &app.signer)).collect();
    Ok(reply(200, &json!({"events": events, "next": next})))
}

async fn redeliver(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Reply, Reply> {
    let position = app.engine.redeliver(&id);
    let position = position.ok_or_else(|| Reply::error(404, "not_found", "no such event"))?;
    app.engine.durable(position).await.map_err(|e| away(&e))?;
    Ok(reply(202, &json!({"id": id})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignBody {
    body: String,
    id: Option<String>,
    timestamp: Option<Value>,
    gateway: Option<Gateway>,
}

async fn sign(State(app): State<Arc<App>>, body: Bytes) -> Result<Reply, Reply> {
    // Both accounts sign with the same secret; the account is only checked to exist and given back.
    let SignBody { body, id, timestamp, gateway } = parse(&body)?;
    let id = id.unwrap_or_else(|| format!("evt_{}", Uuid::now_v7().simple()));
    let seconds = match &timestamp {
        None | Some(Value::Null) => Some(real_seconds()),
        Some(Value::String(text)) => text.parse().ok(),
        Some(value) => value.as_i64(),
    };
    let seconds = seconds.ok_or_else(|| invalid("timestamp", "seconds since 1970"))?;
    let headers = headers_json(app.signer.sign(&id, seconds, &body));
    Ok(reply(200, &json!({"headers": headers, "gateway": gateway.unwrap_or(Gateway::Sandbox)})))
}
