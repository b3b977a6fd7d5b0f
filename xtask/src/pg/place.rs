//! The folder that a private cluster lives in, and the removal of folders whose owner was killed.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid};
use tempfile::TempDir;

/// How the folders begin, so that the next start recognises them.
const PREFIX: &str = "tallystick-pg-";
/// Held (flock) as long as the owner lives.
const LOCK: &str = "owner.lock";
/// A socket's path has 107 bytes; the folder may take so many of them, the rest is for `run/.s.PGSQL.12345`.
const MAX_FOLDER: usize = 85;
/// How long a left-over server may take to end.
const END_OF_LEFTOVER: Duration = Duration::from_secs(10);

/// A locked folder with room for a cluster. Dropping it removes it.
pub struct Place {
    dir: TempDir,
    _lock: File,
}

impl Place {
    /// Makes a folder for the user, under the target folder if that user can get there.
    ///
    /// # Errors
    /// When nowhere a folder can be made.
    pub async fn make(user: Option<(Uid, Gid)>) -> Result<Self> {
        let parent = parent(user)?;
        sweep(&parent).await;
        loop {
            let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent);
            let dir = dir.with_context(|| format!("no folder can be made in {}", parent.display()))?;
            let lock = File::create_new(dir.path().join(LOCK)).context("no lock file can be made")?;
            // Another start that sweeps may have locked it in this moment; then it is gone.
            if lock.try_lock().is_err() {
                continue;
            }
            let place = Self { dir, _lock: lock };
            for folder in [place.run(), place.data()] {
                std::fs::create_dir(&folder)
                    .and_then(|()| std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)))
                    .with_context(|| format!("{} cannot be made", folder.display()))?;
            }
            if let Some((uid, gid)) = user {
                for path in [place.dir.path(), &place.run(), &place.data()] {
                    chown(path, Some(uid.as_raw()), Some(gid.as_raw()))
                        .with_context(|| format!("{} cannot be given away", path.display()))?;
                }
            }
            return Ok(place);
        }
    }

    /// Where the sockets are.
    pub fn run(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What the server says.
    pub fn log(&self) -> PathBuf {
        self.dir.path().join("postgres.log")
    }
}

/// The target folder, or the system's folder for temporary files where the path is too long for a socket or the
/// server's user has no way to it.
fn parent(user: Option<(Uid, Gid)>) -> Result<PathBuf> {
    let ours = crate::workspace::target_dir().join("pg");
    std::fs::create_dir_all(&ours).with_context(|| format!("{} cannot be made", ours.display()))?;
    let ours = ours.canonicalize().context("the target folder cannot be read")?;
    let short = ours.as_os_str().len() + 1 + PREFIX.len() + 8 <= MAX_FOLDER;
    let reachable = user.is_none_or(|(uid, gid)| can_enter(&ours, uid, gid));
    Ok(if short && reachable { ours } else { std::env::temp_dir() })
}

/// Whether a user may go through a folder and all above it.
fn can_enter(dir: &Path, uid: Uid, gid: Gid) -> bool {
    dir.ancestors().all(|folder| {
        folder.metadata().is_ok_and(|meta| {
            let bit = match meta {
                _ if meta.uid() == uid.as_raw() => 0o100,
                _ if meta.gid() == gid.as_raw() => 0o010,
                _ => 0o001,
            };
            meta.mode() & bit != 0
        })
    })
}

/// Ends and removes what killed owners left behind. Problems are told and do not stop the start.
async fn sweep(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let dir = entry.path();
        // Without a lock file it is being made in this moment, or is not ours to judge.
        let Ok(lock) = File::open(dir.join(LOCK)) else { continue };
        if lock.try_lock().is_err() {
            continue;
        }
        end_leftover(&dir.join("data")).await;
        if let Err(error) = std::fs::remove_dir_all(&dir) {
            eprintln!("{} is left over and cannot be removed: {error}", dir.display());
        }
    }
}

/// Ends a server that still runs on a data directory without owner.
async fn end_leftover(data: &Path) {
    let Some(pid) = postmaster(data) else { return };
    let deadline = Instant::now() + END_OF_LEFTOVER;
    while runs_on(pid, data) && Instant::now() < deadline {
        // Immediate: the data is thrown away. Repeating it is harmless.
        let _ = kill(pid, Signal::SIGQUIT);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn postmaster(data: &Path) -> Option<Pid> {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok().map(Pid::from_raw)
}

/// Whether the process is a server on this data directory, and not another one that got the number.
fn runs_on(pid: Pid, data: &Path) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|word| word == data.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn folders_without_a_living_owner_are_removed_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str, lock: bool| {
            let dir = parent.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            if lock {
                File::create(dir.join(LOCK)).unwrap();
            }
            dir
        };
        let left = folder("tallystick-pg-left", true);
        let held = folder("tallystick-pg-held", true);
        let being_made = folder("tallystick-pg-new", false);
        let foreign = folder("another", true);
        let lock = File::open(held.join(LOCK)).unwrap();
        lock.lock().unwrap();

        sweep(parent.path()).await;
        assert!(!left.exists() && held.exists() && being_made.exists() && foreign.exists());
    }

    #[test]
    fn a_process_is_recognised_by_the_folder_it_was_given() {
        let me = Pid::this();
        assert!(!runs_on(me, Path::new("/nowhere/data")));
        let first = std::env::args_os().next().unwrap();
        assert!(runs_on(me, Path::new(&first)));
    }

    #[test]
    fn a_folder_behind_a_closed_one_cannot_be_entered() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let (stranger, strangers) = (Uid::from_raw(4_000_000), Gid::from_raw(4_000_000));
        assert!(!can_enter(&inner, stranger, strangers));
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&inner, PermissionsExt::from_mode(0o755)).unwrap();
        let temp_is_open = can_enter(&std::env::temp_dir(), stranger, strangers);
        assert_eq!(can_enter(&inner, stranger, strangers), temp_is_open);
    }
}
