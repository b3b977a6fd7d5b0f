//! A plain HTTP/1.1 client that sends exactly what it is told, also what a well-behaved one would not.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;

/// One server, one API key.
#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub key: String,
}

impl Client {
    /// A request.
    pub fn call(&self, method: &str, path: &str) -> Call {
        let headers =
            vec![("Host".to_owned(), "test".into()), ("X-API-Key".to_owned(), self.key.clone().into_bytes())];
        Call { address: self.address, line: format!("{method} {path} HTTP/1.1"), headers, body: None }
    }

    pub fn get(&self, path: &str) -> Call {
        self.call("GET", path)
    }

    /// A request with a JSON body and a key that was never used.
    pub fn post(&self, path: &str, body: &Value) -> Call {
        self.post_raw(path, body.to_string())
    }

    /// A request with these bytes as its JSON body and a key that was never used.
    pub fn post_raw(&self, path: &str, body: impl Into<Vec<u8>>) -> Call {
        let call = self.call("POST", path).header("Content-Type", "application/json");
        call.idem(&Uuid::now_v7().to_string()).body(body)
    }

    /// A request for a payment.
    pub fn pay(&self, body: &Value) -> Call {
        self.post("/api/v1/payments", body)
    }

    /// A request for a payout.
    pub fn pay_out(&self, body: &Value) -> Call {
        self.post("/api/v1/payouts", body)
    }

    /// The payment as it is now.
    pub async fn payment(&self, id: &str) -> Value {
        let reply = self.get(&format!("/api/v1/payments/{id}")).send().await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    /// The payment once it is in this status.
    pub async fn payment_in(&self, id: &str, status: &str) -> Value {
        self.object_in("payments", id, status).await
    }

    /// The payout with all that belongs to it, once it is in this status.
    pub async fn payout_in(&self, id: &str, status: &str) -> Value {
        self.object_in("payouts", id, status).await;
        self.payout(id).await
    }

    /// The payout as it is now, with its history, attempts, journals and events.
    pub async fn payout(&self, id: &str) -> Value {
        let path = format!("/api/v1/payouts/{id}?expand=history,attempts,journals,events");
        self.get(&path).send().await.is(200).json()
    }

    async fn object_in(&self, route: &str, id: &str, status: &str) -> Value {
        super::until(&format!("{route} {id} in {status}"), async || {
            let reply = self.get(&format!("/api/v1/{route}/{id}")).send().await;
            // While a killed database comes back, a client is told to ask again.
            if reply.status == 503 {
                return None;
            }
            assert_eq!(reply.status, 200, "{reply:?}");
            Some(reply.json()).filter(|object| object["status"] == status)
        })
        .await
    }

    /// The balance of an account.
    pub async fn balance(&self, account: &str) -> Value {
        self.get(&format!("/api/v1/accounts/{account}/balance")).send().await.is(200).json()
    }

    /// Opens a customer's account that may not go below nothing, and gives it funds.
    pub async fn funded(&self, currency: &str, minor: i64) -> String {
        let open = async |name: &str, kind: &str, minimum: Value| {
            let body = json!({"name": name, "kind": kind, "currency": currency, "minimum_minor": minimum});
            self.post("/api/v1/accounts", &body).send().await.is(201).text("account_id")
        };
        let customer = open("customer", "liability", json!(0)).await;
        if minor > 0 {
            let cash = open("cash", "asset", Value::Null).await;
            let entry = |account: &str, direction: &str| json!({"account_id": account, "direction": direction, "amount_minor": minor});
            let entries = [entry(&cash, "D"), entry(&customer, "C")];
            let journal = json!({"description": "deposit", "entries": entries});
            self.post("/api/v1/journals", &journal).send().await.is(201);
        }
        customer
    }
}

/// A request being put together.
#[derive(Clone)]
pub struct Call {
    address: SocketAddr,
    line: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Vec<u8>>,
}

impl Call {
    /// Adds a header, also one that is there already.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Takes a header away.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    /// With this Idempotency-Key only.
    pub fn idem(self, key: &str) -> Self {
        self.without("Idempotency-Key").header("Idempotency-Key", key)
    }

    /// With this API key only.
    pub fn key(self, key: &str) -> Self {
        self.without("X-API-Key").header("X-API-Key", key)
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// The request's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{}\r\n", self.line).into_bytes();
        let length =
            self.body.as_ref().map(|body| ("Content-Length".to_owned(), body.len().to_string().into_bytes()));
        let close = ("Connection".to_owned(), b"close".to_vec());
        let framed = self.headers.iter().any(|(n, _)| n == "Transfer-Encoding" || n == "Content-Length");
        for (name, value) in self.headers.iter().chain(length.iter().filter(|_| !framed)).chain([&close]) {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }

    /// A connection on which the request was sent; nothing was read.
    pub async fn sent(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("the server listens");
        stream.write_all(&self.bytes()).await.expect("the server reads");
        stream
    }

    /// Sends it all, then reads the answer.
    pub async fn send(&self) -> Reply {
        Reply::read(self.sent().await).await
    }

    /// As [`Self::send`], to a server that may be killed meanwhile: nothing when no whole answer came.
    pub async fn try_send(&self) -> Option<Reply> {
        let exchange = async {
            let mut stream = TcpStream::connect(self.address).await.ok()?;
            stream.write_all(&self.bytes()).await.ok()?;
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.ok()?;
            Reply::parse(&bytes)
        };
        let reply = tokio::time::timeout(super::PATIENCE, exchange).await.ok()??;
        let whole = reply.header("content-length")?.parse() == Ok(reply.body.len());
        whole.then_some(reply)
    }
}

/// An answer.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {}", self.status, self.headers, String::from_utf8_lossy(&self.body))
    }
}

impl Reply {
    /// Reads an answer to the end of the connection.
    pub async fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(super::PATIENCE, stream.read_to_end(&mut bytes)).await;
        read.expect("the answer comes in time").expect("the answer comes whole");
        Self::parse(&bytes).unwrap_or_else(|| panic!("no answer: {}", String::from_utf8_lossy(&bytes)))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers = lines.filter_map(|l| l.split_once(": ")).map(|(n, v)| (n.to_lowercase(), v.to_owned()));
        Some(Self { status, headers: headers.collect(), body: bytes[end + 4..].to_vec() })
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// A text member of the body.
    pub fn text(&self, member: &str) -> String {
        self.json()[member].as_str().unwrap_or_else(|| panic!("no {member}: {self:?}")).to_owned()
    }

    /// The fields that a problem complains about.
    pub fn fields(&self) -> Vec<String> {
        let errors = self.json()["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|e| e["field"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Fails unless this is such a problem, in its whole form.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> &Self {
        let body = self.json();
        assert_eq!((self.status, body["code"].as_str()), (status, Some(code)), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(body["type"], format!("urn:tallystick:problem:{code}"));
        assert_eq!(body["status"], status);
        assert_eq!(body["request_id"].as_str(), self.header("x-request-id"));
        assert!(
            body["title"].is_string() && body["detail"].is_string() && body["errors"].is_array(),
            "{self:?}"
        );
        self
    }

    /// Fails unless this is 422 `validation` about this field.
    #[track_caller]
    pub fn invalid(&self, field: &str) -> &Self {
        self.refused(422, "validation");
        assert!(self.fields().iter().any(|f| f == field), "{field}: {self:?}");
        self
    }

    /// Fails unless the status is this one.
    #[track_caller]
    pub fn is(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}
