//! Events as lines of JSON on standard output, for log shippers and for looking at them.
//!
//! One line per event, an envelope in the manner of CloudEvents 1.0 in structured mode:
//!
//! ```json
//! {"specversion":"1.0","id":"<event id>","source":"/tenants/<tenant id>","type":"<type>",
//!  "subject":"<aggregate>/<aggregate id>","time":"<RFC 3339>","sequence":<version>,
//!  "datacontenttype":"application/json","data":<payload>}
//! ```
//!
//! A payload that is JSON is put in as it is (re-written on one line if it has line breaks); any other bytes stand in
//! `data_base64`, and `datacontenttype` is `application/octet-stream`. A batch is confirmed once all its lines are
//! written and flushed; after a failure the whole batch comes again, on a new line (the one before may be cut).

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

use super::EventSink;
use crate::error::SinkError;
use crate::event::StoredEvent;

/// The sink's name.
pub const NAME: &str = "stdout";

/// Writes events to standard output.
pub struct Stdout {
    to: Mutex<Output>,
}

struct Output {
    out: Box<dyn AsyncWrite + Send + Unpin>,
    /// A write was begun and not finished: the last line may be cut.
    cut: bool,
}

impl Stdout {
    /// Writes to this process's standard output.
    #[must_use]
    pub fn new() -> Self {
        Self::to(tokio::io::stdout())
    }

    /// Writes somewhere else.
    pub fn to(out: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self { to: Mutex::new(Output { out: Box::new(out), cut: false }) }
    }
}

impl Default for Stdout {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl EventSink for Stdout {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn publish(&self, events: &[StoredEvent]) -> Result<usize, SinkError> {
        let mut lines = Vec::new();
        for event in events {
            line(event, &mut lines)?;
        }
        let mut to = self.to.lock().await;
        if to.cut {
            to.out.write_all(b"\n").await?;
        }
        to.cut = true;
        to.out.write_all(&lines).await?;
        to.out.flush().await?;
        to.cut = false;
        Ok(events.len())
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    specversion: &'static str,
    id: uuid::Uuid,
    source: String,
    #[serde(rename = "type")]
    kind: &'a str,
    subject: String,
    time: jiff::Timestamp,
    sequence: i32,
    datacontenttype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

fn line(event: &StoredEvent, lines: &mut Vec<u8>) -> Result<(), SinkError> {
    let data = one_line_json(&event.payload);
    let envelope = Envelope {
        specversion: "1.0",
        id: event.event_id,
        source: format!("/tenants/{}", event.tenant_id),
        kind: &event.kind,
        subject: format!("{}/{}", event.aggregate, event.aggregate_id),
        time: event.created_at,
        sequence: event.version,
        datacontenttype: if data.is_some() { "application/json" } else { "application/octet-stream" },
        data_base64: data.is_none().then(|| STANDARD.encode(&event.payload)),
        data,
    };
    serde_json::to_writer(&mut *lines, &envelope).map_err(std::io::Error::from)?;
    lines.push(b'\n');
    Ok(())
}

/// The payload as JSON on one line; `None` when it is not JSON.
fn one_line_json(payload: &[u8]) -> Option<Box<RawValue>> {
    if payload.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        let value: serde_json::Value = serde_json::from_slice(payload).ok()?;
        return serde_json::value::to_raw_value(&value).ok();
    }
    serde_json::from_slice(payload).ok()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::Cursor;

    fn event(payload: &[u8]) -> StoredEvent {
        StoredEvent {
            event_id: Uuid::from_u128(1),
            tenant_id: Uuid::from_u128(2),
            aggregate: "thing".into(),
            aggregate_id: Uuid::from_u128(3),
            version: 4,
            kind: "thing.moved".into(),
            payload: payload.to_vec(),
            created_at: jiff::Timestamp::UNIX_EPOCH,
            cursor: Cursor::start(),
        }
    }

    async fn printed(payloads: &[&[u8]]) -> String {
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let events: Vec<_> = payloads.iter().map(|p| event(p)).collect();
        {
            let sink = Stdout::to(ours);
            assert_eq!(sink.publish(&events).await.unwrap(), events.len());
        }
        let mut text = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut theirs, &mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn one_line_per_event_with_the_payload_as_it_is() {
        let text = printed(&[br#"{"amount_minor":  1.10, "a":1}"#]).await;
        assert_eq!(
            text,
            "{\"specversion\":\"1.0\",\"id\":\"00000000-0000-0000-0000-000000000001\",\
             \"source\":\"/tenants/00000000-0000-0000-0000-000000000002\",\"type\":\"thing.moved\",\
             \"subject\":\"thing/00000000-0000-0000-0000-000000000003\",\"time\":\"1970-01-01T00:00:00Z\",\
             \"sequence\":4,\"datacontenttype\":\"application/json\",\"data\":{\"amount_minor\":  1.10, \"a\":1}}\n"
        );
    }

    #[tokio::test]
    async fn line_breaks_and_other_bytes_never_break_a_line() {
        let text = printed(&[b"{\n\"a\": 1.10\r\n}", b"\x00\xff\n", b"", b"{\"a\":"]).await;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[0].ends_with(r#""data":{"a":1.10}}"#), "{}", lines[0]);
        assert!(
            lines[1].ends_with(r#""datacontenttype":"application/octet-stream","data_base64":"AP8K"}"#),
            "{}",
            lines[1]
        );
        assert!(lines[2].ends_with(r#""data_base64":""}"#), "{}", lines[2]);
        assert!(lines[3].contains("data_base64"), "{}", lines[3]);
    }
}
