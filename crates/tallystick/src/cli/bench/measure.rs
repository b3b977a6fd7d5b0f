//! One measured run: load and feed at the same time, readings before and after, then the question what is missing.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::complete::{self, Gap};
use super::environment::Environment;
use super::feed::Lives;
use super::load::{self, Load, Loaded};
use super::meter::Used;
use super::stats;
use crate::cli::CliError;

/// What one run measured.
#[derive(Clone, Debug)]
pub struct Run {
    /// Which round of the whole bench, from 1.
    pub round: u32,
    /// Payouts that came to their end.
    pub payouts: u64,
    /// From the first request to the moment when the last payout's end was known.
    pub time: Duration,
    /// From the first request to the last answer to one.
    pub accepting: Duration,
    /// Of each payout, from its request to its end; sorted.
    pub latencies: Vec<Duration>,
    /// What it took.
    pub used: Used,
    /// Requests that were answered "too many" and sent again.
    pub refused: u64,
    /// Moves besides created, processing and succeeded.
    pub detours: u64,
    /// Payouts whose webhook came before the bank's answer.
    pub overtaken: u64,
    /// What is missing.
    pub gaps: Vec<Gap>,
}

impl Run {
    /// Payouts per second over the whole life of all of them.
    pub fn per_second(&self) -> f64 {
        stats::per_second(self.payouts, self.time)
    }
}

/// What is asked for.
pub struct Ask<'a> {
    /// Which round.
    pub round: u32,
    /// Payouts.
    pub payouts: u64,
    /// Clients.
    pub clients: usize,
    /// Payouts per second; as fast as possible without.
    pub rate: Option<u64>,
    /// Accounts to debit.
    pub accounts: &'a [Uuid],
    /// How long without news before the rest counts as missing.
    pub patience: Duration,
}

/// Runs payouts through their whole life.
///
/// # Errors
/// [`CliError`] when a side does not answer; what is missing is no error but stands in the run.
pub async fn run(environment: &mut Environment<'_>, ask: &Ask<'_>) -> Result<Run, CliError> {
    environment.feed.skip().await?;
    let mut meter = environment.meter();
    meter.begin().await?;
    let (loaded, lives) = through(environment, ask).await?;
    meter.end().await?;
    let used = meter.used().await?;
    environment.nothing_ended()?;
    judged(environment, ask.round, loaded, lives, used).await
}

/// The same without readings, so that connections, plans and caches are made.
///
/// # Errors
/// As [`run`], and [`CliError::Broken`] when something is missing.
pub async fn warm_up(environment: &mut Environment<'_>, ask: &Ask<'_>) -> Result<(), CliError> {
    environment.feed.skip().await?;
    let (loaded, lives) = through(environment, ask).await?;
    let run = judged(environment, ask.round, loaded, lives, Used::default()).await?;
    match run.gaps.first() {
        None => Ok(()),
        Some(gap) => Err(CliError::Broken(format!("missing already while warming up: {gap}"))),
    }
}

/// Load and feed, at the same time.
async fn through(environment: &mut Environment<'_>, ask: &Ask<'_>) -> Result<(Loaded, Lives), CliError> {
    let load = Load {
        api: environment.api.clone(),
        payouts: ask.payouts,
        clients: ask.clients,
        rate: ask.rate,
        accounts: ask.accounts.to_vec(),
    };
    let expected = usize::try_from(ask.payouts).unwrap_or(usize::MAX);
    tokio::try_join!(load::run(load), environment.feed.follow(expected, ask.patience))
}

async fn judged(
    environment: &mut Environment<'_>,
    round: u32,
    loaded: Loaded,
    lives: Lives,
    used: Used,
) -> Result<Run, CliError> {
    let mut latencies = Vec::with_capacity(loaded.accepted.len());
    let (mut last, mut detours, mut overtaken) = (loaded.ended, 0, 0);
    for accepted in &loaded.accepted {
        let Some(life) = lives.get(&accepted.id) else { continue };
        detours += u64::from(life.detours);
        overtaken += u64::from(life.was_overtaken());
        if let Some((at, _)) = life.succeeded {
            latencies.push(at.duration_since(accepted.began));
            last = last.max(at);
        }
    }
    latencies.sort_unstable();
    let ids: Vec<Uuid> = loaded.accepted.iter().map(|accepted| accepted.id).collect();
    let witnesses = (&environment.db, environment.tenant);
    let bank = (&mut environment.bank, &mut environment.place);
    let evidence = complete::gather(ids, lives, &mut environment.wire, witnesses, bank).await?;
    Ok(Run {
        round,
        payouts: latencies.len() as u64,
        time: last.duration_since(loaded.began),
        accepting: loaded.ended.duration_since(loaded.began),
        latencies,
        used,
        refused: loaded.refused,
        detours,
        overtaken,
        gaps: evidence.gaps(),
    })
}

/// What was done between two moments, for a design that has no feed: the latencies of what came to its end.
pub fn plain(round: u32, began: Instant, ended: Instant, mut latencies: Vec<Duration>, used: Used) -> Run {
    latencies.sort_unstable();
    let time = ended.duration_since(began);
    let payouts = latencies.len() as u64;
    Run {
        round,
        payouts,
        time,
        accepting: time,
        latencies,
        used,
        refused: 0,
        detours: 0,
        overtaken: 0,
        gaps: Vec::new(),
    }
}
