//! `pg run -- CMD`: lends a private cluster to a command.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

use super::{Cluster, Durability};

/// How long the command may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(30);

/// A command and its arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The command to run, after `--`
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Starts a cluster, runs the command, stops the cluster. Also when a signal ends it.
///
/// # Errors
/// When the cluster or the command cannot be started.
pub async fn run(args: &Args) -> Result<ExitCode> {
    // Before the cluster starts, so that a signal in that moment leaves nothing behind either.
    let mut stop = Stop::listen()?;
    let cluster = tokio::select! {
        cluster = Cluster::start(Durability::Full) => cluster?,
        asked = stop.asked() => return Ok(code_of_signal(asked)),
    };
    let mut child = command(args, &cluster)?.spawn().with_context(|| {
        format!(
            "{} cannot be started",
            args.command.first().map_or_else(Default::default, |c| c.to_string_lossy())
        )
    })?;
    let status = tokio::select! {
        status = child.wait() => status,
        asked = stop.asked() => {
            end(&child, asked);
            match tokio::time::timeout(GRACE, child.wait()).await {
                Ok(status) => status,
                Err(_) => child.kill().await.map(|()| ExitStatus::from_raw(Signal::SIGKILL as i32)),
            }
        }
    };
    Ok(code(status.context("the command cannot be waited for")?))
}

fn command(args: &Args, cluster: &Cluster) -> Result<tokio::process::Command> {
    let (program, rest) = args.command.split_first().context("no command was given")?;
    let url = cluster.admin_url("postgres");
    let old = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(cluster.programs().to_path_buf()).chain(std::env::split_paths(&old));
    let mut command = tokio::process::Command::new(program);
    command
        .args(rest)
        .env_clear()
        .envs(crate::workspace::environment())
        // The client programs of the same version as the server, for tests that dump and restore.
        .env("PATH", std::env::join_paths(path).context("PATH cannot be extended")?)
        .env("DATABASE_URL", &url)
        .env("TALLYSTICK_TEST_DATABASE_URL", &url)
        // Builds use the committed cache: this database has no tables.
        .env("SQLX_OFFLINE", "true");
    Ok(command)
}

/// Passes the request on. A Ctrl-C of the terminal has reached the command already.
fn end(child: &tokio::process::Child, asked: Signal) {
    let told = asked == Signal::SIGINT && std::io::stdin().is_terminal();
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    if let (Some(pid), false) = (pid, told) {
        let _ = kill(pid, asked);
    }
}

/// The signals that mean: end.
struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Stop {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("signals cannot be received");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn asked(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = self.terminate.recv() => Signal::SIGTERM,
            _ = self.hangup.recv() => Signal::SIGHUP,
        }
    }
}

/// As a shell does it: the code, or 128 and the signal's number.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|number| 128 + number)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn code_of_signal(signal: Signal) -> ExitCode {
    code(ExitStatus::from_raw(signal as i32))
}
