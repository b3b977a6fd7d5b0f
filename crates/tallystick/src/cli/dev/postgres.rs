//! The private PostgreSQL cluster: finding the programs, making the cluster, its command line.
//!
//! PostgreSQL refuses to run as root, so when we are root it runs as the user `postgres` or `nobody`. It listens on a
//! socket in a folder that only that user (and root) can enter, and on no address. It keeps its promises (fsync stays
//! on), since this is where people see what a crash does.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{Uid, User};
use tokio::process::{Child, Command};

use super::folder::{Places, own_dir};
use super::process;
use crate::cli::CliError;

/// Versions that the product is made for, newest first.
const VERSIONS: [u32; 4] = [18, 17, 16, 15];
/// What we need of a distribution.
const PROGRAMS: [&str; 4] = ["postgres", "initdb", "pg_isready", "createdb"];
/// Only a part of the socket's name, as nothing listens on a network.
const PORT: u16 = 5432;
/// The superuser of the cluster.
pub const ADMIN: &str = "postgres";
/// The role that programs of the product connect as.
pub const APPLICATION: &str = "tallystick_app";
/// The database.
pub const DATABASE: &str = "tallystick";
/// Memory and work for a laptop that does other things too.
const SETTINGS: &[&str] = &[
    "listen_addresses=",
    "max_connections=200",
    "shared_buffers=128MB",
    "effective_cache_size=1GB",
    "work_mem=16MB",
    "maintenance_work_mem=64MB",
    "max_wal_size=1GB",
    "checkpoint_timeout=10min",
    "max_parallel_workers_per_gather=0",
    "wal_compression=on",
    "timezone=UTC",
    "log_timezone=UTC",
    "log_line_prefix=%m [%p] %q%u@%d ",
    "cluster_name=tallystick-dev",
    // After a crash: the files of this folder are new and many, and syncing them one by one takes seconds.
    #[cfg(target_os = "linux")]
    "recovery_init_sync_method=syncfs",
];

/// The user that PostgreSQL runs as when we are root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Name, for messages.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Owner {
    /// Who it is to be; nobody else when we are not root.
    ///
    /// # Errors
    /// [`CliError::Away`] when this system has no such user.
    pub fn choose() -> Result<Option<Self>, CliError> {
        if !Uid::effective().is_root() {
            return Ok(None);
        }
        for name in ["postgres", "nobody"] {
            if let Ok(Some(user)) = User::from_name(name) {
                return Ok(Some(Self { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw() }));
            }
        }
        Err(CliError::Away(
            "PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as: \
             run `useradd --system postgres`, or start this as another user"
                .into(),
        ))
    }

    /// True when this user can enter the folder. Asked by doing it, since rights have more parts than mode bits.
    pub fn reaches(&self, dir: &Path) -> bool {
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", ":"]).current_dir(dir).env_clear().stdin(Stdio::null());
        shell.uid(self.uid).gid(self.gid);
        shell.status().is_ok_and(|status| status.success())
    }
}

/// An installed PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binaries {
    /// Folder of the programs.
    pub dir: PathBuf,
    /// Major version.
    pub major: u32,
}

impl Binaries {
    /// Finds an installation, of the version that a cluster was made with if there is one. `only` is the one folder
    /// to look in.
    ///
    /// # Errors
    /// [`CliError::Away`] says what to install.
    pub async fn find(only: Option<&Path>, wanted: Option<u32>) -> Result<Self, CliError> {
        let dirs = match only {
            Some(dir) => vec![dir.to_owned()],
            None => candidates().await,
        };
        let mut found: Vec<Self> = Vec::new();
        for dir in dirs {
            if let Some(major) = version(&dir).await
                && VERSIONS.contains(&major)
            {
                found.push(Self { dir, major });
            }
        }
        // The first place of the highest version: `candidates` has them in order of preference.
        found.sort_by_key(|one| std::cmp::Reverse(one.major));
        match wanted {
            None => found.into_iter().next().ok_or_else(|| CliError::Away(missing(only))),
            Some(wanted) => found.into_iter().find(|one| one.major == wanted).ok_or_else(|| {
                CliError::Away(format!(
                    "the database in this folder was made by PostgreSQL {wanted}, which is not installed: \
                     install it (`apt-get install postgresql-{wanted}`), or begin anew with --fresh"
                ))
            }),
        }
    }

    fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

fn missing(only: Option<&Path>) -> String {
    let place = only.map(|dir| format!(" in {}", dir.display())).unwrap_or_default();
    let [newest, .., oldest] = VERSIONS;
    format!(
        "no PostgreSQL {oldest} to {newest} found{place}: install it with `apt-get install postgresql` \
         (Debian, Ubuntu) or `dnf install postgresql-server` (Fedora), or name the folder of its programs \
         with --postgres-bin"
    )
}

async fn candidates() -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    let said = Command::new("pg_config").arg("--bindir").stdin(Stdio::null()).output().await;
    if let Ok(said) = said
        && said.status.success()
    {
        dirs.push(PathBuf::from(String::from_utf8_lossy(&said.stdout).trim()));
    }
    for version in VERSIONS {
        dirs.push(format!("/usr/lib/postgresql/{version}/bin").into());
        dirs.push(format!("/usr/pgsql-{version}/bin").into());
        dirs.push(format!("/opt/homebrew/opt/postgresql@{version}/bin").into());
    }
    dirs.push("/usr/local/pgsql/bin".into());
    dirs.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    dirs
}

/// The major version of a complete installation.
async fn version(dir: &Path) -> Option<u32> {
    if !PROGRAMS.iter().all(|name| dir.join(name).is_file()) {
        return None;
    }
    let said =
        Command::new(dir.join("postgres")).arg("--version").stdin(Stdio::null()).output().await.ok()?;
    major(&String::from_utf8_lossy(&said.stdout))
}

/// `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)` is 15.
fn major(text: &str) -> Option<u32> {
    let number = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// A cluster of our own.
#[derive(Clone, Debug)]
pub struct Cluster {
    binaries: Binaries,
    owner: Option<Owner>,
    places: Places,
    more: Vec<String>,
}

impl Cluster {
    /// The cluster that lives in `places`; it need not exist yet.
    ///
    /// # Errors
    /// [`CliError::Away`] when no PostgreSQL fits it.
    pub async fn locate(places: Places, owner: Option<Owner>, only: Option<&Path>) -> Result<Self, CliError> {
        let made = std::fs::read_to_string(places.home.join("postgres/PG_VERSION")).ok();
        let wanted = made.and_then(|text| text.trim().parse().ok());
        let binaries = Binaries::find(only, wanted).await?;
        Ok(Self { binaries, owner, places, more: Vec::new() })
    }

    /// The same with more settings, `name=value`; they win over those that every cluster here has.
    #[must_use]
    pub fn with_settings(self, more: &[String]) -> Self {
        Self { more: more.to_vec(), ..self }
    }

    /// Its major version.
    pub fn major(&self) -> u32 {
        self.binaries.major
    }

    fn data(&self) -> PathBuf {
        self.places.home.join("postgres")
    }

    /// Makes the cluster when there is none. Under another name until it is complete, so that a kill in the middle
    /// leaves nothing that looks like one.
    ///
    /// # Errors
    /// [`CliError::Away`] with what `initdb` said.
    pub async fn init(&self) -> Result<(), CliError> {
        let data = self.data();
        if data.join("PG_VERSION").exists() {
            return Ok(());
        }
        let half = self.places.home.join("postgres.half");
        let failed = |e: std::io::Error| CliError::Usage(format!("cannot make {}: {e}", data.display()));
        if half.exists() {
            std::fs::remove_dir_all(&half).map_err(failed)?;
        }
        own_dir(&half, self.owner.as_ref(), 0o700)?;
        let mut initdb = self.tool("initdb");
        initdb.arg("--pgdata").arg(&half).arg(format!("--username={ADMIN}"));
        initdb.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions"]);
        // Syncing an empty cluster takes seconds on a busy disk. What a loss of power could destroy in its first
        // half minute is soon made again, with --fresh; whatever is committed later is synced as always.
        initdb.arg("--no-sync");
        run(initdb, "initdb").await?;
        std::fs::rename(&half, &data).map_err(failed)
    }

    /// The server's command; its output goes to `log`.
    pub fn server(&self, log: &File) -> std::io::Result<Command> {
        let mut command = self.tool("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(&self.places.run).arg("-p").arg(PORT.to_string());
        for setting in SETTINGS.iter().copied().chain(self.more.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        command.stdout(log.try_clone()?).stderr(log.try_clone()?).process_group(0);
        Ok(command)
    }

    /// Starts the server, once nothing is in its way.
    pub async fn launch(&self, log: &File) -> std::io::Result<Child> {
        self.clear_the_way().await;
        self.server(log)?.spawn()
    }

    /// Ends what is left of an earlier server on this data folder, and removes its two lock files (of the folder and of
    /// the socket). A server reads a lock file as "somebody else works here" as long as
    /// any process has that number, be it one that has ended and was not collected, which lasts in containers.
    ///
    /// Two servers on one folder would destroy it. What makes this safe: a server works in its data folder, so the
    /// kernel says who does; and only the `dev` that holds the folder's lock starts one.
    async fn clear_the_way(&self) {
        Self::end_leftovers(&self.places).await;
        let kernel_tells = Path::new("/proc/self/cwd").exists();
        let somebody_works =
            self.data().canonicalize().is_ok_and(|data| !process::working_in(&data).is_empty());
        if !kernel_tells || somebody_works {
            return;
        }
        let socket = format!(".s.PGSQL.{PORT}.lock");
        for file in [self.data().join("postmaster.pid"), self.places.run.join(socket)] {
            if let Err(error) = std::fs::remove_file(&file)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                eprintln!("tallystick dev: {} cannot be removed: {error}", file.display());
            }
        }
    }

    /// Ends processes of an earlier server on the cluster that lives in `places`.
    pub async fn end_leftovers(places: &Places) {
        let Ok(data) = places.home.join("postgres").canonicalize() else { return };
        let left = process::working_in(&data);
        if left.is_empty() {
            return;
        }
        // The main process ends its children by itself; what has lost it is ended one by one.
        let main: Vec<i32> =
            named_in(&data.join("postmaster.pid")).filter(|pid| left.contains(pid)).into_iter().collect();
        process::end(&main, Signal::SIGINT, Duration::from_secs(10)).await;
        process::end(&left, Signal::SIGQUIT, Duration::from_secs(5)).await;
    }

    /// True when it takes connections.
    pub async fn answers(&self) -> bool {
        let mut ask = self.client("pg_isready");
        ask.args(["--quiet", "--timeout=1", "--dbname", ADMIN]).stdout(Stdio::null()).stderr(Stdio::null());
        ask.status().await.is_ok_and(|status| status.success())
    }

    /// Makes a database when there is none of the name.
    ///
    /// # Errors
    /// [`CliError::Away`] with what `createdb` said.
    pub async fn create_database(&self, name: &str) -> Result<(), CliError> {
        let mut create = self.client("createdb");
        create.arg(name);
        match run(create, "createdb").await {
            Err(CliError::Away(text)) if text.contains("already exists") => Ok(()),
            other => other,
        }
    }

    /// The address of the product's database for a user.
    pub fn url(&self, user: &str) -> String {
        self.url_of(DATABASE, user)
    }

    /// The address of a database for a user.
    pub fn url_of(&self, database: &str, user: &str) -> String {
        let host = escape(self.places.run.as_os_str());
        format!("postgres://{user}@localhost:{PORT}/{database}?host={host}")
    }

    fn client(&self, name: &str) -> Command {
        let mut command = self.tool(name);
        command
            .arg("--host")
            .arg(&self.places.run)
            .arg(format!("--port={PORT}"))
            .arg(format!("--username={ADMIN}"));
        command
    }

    /// A program of the installation, as the cluster's user, knowing nothing of our environment.
    fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(self.binaries.program(name));
        command.current_dir("/").env_clear().env("LC_ALL", "C").env("TZ", "UTC").stdin(Stdio::null());
        if let Some(owner) = &self.owner {
            command.uid(owner.uid).gid(owner.gid);
        }
        command
    }
}

/// The process that a server's lock file names.
fn named_in(file: &Path) -> Option<i32> {
    std::fs::read_to_string(file).ok()?.lines().next()?.trim().parse().ok()
}

async fn run(mut command: Command, name: &str) -> Result<(), CliError> {
    let said = command.output().await.map_err(|e| CliError::Away(format!("{name} cannot be run: {e}")))?;
    if said.status.success() {
        return Ok(());
    }
    Err(CliError::Away(format!("{name} failed: {}", String::from_utf8_lossy(&said.stderr).trim())))
}

/// A path as the value of a query parameter.
fn escape(path: &OsStr) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    path.as_encoded_bytes().iter().map(|byte| one(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_program_says() {
        for (text, is) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", Some(15)),
            ("postgres (PostgreSQL) 18beta1\n", Some(18)),
            ("postgres (PostgreSQL) 9.6.24", Some(9)),
            ("command not found", None),
        ] {
            assert_eq!(major(text), is, "{text}");
        }
    }

    #[test]
    fn paths_stand_in_addresses_without_breaking_them() {
        assert_eq!(escape(OsStr::new("/tmp/a b&c=d/ü")), "/tmp/a%20b%26c%3Dd/%C3%BC");
    }

    #[tokio::test]
    async fn what_is_missing_is_said_with_what_to_do() {
        let empty = tempfile::tempdir().unwrap();
        let error = Binaries::find(Some(empty.path()), None).await.unwrap_err();
        assert_eq!(error.exit().code(), 3);
        assert!(error.to_string().contains("apt-get install postgresql"), "{error}");
    }
}
