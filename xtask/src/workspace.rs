//! Where the workspace is, and how other programs are run from here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Crates that contain SQL, in the order in which their migrations run.
pub const SQL_CRATES: [&str; 4] = ["runner", "outbox", "ledger", "payments"];

/// The workspace's root folder.
pub fn root() -> PathBuf {
    // Set by `cargo run`; the value of the build is for an xtask that is started directly.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or_else(|| manifest.clone(), Path::to_path_buf)
}

/// Where cargo puts what it builds.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        // A relative one is relative to where cargo was started, which `cargo run` keeps.
        Some(dir) => std::path::absolute(&dir).unwrap_or_else(|_| PathBuf::from(dir)),
        None => root().join("target"),
    }
}

/// Variables that `cargo run` sets for the program it runs. Build scripts of some dependencies watch them, so a
/// cargo started from here would build those again, and again in the next ordinary build.
pub fn is_of_cargo_run(name: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|prefix| name.starts_with(prefix))
        || ["CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"].contains(&name)
}

/// The environment for programs that are started from here: without cargo's own and without the caller's
/// settings of the PostgreSQL client, which would lead to another server.
pub fn environment() -> impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)> {
    std::env::vars_os().filter(|(name, _)| {
        let name = name.to_string_lossy();
        !is_of_cargo_run(&name) && !name.starts_with("PG")
    })
}

/// A cargo command in the workspace's root.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.env_clear().envs(environment()).current_dir(root());
    command
}

/// Runs a command and gives its output.
///
/// # Errors
/// When it cannot be started or fails; then with what it wrote to stderr.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.output().with_context(|| format!("{name} cannot be started"))?;
    let stderr = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{name}: {}: {}", out.status, stderr.trim());
    String::from_utf8(out.stdout).with_context(|| format!("{name} wrote something that is no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_the_workspace_manifest() {
        assert!(root().join("Cargo.toml").is_file());
        assert!(SQL_CRATES.iter().all(|name| root().join("crates").join(name).is_dir()));
    }

    #[test]
    fn only_variables_of_cargo_run_are_taken_away() {
        assert!(is_of_cargo_run("CARGO_PKG_NAME") && is_of_cargo_run("CARGO_MANIFEST_DIR"));
        assert!(!is_of_cargo_run("CARGO_TARGET_DIR") && !is_of_cargo_run("CARGO_HOME"));
    }
}
