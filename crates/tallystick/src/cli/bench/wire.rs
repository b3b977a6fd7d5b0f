//! One HTTP connection that stays open and carries one request after the other.
//!
//! The generator of load shares the processors with what it measures, so it does as little as it can: no pool, no
//! redirects, headers that are made once, bodies that are shared.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::cli::CliError;

/// Longest time of one exchange; longer than the server lets a request take.
const DEADLINE: Duration = Duration::from_secs(60);
/// A connection that broke is made again once; every request here may be repeated.
const TRIES: u32 = 2;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// The answer for a message: its status and the beginning of its body.
    pub fn shown(&self) -> String {
        const SHOWN: usize = 300;
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(SHOWN)]).into_owned();
        format!("{}: {text}", self.status)
    }
}

/// What every connection to one side has in common.
#[derive(Clone, Debug)]
pub struct Side {
    address: SocketAddr,
    headers: HeaderMap,
}

impl Side {
    /// The side at an address such as `http://127.0.0.1:8080`.
    ///
    /// # Errors
    /// [`CliError::Broken`] when it is none.
    pub fn at(url: &str) -> Result<Self, CliError> {
        let host = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
        let none = || CliError::Broken(format!("{url} is no address such as http://127.0.0.1:8080"));
        let address = host.parse().map_err(|_| none())?;
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| none())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self { address, headers })
    }

    /// The same, with a key of our API.
    ///
    /// # Errors
    /// [`CliError::Broken`] when it cannot stand in a header.
    pub fn with_api_key(self, key: &str) -> Result<Self, CliError> {
        self.with(API_KEY, key)
    }

    /// The same, with a secret of a gateway.
    ///
    /// # Errors
    /// [`CliError::Broken`] when it cannot stand in a header.
    pub fn with_secret(self, secret: &str) -> Result<Self, CliError> {
        self.with(hyper::header::AUTHORIZATION, &format!("Bearer {secret}"))
    }

    fn with(mut self, name: HeaderName, value: &str) -> Result<Self, CliError> {
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| CliError::Broken(format!("the value for the header {name} cannot stand in one")))?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(self)
    }

    /// A connection to it; made with the first request.
    pub fn wire(&self) -> Wire {
        Wire { side: self.clone(), sender: None }
    }
}

/// One connection.
pub struct Wire {
    side: Side,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Wire {
    /// Sends a POST under an Idempotency-Key.
    ///
    /// # Errors
    /// [`CliError::Away`] without an answer.
    pub async fn post(&mut self, path: &Uri, key: &str, body: &Bytes) -> Result<Answer, CliError> {
        self.exchange(&Method::POST, path, Some(key), body).await
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// [`CliError::Away`] without an answer, [`CliError::Broken`] when it is not 200 or not what is expected.
    pub async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, CliError> {
        let answer = self.read(path).await?;
        serde_json::from_slice(&answer.body)
            .map_err(|e| CliError::Broken(format!("GET {path} was answered with something else: {e}")))
    }

    /// Reads whatever is there.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn read(&mut self, path: &str) -> Result<Answer, CliError> {
        let answer = self.exchange(&Method::GET, &uri(path)?, None, &Bytes::new()).await?;
        expect(answer, 200, "GET", path)
    }

    /// Sends JSON and reads JSON, or nothing.
    ///
    /// # Errors
    /// [`CliError::Away`] without an answer, [`CliError::Broken`] when its status is another one.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: &Value,
        status: u16,
    ) -> Result<Value, CliError> {
        let answer = self.exchange(&method, &uri(path)?, key, &body.to_string().into()).await?;
        let answer = expect(answer, status, method.as_str(), path)?;
        Ok(serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }

    async fn exchange(
        &mut self,
        method: &Method,
        path: &Uri,
        key: Option<&str>,
        body: &Bytes,
    ) -> Result<Answer, CliError> {
        let mut tries = 1;
        loop {
            let once = tokio::time::timeout(DEADLINE, self.once(method, path, key, body));
            let why = match once.await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(why)) => why,
                Err(_) => format!("no answer within {DEADLINE:?}"),
            };
            self.sender = None;
            if tries == TRIES {
                return Err(CliError::Away(format!("{method} http://{}{path}: {why}", self.side.address)));
            }
            tries += 1;
        }
    }

    async fn once(
        &mut self,
        method: &Method,
        path: &Uri,
        key: Option<&str>,
        body: &Bytes,
    ) -> Result<Answer, String> {
        let sender = match &mut self.sender {
            Some(sender) => sender,
            None => self.sender.insert(connect(self.side.address).await?),
        };
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = path.clone();
        request.headers_mut().clone_from(&self.side.headers);
        if let Some(key) = key {
            let key = HeaderValue::from_str(key).map_err(|e| e.to_string())?;
            request.headers_mut().insert(IDEMPOTENCY_KEY, key);
        }
        sender.ready().await.map_err(|e| e.to_string())?;
        let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
        Ok(Answer { status, body })
    }
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>, String> {
    let stream = TcpStream::connect(address).await.map_err(|e| e.to_string())?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    // It ends with its sender; what goes wrong on it is told to the request that meets it.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

/// A path as requests carry it.
///
/// # Errors
/// [`CliError::Broken`] when it is none.
pub fn uri(path: &str) -> Result<Uri, CliError> {
    path.parse().map_err(|e| CliError::Broken(format!("{path:?} is no path: {e}")))
}

fn expect(answer: Answer, status: u16, method: &str, path: &str) -> Result<Answer, CliError> {
    if answer.status == status {
        return Ok(answer);
    }
    Err(CliError::Broken(format!("{method} {path} was answered {} instead of {status}", answer.shown())))
}
