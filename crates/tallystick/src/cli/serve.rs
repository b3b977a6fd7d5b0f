//! `tallystick serve`: the server.
//!
//! Before anything runs: settings are read and checked against each other, the database must answer, must be the one
//! that its rows were written in, must have this program's schema, and must not be reached through a pooler that mixes
//! up prepared statements. A server that cannot keep its promises does not start.
//!
//! Stopping has an order. The first signal ends everything that takes new work: connections are no longer accepted,
//! nothing is claimed. Requests and calls under way are finished and recorded. Only when the last request has its answer
//! do the writers stop that requests wait for. A second signal, or the end of the time that settings give, stops at once;
//! leases then expire by themselves and the next process asks before it sends.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use tallystick_payments::engine::Engine;
use tallystick_payments::migrate;
use tallystick_runner::{Db, Shutdown, cluster, pooler};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{CliError, Exit};
use crate::config::{self, Config, Role};
use crate::http::{self, AppState};
use crate::{telemetry, wiring};

/// Days of partitions that must be ahead when a process starts.
const PARTITION_DAYS: i32 = 7;

/// Run the server: the API, calls to gateways, publishing, sweeping.
///
/// Settings come from TALLYSTICK_* variables and an optional file; docs/settings.md lists them. It refuses to start
/// when the database is away (exit 3), was not migrated or was copied, or when settings do not fit (exit 2).
/// The first SIGTERM or Ctrl-C finishes what is under way; a second one stops at once.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// TOML file with settings; variables win over it
    #[arg(long, value_name = "FILE", env = "TALLYSTICK_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
    /// What this process does: any of api, dispatch, relay, sweep [default: all]
    #[arg(long, value_name = "ROLE,…", value_delimiter = ',')]
    roles: Vec<Role>,
    /// Check settings and database, then stop
    #[arg(long)]
    check: bool,
    /// Take over the listening socket that the parent passes as standard input
    #[arg(long, hide = true)]
    inherit_listener: bool,
}

/// Runs it.
///
/// # Errors
/// [`CliError`] says what is missing or wrong.
pub async fn run(args: &Args) -> Result<Exit, CliError> {
    let mut config = config::load(args.config.as_deref(), environment()?).map_err(usage)?;
    if !args.roles.is_empty() {
        config.process.roles.clone_from(&args.roles);
    }
    telemetry::logs(&config.log).map_err(usage)?;
    let metrics = telemetry::metrics().map_err(usage)?;
    let signals = Signals::new()?;
    let db = wiring::database(&config, "tallystick serve").await?;
    check_database(&db).await?;
    let engine = wiring::engine(&config, db)?;
    if args.check {
        println!("settings and database are as they must be");
        return Ok(Exit::Done);
    }
    tallystick_outbox::ensure_partitions(engine.db(), PARTITION_DAYS)
        .await
        .map_err(|e| CliError::Away(format!("partitions for events cannot be made: {e}")))?;
    let listener = listen(&config, args.inherit_listener).await?;
    let server = Server::start(&config, engine, metrics, listener)?;
    server.until_stopped(signals, config.process.shutdown_timeout).await
}

fn usage(error: impl std::fmt::Display) -> CliError {
    CliError::Usage(error.to_string())
}

/// The environment as text.
///
/// # Errors
/// [`CliError::Usage`] names a variable of ours that is not UTF-8.
pub(super) fn environment() -> Result<Vec<(String, String)>, CliError> {
    let mut all = Vec::new();
    for (name, value) in std::env::vars_os() {
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => all.push((name, value)),
            (Ok(name), Err(_)) if name.starts_with(config::PREFIX) => {
                return Err(CliError::Usage(format!("the value of {name} is not UTF-8")));
            }
            // Not ours: not looked at.
            _ => {}
        }
    }
    Ok(all)
}

async fn check_database(db: &Db) -> Result<(), CliError> {
    // First, because nothing that is answered through a bad pooler means anything.
    pooler::check(db).await.map_err(|e| match e {
        pooler::PoolerError::Db(e) => e.into(),
        other => usage(other),
    })?;
    cluster::check(db).await.map_err(|e| match e {
        cluster::ClusterError::Db(e) => e.into(),
        other => usage(other),
    })?;
    migrate::check(db).await.map_err(|e| match e {
        migrate::MigrateError::Db(e) => CliError::from(e),
        other => usage(other),
    })?;
    if cluster::is_privileged(db).await? {
        tracing::warn!(
            "connected as a superuser or owner: the guards against rewriting the ledger do not bind such a role; \
             connect as tallystick_app"
        );
    }
    Ok(())
}

async fn listen(config: &Config, inherited: bool) -> Result<TcpListener, CliError> {
    let refuse = |what: &str, error: &std::io::Error| match error.kind() {
        std::io::ErrorKind::AddrInUse => CliError::Away(format!(
            "{what} is in use: stop what listens there, or set TALLYSTICK_LISTEN to another address"
        )),
        _ => CliError::Usage(format!("cannot listen on {what}: {error}. Correct TALLYSTICK_LISTEN")),
    };
    if inherited {
        let take = || {
            let listener = std::net::TcpListener::from(std::io::stdin().as_fd().try_clone_to_owned()?);
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        return take().map_err(|e| refuse("standard input", &e));
    }
    let address = config.http.listen;
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "listening on an address that others can reach: put TLS in front of it");
    }
    TcpListener::bind(address).await.map_err(|e| refuse(&address.to_string(), &e))
}

/// The signals that end a process.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// The terminal was closed; not ours when the process was started to outlive it (`nohup`).
    hangup: Option<Signal>,
}

impl Signals {
    /// From now on these signals are ours.
    ///
    /// # Errors
    /// [`CliError::Away`] when the system has no means left for it.
    pub fn new() -> Result<Self, CliError> {
        let watch =
            |kind| signal(kind).map_err(|e| CliError::Away(format!("signals cannot be received: {e}")));
        let hangup = if hangup_is_ignored() { None } else { Some(watch(SignalKind::hangup())?) };
        Ok(Self {
            terminate: watch(SignalKind::terminate())?,
            interrupt: watch(SignalKind::interrupt())?,
            hangup,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> &'static str {
        let hangup = async {
            match &mut self.hangup {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = hangup => "SIGHUP",
        }
    }
}

/// Where the kernel does not tell, it counts as not ignored.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is signal 1, the lowest bit.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Everything that runs, in the groups in which it is stopped.
struct Server {
    /// Connections and requests.
    requests: Shutdown,
    /// Loops that take work by themselves.
    loops: Shutdown,
    /// What requests wait for.
    writers: Shutdown,
    engine: Engine,
}

impl Server {
    fn start(
        config: &Config,
        engine: Engine,
        metrics: metrics_exporter_prometheus::PrometheusHandle,
        listener: TcpListener,
    ) -> Result<Self, CliError> {
        let (requests, loops, writers) = (Shutdown::new(), Shutdown::new(), Shutdown::new());
        let server = Self { requests, loops, writers, engine: engine.clone() };
        let roles = &config.process.roles;
        let has = |role| roles.contains(&role);
        telemetry::upkeep(metrics.clone(), &server.loops);
        if has(Role::Api) {
            engine.spawn_api(&server.writers);
        }
        if has(Role::Dispatch) {
            engine.spawn_dispatch(&server.loops);
        }
        if has(Role::Sweep) {
            engine.spawn_sweep(&server.loops);
        }
        if has(Role::Relay) {
            engine.spawn_relay(&server.loops, wiring::sinks(config)?);
        }
        let address = listener.local_addr().ok();
        let state = AppState::new(engine, metrics, &config.http());
        let app = if has(Role::Api) { http::router(state) } else { http::operations(state) };
        let requests = server.requests.clone();
        server.requests.spawn(http::serve(listener, app, requests));
        announce(address, roles);
        Ok(server)
    }

    /// Runs until a signal or a failure, then stops in order.
    async fn until_stopped(self, mut signals: Signals, patience: Duration) -> Result<Exit, CliError> {
        let failure = tokio::select! {
            signal = signals.next() => {
                tracing::info!(signal, "stopping: finishing what is under way");
                None
            }
            reason = self.engine.failed() => Some(reason),
            () = self.loops.panicked() => Some("a loop panicked".to_owned()),
            () = self.writers.panicked() => Some("a writer panicked".to_owned()),
        };
        if let Some(reason) = &failure {
            tracing::error!(reason, "a part of this process ended: stopping");
        }
        let ended = tokio::select! {
            () = self.drain() => "done",
            signal = signals.next() => signal,
            () = tokio::time::sleep(patience) => "the time for it is over",
        };
        self.abort();
        match (failure, ended) {
            (None, "done") => {
                tracing::info!("stopped: nothing is left under way");
                Ok(Exit::Done)
            }
            (Some(reason), _) => Err(CliError::Broken(format!("a part of the server ended: {reason}"))),
            (None, why) => Err(CliError::Broken(format!(
                "stopped at once ({why}). What was under way is taken up by the next process when its lease ends"
            ))),
        }
    }

    async fn drain(&self) {
        self.requests.begin();
        self.loops.begin();
        tokio::join!(self.requests.finished(), self.loops.finished());
        self.writers.begin();
        self.writers.finished().await;
    }

    fn abort(&self) {
        for part in [&self.requests, &self.loops, &self.writers] {
            part.abort();
        }
    }
}

fn announce(address: Option<SocketAddr>, roles: &[Role]) {
    let roles = roles.iter().map(|role| role.name()).collect::<Vec<_>>().join(",");
    let address = address.map(|a| a.to_string()).unwrap_or_default();
    tracing::info!(address, roles, version = env!("CARGO_PKG_VERSION"), "listening");
}
