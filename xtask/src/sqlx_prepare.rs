//! `sqlx-prepare`: the committed cache of checked statements, so that a build needs no database.
//!
//! The macros of sqlx write one file per statement while the workspace is compiled against a migrated database.
//! They never remove the file of a statement that is gone, so they write into an empty folder, which is then
//! compared with `.sqlx` or takes its place.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};

use crate::pg::{Cluster, Durability};
use crate::workspace::{self, SQL_CRATES};

/// The database that statements are checked against.
const DATABASE: &str = "prepare";

/// Settings of `sqlx-prepare`.
#[derive(clap::Args)]
pub struct Args {
    /// Change nothing; exit 1 when the committed cache is not what the code needs
    #[arg(long)]
    check: bool,
    /// Compile in the ordinary target folder instead of one of its own: faster where nothing else builds there
    #[arg(long)]
    shared_target: bool,
}

/// Compiles the workspace against a migrated database; writes or compares the cache.
///
/// # Errors
/// When a migration or the compilation fails.
pub async fn run(args: &Args) -> Result<ExitCode> {
    let fresh =
        tempfile::Builder::new().prefix("sqlx-").tempdir().context("no temporary folder can be made")?;
    let cluster = Cluster::start(Durability::None).await?;
    migrate(&cluster)?;
    compile(&cluster, fresh.path(), args.shared_target)?;
    drop(cluster);

    let (new, committed) = (read(fresh.path())?, root_cache());
    let old = read(&committed)?;
    let differences = differences(&old, &new);
    if args.check {
        for line in &differences {
            eprintln!("{line}");
        }
        if differences.is_empty() {
            eprintln!("sqlx-prepare: {} statements, the cache is right", new.len());
            return Ok(ExitCode::SUCCESS);
        }
        bail!(
            "the cache in .sqlx is not what the code needs: run `cargo xtask sqlx-prepare` and commit .sqlx"
        );
    }
    replace(&committed, &old, &new)?;
    eprintln!("sqlx-prepare: {} statements, {} files changed", new.len(), differences.len());
    Ok(ExitCode::SUCCESS)
}

fn root_cache() -> PathBuf {
    workspace::root().join(".sqlx")
}

/// Runs the migrations with psql, as their owner, so that this program needs none of the crates.
fn migrate(cluster: &Cluster) -> Result<()> {
    cluster.psql("postgres", &["-c", &format!("CREATE DATABASE {DATABASE} OWNER tallystick_owner")])?;
    for name in SQL_CRATES {
        let schema = format!("CREATE SCHEMA {name} AUTHORIZATION tallystick_owner");
        cluster.psql(DATABASE, &["-c", &schema])?;
        for file in migrations(&workspace::root().join("crates").join(name).join("migrations"))? {
            let text = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
            let path = file.to_str().context("a path that is no text")?;
            let mut args = vec!["-c", "SET ROLE tallystick_owner", "-f", path];
            // As sqlx does it: a migration is one transaction unless its first line says otherwise.
            if !text.starts_with("-- no-transaction") {
                args.insert(0, "--single-transaction");
            }
            cluster.psql(DATABASE, &args).with_context(|| format!("{}", file.display()))?;
        }
    }
    Ok(())
}

/// Migration files in the order of their numbers.
fn migrations(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("{} cannot be read", dir.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "sql") {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let number = name.split('_').next().and_then(|n| n.parse::<u64>().ok());
            files.push((number.with_context(|| format!("{}: no number", path.display()))?, path.clone()));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

fn compile(cluster: &Cluster, cache: &Path, shared_target: bool) -> Result<()> {
    // Cargo does not see that the database changed; it sees that the sources did.
    let _touched = Touched::all()?;
    let mut cargo = workspace::cargo();
    cargo
        .args(["check", "--workspace", "--all-targets", "--quiet"])
        .env("DATABASE_URL", cluster.admin_url(DATABASE))
        .env("SQLX_OFFLINE_DIR", cache)
        .env_remove("SQLX_OFFLINE");
    if !shared_target {
        cargo.env("CARGO_TARGET_DIR", workspace::target_dir().join("sqlx-prepare"));
    }
    let status = cargo.status().context("cargo cannot be started")?;
    ensure!(status.success(), "the workspace does not compile against a migrated database");
    Ok(())
}

/// Crates that look changed as long as this lives; then they look as before, so that other builds stay valid.
struct Touched(Vec<(PathBuf, SystemTime, SystemTime)>);

impl Touched {
    fn all() -> Result<Self> {
        let mut touched = Self(Vec::new());
        for name in SQL_CRATES {
            let path = workspace::root().join("crates").join(name).join("src/lib.rs");
            let before = path.metadata().and_then(|meta| meta.modified());
            let before = before.with_context(|| format!("{} cannot be looked at", path.display()))?;
            set_modified(&path, SystemTime::now())
                .and_then(|()| path.metadata()?.modified())
                .map(|touch| touched.0.push((path.clone(), before, touch)))
                .with_context(|| format!("{} cannot be touched", path.display()))?;
        }
        Ok(touched)
    }
}

impl Drop for Touched {
    fn drop(&mut self) {
        for (path, before, touch) in &self.0 {
            // Somebody who saved the file meanwhile means it to be newer.
            let untouched = path.metadata().and_then(|meta| meta.modified()).is_ok_and(|now| now == *touch);
            if untouched && let Err(error) = set_modified(path, *before) {
                eprintln!("sqlx-prepare: {} stays touched: {error}", path.display());
            }
        }
    }
}

fn set_modified(path: &Path, time: SystemTime) -> std::io::Result<()> {
    File::options().append(true).open(path)?.set_modified(time)
}

/// File names with contents; empty when there is no such folder.
fn read(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    if dir.is_dir() {
        for entry in std::fs::read_dir(dir).with_context(|| format!("{} cannot be read", dir.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.insert(name, std::fs::read(&path).with_context(|| format!("{}", path.display()))?);
        }
    }
    Ok(files)
}

fn differences(old: &BTreeMap<String, Vec<u8>>, new: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let judge = |name: &&String| match (old.get(*name), new.get(*name)) {
        (None, _) => Some(format!("missing: .sqlx/{name}: {}", statement(new, name))),
        (_, None) => Some(format!("no longer needed: .sqlx/{name}: {}", statement(old, name))),
        (Some(a), Some(b)) => (a != b).then(|| format!("changed: .sqlx/{name}: {}", statement(new, name))),
    };
    names.iter().filter_map(judge).collect()
}

/// The first line of the statement, which is its name.
fn statement(files: &BTreeMap<String, Vec<u8>>, name: &str) -> String {
    let file = files.get(name).and_then(|bytes| serde_json::from_slice::<serde_json::Value>(bytes).ok());
    let query = file.as_ref().and_then(|file| file.get("query")).and_then(|query| query.as_str());
    query.and_then(|text| text.lines().find(|line| !line.trim().is_empty())).unwrap_or("?").trim().to_owned()
}

/// Writes what is new or changed and removes what is gone; the rest keeps its time stamps.
fn replace(dir: &Path, old: &BTreeMap<String, Vec<u8>>, new: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        std::fs::remove_file(dir.join(name)).with_context(|| format!(".sqlx/{name} cannot be removed"))?;
    }
    for (name, bytes) in new.iter().filter(|(name, bytes)| old.get(*name) != Some(bytes)) {
        std::fs::write(dir.join(name), bytes).with_context(|| format!(".sqlx/{name} cannot be written"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(files: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn a_stale_a_missing_and_a_changed_file_are_told_apart() {
        let old = cache(&[("a", r#"{"query": "\n -- x.gone\n SELECT 1"}"#), ("b", "{}"), ("c", "{}")]);
        let new = cache(&[("b", "{}"), ("c", r#"{"query": "-- x.two"}"#), ("d", r#"{"query": "-- x.new"}"#)]);
        let told = differences(&old, &new);
        let expected = [
            "no longer needed: .sqlx/a: -- x.gone",
            "changed: .sqlx/c: -- x.two",
            "missing: .sqlx/d: -- x.new",
        ];
        assert_eq!(told, expected);
        assert!(differences(&new, &new).is_empty());
    }

    #[test]
    fn replacing_leaves_exactly_the_new_files() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (cache(&[("a", "1"), ("b", "2")]), cache(&[("b", "3"), ("c", "4")]));
        replace(dir.path(), &BTreeMap::new(), &old).unwrap();
        replace(dir.path(), &old, &new).unwrap();
        assert_eq!(read(dir.path()).unwrap(), new);
    }

    #[test]
    fn migrations_run_in_the_order_of_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["10_c.sql", "0002_b.sql", "1_a.sql", "notes.txt"] {
            File::create(dir.path().join(name)).unwrap();
        }
        let files = migrations(dir.path()).unwrap();
        let names: Vec<_> = files.iter().map(|f| f.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["1_a.sql", "0002_b.sql", "10_c.sql"]);
    }
}
