//! A cluster that runs as long as its value lives.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid};

use super::locate;
use super::place::Place;

/// How long a new server may take to answer.
const READY: Duration = Duration::from_secs(60);
/// Another process may take the port between our choice and the server's start.
const PORT_TRIES: u32 = 5;
/// Roles of the product; they belong to the cluster, so tests that migrate in parallel must find them made.
const ROLES: [&str; 2] = ["tallystick_owner", "tallystick_app"];

/// Whether commits are written to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// As in production; what the product insists on when it starts.
    Full,
    /// Nothing is synced; for work that never crashes on purpose.
    None,
}

/// A running private cluster. Dropping it stops the server and removes its data.
pub struct Cluster {
    // Dropped in this order: the server ends before its folder goes.
    _server: Server,
    _place: Place,
    bin: PathBuf,
    port: u16,
}

impl Cluster {
    /// Makes and starts a cluster with the product's roles.
    ///
    /// # Errors
    /// [`super::Missing`] when PostgreSQL is not installed; else what went wrong, with the end of the server's log.
    pub async fn start(durability: Durability) -> Result<Self> {
        let bin = locate::programs()?;
        let user = locate::user()?;
        let place = Place::make(user).await?;
        let mut initdb = as_user(Command::new(bin.join("initdb")), user);
        initdb.arg("-D").arg(place.data()).args(["-U", "postgres", "--auth=trust", "--encoding=UTF8"]);
        initdb.args(["--locale=C", "--no-sync", "--no-instructions"]);
        let mut initdb = tokio::process::Command::from(initdb);
        let made = initdb.kill_on_drop(true).output().await.context("initdb cannot be started")?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr).trim());

        for _ in 0..PORT_TRIES {
            let port = free_port()?;
            let mut server = Server::spawn(&bin, &place, user, port, durability)?;
            if server.becomes_ready(&bin, &place, port).await? {
                let cluster = Self { _server: server, _place: place, bin, port };
                for role in ROLES {
                    cluster.psql("postgres", &["-c", &format!("CREATE ROLE {role} LOGIN")])?;
                }
                return Ok(cluster);
            }
        }
        bail!("no free port was found in {PORT_TRIES} tries")
    }

    /// Connects as superuser.
    pub fn admin_url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The folder with PostgreSQL's programs.
    pub fn programs(&self) -> &Path {
        &self.bin
    }

    /// Runs psql as superuser; the first error ends it.
    ///
    /// # Errors
    /// What psql said.
    pub fn psql(&self, database: &str, args: &[&str]) -> Result<String> {
        let mut command = Command::new(self.bin.join("psql"));
        command.env_clear().envs(crate::workspace::environment());
        command
            .arg(self.admin_url(database))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"])
            .args(args);
        crate::workspace::output(&mut command)
    }
}

/// The server's process; ends with its value.
struct Server(Child);

impl Server {
    fn spawn(
        bin: &Path,
        place: &Place,
        user: Option<(Uid, Gid)>,
        port: u16,
        durability: Durability,
    ) -> Result<Self> {
        let log = std::fs::File::create(place.log()).context("the log cannot be made")?;
        let durable = match durability {
            Durability::Full => "on",
            Durability::None => "off",
        };
        let mut command = as_user(Command::new(bin.join("postgres")), user);
        command.arg("-D").arg(place.data()).arg("-k").arg(place.run());
        for setting in [
            format!("port={port}"),
            "listen_addresses=127.0.0.1".to_owned(),
            // Many tests at once, each with pools of its own.
            "max_connections=400".to_owned(),
            "max_locks_per_transaction=256".to_owned(),
            "shared_buffers=256MB".to_owned(),
            "max_wal_size=2GB".to_owned(),
            format!("fsync={durable}"),
            format!("full_page_writes={durable}"),
            format!("synchronous_commit={durable}"),
        ] {
            command.args(["-c", &setting]);
        }
        // A group of its own, so that Ctrl-C reaches us and we decide when the server stops.
        command.process_group(0).stdout(Stdio::null()).stderr(log);
        Ok(Self(command.spawn().context("postgres cannot be started")?))
    }

    /// True once it answers, false when somebody else took its port.
    async fn becomes_ready(&mut self, bin: &Path, place: &Place, port: u16) -> Result<bool> {
        let deadline = Instant::now() + READY;
        loop {
            if let Some(status) = self.0.try_wait().context("the server cannot be watched")? {
                let log = log_tail(place);
                if log.contains("could not create any TCP/IP sockets") {
                    return Ok(false);
                }
                bail!("postgres ended: {status}\n{log}");
            }
            let probe = Command::new(bin.join("pg_isready"))
                .args(["-q", "-t", "1", "-h", "127.0.0.1", "-U", "postgres", "-d", "postgres", "-p"])
                .arg(port.to_string())
                .status()
                .context("pg_isready cannot be started")?;
            if probe.success() {
                return Ok(true);
            }
            ensure!(Instant::now() < deadline, "postgres does not answer\n{}", log_tail(place));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).map(Pid::from_raw);
        if let (Ok(pid), Ok(None)) = (pid, self.0.try_wait()) {
            // Immediate: the data is thrown away, so no checkpoint is needed.
            let _ = kill(pid, Signal::SIGQUIT);
        }
        let _ = self.0.wait();
    }
}

fn log_tail(place: &Place) -> String {
    let text = std::fs::read_to_string(place.log()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port on loopback is free")?;
    Ok(listener.local_addr().context("a listener without address")?.port())
}

fn as_user(mut command: Command, user: Option<(Uid, Gid)>) -> Command {
    command.env_clear().env("LC_ALL", "C").current_dir("/").stdin(Stdio::null());
    if let Some((uid, gid)) = user {
        command.uid(uid.as_raw()).gid(gid.as_raw());
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cluster_has_the_roles_and_leaves_nothing_behind() {
        let cluster = match Cluster::start(Durability::Full).await {
            Ok(cluster) => cluster,
            Err(error) if error.is::<super::super::Missing>() => {
                panic!("this test needs PostgreSQL: {error}")
            }
            Err(error) => panic!("{error:#}"),
        };
        let roles = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'tallystick_%' AND rolcanlogin";
        assert_eq!(cluster.psql("postgres", &["-c", roles]).unwrap().trim(), "2");
        for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
            let shown = cluster.psql("postgres", &["-c", &format!("SHOW {setting}")]).unwrap();
            assert_eq!(shown.trim(), "on", "{setting}");
        }
        let error = cluster.psql("postgres", &["-c", "SELECT 1/0"]).unwrap_err();
        assert!(error.to_string().contains("division by zero"), "{error}");
        let (data, pid) = (cluster._place.data(), cluster._server.0.id());
        drop(cluster);
        assert!(!data.exists());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
