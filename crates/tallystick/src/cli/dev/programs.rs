//! The three programs that `dev` runs: PostgreSQL, the sandbox, the server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::Deserialize;
use tallystick_gateway::http::exchange;
use tokio::process::{Child, Command};

use super::child::Program;
use super::folder::VARIABLE;
use super::postgres::Cluster;
use super::processor;
use super::secrets::Secrets;
use crate::cli::CliError;
use crate::config;

/// How long one question for readiness may take.
const ASK: Duration = Duration::from_secs(2);

/// PostgreSQL.
pub struct Postgres {
    /// Which cluster.
    pub cluster: Cluster,
    /// Gets its output.
    pub log: File,
}

impl Program for Postgres {
    const NAME: &'static str = "database";
    /// "Fast": ends connections and writes everything down. SIGTERM would wait for the last client.
    const STOP: Signal = Signal::SIGINT;
    /// "Immediate": its children end too, which they would not at once after SIGKILL.
    const KILL: Signal = Signal::SIGQUIT;
    const PATIENCE: Duration = Duration::from_secs(15);

    async fn launch(&mut self) -> std::io::Result<Child> {
        self.cluster.launch(&self.log).await
    }

    async fn ready(&mut self, _pid: u32) -> bool {
        self.cluster.answers().await
    }
}

/// The sandbox.
pub struct Sandbox {
    /// The program.
    pub program: PathBuf,
    /// Data folder of this `dev`, by which the process is recognised.
    pub marked: PathBuf,
    /// Where it keeps its book.
    pub folder: PathBuf,
    /// Where to listen; once known, the port stays the same.
    pub listen: SocketAddr,
    /// Where its webhooks go.
    pub webhook_url: String,
    /// What the server shows to it.
    pub secret: String,
    /// What it signs with.
    pub webhook_secret: String,
    /// Gets its output.
    pub log: File,
}

/// What the sandbox writes when it listens.
#[derive(Deserialize)]
struct Ready {
    url: String,
    pid: u32,
}

impl Sandbox {
    /// The file in which it says where it listens.
    pub fn ready_file(folder: &Path) -> PathBuf {
        folder.join("sandbox.ready.json")
    }

    /// Where it listens, once it is ready.
    ///
    /// # Errors
    /// [`CliError::Away`] when it has not said so.
    pub fn url(folder: &Path) -> Result<String, CliError> {
        let ready = Self::said(folder)
            .ok_or_else(|| CliError::Away("the sandbox did not say where it listens".into()))?;
        Ok(ready.url)
    }

    fn said(folder: &Path) -> Option<Ready> {
        serde_json::from_slice(&std::fs::read(Self::ready_file(folder)).ok()?).ok()
    }
}

impl Program for Sandbox {
    const NAME: &'static str = "sandbox";
    const PATIENCE: Duration = Duration::from_secs(5);

    async fn launch(&mut self) -> std::io::Result<Child> {
        if let Err(error) = std::fs::remove_file(Self::ready_file(&self.folder))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut command = without_settings(&self.program);
        command.arg("serve").arg("--listen").arg(self.listen.to_string());
        command.arg("--data-dir").arg(self.folder.join("sandbox"));
        command.arg("--webhook-url").arg(&self.webhook_url);
        command.arg("--ready-file").arg(Self::ready_file(&self.folder));
        command.env(VARIABLE, &self.marked);
        command.env("TALLYSTICK_SANDBOX_SECRET", &self.secret);
        command.env("TALLYSTICK_SANDBOX_WEBHOOK_SECRET", &self.webhook_secret);
        command
            .stdin(Stdio::null())
            .stdout(self.log.try_clone()?)
            .stderr(self.log.try_clone()?)
            .process_group(0)
            .spawn()
    }

    async fn ready(&mut self, pid: u32) -> bool {
        let Some(ready) = Self::said(&self.folder).filter(|ready| ready.pid == pid) else { return false };
        let address =
            ready.url.strip_prefix("http://").and_then(|rest| rest.trim_end_matches('/').parse().ok());
        if let Some(address) = address {
            self.listen = address;
        }
        true
    }
}

/// The server.
pub struct Server {
    /// This program.
    pub program: PathBuf,
    /// Data folder of this `dev`.
    pub folder: PathBuf,
    /// The socket that it takes over. It is ours, so the port is the same after every restart, and requests that come
    /// while there is no server wait for the next one.
    pub listener: TcpListener,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// Where it says whether it is ready.
    pub ready_url: String,
    /// Asks there.
    pub client: reqwest::Client,
    /// The one processor that it may use, if it may not use all.
    pub processor: Option<usize>,
    /// Gets its output.
    pub log: File,
}

impl Program for Server {
    const NAME: &'static str = "server";
    const PATIENCE: Duration = Duration::from_secs(20);

    async fn launch(&mut self) -> std::io::Result<Child> {
        let mut command = without_settings(&self.program);
        command.args(["serve", "--inherit-listener"]).envs(&self.settings).env(VARIABLE, &self.folder);
        command.stdin(Stdio::from(OwnedFd::from(self.listener.try_clone()?)));
        command.stdout(self.log.try_clone()?).stderr(self.log.try_clone()?).process_group(0);
        processor::held_to(self.processor, || command.spawn())
    }

    async fn ready(&mut self, _pid: u32) -> bool {
        exchange(self.client.get(&self.ready_url), ASK).await.is_ok_and(|answer| answer.status.is_success())
    }
}

/// A program that gets our environment, but none of our settings.
fn without_settings(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if is_setting(&name) {
            command.env_remove(name);
        }
    }
    command
}

fn is_setting(name: &OsString) -> bool {
    name.as_encoded_bytes().starts_with(config::PREFIX.as_bytes())
}

/// What is given, and for the rest values that are quick to watch.
pub fn with_quick_timings(given: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let mut settings: BTreeMap<String, String> =
        given.into_iter().filter(|(name, _)| name.starts_with(config::PREFIX)).collect();
    for (name, value) in [
        ("TALLYSTICK_GATEWAY_TIMEOUT", "2s"),
        ("TALLYSTICK_LEASE", "6s"),
        ("TALLYSTICK_SWEEP_AFTER", "1s"),
        ("TALLYSTICK_SWEEP_MAX_BACKOFF", "5s"),
        ("TALLYSTICK_STATUS_CHECK_AFTER", "5s"),
    ] {
        settings.entry(name.into()).or_insert_with(|| value.into());
    }
    settings
}

/// All settings of the server in `dev`.
pub fn server_settings(
    given: impl IntoIterator<Item = (String, String)>,
    cluster: &Cluster,
    gateways_file: &Path,
) -> BTreeMap<String, String> {
    let mut settings = with_quick_timings(given);
    for name in ["TALLYSTICK_LISTEN", VARIABLE] {
        settings.remove(name);
    }
    settings.insert("TALLYSTICK_DATABASE_URL".into(), cluster.url(super::postgres::APPLICATION));
    if !settings.contains_key("TALLYSTICK_GATEWAYS") && !settings.contains_key("TALLYSTICK_GATEWAYS_FILE") {
        settings.insert("TALLYSTICK_GATEWAYS_FILE".into(), gateways_file.display().to_string());
    }
    for (name, value) in [
        ("TALLYSTICK_DEFAULT_GATEWAY", "sandbox"),
        ("TALLYSTICK_DEFAULT_PAYMENT_METHOD", "tok_ok"),
        ("TALLYSTICK_WEBHOOK_ALLOW_CIDRS", "127.0.0.0/8,::1/128"),
        ("TALLYSTICK_LOG_FORMAT", "pretty"),
    ] {
        settings.entry(name.into()).or_insert_with(|| value.into());
    }
    settings
}

/// The gateway accounts of `dev`, as the settings describe accounts.
pub fn gateway_accounts(sandbox_url: &str, secrets: &Secrets) -> String {
    let account = |name: &str, re_executes: bool| {
        serde_json::json!({
            "name": name,
            "adapter": "sandbox",
            "base_url": sandbox_url,
            "secret": secrets.gateway_secret,
            "webhook_secrets": [secrets.webhook_secret],
            "key_retention_seconds": 86_400,
            "re_executes": re_executes,
        })
    };
    let accounts = [account("sandbox", false), account("sandbox-reexecutes", true)];
    serde_json::to_string_pretty(&accounts).expect("strings and numbers only")
}
