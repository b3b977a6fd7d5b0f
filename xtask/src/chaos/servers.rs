//! The servers of a run: the one that `dev` looks after, and, where there are two, a second process on the same
//! database, sandbox and secrets, which is looked after here.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::dev::{self, Dev, Info};
use super::http::Http;
use crate::workspace;

/// How long a server may take to come back, or to be there for the first time.
const BACK: Duration = Duration::from_secs(60);
/// How long the second server may take to stop.
const STOP: Duration = Duration::from_secs(30);

/// Where clients may knock.
#[derive(Clone)]
pub struct Doors {
    data: PathBuf,
    second: Option<String>,
}

impl Doors {
    /// The server of `dev`. It may be away or come back elsewhere: look again each time.
    ///
    /// # Errors
    /// When `dev` does not say where it is.
    pub fn first(&self) -> Result<Info> {
        dev::info(&self.data)
    }

    /// The servers in turn.
    ///
    /// # Errors
    /// When `dev` does not say where things are.
    pub fn at(&self, turn: u32) -> Result<Info> {
        let mut info = self.first()?;
        if let Some(second) = self.second.as_ref().filter(|_| turn % 2 == 1) {
            info.api_url.clone_from(second);
            info.metrics_url = format!("{second}/metrics");
        }
        Ok(info)
    }
}

/// All servers of a run.
pub struct Servers<'a> {
    dev: &'a Dev,
    http: Http,
    second: Option<Second>,
}

impl<'a> Servers<'a> {
    /// The server of `dev`, and a second one beside it if that is wanted.
    ///
    /// # Errors
    /// When the second one does not become ready.
    pub async fn start(dev: &'a Dev, http: &Http, two: bool) -> Result<Self> {
        let second = if two { Some(Second::start(dev, http).await?) } else { None };
        Ok(Self { dev, http: http.clone(), second })
    }

    /// Where clients may knock.
    pub fn doors(&self) -> Doors {
        Doors { data: self.dev.data(), second: self.second.as_ref().map(|second| second.url.clone()) }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        1 + u32::from(self.second.is_some())
    }

    /// Kills one of them, in turn, and waits until it is back; gives how long that took.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn kill(&mut self, turn: u32) -> Result<Duration> {
        match &mut self.second {
            Some(second) if turn % 2 == 1 => second.kill_and_restart(&self.http).await,
            _ => self.kill_first().await,
        }
    }

    async fn kill_first(&self) -> Result<Duration> {
        let info = self.dev.info().context("the server is away before it was killed")?;
        kill(Pid::from_raw(info.pids.server), Signal::SIGKILL).context("the server cannot be killed")?;
        let killed = Instant::now();
        while !self.dev.info().is_ok_and(|new| new.pids.server != info.pids.server) {
            ensure!(killed.elapsed() < BACK, "the server was not started again within {BACK:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(killed.elapsed())
    }

    /// Stops what was started here.
    pub async fn stop(self) {
        if let Some(second) = self.second {
            second.stop().await;
        }
    }
}

/// A server beside the one of `dev`. It is killed when it is dropped.
struct Second {
    program: PathBuf,
    environment: Vec<(String, String)>,
    /// Ours, so that the address stays the same after every kill and clients wait for the next process.
    listener: TcpListener,
    log: File,
    url: String,
    child: Child,
}

impl Second {
    async fn start(dev: &Dev, http: &Http) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
        let url = format!("http://{}", listener.local_addr().context("a port without an address")?);
        let log = File::create(dev.folder().join("second.log")).context("no log can be made")?;
        let environment = dev.info()?.serve_env.into_iter().collect::<Vec<_>>();
        let child = launch(dev.program(), &environment, &listener, &log)?;
        let mut second = Self { program: dev.program().to_owned(), environment, listener, log, url, child };
        second.becomes_ready(http).await?;
        Ok(second)
    }

    async fn kill_and_restart(&mut self, http: &Http) -> Result<Duration> {
        let killed = Instant::now();
        self.child.kill().await.context("the second server cannot be killed")?;
        self.child = launch(&self.program, &self.environment, &self.listener, &self.log)?;
        self.becomes_ready(http).await?;
        Ok(killed.elapsed())
    }

    async fn becomes_ready(&mut self, http: &Http) -> Result<()> {
        let (began, url) = (Instant::now(), format!("{}/health/ready", self.url));
        while !http.get(&url, "").await.is_ok_and(|answer| answer.status == 200) {
            let ended = self.child.try_wait().context("the second server cannot be watched")?;
            ensure!(ended.is_none(), "the second server ended: {ended:?}");
            ensure!(began.elapsed() < BACK, "the second server is not ready within {BACK:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    async fn stop(mut self) {
        if let Some(pid) = self.child.id().and_then(|id| i32::try_from(id).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        // What does not stop is killed as it is dropped.
        let _ = tokio::time::timeout(STOP, self.child.wait()).await;
    }
}

fn launch(
    program: &Path,
    environment: &[(String, String)],
    listener: &TcpListener,
    log: &File,
) -> Result<Child> {
    let shared = "the second server's files cannot be shared";
    Command::new(program)
        .env_clear()
        .envs(
            workspace::environment().filter(|(name, _)| !name.as_encoded_bytes().starts_with(b"TALLYSTICK_")),
        )
        .envs(environment.iter().cloned())
        .args(["serve", "--inherit-listener"])
        .stdin(Stdio::from(OwnedFd::from(listener.try_clone().context(shared)?)))
        .stdout(log.try_clone().context(shared)?)
        .stderr(log.try_clone().context(shared)?)
        // A Ctrl-C is ours: we stop it in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{} cannot be started", program.display()))
}
