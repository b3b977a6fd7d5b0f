//! A small client of the API and of the sandbox, for `--once` and `demo`.

use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use tallystick_gateway::http::{self, Received, exchange};
use tokio::time::Instant;

use super::info::DevInfo;
use crate::cli::CliError;

/// Longest time of one exchange; longer than a server lets a request wait.
const DEADLINE: Duration = Duration::from_secs(40);
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Where payments are made.
pub const PAYMENTS: &str = "/api/v1/payments";
/// Where payouts are made.
pub const PAYOUTS: &str = "/api/v1/payouts";

/// An HTTP client.
///
/// # Errors
/// [`CliError::Away`] when TLS cannot be set up on this machine.
pub fn http() -> Result<reqwest::Client, CliError> {
    http::client(Duration::from_secs(2)).map_err(|e| CliError::Away(format!("no HTTP client: {e}")))
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Value,
    received: Received,
}

impl Reply {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.received.headers.get(name)?.to_str().ok()
    }
}

/// Speaks to one environment as the tenant `default`.
pub struct Client {
    http: reqwest::Client,
    info: DevInfo,
}

impl Client {
    /// For the environment that `info` describes.
    ///
    /// # Errors
    /// As [`http()`].
    pub fn new(info: &DevInfo) -> Result<Self, CliError> {
        Ok(Self { http: http()?, info: info.clone() })
    }

    /// Where it speaks to.
    pub fn info(&self) -> &DevInfo {
        &self.info
    }

    /// Asks for something to be made, under an Idempotency-Key.
    ///
    /// # Errors
    /// [`CliError::Away`] without an answer.
    pub async fn post(&self, path: &str, idempotency_key: &str, body: &Value) -> Result<Reply, CliError> {
        let request = self.http.request(Method::POST, format!("{}{path}", self.info.api_url));
        let request =
            request.header("X-API-Key", &self.info.api_key).header("Idempotency-Key", idempotency_key);
        self.send(request.json(body)).await
    }

    /// Reads from the API.
    ///
    /// # Errors
    /// [`CliError::Away`] without an answer, [`CliError::Broken`] when it is not 200.
    pub async fn get(&self, path: &str) -> Result<Value, CliError> {
        let url = format!("{}{path}", self.info.api_url);
        let reply = self.send(self.http.get(&url).header("X-API-Key", &self.info.api_key)).await?;
        expect(reply, 200, &url)
    }

    /// Reads from the sandbox.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn sandbox(&self, path: &str) -> Result<Value, CliError> {
        let url = format!("{}{path}", self.info.sandbox_url);
        let reply = self.send(self.http.get(&url)).await?;
        expect(reply, 200, &url)
    }

    /// Reads text from the sandbox.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn sandbox_text(&self, path: &str) -> Result<String, CliError> {
        let url = format!("{}{path}", self.info.sandbox_url);
        let reply = self.send(self.http.get(&url)).await?;
        Ok(String::from_utf8_lossy(&reply.received.body).into_owned())
    }

    /// Waits until a payment or payout has one of the statuses, and gives it as it then is. `route` is [`PAYMENTS`] or
    /// [`PAYOUTS`].
    ///
    /// # Errors
    /// [`CliError::TimedOut`] when it has none of them in time.
    pub async fn until(
        &self,
        route: &str,
        id: &str,
        statuses: &[&str],
        patience: Duration,
    ) -> Result<Value, CliError> {
        let deadline = Instant::now() + patience;
        loop {
            let object = self.get(&format!("{route}/{id}")).await?;
            let status = text(&object, "status");
            if statuses.contains(&status) {
                return Ok(object);
            }
            if Instant::now() >= deadline {
                return Err(CliError::TimedOut(format!("{route}/{id} is still {status} after {patience:?}")));
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Reply, CliError> {
        let received = exchange(request, DEADLINE)
            .await
            .map_err(|e| CliError::Away(format!("no answer: {e:?}. Is `tallystick dev` still running?")))?;
        let body = serde_json::from_slice(&received.body).unwrap_or(Value::Null);
        Ok(Reply { status: received.status.as_u16(), body, received })
    }
}

fn expect(reply: Reply, status: u16, what: &str) -> Result<Value, CliError> {
    if reply.status == status {
        return Ok(reply.body);
    }
    Err(CliError::Broken(format!("{what} answered {} instead of {status}: {}", reply.status, reply.body)))
}

/// A member that is text; empty when it is not there.
pub fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or("")
}

/// A member that is a list; empty when it is not there.
pub fn items<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
