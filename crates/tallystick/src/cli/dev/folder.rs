//! The data folder: whose it is, who works in it, what is left in it.
//!
//! A folder is ours when it holds [`MARKER`] (or was empty). One `dev` at a time holds an advisory lock on the file
//! [`LOCK`] in it; the kernel drops the lock with the process, however that ends, so a lock is never stale.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use sha2::{Digest, Sha256};

use super::postgres::Owner;
use super::process;
use crate::cli::CliError;

const MARKER: &str = "tallystick-dev";
const LOCK: &str = "lock";
/// In the environment of server and sandbox, so that they are recognised when nobody looks after them any more.
pub const VARIABLE: &str = "TALLYSTICK_DEV_FOLDER";
/// Where a cluster lives whose user cannot reach the data folder.
const ELSEWHERE: &str = "/var/lib/tallystick-dev";
/// Most bytes of a socket's path, its final zero not counted.
const MAX_SOCKET_PATH: usize = 107;
/// A log file is put aside at this size, once.
const MAX_LOG: u64 = 16 * 1024 * 1024;

/// A data folder that this process works in alone.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    new: bool,
    _lock: File,
}

fn failed(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> CliError {
    let text = format!("{what} {}", path.display());
    move |error| CliError::Usage(format!("{text}: {error}. Choose another folder with --data-dir"))
}

impl Folder {
    /// Takes the folder for this process; makes it when there is none.
    ///
    /// # Errors
    /// [`CliError::Usage`] for a folder that holds something of somebody else, [`CliError::Away`] when another `dev`
    /// works in it.
    pub fn claim(dir: &Path) -> Result<Self, CliError> {
        fs::create_dir_all(dir).map_err(failed("cannot make", dir))?;
        let root = dir.canonicalize().map_err(failed("cannot reach", dir))?;
        let marker = root.join(MARKER);
        let new = !marker.exists();
        if new {
            let mut entries = fs::read_dir(&root).map_err(failed("cannot read", &root))?;
            // Asked again: another dev may have made the folder its own since the first look.
            if entries.next().is_some() && !marker.exists() {
                return Err(CliError::Usage(format!(
                    "{} is not empty and was not made by `tallystick dev`: it is left alone. \
                     Choose another folder with --data-dir",
                    root.display()
                )));
            }
            fs::write(&marker, "This folder belongs to `tallystick dev`, which may empty it.\n")
                .map_err(failed("cannot write", &marker))?;
        }
        let lock = take_lock(&root)?;
        Ok(Self { root, new, _lock: lock })
    }

    /// True when it was not one of ours before. What an earlier folder of the same path has elsewhere is not its own.
    pub fn is_new(&self) -> bool {
        self.new
    }

    /// Its absolute path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Removes everything in it but what marks and locks it, and what it has elsewhere.
    ///
    /// # Errors
    /// [`CliError::Usage`] when something cannot be removed.
    pub fn empty(&self) -> Result<(), CliError> {
        for entry in fs::read_dir(&self.root).map_err(failed("cannot read", &self.root))? {
            let entry = entry.map_err(failed("cannot read", &self.root))?;
            if entry.file_name() == MARKER || entry.file_name() == LOCK {
                continue;
            }
            remove(&entry.path())?;
        }
        for path in [self.elsewhere(), self.short_run()] {
            if path.symlink_metadata().is_ok() {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes the folder and what it has elsewhere.
    ///
    /// # Errors
    /// [`CliError::Usage`] when something cannot be removed.
    pub fn remove(self) -> Result<(), CliError> {
        self.empty()?;
        remove(&self.root)
    }

    /// Ends server and sandbox processes of an earlier `dev` on this folder that was killed.
    pub async fn end_leftovers(&self) {
        let left = process::with_variable(VARIABLE, self.root.as_os_str());
        if !left.is_empty() {
            eprintln!("tallystick dev: ending processes of an earlier run that was killed: {left:?}");
            process::end(&left, Signal::SIGTERM, Duration::from_secs(5)).await;
        }
    }

    /// A file that a process appends its output to.
    ///
    /// # Errors
    /// [`CliError::Usage`] when it cannot be written.
    pub fn log(&self, name: &str) -> Result<File, CliError> {
        let dir = self.root.join("logs");
        fs::create_dir_all(&dir).map_err(failed("cannot make", &dir))?;
        let path = self.log_path(name);
        if fs::metadata(&path).is_ok_and(|m| m.len() > MAX_LOG) {
            let aside = path.with_extension("log.1");
            fs::rename(&path, &aside).map_err(failed("cannot put aside", &path))?;
        }
        File::options().create(true).append(true).open(&path).map_err(failed("cannot write", &path))
    }

    /// Where that file is.
    pub fn log_path(&self, name: &str) -> PathBuf {
        self.root.join("logs").join(format!("{name}.log"))
    }

    /// Where the cluster's files and socket are: in the folder, unless its user cannot reach that.
    ///
    /// # Errors
    /// [`CliError::Usage`] when the places cannot be made.
    pub fn places(&self, owner: Option<&Owner>) -> Result<Places, CliError> {
        let home = match owner {
            Some(owner) if !owner.reaches(&self.root) => {
                let home = self.elsewhere();
                own_dir(Path::new(ELSEWHERE), None, 0o755)?;
                own_dir(&home, None, 0o755)?;
                let link = self.root.join("postgres");
                if link.symlink_metadata().is_err() {
                    std::os::unix::fs::symlink(home.join("postgres"), &link)
                        .map_err(failed("cannot make", &link))?;
                }
                home
            }
            _ => self.root.clone(),
        };
        let mut run = home.join("run");
        if run.as_os_str().len() + "/.s.PGSQL.65535".len() > MAX_SOCKET_PATH {
            run = self.short_run();
        }
        own_dir(&run, owner, 0o700)?;
        Ok(Places { home, run })
    }

    /// A name for this folder that is short and the same every time.
    fn tag(&self) -> String {
        hex::encode(&Sha256::digest(self.root.as_os_str().as_encoded_bytes())[..6])
    }

    fn elsewhere(&self) -> PathBuf {
        Path::new(ELSEWHERE).join(self.tag())
    }

    fn short_run(&self) -> PathBuf {
        Path::new("/tmp").join(format!("tallystick-{}", self.tag()))
    }
}

/// Where a cluster lives.
#[derive(Clone, Debug)]
pub struct Places {
    /// Holds its data folder.
    pub home: PathBuf,
    /// Holds its socket.
    pub run: PathBuf,
}

fn take_lock(root: &Path) -> Result<File, CliError> {
    let path = root.join(LOCK);
    let mut file = File::options()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(&path)
        .map_err(failed("cannot write", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut who = String::new();
            // Only for the message; without it the message is shorter.
            let _ = file.read_to_string(&mut who);
            return Err(CliError::Away(format!(
                "another `tallystick dev` (process {}) works in {}: use it, stop it, or choose another folder \
                 with --data-dir",
                who.trim(),
                root.display()
            )));
        }
        Err(TryLockError::Error(error)) => return Err(failed("cannot lock", &path)(error)),
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(failed("cannot write", &path))?;
    Ok(file)
}

fn remove(path: &Path) -> Result<(), CliError> {
    let is_dir = path.symlink_metadata().is_ok_and(|m| m.is_dir());
    let done = if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    done.map_err(failed("cannot remove", path))
}

/// Makes a folder that is ours or the owner's. One that exists must not belong to anybody else: in a folder that all
/// may write to, somebody could have put it there.
pub fn own_dir(path: &Path, owner: Option<&Owner>, mode: u32) -> Result<(), CliError> {
    if let Err(error) = fs::create_dir(path)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(failed("cannot make", path)(error));
    }
    let found = path.symlink_metadata().map_err(failed("cannot read", path))?;
    let us = nix::unistd::geteuid().as_raw();
    let ours = found.uid() == us || owner.is_some_and(|owner| found.uid() == owner.uid);
    if !found.is_dir() || !ours {
        return Err(CliError::Usage(format!("{} belongs to somebody else: remove it", path.display())));
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed("cannot protect", path))?;
    if let Some(owner) = owner {
        chown(path, Some(owner.uid), Some(owner.gid)).map_err(failed("cannot hand over", path))?;
    }
    Ok(())
}

/// Writes a file that only we may read, whole or not at all.
pub fn write_whole(path: &Path, text: &str) -> Result<(), CliError> {
    let new = path.with_extension("new");
    let write = || {
        let mut options = File::options();
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.create(true).write(true).truncate(true).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(failed("cannot write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_something_else_in_it_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.txt"), "years of work").unwrap();
        let error = Folder::claim(dir.path()).unwrap_err();
        assert_eq!(error.exit().code(), 2, "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was added");
    }

    #[test]
    fn only_one_works_in_a_folder_and_emptying_keeps_the_claim() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("a/b");
        let folder = Folder::claim(&data).unwrap();
        let error = Folder::claim(&data).unwrap_err();
        assert_eq!(error.exit().code(), 3, "{error}");
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        fs::create_dir(data.join("postgres")).unwrap();
        fs::write(data.join("dev.json"), "{}").unwrap();
        folder.empty().unwrap();
        let mut left: Vec<_> = fs::read_dir(&data).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [LOCK, MARKER]);
        drop(folder);
        Folder::claim(&data).unwrap().remove().unwrap();
        assert!(!data.exists());
    }

    #[test]
    fn a_long_folder_gets_a_short_socket() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("x".repeat(60)).join("y".repeat(60));
        let folder = Folder::claim(&long).unwrap();
        let places = folder.places(None).unwrap();
        assert!(places.run.as_os_str().len() + "/.s.PGSQL.65535".len() <= MAX_SOCKET_PATH, "{places:?}");
        assert_eq!(places.home, folder.root());
        assert_eq!(fs::metadata(&places.run).unwrap().mode() & 0o777, 0o700);
        folder.empty().unwrap();
        assert!(!places.run.exists());
    }

    #[test]
    fn files_are_written_whole_and_for_us_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dev.json");
        for text in ["one", "two"] {
            write_whole(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
