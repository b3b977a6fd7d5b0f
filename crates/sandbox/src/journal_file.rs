//! The append-only file that holds everything: one JSON line per change of the book, many lines per fsync.
//!
//! Lines are queued under the book's lock, so that the file has the order in which things happened. One thread
//! writes: it takes what is queued, writes and syncs it, and raises the durable position; whoever must not answer
//! before its line is safe waits for that position. Lines that nobody waits for (requests, delivery results) stay
//! for a moment and go out with the next line that somebody waits for.
//!
//! After kill -9 the last line may be torn: it is cut off when the file is opened, its request was never answered.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// How long a line that nobody waits for may stay in memory.
const IDLE: Duration = Duration::from_millis(50);
/// Lines are written together up to this many bytes.
const BATCH_BYTES: usize = 4 << 20;

/// What can go wrong with the file.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It cannot be read or written.
    #[error("cannot use the journal file: {0}")]
    Io(#[from] io::Error),
    /// Another process has it.
    #[error("the data folder is in use by another process")]
    InUse,
    /// A line in its middle is no change of the book.
    #[error(
        "line {line} of the journal file is damaged: {why}; restore the file or start with an empty folder"
    )]
    Damaged {
        /// Line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The writer stopped, so that nothing is durable any more.
    #[error("the journal file can no longer be written")]
    Closed,
}

/// How far the file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Lines on disk, of this process.
    pub lines: u64,
    /// Syncs that it took.
    pub syncs: u64,
}

struct Line {
    bytes: Vec<u8>,
    position: u64,
    awaited: bool,
}

/// The writing end; clones of nothing, shared behind the book's lock.
#[derive(Debug)]
pub struct JournalFile {
    queue: Option<Sender<Line>>,
    position: u64,
    durable: watch::Receiver<Progress>,
    writer: Option<JoinHandle<()>>,
}

impl JournalFile {
    /// Opens the file, gives each of its lines to `replay`, and starts the writer.
    ///
    /// # Errors
    /// When it is in use, cannot be read, or is damaged before its last line.
    pub fn open(path: &Path, replay: impl FnMut(&[u8]) -> Result<(), String>) -> Result<Self, JournalError> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        file.try_lock().map_err(|e| match e {
            std::fs::TryLockError::WouldBlock => JournalError::InUse,
            std::fs::TryLockError::Error(e) => JournalError::Io(e),
        })?;
        let whole = read(&file, replay)?;
        file.set_len(whole)?;
        file.seek(SeekFrom::End(0))?;
        file.sync_all()?;
        if let Some(folder) = path.parent() {
            // The file's own name must survive a crash, too.
            File::open(folder)?.sync_all()?;
        }
        let (queue, lines) = mpsc::channel();
        let (raise, durable) = watch::channel(Progress::default());
        let writer = std::thread::Builder::new().name("journal".to_owned()).spawn(move || {
            if let Err(error) = write(file, &lines, &raise) {
                tracing::error!(%error, "the journal file cannot be written");
            }
        })?;
        Ok(Self { queue: Some(queue), position: 0, durable, writer: Some(writer) })
    }

    /// Queues a line, without its line end; the position at which it is durable.
    pub fn append(&mut self, mut bytes: Vec<u8>, awaited: bool) -> u64 {
        bytes.push(b'\n');
        self.position += 1;
        if let Some(queue) = &self.queue {
            // A closed queue means a dead writer: whoever waits for the position learns it there.
            let _dead = queue.send(Line { bytes, position: self.position, awaited });
        }
        self.position
    }

    /// A handle to wait with.
    #[must_use]
    pub fn durable(&self) -> Durable {
        Durable(self.durable.clone())
    }

    /// Writes what is queued and stops the writer.
    pub fn close(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the journal's writer ended badly");
        }
    }
}

/// Tells what is durable.
#[derive(Clone, Debug)]
pub struct Durable(watch::Receiver<Progress>);

impl Durable {
    /// Waits until the line with this position is on disk.
    ///
    /// # Errors
    /// When the writer has stopped before.
    pub async fn wait(&mut self, position: u64) -> Result<(), JournalError> {
        self.0
            .wait_for(|progress| progress.lines >= position)
            .await
            .map(|_| ())
            .map_err(|_| JournalError::Closed)
    }

    /// How far the file is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        *self.0.borrow()
    }

    /// Ends when the writer has stopped.
    pub async fn closed(&mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

/// Gives each whole line to `replay`; the length of the whole lines.
fn read(file: &File, mut replay: impl FnMut(&[u8]) -> Result<(), String>) -> Result<u64, JournalError> {
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let (mut whole, mut number, mut line) = (0_u64, 0, Vec::new());
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(whole);
        }
        number += 1;
        let ended = line.pop_if(|last| *last == b'\n').is_some();
        let good = if ended { replay(&line) } else { Err("its end is missing".to_owned()) };
        match good {
            Ok(()) => whole += u64::try_from(length).unwrap_or(u64::MAX),
            Err(why) if reader.fill_buf()?.is_empty() => {
                tracing::warn!(line = number, %why, "dropped the torn last line of the journal file");
                return Ok(whole);
            }
            Err(why) => return Err(JournalError::Damaged { line: number, why }),
        }
    }
}

fn write(mut file: File, lines: &Receiver<Line>, raise: &watch::Sender<Progress>) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let Ok(first) = lines.recv() else { return Ok(()) };
        let (mut last, mut awaited, begun) = (first.position, first.awaited, Instant::now());
        buffer.extend_from_slice(&first.bytes);
        while buffer.len() < BATCH_BYTES {
            let next = match awaited {
                true => lines.try_recv().map_err(|_| RecvTimeoutError::Timeout),
                false => lines.recv_timeout(IDLE.saturating_sub(begun.elapsed())),
            };
            let Ok(line) = next else { break };
            buffer.extend_from_slice(&line.bytes);
            (last, awaited) = (line.position, awaited || line.awaited);
        }
        file.write_all(&buffer)?;
        file.sync_data()?;
        buffer.clear();
        raise.send_modify(|progress| *progress = Progress { lines: last, syncs: progress.syncs + 1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Result<(JournalFile, Vec<String>), JournalError> {
        let mut lines = Vec::new();
        let file = JournalFile::open(path, |line| {
            let text = String::from_utf8(line.to_vec()).map_err(|e| e.to_string())?;
            if text.starts_with('!') {
                return Err("no such line".to_owned());
            }
            lines.push(text);
            Ok(())
        })?;
        Ok((file, lines))
    }

    #[tokio::test]
    async fn lines_come_back_in_order_and_a_torn_one_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let (mut file, lines) = open(&path).unwrap();
        assert!(lines.is_empty());
        assert!(matches!(open(&path), Err(JournalError::InUse)));
        file.append(b"one".to_vec(), false);
        let position = file.append(b"two".to_vec(), true);
        file.durable().wait(position).await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        file.append(b"three".to_vec(), false);
        file.close();
        drop(file);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"tor").unwrap();
        let (mut file, lines) = open(&path).unwrap();
        assert_eq!(lines, ["one", "two", "three"]);
        file.append(b"four".to_vec(), true);
        file.close();
        drop(file);
        assert_eq!(open(&path).unwrap().1, ["one", "two", "three", "four"]);
    }

    #[tokio::test]
    async fn lines_share_syncs() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, _) = open(&folder.path().join("journal.jsonl")).unwrap();
        let last = (0..10_000).map(|n| file.append(n.to_string().into_bytes(), true)).last().unwrap();
        let mut durable = file.durable();
        durable.wait(last).await.unwrap();
        let Progress { lines, syncs } = durable.progress();
        assert!(lines == 10_000 && syncs < 5_000, "{syncs} syncs");
        file.close();
    }

    #[test]
    fn damage_in_the_middle_is_refused_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        std::fs::write(&path, "one\n!\ntwo\n").unwrap();
        assert!(matches!(open(&path), Err(JournalError::Damaged { line: 2, .. })));
        std::fs::write(&path, "one\n!\n").unwrap();
        assert_eq!(open(&path).unwrap().1, ["one"]);
    }
}
