//! Processes that somebody else started: finding them, asking whether they live, ending them.
//!
//! A process is only ever ended after it was recognised by something that it carries itself: a variable in its
//! environment or its working directory. A number from a file is no proof, because numbers are used again. The kernel's
//! view in `/proc` is read for that; where there is none, nothing is found and nothing is ended.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// True while the process runs. One that has ended and waits to be collected does not.
pub fn alive(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The name stands in brackets and may itself hold brackets and spaces; the state follows the last one.
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with(['Z', 'X'])),
        Err(_) if Path::new("/proc/self/stat").exists() => false,
        Err(_) => !matches!(kill(Pid::from_raw(pid), None), Err(Errno::ESRCH)),
    }
}

/// Sends a signal. A process that is gone already is fine.
pub fn signal(pid: i32, signal: Signal) {
    if let Err(error) = kill(Pid::from_raw(pid), signal)
        && error != Errno::ESRCH
    {
        eprintln!("tallystick dev: process {pid} cannot be sent {signal}: {error}");
    }
}

/// Processes, other than this one, that have `name=value` in their environment.
pub fn with_variable(name: &str, value: &OsStr) -> Vec<i32> {
    let mut wanted = format!("{name}=").into_bytes();
    wanted.extend_from_slice(value.as_bytes());
    others(|folder| {
        std::fs::read(folder.join("environ"))
            .is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == wanted))
    })
}

/// Processes, other than this one, that work in a folder.
pub fn working_in(dir: &Path) -> Vec<i32> {
    others(|folder| std::fs::read_link(folder.join("cwd")).is_ok_and(|cwd| cwd == dir))
}

fn others(wanted: impl Fn(&PathBuf) -> bool) -> Vec<i32> {
    let own = Pid::this().as_raw();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let pid: i32 = path.file_name()?.to_str()?.parse().ok()?;
        (pid != own && wanted(&path) && alive(pid)).then_some(pid)
    });
    pids.collect()
}

/// Ends processes: asks with `first`, and after `patience` does not ask any more.
pub async fn end(pids: &[i32], first: Signal, patience: Duration) {
    for (ask, time) in [(first, patience), (Signal::SIGKILL, Duration::from_secs(5))] {
        for pid in pids.iter().filter(|pid| alive(**pid)) {
            signal(*pid, ask);
        }
        if gone(pids, time).await {
            return;
        }
    }
}

/// Waits until none of the processes runs; false when the time is over first.
pub async fn gone(pids: &[i32], patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while pids.iter().any(|pid| alive(*pid)) {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper(dir: &Path, value: &str) -> Child {
        Command::new("sleep").arg("60").current_dir(dir).env("A_MARK_FOR_THIS_TEST", value).spawn().unwrap()
    }

    #[tokio::test]
    async fn a_process_is_found_by_what_it_carries_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().canonicalize().unwrap();
        let mark = dir.as_os_str().to_str().unwrap();
        let mut child = sleeper(&dir, mark);
        let pid = i32::try_from(child.id()).unwrap();
        assert_eq!(working_in(&dir), [pid]);
        let deadline = Instant::now() + Duration::from_secs(5);
        // Between fork and exec the child still carries our own environment.
        while with_variable("A_MARK_FOR_THIS_TEST", OsStr::new(mark)) != [pid] {
            assert!(Instant::now() < deadline, "not found by its variable");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        assert!(with_variable("A_MARK_FOR_THIS_TEST", OsStr::new("another")).is_empty());
        assert!(alive(pid));
        end(&[pid], Signal::SIGTERM, Duration::from_secs(5)).await;
        assert!(!alive(pid), "ended, though not collected yet");
        child.wait().unwrap();
        assert!(!alive(pid));
    }
}
