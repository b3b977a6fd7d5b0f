//! The first signal finishes what is under way, the second does not.
//!
//! The server under test is a second one beside a `dev` whose own server only takes requests, so every gateway call is
//! made by the one that is stopped.

use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::dev::{Dev, pause, signal, tallystick};
use crate::support::client::{Client, Reply};
use crate::support::until;

/// A server beside the one of a `dev`, on the same database and gateways.
pub struct Second {
    child: Child,
    log: std::path::PathBuf,
    pub client: Client,
}

impl Second {
    pub async fn start(dev: &Dev, args: &[&str], env: &[(&str, &str)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let log = dev.data.with_file_name(format!("second-{number}.log"));
        let file = std::fs::File::create(&log).expect("a log can be written");
        let mut command = tallystick(&["serve"]);
        let info = dev.info();
        for (name, value) in info["serve_env"].as_object().expect("an object") {
            command.env(name, value.as_str().expect("text"));
        }
        command.env("TALLYSTICK_LISTEN", "127.0.0.1:0").args(args).envs(env.iter().copied());
        command.stdout(Stdio::null()).stderr(file);
        let child = command.spawn().expect("the program runs");
        let address = until("the second server listens", async || {
            let text = std::fs::read_to_string(&log).ok()?;
            let line = text.lines().find(|line| line.contains("listening address="))?;
            line.split('"').nth(1)?.parse().ok()
        })
        .await;
        Self { child, log, client: Client { address, key: dev.text("api_key") } }
    }

    pub fn signal(&self, which: Signal) {
        signal(i32::try_from(self.child.id()).expect("a process id"), which);
    }

    fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                return status;
            }
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            assert!(Instant::now() < deadline, "the server does not end: {log}");
            pause();
        }
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn slow_gateway(dev: &Dev, latency: &str) {
    let settings = json!({"latency": latency, "spread": 0}).to_string();
    let call =
        dev.sandbox().call("PUT", "/_settings").header("Content-Type", "application/json").body(settings);
    assert!(call.send().await.status < 300);
}

/// Waits until the gateway has heard of a payment.
async fn heard(dev: &Dev, id: &str) {
    until("the call is under way", async || {
        let seen = dev.sandbox().get(&format!("/_requests?key={id}")).send().await.json();
        (!seen["requests"].as_array()?.is_empty()).then_some(())
    })
    .await;
}

/// The payment that a waiting request made; found by its order, as the request has no answer yet.
async fn id_of(dev: &Dev, order: &str) -> String {
    until("the payment is there", async || {
        let list = dev.api().get(&format!("/api/v1/payments?order_id={order}")).send().await.json();
        Some(list["data"].get(0)?["payment_id"].as_str()?.to_owned())
    })
    .await
}

#[tokio::test]
async fn the_first_signal_finishes_requests_and_calls() {
    let dev = Dev::start(&[
        ("TALLYSTICK_ROLES", "api"),
        ("TALLYSTICK_GATEWAY_TIMEOUT", "3s"),
        ("TALLYSTICK_LEASE", "8s"),
    ]);
    let mut second =
        Second::start(&dev, &["--roles", "api,dispatch"], &[("TALLYSTICK_ROLES", "api,dispatch")]).await;
    slow_gateway(&dev, "1s").await;
    let request = json!({"amount_minor": 700, "currency": "EUR", "order_id": "drained"});
    let stream = second.client.pay(&request).header("Prefer", "wait=20").sent().await;
    let id = id_of(&dev, "drained").await;
    heard(&dev, &id).await;
    second.signal(Signal::SIGTERM);
    let reply = Reply::read(stream).await;
    assert_eq!(reply.is(202).text("status"), "succeeded", "the waiting request got the outcome");
    assert_eq!(
        second.ended().code(),
        Some(0),
        "{}",
        std::fs::read_to_string(&second.log).unwrap_or_default()
    );
    let payment = dev.api().get(&format!("/api/v1/payments/{id}?expand=attempts")).send().await.json();
    assert_eq!(
        payment["attempts"].as_array().map(Vec::len),
        Some(1),
        "one call, whose answer was recorded: {payment}"
    );
    assert!(std::net::TcpStream::connect(second.client.address).is_err(), "nobody listens any more");
}

#[tokio::test]
async fn the_second_signal_stops_at_once_and_the_work_is_taken_up_by_others() {
    let dev = Dev::start(&[
        ("TALLYSTICK_ROLES", "api,sweep"),
        ("TALLYSTICK_GATEWAY_TIMEOUT", "3s"),
        ("TALLYSTICK_LEASE", "7s"),
    ]);
    let mut second = Second::start(&dev, &["--roles", "dispatch"], &[]).await;
    slow_gateway(&dev, "2500ms").await;
    let reply = dev.api().pay(&json!({"amount_minor": 700, "currency": "EUR"})).send().await;
    let id = reply.is(202).text("payment_id");
    heard(&dev, &id).await;
    second.signal(Signal::SIGINT);
    until("it has begun to stop", async || {
        std::fs::read_to_string(&second.log).ok()?.contains("stopping").then_some(())
    })
    .await;
    let began = Instant::now();
    second.signal(Signal::SIGINT);
    assert_eq!(second.ended().code(), Some(1));
    assert!(began.elapsed() < Duration::from_secs(2), "at once, not after the call");
    slow_gateway(&dev, "5ms").await;
    let _third = Second::start(&dev, &["--roles", "dispatch"], &[]).await;
    dev.api().payment_in(&id, "succeeded").await;
    assert_eq!(dev.effects(&id).await.len(), 1, "asked first, not sent again");
}

#[tokio::test]
async fn a_process_without_the_api_answers_health_and_metrics_only() {
    let dev = Dev::start(&[]);
    let second = Second::start(&dev, &["--roles", "sweep,relay"], &[]).await;
    second.client.get("/health/live").send().await.is(200);
    second.client.get("/health/ready").send().await.is(200);
    let metrics = second.client.get("/metrics").send().await;
    assert!(String::from_utf8_lossy(&metrics.is(200).body).contains("tallystick_database_up 1"));
    second.client.pay(&json!({"amount_minor": 1, "currency": "EUR"})).send().await.refused(404, "not_found");
}
