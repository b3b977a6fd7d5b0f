//! `chaos`: kills the server under load while the gateway misbehaves, then compares all books.
//!
//! A run has three parts. In the first, clients create payments and repeat each request with its key until they
//! get an answer, the sandbox draws faults from a seed, and the server is killed (SIGKILL) at seeded moments, each
//! time with calls in flight. In the second unknown outcomes are asked for, then the faults end
//! and every payment must become final. In the third,
//! [`oracle`] compares what clients were told, the payments, the ledger, and the sandbox's own book; it shares no
//! code with the product.

mod dev;
mod http;
mod killer;
mod load;
mod mix;
mod oracle;
mod read;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use dev::Dev;
use http::Http;
use oracle::Verdict;
use report::Report;

/// How long outcomes are asked for while the gateway still misbehaves; most end in this time.
const UNDER_FAULTS: Duration = Duration::from_secs(60);
/// How long the last payment may take to become final after the faults end.
const QUIET_WITHIN: Duration = Duration::from_secs(180);

/// Settings of a run.
#[derive(clap::Args)]
pub struct Args {
    /// Payments to create
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    payments: u32,
    /// Payouts to create; the engine does not take payouts yet, so only 0
    #[arg(long, default_value_t = 0)]
    payouts: u32,
    /// How often the server is killed
    #[arg(long)]
    kills: u32,
    /// Seed of faults, amounts and moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON on stdout
    #[arg(long)]
    json: bool,
    /// Clients that create payments at the same time
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// Cargo profile of the programs
    #[arg(long, default_value = "release")]
    profile: String,
    /// Take the programs from this folder instead of building them first
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Keep the data folder if the run fails
    #[arg(long)]
    keep: bool,
}

/// The arguments make no sense.
#[derive(Debug)]
pub struct WrongUse(String);

impl std::fmt::Display for WrongUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUse {}

/// Runs the three parts; exit 1 when anything did not hold.
///
/// # Errors
/// When the run could not be made: nothing is proven then.
pub async fn run(args: &Args) -> Result<ExitCode> {
    if args.payouts > 0 {
        bail!(WrongUse("the engine does not take payouts yet: use --payouts 0".into()));
    }
    if args.kills > args.payments {
        bail!(WrongUse("a kill needs payments around it: --kills may not exceed --payments".into()));
    }
    let programs = match &args.programs {
        Some(folder) => folder.clone(),
        None => dev::build(&args.profile)?,
    };
    let dev = Dev::start(&programs).await?;
    let result = tokio::select! {
        result = campaign(args, &dev) => result,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    let failed = !matches!(&result, Ok(report) if report.violations.is_empty());
    dev.stop(args.keep && failed).await;
    let report = result?;
    report.print(args.json)?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn campaign(args: &Args, dev: &Dev) -> Result<Report> {
    let started = Instant::now();
    let http = Http::new()?;
    mix::set(&http, &dev.info()?.sandbox_url, args.seed).await?;

    let plan = killer::plan(args.payments, args.kills, args.seed);
    let load = Arc::new(load::Load::new(args.payments, args.seed, killer::first_gate(&plan, args.payments)));
    let clients = load::start(&load, &http, dev, args.clients);
    let kills = killer::run(&plan, &load, &http, dev).await?;
    load.release(args.payments);
    let accepted = load::finish(&load, clients).await?;
    eprintln!(
        "chaos: {} payments accepted, {} kills; unknown outcomes are asked for",
        accepted.len(),
        kills.kills
    );
    // Whether all ended is judged below, when nothing stands in the way any more.
    dev.wait_idle(UNDER_FAULTS).await.context("`tallystick wait` could not be run")?;
    eprintln!("chaos: the faults end");
    mix::clear(&http, &dev.info()?.sandbox_url).await?;
    let idle = dev.wait_idle(QUIET_WITHIN).await.context("`tallystick wait` could not be run")?;
    eprintln!("chaos: reading {} payments and the whole book", accepted.len());
    let books = read::all(&http, &dev.info()?, &accepted).await?;
    let mut verdict = oracle::judge(&accepted, &books);
    verdict.require_above_all(idle.ok, || {
        format!("not idle {QUIET_WITHIN:?} after the faults ended: {}", idle.said)
    });
    let verify = dev.verify().await.context("`tallystick verify` could not be run")?;
    verdict.require_above_all(verify.ok, || format!("verify: {}", verify.said));
    judge_load(&load, &kills, args, &mut verdict);
    Ok(Report::new(args.seed, args.payments, &kills, &books, verdict, verify.ok, started.elapsed()))
}

/// What the run itself has to have been, and what clients saw.
fn judge_load(load: &load::Load, kills: &killer::Kills, args: &Args, verdict: &mut Verdict) {
    for problem in load.problems() {
        verdict.require_above_all(false, || problem);
    }
    let enough = kills.in_flight * 100 >= args.kills * killer::LEAST_PERCENT_IN_FLIGHT;
    verdict.require_above_all(enough, || {
        format!(
            "only {} of {} kills hit a server with calls in flight, at least {} % must: the run proves nothing",
            kills.in_flight,
            args.kills,
            killer::LEAST_PERCENT_IN_FLIGHT
        )
    });
}
