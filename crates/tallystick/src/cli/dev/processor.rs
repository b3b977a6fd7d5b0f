//! Holding a program to one processor, to measure it as if it had no more.

/// Does `start`, which starts a program, so that the program may use `processor` only; any when it is `None`.
///
/// A new process may use the processors of the thread that starts it, so it is this thread that is held for a moment.
/// Being held from its first instruction the program sees one processor and makes as many threads as fit it.
///
/// # Errors
/// What `start` says, or that this machine has no such processor.
#[cfg(target_os = "linux")]
pub fn held_to<T>(
    processor: Option<usize>,
    start: impl FnOnce() -> std::io::Result<T>,
) -> std::io::Result<T> {
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;

    let Some(processor) = processor else { return start() };
    // Process 0 is the calling thread.
    let this_thread = Pid::from_raw(0);
    let before = sched_getaffinity(this_thread)?;
    let mut one = CpuSet::new();
    one.set(processor)?;
    sched_setaffinity(this_thread, &one)?;
    let started = start();
    sched_setaffinity(this_thread, &before)?;
    started
}

/// The last of the processors that this process may use.
#[cfg(target_os = "linux")]
#[must_use]
pub fn last() -> Option<usize> {
    use nix::sched::{CpuSet, sched_getaffinity};

    let ours = sched_getaffinity(nix::unistd::Pid::from_raw(0)).ok()?;
    (0..CpuSet::count()).rev().find(|processor| ours.is_set(*processor) == Ok(true))
}

/// None: a program cannot be held here.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn last() -> Option<usize> {
    None
}

/// As on Linux, where this is possible; elsewhere it is refused.
///
/// # Errors
/// That it cannot be done here, or what `start` says.
#[cfg(not(target_os = "linux"))]
pub fn held_to<T>(
    processor: Option<usize>,
    start: impl FnOnce() -> std::io::Result<T>,
) -> std::io::Result<T> {
    match processor {
        None => start(),
        Some(_) => Err(std::io::Error::other("a program can be held to one processor on Linux only")),
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::process::Command;

    use super::*;

    fn allowed(processor: Option<usize>) -> String {
        let child = held_to(processor, || Command::new("cat").arg("/proc/self/status").output()).unwrap();
        let text = String::from_utf8(child.stdout).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        line.trim().to_owned()
    }

    #[test]
    fn the_program_is_held_and_this_thread_is_not() {
        let before = allowed(None);
        let last = last().unwrap();
        assert_eq!(allowed(Some(last)), last.to_string());
        assert_eq!(allowed(None), before, "as it was");
    }
}
