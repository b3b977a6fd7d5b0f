//! A transaction pooler in front of the database: an old one mixes up prepared statements and is refused, a new one is
//! fine. Runs where pgbouncer is installed; which of the two it shows depends on its version.

use std::process::{Child, Command, Stdio};

use crate::dev::{folder, said, tallystick};
use crate::support::db::TestDb;
use crate::support::until;

struct Pooler {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Pooler {
    /// Starts one in front of the server of a test database.
    async fn start(server: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder();
        // It gives up root's rights, and then must still reach its files.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("it is ours");
        let (host, server_port) = server.rsplit_once(':').expect("the address names a port");
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|l| l.local_addr())
            .expect("a port is free")
            .port();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("users"), "\"tallystick_app\" \"\"\n").expect("it can be written");
        let config = format!(
            "[databases]\n* = host={host} port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = 3\nignore_startup_parameters = options,extra_float_digits\nlogfile = {}\n",
            path("users"),
            path("log")
        );
        std::fs::write(path("pgbouncer.ini"), config).expect("it can be written");
        let mut command = Command::new("pgbouncer");
        if nix::unistd::geteuid().is_root() {
            command.args(["-u", "nobody"]);
        }
        command.arg(path("pgbouncer.ini")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let pooler = Self { child: command.spawn().expect("it starts"), port, _folder: folder };
        until("the pooler listens", async || std::net::TcpStream::connect(("127.0.0.1", port)).ok()).await;
        pooler
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Major and minor version, where it is installed.
fn version() -> Option<(u32, u32)> {
    let output = Command::new("pgbouncer").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.lines().next()?.split_whitespace().nth(1)?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[tokio::test]
async fn a_pooler_that_mixes_up_prepared_statements_is_refused() {
    let Some(version) = version() else {
        eprintln!("pgbouncer is not installed here: not tested");
        return;
    };
    let db = TestDb::new().await;
    let url = db.url();
    let (_, rest) = url.split_once('@').expect("the address names a user");
    let (server, name) = rest.split_once('/').expect("the address names a database");
    let name = name.split('?').next().expect("a name");
    let pooler = Pooler::start(server).await;
    let through = format!("postgres://tallystick_app@127.0.0.1:{}/{name}", pooler.port);
    for _ in 0..3 {
        let mut command = tallystick(&["serve", "--check"]);
        let output = command.env("TALLYSTICK_DATABASE_URL", &through).output().expect("the program runs");
        if version >= (1, 21) {
            assert_eq!(output.status.code(), Some(0), "{version:?}: {}", said(&output));
        } else {
            assert_eq!(output.status.code(), Some(2), "{version:?}: {}", said(&output));
            assert!(said(&output).contains("prepared statement"), "{}", said(&output));
        }
    }
}
