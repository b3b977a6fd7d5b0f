//! `tallystick dev`: everything that is needed to try the product, on one machine, without setting anything up.
//!
//! Four processes: this one, PostgreSQL, the sandbox and the server. Each of the last three may be killed at any time;
//! this one starts it again and the others go on. Killing this one leaves them running; the next `dev` on the folder
//! recognises and ends them before it begins. `dev.json` says where everything is; it is written when all is ready,
//! again when a process was replaced, and removed when all is stopped in good order.
//!
//! Order of starting: database, migration, tenants and keys, sandbox (it needs the server's address, which is known
//! since the socket is ours), server. Stopping goes the other way round, so that calls under way can still be answered
//! and recorded.

mod child;
pub mod client;
mod folder;
pub mod info;
mod once;
mod postgres;
mod process;
pub mod processor;
mod programs;
mod secrets;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tallystick_payments::tenants::{self, Scope};
use tallystick_runner::Db;

use super::serve::{Signals, environment};
use super::tenants::refusal;
use super::{CliError, Exit, migrate};
use crate::{config, wiring};
use child::{Supervised, supervise};
use folder::Folder;
use info::{DevInfo, OtherTenant, Pids};
use postgres::{Cluster, Owner};
use programs::{Postgres, Sandbox, Server};
use secrets::Secrets;

/// How long one program may take to become ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// Lines of a program's log that are shown when it does not start.
const TAIL: usize = 12;
/// Name of the second tenant.
const OTHER: &str = "other";

/// Run everything needed to try the product: database, sandbox gateway, server.
///
/// Keeps its data in one folder: a private PostgreSQL cluster, the sandbox's book, logs. When all is ready it writes
/// dev.json there (addresses, keys, process ids) and prints a summary. A process that is killed is started again.
/// Ctrl-C stops everything. TALLYSTICK_* variables are passed on to the server.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Empty the folder first; refused for a folder that was not made by this command
    #[arg(long)]
    fresh: bool,
    /// Run one payment to its end, verify the books, stop
    #[arg(long)]
    once: bool,
    /// Print dev.json instead of the summary; with --once, the report of verify as JSON
    #[arg(long)]
    json: bool,
}

/// Where a `dev` lives.
#[derive(Clone, Debug, clap::Args)]
pub struct Place {
    /// Folder for everything that is kept
    #[arg(long, value_name = "DIR", default_value = ".tallystick/dev")]
    pub data_dir: PathBuf,
    /// Address of the API; port 0 is any free one
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "TALLYSTICK_LISTEN",
        hide_env_values = true,
        default_value = "127.0.0.1:8080"
    )]
    pub listen: SocketAddr,
    /// Address of the sandbox; port 0 is any free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8081")]
    pub sandbox_listen: SocketAddr,
    /// Folder of PostgreSQL's programs [default: searched for]
    #[arg(long, value_name = "DIR")]
    pub postgres_bin: Option<PathBuf>,
}

/// What a command that brings up an environment has otherwise than `dev`.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Settings of PostgreSQL, `name=value`.
    pub postgres: Vec<String>,
    /// Settings of the server; they win over the environment's.
    pub server: BTreeMap<String, String>,
    /// The one processor that the server may use, if it may not use all.
    pub processor: Option<usize>,
}

/// Runs it.
///
/// # Errors
/// [`CliError`] says what is missing or wrong.
pub async fn run(args: &Args) -> Result<Exit, CliError> {
    let mut signals = Signals::new()?;
    let mut dev = Dev::claim(&args.place, args.fresh).await?;
    let result = tokio::select! {
        result = work(&mut dev, args) => result,
        _ = signals.next() => Ok(Exit::Done),
    };
    dev.stop(&mut signals).await.and(result)
}

async fn work(dev: &mut Dev, args: &Args) -> Result<Exit, CliError> {
    let info = dev.bring_up().await?;
    if args.once {
        return once::run(&info, dev.folder.root(), args.json).await;
    }
    if args.json {
        println!("{}", info.json());
    } else {
        print!("{}", dev.summary(&info));
    }
    dev.look_after().await
}

/// A running environment, or the beginning of one.
pub struct Dev {
    folder: Folder,
    place: Place,
    cluster: Cluster,
    secrets: Secrets,
    changes: Changes,
    listener: Option<TcpListener>,
    info: Option<DevInfo>,
    postgres: Option<Supervised>,
    sandbox: Option<Supervised>,
    server: Option<Supervised>,
    /// Sandboxes beside the one that the server speaks to.
    banks: Vec<Supervised>,
}

impl Dev {
    /// Takes the folder, cleans up what an earlier run left, finds PostgreSQL. Starts nothing yet.
    ///
    /// # Errors
    /// [`CliError`] when the folder is somebody else's or in use, or something is not installed.
    pub async fn claim(place: &Place, fresh: bool) -> Result<Self, CliError> {
        check_settings()?;
        let owner = Owner::choose()?;
        let folder = Folder::claim(&place.data_dir)?;
        DevInfo::remove(folder.root());
        folder.end_leftovers().await;
        if fresh || folder.is_new() {
            let places = folder.places(owner.as_ref())?;
            Cluster::end_leftovers(&places).await;
            folder.empty()?;
        }
        let places = folder.places(owner.as_ref())?;
        let cluster = Cluster::locate(places, owner, place.postgres_bin.as_deref()).await?;
        let secrets = Secrets::of(folder.root())?;
        Ok(Self {
            folder,
            place: place.clone(),
            cluster,
            secrets,
            changes: Changes::default(),
            listener: None,
            info: None,
            postgres: None,
            sandbox: None,
            server: None,
            banks: Vec::new(),
        })
    }

    /// The same, with something otherwise than in `dev`.
    #[must_use]
    pub fn with(self, changes: Changes) -> Self {
        let cluster = self.cluster.with_settings(&changes.postgres);
        Self { cluster, changes, ..self }
    }

    /// The data folder.
    pub fn root(&self) -> &Path {
        self.folder.root()
    }

    /// Where to look and what to try, for people.
    #[must_use]
    pub fn summary(&self, info: &DevInfo) -> String {
        summary(info, self.root())
    }

    /// Starts everything and writes `dev.json`.
    ///
    /// # Errors
    /// [`CliError`] says what did not start and shows the end of its log.
    pub async fn bring_up(&mut self) -> Result<DevInfo, CliError> {
        let listener = bind(self.place.listen)?;
        if !self.place.listen.ip().is_loopback() {
            eprintln!(
                "tallystick dev: whoever reaches {} can use the key `{}`: keep it inside a network that you trust",
                self.place.listen,
                secrets::WELL_KNOWN_KEY
            );
        }
        let api_url = url_of(listener.local_addr().map_err(|e| CliError::Away(e.to_string()))?);
        self.start_database().await?;
        let sandbox_url = self.start_sandbox(&api_url).await?;
        let gateways = self.root().join("gateways.json");
        folder::write_whole(&gateways, &programs::gateway_accounts(&sandbox_url, &self.secrets))?;
        let mut settings = programs::server_settings(environment()?, &self.cluster, &gateways);
        settings.extend(self.changes.server.clone());
        let mut serve_env = settings.clone();
        serve_env.remove("TALLYSTICK_FAILPOINT");
        self.listener = Some(listener);
        self.start_server(&api_url, settings).await?;
        let info = DevInfo {
            schema: 1,
            metrics_url: format!("{api_url}/metrics"),
            receiver_url: format!("{sandbox_url}/_receiver/hook"),
            api_url,
            api_key: self.secrets.client_key.clone(),
            operator_key: self.secrets.operator_key.clone(),
            other_tenant: OtherTenant { tenant: OTHER.into(), api_key: self.secrets.other_key.clone() },
            sandbox_url,
            database_url: self.cluster.url(postgres::APPLICATION),
            admin_database_url: self.cluster.url(postgres::ADMIN),
            pids: self.pids().unwrap_or_default(),
            serve_env,
        };
        info.write(self.root())?;
        self.info = Some(info.clone());
        Ok(info)
    }

    async fn start_database(&mut self) -> Result<(), CliError> {
        let began = std::time::Instant::now();
        self.cluster.init().await?;
        let log = self.folder.log("postgres")?;
        let postgres = self.postgres.insert(supervise(Postgres { cluster: self.cluster.clone(), log }));
        postgres.until_ready(PATIENCE).await.map_err(|e| with_log(e, &self.folder.log_path("postgres")))?;
        self.cluster.create_database(postgres::DATABASE).await?;
        migrate::bring(&self.cluster.url(postgres::ADMIN)).await?;
        let db = wiring::connect(&self.cluster.url(postgres::APPLICATION), "tallystick dev", 1).await?;
        tenants_and_keys(&db, &self.secrets).await?;
        eprintln!("tallystick dev: PostgreSQL {} is ready ({:.1?})", self.cluster.major(), began.elapsed());
        Ok(())
    }

    async fn start_sandbox(&mut self, api_url: &str) -> Result<String, CliError> {
        let root = self.root().to_owned();
        let (sandbox, url) = self.bank(root, self.place.sandbox_listen, api_url, "sandbox").await?;
        self.sandbox = Some(sandbox);
        Ok(url)
    }

    /// Starts a second sandbox, with a book of its own and the same secrets, and gives its address and process. It is
    /// stopped with the rest.
    ///
    /// # Errors
    /// [`CliError`] says what did not start.
    pub async fn start_bank(&mut self, name: &str) -> Result<(String, u32), CliError> {
        let folder = self.root().join(name);
        std::fs::create_dir_all(&folder)
            .map_err(|e| CliError::Usage(format!("cannot make {}: {e}", folder.display())))?;
        let api_url = self.info.as_ref().map(|info| info.api_url.clone()).unwrap_or_default();
        let anywhere = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
        let (bank, url) = self.bank(folder, anywhere, &api_url, name).await?;
        let pid = bank.state().pid.unwrap_or_default();
        self.banks.push(bank);
        Ok((url, pid))
    }

    /// Makes a second database in the cluster, with this program's schema, and gives its address for the application
    /// role.
    ///
    /// # Errors
    /// [`CliError`] says what could not be made.
    pub async fn make_database(&self, name: &str) -> Result<String, CliError> {
        self.cluster.create_database(name).await?;
        migrate::bring(&self.cluster.url_of(name, postgres::ADMIN)).await?;
        Ok(self.cluster.url_of(name, postgres::APPLICATION))
    }

    async fn bank(
        &self,
        folder: PathBuf,
        listen: SocketAddr,
        api_url: &str,
        log: &str,
    ) -> Result<(Supervised, String), CliError> {
        let program = beside_us("tallystick-sandbox")?;
        if !program.is_file() {
            return Err(CliError::Away(format!(
                "{} is missing: build it with `cargo build -p tallystick-sandbox` (with the same profile), \
                 or install it beside this program",
                program.display()
            )));
        }
        let sandbox = Sandbox {
            program,
            marked: self.root().to_owned(),
            folder: folder.clone(),
            listen,
            webhook_url: format!("{api_url}/webhooks"),
            secret: self.secrets.gateway_secret.clone(),
            webhook_secret: self.secrets.webhook_secret.clone(),
            log: self.folder.log(log)?,
        };
        let mut sandbox = supervise(sandbox);
        sandbox.until_ready(PATIENCE).await.map_err(|e| with_log(e, &self.folder.log_path(log)))?;
        Ok((sandbox, Sandbox::url(&folder)?))
    }

    /// Stops the server in good order and starts it with other settings, which win over those it had first.
    ///
    /// # Errors
    /// [`CliError`] says what did not start.
    pub async fn restart_server(&mut self, other: &BTreeMap<String, String>) -> Result<DevInfo, CliError> {
        let Some(mut info) = self.info.clone() else {
            return Err(CliError::Broken("nothing was started".into()));
        };
        self.stop_server().await;
        let mut settings = info.serve_env.clone();
        settings.extend(other.clone());
        self.start_server(&info.api_url, settings).await?;
        info.pids = self.pids().unwrap_or_default();
        info.write(self.folder.root())?;
        self.info = Some(info.clone());
        Ok(info)
    }

    /// Stops the server in good order; [`Self::restart_server`] starts it again.
    pub async fn stop_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.stop(std::future::pending()).await;
        }
    }

    async fn start_server(
        &mut self,
        api_url: &str,
        settings: BTreeMap<String, String>,
    ) -> Result<(), CliError> {
        let listener = self.listener.as_ref().map(TcpListener::try_clone);
        let listener = listener
            .ok_or_else(|| CliError::Broken("the API has no socket".into()))?
            .map_err(|e| CliError::Away(format!("no more files can be opened: {e}")))?;
        let server = Server {
            program: std::env::current_exe()
                .map_err(|e| CliError::Away(format!("this program is gone: {e}")))?,
            folder: self.root().to_owned(),
            listener,
            settings,
            ready_url: format!("{api_url}/health/ready"),
            client: client::http()?,
            processor: self.changes.processor,
            log: self.folder.log("server")?,
        };
        let server = self.server.insert(supervise(server));
        server.until_ready(PATIENCE).await.map_err(|e| with_log(e, &self.folder.log_path("server")))
    }

    /// Keeps `dev.json` true while the programs are looked after. Ends only with an error.
    ///
    /// # Errors
    /// [`CliError::Usage`] when the file cannot be written.
    pub async fn look_after(&mut self) -> Result<Exit, CliError> {
        loop {
            if let (Some(pids), Some(info)) = (self.pids(), &mut self.info)
                && info.pids != pids
            {
                info.pids = pids;
                info.write(self.folder.root())?;
                eprintln!("tallystick dev: all is ready again");
            }
            let (Some(postgres), Some(sandbox), Some(server)) =
                (&mut self.postgres, &mut self.sandbox, &mut self.server)
            else {
                return Err(CliError::Broken("nothing was started".into()));
            };
            tokio::select! {
                () = postgres.changed() => {}
                () = sandbox.changed() => {}
                () = server.changed() => {}
            }
        }
    }

    /// What the server shows to its sandbox.
    #[must_use]
    pub fn gateway_secret(&self) -> &str {
        &self.secrets.gateway_secret
    }

    /// The processes, when all are ready.
    #[must_use]
    pub fn pids(&self) -> Option<Pids> {
        let ready = |program: &Option<Supervised>| {
            let state = program.as_ref()?.state();
            state.pid.filter(|_| state.ready)
        };
        Some(Pids {
            dev: std::process::id(),
            server: ready(&self.server)?,
            sandbox: ready(&self.sandbox)?,
            postgres: ready(&self.postgres)?,
        })
    }

    /// Stops everything in good order; at once when another signal comes.
    ///
    /// # Errors
    /// [`CliError::Broken`] when it was cut short.
    pub async fn stop(mut self, signals: &mut Signals) -> Result<Exit, CliError> {
        self.stop_all(signals).await
    }

    /// Stops everything as [`Self::stop`] does and removes the data folder.
    ///
    /// # Errors
    /// [`CliError::Broken`] when it was cut short, [`CliError::Usage`] when something cannot be removed.
    pub async fn discard(mut self, signals: &mut Signals) -> Result<Exit, CliError> {
        let stopped = self.stop_all(signals).await;
        self.folder.remove()?;
        stopped
    }

    async fn stop_all(&mut self, signals: &mut Signals) -> Result<Exit, CliError> {
        DevInfo::remove(self.root());
        let mut hurry = None;
        let banks = self.banks.iter_mut().chain(&mut self.sandbox);
        for program in self.server.iter_mut().chain(banks).chain(&mut self.postgres) {
            if hurry.is_some() {
                program.stop(std::future::ready(())).await;
            } else {
                program.stop(async { hurry = Some(signals.next().await) }).await;
            }
        }
        match hurry {
            None => Ok(Exit::Done),
            Some(signal) => Err(CliError::Broken(format!("stopped at once: a second {signal} came"))),
        }
    }
}

/// Settings are refused before anything is started. The accounts are ours, so their file is not there yet.
fn check_settings() -> Result<(), CliError> {
    let own = ["TALLYSTICK_LISTEN", "TALLYSTICK_DATABASE_URL"];
    let given = environment()?.into_iter().filter(|(name, _)| !own.contains(&name.as_str()));
    let settings = programs::with_quick_timings(given);
    config::load(None, settings).map(drop).map_err(|e| CliError::Usage(e.to_string()))
}

async fn tenants_and_keys(db: &Db, secrets: &Secrets) -> Result<(), CliError> {
    let there = tenants::list(db).await.map_err(refusal)?;
    if !there.iter().any(|tenant| tenant.name == OTHER) {
        tenants::create(db, OTHER).await.map_err(refusal)?;
    }
    let known = tenants::keys(db, None).await.map_err(refusal)?;
    for (tenant, scope, key) in [
        ("default", Scope::Client, secrets.client_key.as_str()),
        ("default", Scope::Operator, &secrets.operator_key),
        ("default", Scope::Client, secrets::WELL_KNOWN_KEY),
        (OTHER, Scope::Client, &secrets.other_key),
    ] {
        // The beginning of a key that was made at random is enough to know it by.
        if !known.iter().any(|row| row.tenant == tenant && key.starts_with(&row.prefix)) {
            tenants::key_put(db, tenant, scope, key).await.map_err(refusal)?;
        }
    }
    Ok(())
}

fn bind(address: SocketAddr) -> Result<TcpListener, CliError> {
    TcpListener::bind(address).map_err(|e| {
        CliError::Away(format!(
            "cannot listen on {address}: {e}. Choose another address with --listen (port 0 is any)"
        ))
    })
}

/// The address for clients on this machine.
fn url_of(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        let loopback: std::net::IpAddr = if address.is_ipv4() {
            std::net::Ipv4Addr::LOCALHOST.into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        };
        address.set_ip(loopback);
    }
    format!("http://{address}")
}

fn beside_us(name: &str) -> Result<PathBuf, CliError> {
    let us = std::env::current_exe().map_err(|e| CliError::Away(format!("this program is gone: {e}")))?;
    let us = us.canonicalize().unwrap_or(us);
    let dir = us.parent().unwrap_or(Path::new("."));
    Ok(dir.join(format!("{name}{}", std::env::consts::EXE_SUFFIX)))
}

/// The error with the end of the program's log.
fn with_log(error: CliError, path: &Path) -> CliError {
    let text =
        std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n  ");
    let add = |message: String| format!("{message}. The end of {}:\n  {tail}", path.display());
    match error {
        CliError::Broken(m) => CliError::Broken(add(m)),
        CliError::Usage(m) => CliError::Usage(add(m)),
        CliError::Away(m) => CliError::Away(add(m)),
        CliError::TimedOut(m) => CliError::TimedOut(add(m)),
    }
}

fn summary(info: &DevInfo, folder: &Path) -> String {
    let DevInfo { api_url, api_key, operator_key, sandbox_url, database_url, admin_database_url, .. } = info;
    let folder = folder.display();
    format!(
        "
  API        {api_url}   (reference: {api_url}/docs)
  keys       client    {api_key}   (and `{well_known}`)
             operator  {operator_key}
  sandbox    {sandbox_url}
  database   {database_url}
             {admin_database_url}
  folder     {folder}   (dev.json, logs/)

Try:
  curl -s {api_url}/api/v1/payments -H 'X-API-Key: {well_known}' -H 'Idempotency-Key: first' \\
    -H 'Content-Type: application/json' -H 'Prefer: wait=5' \\
    -d '{{\"amount\": \"100.00\", \"currency\": \"EUR\", \"description\": \"Order #1\"}}'
  tallystick verify --data-dir {folder}

Ctrl-C stops everything.
",
        well_known = secrets::WELL_KNOWN_KEY,
    )
}
