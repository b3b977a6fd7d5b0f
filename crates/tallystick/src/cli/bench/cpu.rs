//! Processor time of other processes, as the kernel counts it in `/proc`.
//!
//! The kernel counts in ticks, mostly of 10 ms; over a run of many seconds that is exact enough.

use nix::unistd::{SysconfVar, sysconf};

/// Ticks in a second where the kernel does not say it.
const USUAL_TICKS: u64 = 100;
/// How often a family is read again because one of it ended meanwhile.
const TRIES: u32 = 10;

/// What `/proc/PID/stat` says that matters here; times in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: u32,
    own: u64,
    /// Of children that have ended and were collected, and of theirs.
    ended_children: u64,
}

/// The name stands in brackets and may itself hold brackets and spaces; what is counted follows the last one.
fn parse(stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The first one here is the third of the line: state, parent …, times are the 14th to the 17th.
    let time = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Process {
        parent: fields.get(1)?.parse().ok()?,
        own: time(14)?.checked_add(time(15)?)?,
        ended_children: time(16)?.checked_add(time(17)?)?,
    })
}

fn process(pid: u32) -> Option<Process> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Microseconds of processor time that a process has used, all its threads together.
pub fn of(pid: u32) -> Option<u64> {
    Some(micros(process(pid)?.own))
}

/// Microseconds that a process and its children have used, those that have ended included.
pub fn of_family(pid: u32) -> Option<u64> {
    for _ in 0..TRIES {
        let before = process(pid)?;
        let children: u64 = children(pid).iter().map(|child| child.own + child.ended_children).sum();
        let after = process(pid)?;
        // One that ended meanwhile would be counted twice or not at all.
        if before.ended_children == after.ended_children {
            return Some(micros(after.own + after.ended_children + children));
        }
    }
    None
}

fn children(pid: u32) -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(process).filter(|process| process.parent == pid).collect()
}

/// Microseconds of so many ticks.
pub fn micros(ticks: u64) -> u64 {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    let per_second = per_second.and_then(|ticks| u64::try_from(ticks).ok()).filter(|ticks| *ticks > 0);
    ticks.saturating_mul(1_000_000) / per_second.unwrap_or(USUAL_TICKS)
}

/// How the machine's processors spent their time, in ticks since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Doing something.
    pub busy: u64,
    /// Taken by somebody else on the same hardware.
    pub stolen: u64,
    /// In all.
    pub total: u64,
}

impl Machine {
    /// Now; nothing where the kernel does not say it.
    pub fn now() -> Self {
        std::fs::read_to_string("/proc/stat").ok().and_then(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// Since an earlier moment.
    pub fn since(self, before: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(before.busy),
            stolen: self.stolen.saturating_sub(before.stolen),
            total: self.total.saturating_sub(before.total),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let times: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        // user, nice, system, idle, waiting for disks, two kinds of interrupts, stolen. What follows is part of these.
        let [user, nice, system, idle, waiting, irq, soft_irq, stolen, ..] = times[..] else { return None };
        let busy = user + nice + system + irq + soft_irq;
        Some(Self { busy, stolen, total: busy + idle + waiting + stolen })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name_of_the_program() {
        let stat =
            "4242 (a) b (c) S 17 4242 4242 0 -1 4194304 2500 9000 0 0 120 30 4000 500 20 0 19 0 12345 1 2 3";
        assert_eq!(parse(stat), Some(Process { parent: 17, own: 150, ended_children: 4_500 }));
        assert_eq!(parse("4242 (short) S 17"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn the_line_of_the_machine_is_read() {
        let text = "cpu  100 1 50 1000 20 3 4 7 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(Machine::parse(text), Some(Machine { busy: 158, stolen: 7, total: 1_185 }));
        assert_eq!(Machine::parse("cpu  1 2\n"), None);
        let (before, now) =
            (Machine { busy: 1, stolen: 1, total: 5 }, Machine { busy: 4, stolen: 1, total: 10 });
        assert_eq!(now.since(before), Machine { busy: 3, stolen: 0, total: 5 });
    }

    #[test]
    fn work_of_children_is_counted_while_they_live_and_after() {
        let family = || of_family(std::process::id()).unwrap();
        let before = family();
        // A shell that counts far enough to be noticed.
        let count = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let status = Command::new("sh").args(["-c", count]).status().unwrap();
        assert!(status.success());
        let ended = family();
        assert!(ended > before, "{before} {ended}");
        assert!(of(std::process::id()).unwrap() <= family());
        assert_eq!(of(u32::MAX), None);
    }
}
