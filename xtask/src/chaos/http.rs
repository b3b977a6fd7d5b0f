//! A small HTTP client: requests with a deadline, whole answers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How long one exchange may take; creating and asking are quick, so more means that the server is gone.
const DEADLINE: Duration = Duration::from_secs(10);

/// A client for the product and the sandbox. Cheap to clone.
#[derive(Clone)]
pub struct Http(reqwest::Client);

/// A whole answer.
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as a value of its type.
    ///
    /// # Errors
    /// When it is something else.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body).with_context(|| format!("unexpected answer {self}"))
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text: String = String::from_utf8_lossy(&self.body).chars().take(300).collect();
        write!(f, "{}: {text}", self.status)
    }
}

impl Http {
    /// Makes a client without redirects, proxies or repetitions of its own.
    ///
    /// # Errors
    /// When the TLS set-up of this machine cannot be used.
    #[expect(clippy::disallowed_methods, reason = "the tools share no code with the product they judge")]
    pub fn new() -> Result<Self> {
        // Installing it twice in one process is refused and harmless.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(DEADLINE)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .build()
            .context("no HTTP client can be made")?;
        Ok(Self(client))
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// When there is no whole answer.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Result<Answer, reqwest::Error> {
        let response = request.send().await?;
        let status = response.status().as_u16();
        Ok(Answer { status, body: response.bytes().await?.to_vec() })
    }

    /// A request that is not sent yet.
    pub fn request(&self, method: reqwest::Method, url: &str) -> reqwest::RequestBuilder {
        self.0.request(method, url)
    }

    /// GET with an API key, or without one where the key is empty.
    ///
    /// # Errors
    /// When there is no whole answer.
    pub async fn get(&self, url: &str, key: &str) -> Result<Answer> {
        let mut request = self.request(reqwest::Method::GET, url);
        if !key.is_empty() {
            request = request.header("X-API-Key", key);
        }
        self.send(request).await.with_context(|| format!("GET {url}"))
    }

    /// GET of a value; anything but 200 is an error.
    ///
    /// # Errors
    /// When the answer is another one.
    pub async fn value<T: DeserializeOwned>(&self, url: &str, key: &str) -> Result<T> {
        let answer = self.get(url, key).await?;
        ensure!(answer.status == 200, "GET {url}: {answer}");
        answer.json()
    }

    /// Changes something at the sandbox; anything but 2xx is an error.
    ///
    /// # Errors
    /// When the answer is another one.
    pub async fn change(&self, method: reqwest::Method, url: &str, body: &Value) -> Result<()> {
        let request = self.request(method.clone(), url).json(body);
        let answer = self.send(request).await.with_context(|| format!("{method} {url}"))?;
        ensure!((200..300).contains(&answer.status), "{method} {url}: {answer}");
        Ok(())
    }
}
