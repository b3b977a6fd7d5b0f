//! Deliveries of the sandbox's own events, signed by the Standard Webhooks rules.
//!
//! An event goes to `<webhook url>/<account>` with the same id and bytes each time and a fresh timestamp and
//! signature. What is not answered with 2xx within five seconds is tried again, for about ten minutes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use standardwebhooks::Webhook;
use tokio::sync::Semaphore;

use crate::clock::real_seconds;
use crate::engine::{Engine, Parcel, ToSend};
use crate::model::Gateway;

const TIMEOUT: Duration = Duration::from_secs(5);
const BEFORE_ANSWER: Duration = Duration::from_secs(2);
const AT_ONCE: usize = 64;

/// What can be wrong with the settings of webhooks.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The secret is not `whsec_` and base64.
    #[error("the webhook secret must be whsec_ followed by base64: {0}")]
    Secret(String),
    /// The address is none.
    #[error("the webhook URL {0:?} is no http URL")]
    Url(String),
}

/// The headers of one delivery: id, seconds since 1970, signature.
pub type Signed = [(&'static str, String); 3];

/// Signs by the Standard Webhooks rules.
pub struct Signer(Webhook);

impl Signer {
    /// A signer with a secret of the form `whsec_<base64>`.
    ///
    /// # Errors
    /// When the secret has another form.
    pub fn new(secret: &str) -> Result<Self, WebhookError> {
        if !secret.starts_with("whsec_") {
            return Err(WebhookError::Secret("it does not begin with whsec_".to_owned()));
        }
        Webhook::new(secret).map(Self).map_err(|e| WebhookError::Secret(e.to_string()))
    }

    /// The headers for a body; `timestamp` in seconds since 1970.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: i64, body: &str) -> Signed {
        let signature = self.0.sign(id, timestamp, body.as_bytes()).expect("the body is text");
        [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", timestamp.to_string()),
            ("webhook-signature", signature),
        ]
    }
}

/// Delivers events.
pub struct Deliverer {
    engine: Arc<Engine>,
    signer: Arc<Signer>,
    client: Client<HttpConnector, Full<Bytes>>,
    addresses: [Uri; 2],
    permits: Semaphore,
}

impl Deliverer {
    /// A deliverer that sends to `<url>/<account>`.
    ///
    /// # Errors
    /// When the URL is none of http.
    pub fn new(engine: Arc<Engine>, signer: Arc<Signer>, url: &str) -> Result<Arc<Self>, WebhookError> {
        let address = |gateway: Gateway| {
            let uri = format!("{}/{}", url.trim_end_matches('/'), gateway.as_str()).parse::<Uri>();
            let uri = uri.ok().filter(|uri| uri.scheme_str() == Some("http") && uri.host().is_some());
            uri.ok_or_else(|| WebhookError::Url(url.to_owned()))
        };
        let addresses = [address(Gateway::Sandbox)?, address(Gateway::Reexecutes)?];
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(TIMEOUT));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(10))
            .pool_max_idle_per_host(AT_ONCE)
            .build(connector);
        Ok(Arc::new(Self { engine, signer, client, addresses, permits: Semaphore::new(AT_ONCE) }))
    }

    /// Does what is due, for ever.
    pub async fn run(self: Arc<Self>) {
        loop {
            let (sends, sleep) = self.engine.run_due();
            for send in sends {
                let deliverer = Arc::clone(&self);
                tokio::spawn(async move { deliverer.deliver(send).await });
            }
            tokio::select! {
                () = tokio::time::sleep(sleep.min(Duration::from_secs(60))) => {}
                () = self.engine.woken() => {}
            }
        }
    }

    /// Makes one attempt and waits for it, at most two seconds; it goes on by itself after that.
    pub async fn deliver_before_answer(self: Arc<Self>, send: ToSend) {
        let task = tokio::spawn(async move { self.deliver(send).await });
        let _goes_on = tokio::time::timeout(BEFORE_ANSWER, task).await;
    }

    async fn deliver(&self, send: ToSend) {
        let Ok(_permit) = self.permits.acquire().await else { return };
        let Some(parcel) = self.engine.parcel(send) else { return };
        // What is told must be in the book for good.
        if self.engine.durable(parcel.position).await.is_err() {
            return;
        }
        let signed_at = real_seconds();
        let status = self.post(&parcel, signed_at).await;
        tracing::debug!(event = %parcel.id, ?status, "webhook");
        self.engine.delivered(send, status, signed_at);
    }

    async fn post(&self, parcel: &Parcel, signed_at: i64) -> Option<u16> {
        let address = match parcel.gateway {
            Gateway::Sandbox => &self.addresses[0],
            Gateway::Reexecutes => &self.addresses[1],
        };
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(address.clone())
            .header("content-type", "application/json")
            .header("user-agent", "tallystick-sandbox");
        for (name, value) in self.signer.sign(&parcel.id, signed_at, &parcel.body) {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(parcel.body.clone()))).ok()?;
        match tokio::time::timeout(TIMEOUT, self.exchange(request)).await {
            Ok(Ok(status)) => Some(status),
            Ok(Err(error)) => {
                tracing::debug!(event = %parcel.id, %error, "webhook not delivered");
                None
            }
            Err(_) => None,
        }
    }

    /// Sends and reads the answer to its end, so that the connection can serve again.
    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<u16, Box<dyn std::error::Error + std::marker::Send + Sync>> {
        let answer = self.client.request(request).await?;
        let status = answer.status().as_u16();
        let mut body = http_body_util::Limited::new(answer.into_body(), 64 << 10);
        while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
            if frame.is_err() {
                break;
            }
        }
        Ok(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_signatures() {
        assert!(Signer::new("c2VjcmV0").is_err());
        assert!(Signer::new("whsec_!").is_err());
        // The example of the Standard Webhooks specification's reference implementations.
        let signer = Signer::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let [_, _, (_, signature)] =
            signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
