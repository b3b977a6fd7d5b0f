//! The one constructor of HTTP clients, and a bounded exchange that sorts what went wrong.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::{Client, RequestBuilder, StatusCode, header::HeaderMap};

use crate::{LostCause, NotSentCause};

/// Most bytes of an answer that are read; a gateway's answer is small.
pub const MAX_ANSWER: usize = 256 * 1024;

/// A client without redirects, proxies or automatic retries.
///
/// `connect_timeout` bounds the connection; the whole exchange has its own deadline in [`exchange`].
///
/// # Errors
/// When the TLS set-up of this machine cannot be used.
#[expect(clippy::disallowed_methods, reason = "the one constructor")]
pub fn client(connect_timeout: Duration) -> Result<Client, reqwest::Error> {
    // Another part of the process may have installed the same provider already; either is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .connect_timeout(connect_timeout)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .pool_idle_timeout(Duration::from_secs(30))
        .tcp_nodelay(true)
        .user_agent(concat!("tallystick/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Received {
    /// HTTP status.
    pub status: StatusCode,
    /// Response headers.
    pub headers: HeaderMap,
    /// The whole body, at most [`MAX_ANSWER`] bytes.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// No byte of the request can have reached the other side.
    NotSent(NotSentCause),
    /// It may have.
    Lost(LostCause),
}

/// Sends a request and reads the answer, all within `deadline`.
///
/// # Errors
/// [`NoAnswer`]; only a connection that was never made counts as not sent.
pub async fn exchange(request: RequestBuilder, deadline: Duration) -> Result<Received, NoAnswer> {
    match tokio::time::timeout(deadline, receive(request)).await {
        Ok(result) => result,
        // Whether the connection stood when the time ran out is not known here, so it counts as sent.
        Err(_) => Err(NoAnswer::Lost(LostCause::Timeout)),
    }
}

async fn receive(request: RequestBuilder) -> Result<Received, NoAnswer> {
    let mut response = request.send().await.map_err(|e| sort(&e))?;
    let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
    let mut body = BytesMut::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_ANSWER => body.extend_from_slice(&chunk),
            Ok(Some(_)) => {
                return Err(NoAnswer::Lost(LostCause::Unreadable("the answer is too long".into())));
            }
            Ok(None) => return Ok(Received { status, headers, body: body.freeze() }),
            Err(e) => return Err(NoAnswer::Lost(LostCause::Connection(cause(&e)))),
        }
    }
}

fn sort(error: &reqwest::Error) -> NoAnswer {
    if error.is_connect() || error.is_builder() {
        NoAnswer::NotSent(NotSentCause::Connect(cause(error)))
    } else if error.is_timeout() {
        NoAnswer::Lost(LostCause::Timeout)
    } else {
        NoAnswer::Lost(LostCause::Connection(cause(error)))
    }
}

/// The innermost cause; the outer layers repeat the URL, which may carry a key.
fn cause(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(next) = inner.source() {
        inner = next;
    }
    inner.to_string()
}
