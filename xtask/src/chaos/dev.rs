//! The environment of a run: `tallystick dev` with a data folder of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::workspace;

/// How long the environment may take to start, and to stop.
const START: Duration = Duration::from_secs(120);
const STOP: Duration = Duration::from_secs(60);

/// Short times, so that a run shows many resolutions; what the caller set stays.
const QUICK: [(&str, &str); 5] = [
    ("TALLYSTICK_SWEEP_AFTER", "500ms"),
    ("TALLYSTICK_SWEEP_MAX_BACKOFF", "1s"),
    ("TALLYSTICK_STATUS_CHECK_AFTER", "2s"),
    ("TALLYSTICK_LEASE", "4s"),
    ("TALLYSTICK_GATEWAY_TIMEOUT", "1s"),
];

/// What `dev.json` says, as far as a run needs it.
#[derive(Clone, Debug, Deserialize)]
pub struct Info {
    /// Base of the HTTP API.
    pub api_url: String,
    /// Key of a client.
    pub api_key: String,
    /// Base of the sandbox.
    pub sandbox_url: String,
    /// The server's metrics.
    pub metrics_url: String,
    /// Process ids.
    pub pids: Pids,
    /// The environment of a second server.
    pub serve_env: BTreeMap<String, String>,
}

/// Process ids of the environment.
#[derive(Clone, Debug, Deserialize)]
pub struct Pids {
    /// The server.
    pub server: i32,
    /// The sandbox.
    pub sandbox: i32,
    /// PostgreSQL.
    pub postgres: i32,
}

/// How a command of the product ended.
pub struct Said {
    /// Exit code 0.
    pub ok: bool,
    /// What it wrote.
    pub said: String,
}

/// What `verify --json` prints, as far as it is told here.
#[derive(Deserialize)]
struct Verified {
    checks: Vec<Check>,
}

#[derive(Deserialize)]
struct Check {
    id: String,
    name: String,
    status: String,
    violations: Vec<String>,
}

impl Verified {
    fn violated(&self) -> String {
        let violated = self.checks.iter().filter(|check| check.status == "violated");
        let told = violated.map(|check| {
            let ids = check.violations.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
            format!("{} ({}): {ids}", check.id, check.name)
        });
        told.collect::<Vec<_>>().join("; ")
    }
}

/// A running environment. It has to be stopped; dropping it leaves it running.
pub struct Dev {
    child: Child,
    program: PathBuf,
    folder: TempDir,
}

/// Builds the programs and gives their folder.
///
/// # Errors
/// When cargo fails.
pub fn build(profile: &str) -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--profile", profile, "--package", "tallystick", "--package", "tallystick-sandbox"]);
    let status = cargo.status().context("cargo cannot be started")?;
    ensure!(status.success(), "the programs do not build");
    Ok(workspace::target_dir().join(if profile == "dev" { "debug" } else { profile }))
}

impl Dev {
    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// When it does not become ready; with the end of its log.
    pub async fn start(programs: &Path) -> Result<Self> {
        let program = programs.join("tallystick");
        ensure!(program.is_file(), "{} is not there", program.display());
        let folder =
            tempfile::Builder::new().prefix("tallystick-chaos-").tempdir().context("no temporary folder")?;
        // PostgreSQL runs as another user when we are root, and has to get through.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .context("the data folder cannot be opened to others")?;
        let log = std::fs::File::create(folder.path().join("dev.log")).context("no log can be made")?;
        let child = command(&program)
            .args(["dev", "--listen", "127.0.0.1:0", "--sandbox-listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder.path().join("data"))
            .stdout(log.try_clone().context("the log cannot be shared")?)
            .stderr(log)
            // A Ctrl-C is ours: we stop it in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        let mut dev = Self { child, program, folder };
        match dev.becomes_ready().await {
            Ok(()) => Ok(dev),
            Err(error) => {
                let log = dev.log_tail();
                dev.stop(false).await;
                bail!("{error}\n{log}")
            }
        }
    }

    async fn becomes_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START;
        while self.info().is_err() {
            if let Some(status) = self.child.try_wait().context("dev cannot be watched")? {
                bail!("dev ended: {status}");
            }
            ensure!(Instant::now() < deadline, "dev is not ready after {START:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// The folder of this run: data and logs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The product's program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// What `dev.json` says now.
    ///
    /// # Errors
    /// When it is not there: the environment is not ready.
    pub fn info(&self) -> Result<Info> {
        info(&self.data())
    }

    fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(self.folder.path().join("dev.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Waits until nothing is open.
    ///
    /// # Errors
    /// When the command cannot be run.
    pub async fn wait_idle(&self, within: Duration) -> Result<Said> {
        self.said(&["wait", "--idle", "--timeout", &format!("{}s", within.as_secs())]).await
    }

    /// Checks every invariant; tells of those that do not hold.
    ///
    /// # Errors
    /// When the command cannot be run.
    pub async fn verify(&self) -> Result<Said> {
        let said = self.said(&["verify", "--json"]).await?;
        let report = serde_json::from_str::<Verified>(&said.said);
        Ok(match report {
            Ok(report) => Said { said: report.violated(), ..said },
            Err(_) => said,
        })
    }

    async fn said(&self, args: &[&str]) -> Result<Said> {
        let out = command(&self.program).args(args).arg("--data-dir").arg(self.data()).output().await?;
        let text = if out.stdout.is_empty() { out.stderr } else { out.stdout };
        Ok(Said { ok: out.status.success(), said: String::from_utf8_lossy(&text).into_owned() })
    }

    /// Stops everything and removes the data, or says where it is.
    pub async fn stop(mut self, keep: bool) {
        let pids = self.info().map(|info| [info.pids.server, info.pids.sandbox, info.pids.postgres]);
        if let Some(pid) = self.child.id().and_then(|id| i32::try_from(id).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        if tokio::time::timeout(STOP, self.child.wait()).await.is_err() {
            eprintln!("chaos: dev did not stop in {STOP:?} and is killed, with what it started");
            let _ = self.child.kill().await;
            for pid in pids.into_iter().flatten() {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        if keep {
            eprintln!("chaos: the data is in {}", self.folder.keep().display());
        }
    }
}

/// Reads `dev.json` of a data folder.
///
/// # Errors
/// When it is not there or not what it should be.
pub fn info(data: &Path) -> Result<Info> {
    let text = std::fs::read_to_string(data.join("dev.json")).context("dev is not ready")?;
    serde_json::from_str(&text).context("dev.json does not have the members that it should")
}

fn command(program: &Path) -> Command {
    let quick = QUICK.into_iter().filter(|(name, _)| std::env::var_os(name).is_none());
    let mut command = Command::new(program);
    command.env_clear().envs(workspace::environment()).envs(quick).stdin(Stdio::null());
    // A database of the caller's is not the one of this run.
    command.env_remove("TALLYSTICK_DATABASE_URL").env_remove("DATABASE_URL");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_violated_is_told() {
        let report = r#"{"ok": false, "checks": [
            {"id": "I1", "name": "balanced", "status": "held", "checked": 3, "violations": []},
            {"id": "I8", "name": "one effect", "status": "violated", "checked": 3, "violations": ["a", "b"]}]}"#;
        let report: Verified = serde_json::from_str(report).unwrap();
        assert_eq!(report.violated(), "I8 (one effect): a, b");
    }
}
