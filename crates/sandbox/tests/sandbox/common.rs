//! One running sandbox per test, a plain HTTP client that sees how an answer ends, and a receiver of its webhooks.
//! Nothing of the sandbox's own code is used here.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use hmac::{Hmac, KeyInit, Mac};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::{Value, json};
use sha2::Sha256;
use tempfile::TempDir;

pub const SECRET: &str = "the secret of the gateway API";
pub const WEBHOOK_KEY: &[u8] = b"twenty-four bytes of key";
const PATIENCE: Duration = Duration::from_secs(20);

/// How a call ended.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
    /// Fewer bytes came than were announced.
    pub cut: bool,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// An HTTP call on a connection of its own; an error when there is no answer within `wait`.
pub fn http(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
    wait: Duration,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(wait))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes())?;
    let mut raw = Vec::new();
    stream.read_to_end(&mut raw)?;
    let text = String::from_utf8(raw).map_err(io::Error::other)?;
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let headers: BTreeMap<_, _> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length").and_then(|length| length.parse::<usize>().ok());
    Ok(Answer {
        status: status.ok_or(io::ErrorKind::InvalidData)?,
        cut: length.is_some_and(|length| body.len() < length),
        headers,
        body: body.to_owned(),
    })
}

/// The first good value, or a failure when the time is over.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        pause(Duration::from_millis(5));
    }
}

#[expect(clippy::disallowed_methods, reason = "these tests are plain threads; it is the interval of polling")]
pub fn pause(length: Duration) {
    std::thread::sleep(length);
}

/// A webhook that came.
#[derive(Clone, Debug)]
pub struct Came {
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
    pub at: Instant,
}

impl Came {
    pub fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    pub fn fact(&self) -> Value {
        serde_json::from_str(&self.body).expect("a JSON body")
    }

    /// Whether the signature is right, by the words of the Standard Webhooks specification.
    pub fn is_signed(&self) -> bool {
        let signed = format!("{}.{}.{}", self.id(), self.headers["webhook-timestamp"], self.body);
        self.headers["webhook-signature"] == signature(&signed)
    }
}

pub fn signature(signed: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(WEBHOOK_KEY).expect("any length");
    mac.update(signed.as_bytes());
    format!("v1,{}", base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes()))
}

/// A receiver of the sandbox's webhooks.
#[derive(Clone)]
pub struct Hook {
    pub address: SocketAddr,
    came: Arc<Mutex<Vec<Came>>>,
    status: Arc<AtomicU16>,
}

impl Hook {
    pub fn new() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").expect("a port"))
    }

    pub fn on(listener: TcpListener) -> Self {
        let hook = Self {
            address: listener.local_addr().expect("an address"),
            came: Arc::default(),
            status: Arc::new(AtomicU16::new(200)),
        };
        let (came, status) = (Arc::clone(&hook.came), Arc::clone(&hook.status));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (came, status) = (Arc::clone(&came), Arc::clone(&status));
                std::thread::spawn(move || serve_hook(stream, &came, &status));
            }
        });
        hook
    }

    pub fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    pub fn of(&self, key: &str) -> Vec<Came> {
        let all = self.came.lock().expect("no panic holds it");
        all.iter().filter(|came| came.fact()["key"] == key).cloned().collect()
    }

    pub fn wait_for(&self, key: &str, count: usize) -> Vec<Came> {
        until(&format!("{count} webhooks of {key}"), || Some(self.of(key)).filter(|came| came.len() >= count))
    }
}

fn serve_hook(mut stream: TcpStream, came: &Mutex<Vec<Came>>, status: &AtomicU16) {
    let mut buffer = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let head_end = buffer.windows(4).position(|w| w == b"\r\n\r\n");
        if let Some(end) = head_end {
            let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
            let mut lines = head.lines();
            let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or("").to_owned();
            let headers: BTreeMap<_, _> = lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned()))
                .collect();
            let length: usize = headers.get("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
            if buffer.len() >= end + 4 + length {
                let body = String::from_utf8_lossy(&buffer[end + 4..end + 4 + length]).into_owned();
                buffer.drain(..end + 4 + length);
                came.lock().expect("no panic holds it").push(Came {
                    path,
                    headers,
                    body,
                    at: Instant::now(),
                });
                let status = status.load(Ordering::SeqCst);
                let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
                continue;
            }
        }
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(n) => buffer.extend_from_slice(&bytes[..n]),
        }
    }
}

/// A running sandbox.
pub struct Sandbox {
    folder: TempDir,
    child: Child,
    pub address: SocketAddr,
    pub hook: Hook,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn command(folder: &Path, hook: &Hook) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tallystick-sandbox"));
    let key = base64::engine::general_purpose::STANDARD.encode(WEBHOOK_KEY);
    command
        .args(["serve", "--webhook-url", &format!("http://{}/webhooks", hook.address)])
        .arg("--data-dir")
        .arg(folder.join("data"))
        .arg("--ready-file")
        .arg(folder.join("ready.json"))
        .env("TALLYSTICK_SANDBOX_SECRET", SECRET)
        .env("TALLYSTICK_SANDBOX_WEBHOOK_SECRET", format!("whsec_{key}"))
        .env("RUST_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

fn start(folder: &Path, hook: &Hook) -> (Child, SocketAddr) {
    let ready = folder.join("ready.json");
    let _none = std::fs::remove_file(&ready);
    let child = command(folder, hook).stderr(Stdio::inherit()).spawn().expect("the program");
    let info = until("the ready file", || std::fs::read_to_string(&ready).ok());
    let info: Value = serde_json::from_str(&info).expect("JSON");
    assert_eq!(info["pid"], child.id());
    let url = info["url"].as_str().and_then(|url| url.strip_prefix("http://")).expect("a URL");
    (child, url.parse().expect("an address"))
}

impl Sandbox {
    pub fn new() -> Self {
        let (folder, hook) = (tempfile::tempdir().expect("a folder"), Hook::new());
        let (child, address) = start(folder.path(), &hook);
        let sandbox = Self { folder, child, address, hook };
        sandbox.set(json!({"latency": "0ms"}));
        sandbox
    }

    pub fn journal(&self) -> PathBuf {
        self.folder.path().join("data/journal.jsonl")
    }

    /// A second program on the same folder.
    pub fn twin(&self) -> Command {
        command(self.folder.path(), &self.hook)
    }

    /// kill -9; `start_again` brings it back.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ran");
    }

    pub fn start_again(&mut self) {
        (self.child, self.address) = start(self.folder.path(), &self.hook);
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        nix::sys::signal::kill(pid, signal).expect("it runs");
    }

    /// SIGTERM; the exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.signal(Signal::SIGTERM);
        self.child.wait().expect("it ran").code()
    }

    pub fn call(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let body = body.map_or(String::new(), |body| body.to_string());
        http(self.address, method, path, &[], &body, PATIENCE).expect("an answer")
    }

    pub fn get(&self, path: &str) -> Value {
        let answer = self.call("GET", path, None);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    pub fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.call("POST", path, Some(body));
        assert!((200..300).contains(&answer.status), "{path}: {answer:?}");
        answer.json()
    }

    pub fn set(&self, settings: Value) {
        let answer = self.call("PUT", "/_settings", Some(settings));
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    pub fn fault(&self, rule: Value) {
        self.post("/_faults", rule);
    }

    /// A submit; an error when there is no answer within `wait`.
    pub fn try_submit(&self, path: &str, key: &str, body: &Value, wait: Duration) -> io::Result<Answer> {
        let bearer = format!("Bearer {SECRET}");
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", key)];
        http(self.address, "POST", &format!("/gateways/{path}"), &headers, &body.to_string(), wait)
    }

    pub fn submit(&self, path: &str, key: &str, body: &Value) -> Answer {
        self.try_submit(path, key, body, PATIENCE).expect("an answer")
    }

    pub fn charge(&self, key: &str, method: &str) -> Answer {
        self.submit("sandbox/charges", key, &charge(method))
    }

    pub fn pay_out(&self, key: &str, destination: &str) -> Answer {
        self.submit("sandbox/payouts", key, &payout(destination))
    }

    /// A submit to which no answer comes within a short time.
    pub fn swallowed(&self, path: &str, key: &str, body: &Value) {
        let answer = self.try_submit(path, key, body, Duration::from_millis(700));
        let error = answer.expect_err("no answer");
        assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error:?}");
    }

    pub fn status_at(&self, account: &str, key: &str) -> Answer {
        let bearer = format!("Bearer {SECRET}");
        let path = format!("/gateways/{account}/operations/{}", key.replace(':', "%3A"));
        http(self.address, "GET", &path, &[("authorization", &bearer)], "", PATIENCE).expect("an answer")
    }

    /// The status word of a key, or the error's.
    pub fn status(&self, key: &str) -> String {
        let answer = self.status_at("sandbox", key).json();
        answer["status"].as_str().or(answer["error"].as_str()).expect("a word").to_owned()
    }

    pub fn becomes(&self, key: &str, status: &str) {
        until(&format!("{key} becomes {status}"), || (self.status(key) == status).then_some(()));
    }

    /// Kind, amount and state of each effect of a key.
    pub fn effects(&self, key: &str) -> Vec<(String, i64, String)> {
        let book = self.get(&format!("/_book?key={key}"));
        let effects = book["effects"].as_array().expect("a list").iter();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        effects
            .map(|e| (text(&e["kind"]), e["amount_minor"].as_i64().expect("minor units"), text(&e["state"])))
            .collect()
    }

    pub fn kinds(&self, key: &str) -> Vec<String> {
        self.effects(key).into_iter().map(|(kind, ..)| kind).collect()
    }

    /// Operation and answer of each request of a key.
    pub fn requests(&self, key: &str) -> Vec<(String, Value)> {
        let found = self.get(&format!("/_requests?key={key}"));
        let requests = found["requests"].as_array().expect("a list").iter();
        requests.map(|r| (r["operation"].as_str().expect("a word").to_owned(), r["answer"].clone())).collect()
    }

    /// Answers to the submits of a key.
    pub fn answers(&self, key: &str) -> Vec<Value> {
        self.requests(key)
            .into_iter()
            .filter(|(operation, _)| operation != "status")
            .map(|(_, a)| a)
            .collect()
    }

    pub fn events(&self, key: &str) -> Vec<Value> {
        self.get(&format!("/_events?key={key}"))["events"].as_array().expect("a list").clone()
    }

    /// Types of a key's events in order.
    pub fn facts(&self, key: &str) -> Vec<String> {
        self.events(key).iter().map(|e| e["type"].as_str().expect("a word").to_owned()).collect()
    }

    /// Deliveries of a key's events so far.
    pub fn deliveries(&self, key: &str) -> usize {
        self.events(key).iter().map(|e| e["deliveries"].as_array().expect("a list").len()).sum()
    }
}

pub fn charge(method: &str) -> Value {
    json!({"amount_minor": 1000, "currency": "EUR", "payment_method": method, "capture": true})
}

pub fn authorization(method: &str) -> Value {
    json!({"amount_minor": 1000, "currency": "EUR", "payment_method": method, "capture": false})
}

pub fn payout(destination: &str) -> Value {
    json!({"amount_minor": 1000, "currency": "EUR", "destination": destination})
}

pub fn done(kind: &str, amount_minor: i64) -> (String, i64, String) {
    (kind.to_owned(), amount_minor, "done".to_owned())
}

pub fn undone(kind: &str, amount_minor: i64) -> (String, i64, String) {
    (kind.to_owned(), amount_minor, "undone".to_owned())
}
