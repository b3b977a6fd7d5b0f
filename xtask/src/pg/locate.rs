//! Finds PostgreSQL's programs and the user that they run as.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nix::unistd::{Gid, Uid, User};

/// Major versions that the product supports.
const SUPPORTED: std::ops::RangeInclusive<u32> = 15..=18;

/// Programs that a private cluster needs.
const PROGRAMS: [&str; 4] = ["initdb", "postgres", "psql", "pg_isready"];

/// PostgreSQL is not installed.
#[derive(Debug)]
pub struct Missing;

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "no PostgreSQL {} to {} was found (pg_config --bindir, /usr/lib/postgresql/*/bin): \
             run scripts/setup.sh, or install your system's server package",
            SUPPORTED.start(),
            SUPPORTED.end()
        )
    }
}

impl std::error::Error for Missing {}

/// The folder with PostgreSQL's programs: what `pg_config` names, else the newest supported one of the system.
///
/// # Errors
/// [`Missing`] when there is none.
pub fn programs() -> Result<PathBuf> {
    let named = crate::workspace::output(Command::new("pg_config").arg("--bindir")).ok();
    let named = named.map(|text| PathBuf::from(text.trim()));
    let installed = versions(Path::new("/usr/lib/postgresql"));
    named
        .into_iter()
        .chain(installed)
        .find(|dir| is_complete(dir) && version(dir).is_some_and(|v| SUPPORTED.contains(&v)))
        .ok_or_else(|| Missing.into())
}

/// Folders `<base>/<version>/bin`, newest first.
fn versions(base: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    found.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    found.into_iter().map(|(_, dir)| dir).collect()
}

fn is_complete(dir: &Path) -> bool {
    PROGRAMS.iter().all(|program| dir.join(program).is_file())
}

fn version(dir: &Path) -> Option<u32> {
    major(&crate::workspace::output(Command::new(dir.join("postgres")).arg("--version")).ok()?)
}

/// The major version in an answer like `postgres (PostgreSQL) 15.18 (Debian …)`.
fn major(answer: &str) -> Option<u32> {
    let number = answer.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Who the cluster runs as: `None` is ourselves.
///
/// # Errors
/// When we are root and the system has neither a user `postgres` nor `nobody`.
pub fn user() -> Result<Option<(Uid, Gid)>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name).context("the system's users cannot be read")? {
            return Ok(Some((user.uid, user.gid)));
        }
    }
    anyhow::bail!("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_any_flavour() {
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(major("postgres"), None);
    }

    #[test]
    fn newer_versions_come_first() {
        let base = tempfile::tempdir().unwrap();
        for name in ["9", "16", "15", "lost+found"] {
            std::fs::create_dir(base.path().join(name)).unwrap();
        }
        let found: Vec<_> = versions(base.path());
        assert_eq!(found[0], base.path().join("16/bin"));
        assert_eq!(found.len(), 3);
    }
}
