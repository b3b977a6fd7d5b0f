//! `tallystick dev` as a user meets it: processes, signals, files.

mod lifecycle;
mod once;
mod recovery;
mod refusals;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sqlx::{Connection, PgConnection};

use crate::support::client::Client;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// The program under test.
pub fn exe() -> &'static str {
    env!("CARGO_BIN_EXE_tallystick")
}

/// The sandbox is another package's program: it stands beside ours once it is built.
pub fn build_sandbox() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let dir = Path::new(exe()).parent().expect("a program is in a folder");
        if dir.join("tallystick-sandbox").exists() {
            return;
        }
        let profile = match dir.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(other) => other,
        };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "tallystick-sandbox", "--profile", profile, "--target-dir"]);
        let built = cargo.arg(dir.parent().expect("a profile is in a target folder")).status();
        assert!(built.expect("cargo runs").success(), "the sandbox can be built");
    });
}

/// A command of the program with none of our settings in its environment.
pub fn tallystick(args: &[&str]) -> Command {
    let mut command = Command::new(exe());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TALLYSTICK_") {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs a command of the program to its end.
pub fn ran(args: &[&str]) -> Output {
    tallystick(args).output().expect("the program runs")
}

/// Both outputs as text, for messages.
pub fn said(output: &Output) -> String {
    format!(
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// One `dev` with a data folder of its own. Dropping it stops it and removes everything.
pub struct Dev {
    pub data: PathBuf,
    child: Child,
    _folder: Option<tempfile::TempDir>,
}

impl Dev {
    /// Starts one in a folder of its own.
    pub fn start(env: &[(&str, &str)]) -> Self {
        let folder = folder();
        let mut dev = Self::start_in(&folder.path().join("data"), &[], env);
        dev._folder = Some(folder);
        dev
    }

    /// Starts one in this folder and waits until it is ready.
    pub fn start_in(data: &Path, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut dev = Self::spawn(data, args, env);
        dev.until_ready();
        dev
    }

    /// Starts one in this folder.
    pub fn spawn(data: &Path, args: &[&str], env: &[(&str, &str)]) -> Self {
        build_sandbox();
        let mut command = tallystick(&["dev", "--listen", "127.0.0.1:0", "--sandbox-listen", "127.0.0.1:0"]);
        command.arg("--data-dir").arg(data).args(args).envs(env.iter().copied());
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log_of(data))
            .expect("a log can be written");
        command.stdout(log.try_clone().expect("one more handle")).stderr(log);
        Self { data: data.to_owned(), child: command.spawn().expect("dev starts"), _folder: None }
    }

    pub fn until_ready(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.data.join("dev.json").exists() {
            let ended = self.child.try_wait().expect("a child can be asked");
            assert!(ended.is_none() && Instant::now() < deadline, "not ready ({ended:?}): {}", self.log());
            pause();
        }
    }

    /// What it said so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(log_of(&self.data)).unwrap_or_default()
    }

    /// What dev.json says.
    pub fn info(&self) -> Value {
        let text = std::fs::read_to_string(self.data.join("dev.json")).expect("dev.json is there");
        serde_json::from_str(&text).expect("dev.json is JSON")
    }

    pub fn text(&self, member: &str) -> String {
        self.info()[member].as_str().expect("a text member").to_owned()
    }

    pub fn pid(&self, process: &str) -> i32 {
        i32::try_from(self.info()["pids"][process].as_i64().expect("a process id")).expect("a process id")
    }

    /// A client of the API.
    pub fn api(&self) -> Client {
        Client { address: address(&self.text("api_url")), key: self.text("api_key") }
    }

    /// A client of the sandbox.
    pub fn sandbox(&self) -> Client {
        Client { address: address(&self.text("sandbox_url")), key: String::new() }
    }

    /// The gateway's effects for a key.
    pub async fn effects(&self, key: &str) -> Vec<Value> {
        let reply = self.sandbox().get(&format!("/_book?key={key}")).send().await;
        reply.json()["effects"].as_array().expect("a list").clone()
    }

    /// A connection to its database, as superuser.
    pub async fn database(&self) -> PgConnection {
        let url = self.text("admin_database_url");
        PgConnection::connect(&url).await.expect("the database takes connections")
    }

    /// Requests that the gateway got for a key, oldest first.
    pub async fn requests(&self, key: &str) -> Vec<Value> {
        let reply = self.sandbox().get(&format!("/_requests?key={key}&limit=1000")).send().await;
        reply.json()["requests"].as_array().expect("a list").clone()
    }

    /// Changes something at the sandbox; gives what it says.
    pub async fn tell_sandbox(&self, method: &str, path: &str, body: &Value) -> Value {
        let call = self.sandbox().call(method, path).header("Content-Type", "application/json");
        let reply = call.body(body.to_string()).send().await;
        assert!(reply.status < 300, "{method} {path}: {reply:?}");
        serde_json::from_slice(&reply.body).unwrap_or_default()
    }

    /// Kills a process and waits until dev.json names another one that does its work.
    pub fn kill_and_wait(&self, process: &str) -> Duration {
        let old = self.pid(process);
        signal(old, Signal::SIGKILL);
        let began = Instant::now();
        while self.pid(process) == old {
            assert!(began.elapsed() < PATIENCE, "{process} did not come back: {}", self.log());
            pause();
        }
        began.elapsed()
    }

    /// Sends a signal to dev itself.
    pub fn signal(&self, signal: Signal) {
        self::signal(i32::try_from(self.child.id()).expect("a process id"), signal);
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                return status;
            }
            assert!(Instant::now() < deadline, "dev does not end: {}", self.log());
            pause();
        }
    }

    /// Runs a command of the program on this environment.
    pub fn command(&self, args: &[&str]) -> Output {
        let data = self.data.to_str().expect("a plain path");
        ran(&[args, &["--data-dir", data]].concat())
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            pause();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder that PostgreSQL's user can reach, too.
pub fn folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::Builder::new().prefix("tallystick-it-").tempdir().expect("a folder can be made");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    dir
}

fn log_of(data: &Path) -> PathBuf {
    let name = data.file_name().expect("a named folder").to_string_lossy().into_owned();
    data.with_file_name(format!("{name}.out"))
}

/// Between two looks at another process.
#[expect(
    clippy::disallowed_methods,
    reason = "what is looked at is another process; nothing else runs in this one"
)]
pub fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

pub fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).expect("the process is there and ours");
}

/// True while a process runs.
pub fn alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}

pub fn address(url: &str) -> std::net::SocketAddr {
    url.strip_prefix("http://").expect("an http address").parse().expect("an address with a port")
}
