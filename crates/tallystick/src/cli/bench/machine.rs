//! The machine that figures were measured on: without it they mean nothing.

use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::stats::{self, Spread};
use crate::cli::CliError;

/// Small writes that are synced to learn how long the disk takes.
const SYNCS: usize = 50;
/// Bytes of one: a page of write-ahead log.
const SYNCED: usize = 8_192;
/// File systems that keep nothing on a disk, so that a sync costs nothing.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// What it is.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model of the processors.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// System and its version.
    pub system: String,
    /// File system of the data folder.
    pub file_system: String,
    /// Microseconds that the disk takes to sync a small write.
    pub sync_us: Option<Spread>,
}

impl Machine {
    /// Looks at this machine, and tries its disk in `folder`.
    ///
    /// # Errors
    /// [`CliError::Usage`] when the folder cannot be written to.
    pub fn look(folder: &Path) -> Result<Self, CliError> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = value(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let memory = memory.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
        let version = read("/proc/sys/kernel/osrelease");
        let syncs = syncs(folder).map_err(|e| {
            CliError::Usage(format!("{} cannot be written to: {e}. Choose another folder", folder.display()))
        })?;
        Ok(Self {
            processor: value(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_mib: memory.unwrap_or(0) / 1024,
            system: format!("{} {}", std::env::consts::OS, version.trim()).trim().to_owned(),
            file_system: file_system(&read("/proc/mounts"), folder).unwrap_or_else(|| "unknown".into()),
            sync_us: stats::spread(syncs.into_iter().map(|time| stats::each(time.as_nanos_u64(), 1_000))),
        })
    }

    /// What makes its figures worth less, if something does.
    pub fn doubt(&self) -> Option<String> {
        IN_MEMORY.contains(&self.file_system.as_str()).then(|| {
            format!(
                "the data folder is on {}, which is memory: no commit reaches a disk here",
                self.file_system
            )
        })
    }
}

/// Nanoseconds as a number that fits; a sync does not take centuries.
trait Nanos {
    fn as_nanos_u64(&self) -> u64;
}

impl Nanos for Duration {
    fn as_nanos_u64(&self) -> u64 {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX)
    }
}

fn syncs(folder: &Path) -> std::io::Result<Vec<Duration>> {
    let path = folder.join("sync.probe");
    let mut file = std::fs::File::create(&path)?;
    // Room is made first, as PostgreSQL does for its log: making a file longer takes more than writing into it.
    file.write_all(&vec![0_u8; SYNCS * SYNCED])?;
    file.sync_all()?;
    file.rewind()?;
    let bytes = [7_u8; SYNCED];
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let began = Instant::now();
        file.write_all(&bytes)?;
        file.sync_data()?;
        times.push(began.elapsed());
    }
    drop(file);
    std::fs::remove_file(path)?;
    Ok(times)
}

/// The type of the mount that is nearest above the folder.
fn file_system(mounts: &str, folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = mounts.filter(|(place, _)| folder.starts_with(place));
    // Of two mounts at one place the later one is seen.
    above.max_by_key(|(place, _)| place.len()).map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/disk xfs rw 0 0\n";
        for (folder, kind) in [
            ("/no/such/folder", "ext4"),
            ("/tmp/no-such-folder", "tmpfs"),
            ("/tmp/disk/x", "xfs"),
            ("/tmpfs", "ext4"),
        ] {
            assert_eq!(file_system(mounts, Path::new(folder)).as_deref(), Some(kind), "{folder}");
        }
        assert_eq!(file_system("", Path::new("/a")), None);
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::look(folder.path()).unwrap();
        assert!(
            machine.processors >= 1 && machine.sync_us.is_some_and(|syncs| syncs.min > 0.0),
            "{machine:?}"
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
        assert!(Machine { file_system: "tmpfs".into(), ..machine.clone() }.doubt().is_some());
        assert!(Machine { file_system: "ext4".into(), ..machine }.doubt().is_none());
    }
}
