//! Readings of everything that is counted, before and after, and what lies between them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tallystick_runner::Db;
use tallystick_runner::figures::{self, Counters};

use super::cpu::{self, Machine};
use super::scrape::{Batches, Scrape};
use super::stats;
use super::wire::Wire;
use crate::cli::CliError;

/// Connections report their commits at most once a second; after twice that the last ones have.
const SETTLING: Duration = Duration::from_millis(2_200);
/// How long the quiet machine is watched, to know what it commits when nothing is to be done.
const WATCHED: Duration = Duration::from_millis(1_100);

/// One reading.
struct Reading {
    at: Instant,
    server: u64,
    database: u64,
    bank: u64,
    load: u64,
    machine: Machine,
    counters: Counters,
    scrape: Scrape,
}

/// What was used between two readings.
#[derive(Clone, Debug, Default)]
pub struct Used {
    /// Processor time of the server, in microseconds.
    pub server_us: u64,
    /// Of PostgreSQL, all its processes.
    pub database_us: u64,
    /// Of the bank.
    pub bank_us: u64,
    /// Of this process, which makes the load and reads the feed.
    pub load_us: u64,
    /// The machine as a whole.
    pub machine: Machine,
    /// What all programs that have no part in it used, in microseconds.
    pub others_us: u64,
    /// Committed transactions, those that only read included.
    pub commits: f64,
    /// Transactions that wrote.
    pub writes: u64,
    /// Bytes of write-ahead log.
    pub wal_bytes: u64,
    /// Named transactions of the server, by name.
    pub transactions: BTreeMap<String, f64>,
    /// Items that shared a transaction, by kind.
    pub batches: BTreeMap<String, Batches>,
}

/// The processes that are read, besides this one.
#[derive(Clone, Copy, Debug)]
pub struct Processes {
    /// The server, if it has a part in it.
    pub server: Option<u32>,
    /// PostgreSQL's main process.
    pub database: u32,
    /// The bank.
    pub bank: u32,
}

/// Takes readings.
pub struct Meter {
    db: Db,
    api: Option<Wire>,
    processes: Processes,
    before: Option<Reading>,
    after: Option<Reading>,
}

impl Meter {
    /// A meter of these processes. `db` is the database that is written; `api` leads to the server's
    /// metrics, if the server has a part in it.
    pub fn new(db: Db, api: Option<Wire>, processes: Processes) -> Self {
        Self { db, api, processes, before: None, after: None }
    }

    /// Waits until what went before is counted, and takes the first reading.
    ///
    /// # Errors
    /// [`CliError`] when a process is gone or does not answer.
    pub async fn begin(&mut self) -> Result<(), CliError> {
        tokio::time::sleep(SETTLING).await;
        let (scrape, counters) = (self.scrape().await?, figures::counters(&self.db).await?);
        self.before = Some(self.reading(scrape, counters)?);
        Ok(())
    }

    /// Takes the second reading, now.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub async fn end(&mut self) -> Result<(), CliError> {
        let mut after = self.reading(Scrape::default(), Counters::default())?;
        after.counters = figures::counters(&self.db).await?;
        after.scrape = self.scrape().await?;
        self.after = Some(after);
        Ok(())
    }

    /// The difference of both readings. Waits until every connection has told its commits; connections that will have
    /// nothing more to do should be closed by now.
    ///
    /// # Errors
    /// [`CliError`] when the database does not answer, or a reading was not taken.
    pub async fn used(&mut self) -> Result<Used, CliError> {
        let (Some(before), Some(after)) = (self.before.take(), self.after.take()) else {
            return Err(CliError::Broken("two readings are needed to know what was used".into()));
        };
        // The commits are not all told yet. What the wait for them adds by itself is known from a little more waiting.
        tokio::time::sleep(SETTLING).await;
        let told = figures::counters(&self.db).await?;
        let waited = after.at.elapsed();
        let watching = Instant::now();
        tokio::time::sleep(WATCHED).await;
        let quiet = figures::counters(&self.db).await?;
        let pace = stats::per_second(grown(told.commits, quiet.commits), watching.elapsed());
        let commits = stats::without_pace(grown(before.counters.commits, told.commits), pace, waited);
        let scrape = after.scrape.since(&before.scrape);
        let server_us = after.server.saturating_sub(before.server);
        let database_us = after.database.saturating_sub(before.database);
        let bank_us = after.bank.saturating_sub(before.bank);
        let load_us = after.load.saturating_sub(before.load);
        let machine = after.machine.since(before.machine);
        let ours = server_us + database_us + bank_us + load_us;
        Ok(Used {
            server_us,
            database_us,
            bank_us,
            load_us,
            machine,
            others_us: cpu::micros(machine.busy).saturating_sub(ours),
            commits,
            writes: grown(before.counters.writes, after.counters.writes),
            wal_bytes: grown(before.counters.wal_bytes, after.counters.wal_bytes),
            transactions: scrape.transactions(),
            batches: scrape.batches(),
        })
    }

    fn reading(&self, scrape: Scrape, counters: Counters) -> Result<Reading, CliError> {
        let found = |name: &str, time: Option<u64>| {
            time.ok_or_else(|| {
                CliError::Away(format!("the {name} is gone, or there is no /proc on this system"))
            })
        };
        Ok(Reading {
            server: self.processes.server.map_or(Ok(0), |server| found("server", cpu::of(server)))?,
            database: found("database", cpu::of_family(self.processes.database))?,
            bank: found("bank", cpu::of(self.processes.bank))?,
            load: found("bench", cpu::of(std::process::id()))?,
            machine: Machine::now(),
            counters,
            scrape,
            at: Instant::now(),
        })
    }

    async fn scrape(&mut self) -> Result<Scrape, CliError> {
        let Some(api) = &mut self.api else { return Ok(Scrape::default()) };
        let text = api.read("/metrics").await?;
        Ok(Scrape::parse(&String::from_utf8_lossy(&text.body)))
    }
}

fn grown(before: i64, after: i64) -> u64 {
    u64::try_from(after.saturating_sub(before)).unwrap_or(0)
}
