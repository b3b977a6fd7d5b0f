//! `chaos`: kills the servers under load while the gateway and the bank misbehave, then compares all books.
//!
//! A run has three parts. In the first, clients create payments and payouts and repeat each request with its key until
//! they get an answer, the sandbox draws faults from a seed, and the servers (one, or two on one database) are killed
//! (SIGKILL) in turn at seeded moments, each time with calls in flight. In the second unknown outcomes are asked for,
//! then the faults end and everything must become final. In the third, [`oracle`] compares what clients were told, the
//! payments and payouts, the ledger, the balances, and the sandbox's own book; it shares no code with the product.

mod accounts;
mod dev;
mod http;
mod killer;
mod load;
mod mix;
mod oracle;
mod read;
mod report;
mod returns;
mod servers;
mod wanted;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use accounts::Account;
use dev::Dev;
use http::Http;
use killer::Kills;
use load::{Accepted, Load};
use oracle::Verdict;
use report::{Report, Run};
use servers::Servers;
use wanted::Plan;

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
    /// Payouts to create between them, from accounts of which two have funds for only about half
    #[arg(long, default_value_t = 0)]
    payouts: u32,
    /// Servers on the one database, killed in turn; two where there are payouts, else one
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=2))]
    servers: Option<u32>,
    /// How often a server is killed
    #[arg(long)]
    kills: u32,
    /// Seed of faults, amounts and moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON on stdout
    #[arg(long)]
    json: bool,
    /// Clients that create at the same time
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
    if args.kills > args.payments.saturating_add(args.payouts) {
        bail!(WrongUse(
            "a kill needs work around it: --kills may not exceed --payments and --payouts".into()
        ));
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
    let plan = Plan { payments: args.payments, payouts: args.payouts, seed: args.seed };
    let two = args.servers.unwrap_or(1 + u32::from(args.payouts > 0)) == 2;
    let mut servers = Servers::start(dev, &http, two).await?;
    let accounts = accounts::open(&http, &servers.doors(), &plan).await?;
    mix::set(&http, &dev.info()?.sandbox_url, args.seed).await?;

    let (load, kills, accepted) = under_kills(args, &plan, &accounts, &http, &mut servers).await?;
    eprintln!("chaos: {} accepted, {} kills; unknown outcomes are asked for", accepted.len(), kills.kills);
    // Whether all ended is judged below, when nothing stands in the way any more.
    dev.wait_idle(UNDER_FAULTS).await.context("`tallystick wait` could not be run")?;
    eprintln!("chaos: the faults end");
    let sandbox = dev.info()?.sandbox_url;
    mix::clear(&http, &sandbox).await?;
    let mut idle = dev.wait_idle(QUIET_WITHIN).await.context("`tallystick wait` could not be run")?;
    let told = returns::tell(&http, &sandbox, &accepted).await?;
    if idle.ok {
        idle = dev.wait_idle(QUIET_WITHIN).await.context("`tallystick wait` could not be run")?;
    }
    eprintln!("chaos: reading what became of {} requests, and the whole book", accepted.len());
    let books = read::all(&http, &dev.info()?, &accounts, &accepted).await?;
    let mut verdict = oracle::judge(&accepted, &books);
    verdict.require_above_all(told.is_empty(), || format!("returns that were never delivered: {told:?}"));
    verdict.require_above_all(idle.ok, || {
        format!("not idle {QUIET_WITHIN:?} after the faults ended: {}", idle.said)
    });
    let verify = dev.verify().await.context("`tallystick verify` could not be run")?;
    verdict.require_above_all(verify.ok, || format!("verify: {}", verify.said));
    judge_load(&load, &kills, args, &mut verdict);
    let run = Run {
        plan: &plan,
        servers: servers.count(),
        kills: &kills,
        looks: load.looks(),
        verified: verify.ok,
        took: started.elapsed(),
    };
    let report = Report::new(&run, &books, verdict);
    servers.stop().await;
    Ok(report)
}

/// The first part: clients create, servers are killed, balances are looked at.
async fn under_kills(
    args: &Args,
    plan: &Plan,
    accounts: &[Account],
    http: &Http,
    servers: &mut Servers<'_>,
) -> Result<(Arc<Load>, Kills, Vec<Accepted>)> {
    let kills = killer::plan(plan.total(), args.kills, args.seed);
    let load = Arc::new(Load::new(*plan, accounts.to_vec(), killer::first_gate(&kills, plan.total())));
    let doors = servers.doors();
    let clients = load::start(&load, http, &doors, args.clients);
    let watch = accounts::watch(http.clone(), doors, accounts.to_vec(), load.clone());
    let work = async {
        let kills = killer::run(&kills, &load, http, servers).await?;
        load.release(plan.total());
        anyhow::Ok((kills, load::finish(&load, clients).await?))
    };
    let (kills, accepted) = tokio::select! {
        done = work => done?,
        never = watch => match never {},
    };
    Ok((load, kills, accepted))
}

/// What the run itself has to have been, and what clients saw.
fn judge_load(load: &Load, kills: &Kills, args: &Args, verdict: &mut Verdict) {
    for problem in load.problems() {
        verdict.require_above_all(false, || problem);
    }
    let looked = args.payouts == 0 || load.looks() > 0;
    verdict.require_above_all(looked, || "no balance was looked at: the run proves less".to_owned());
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
