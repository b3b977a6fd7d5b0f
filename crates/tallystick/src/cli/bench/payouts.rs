//! `tallystick bench payouts`: money out, from the request to the settled payout in the feed.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};
use tallystick_ledger::AccountRef;
use tallystick_payments::verify::Status;
use uuid::Uuid;

use super::accounts;
use super::bank::Manner;
use super::baselines::call_inside_lock::CallInsideLock;
use super::baselines::{WORKERS, one_job_per_thread};
use super::environment::{self, Environment};
use super::load::AMOUNT_MINOR;
use super::machine::Machine;
use super::measure::{self, Ask, Run};
use super::report::{self, Compared, Report, Series};
use crate::cli::dev::{Changes, Dev, Place, processor};
use crate::cli::serve::Signals;
use crate::cli::{CliError, Exit, verify};

/// Payouts before the first run and after a restart that are not measured: connections, plans and caches are made.
const WARM_UP: u64 = 500;
/// Where it lives without `--data-dir`; removed at the end.
const FOLDER: &str = ".tallystick/bench";
/// PostgreSQL's longest `commit_delay`.
const LONGEST_COMMIT_DELAY: Duration = Duration::from_millis(100);
/// Most clients: each has a connection, and so many connections are open at once.
const MOST_CLIENTS: usize = 4_000;
/// More than this part of the machine for other programs, in percent, is worth a remark.
const DISTURBING: f64 = 5.0;
/// Deadline of a call and length of a lease as in `dev`, for a bank that is not slower than this allows.
const USUAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Measure payouts: accepted over HTTP, debited, called, acknowledged, settled by webhook, read from the feed.
///
/// Brings up a private PostgreSQL with durable commits, the sandbox as the bank and the server, with the settings of
/// `dev`, and ends them again. Each run ends when the last payout's `payout.succeeded` was read from the feed. After each
/// run the API, the feed, the ledger and the bank's own book are asked about every payout; at the end everything is
/// verified. Ends with 1 when anything is missing or does not hold. docs/performance.md says what the figures mean.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Payouts of one run
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000), value_name = "N")]
    payouts: u64,
    /// Rounds; every round runs everything once, so that what changes over time hits all alike
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    runs: u32,
    /// Accounts that are debited in turn
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000), value_name = "N")]
    accounts: u32,
    /// Also run with one account, and say how both compare
    #[arg(long, default_value = "on", value_name = "ON|OFF")]
    one_account: Switch,
    /// Clients, each with one connection and one request at a time
    #[arg(long, default_value_t = 256, value_name = "N")]
    clients: usize,
    /// Calls to the bank at once
    #[arg(long, default_value_t = 2_048, value_parser = clap::value_parser!(u32).range(1..=100_000), value_name = "N")]
    in_flight: u32,
    /// Payouts per second to ask for; without it as fast as answers come
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000), value_name = "N")]
    rate: Option<u64>,
    /// How long the bank takes to answer
    #[arg(long, default_value = "500ms", value_parser = humantime::parse_duration, value_name = "TIME")]
    bank_latency: Duration,
    /// How much that varies, as a part of itself
    #[arg(long, default_value_t = 0.3, value_name = "PART")]
    bank_spread: f64,
    /// How long after taking a payout on the bank pays it and tells so [default: its latency, so that its answer comes
    /// first]
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    settles_after: Option<Duration>,
    /// Seed of the bank's chance
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Make commits this slow, as on a slower disk (commit_delay without siblings, at most 100ms)
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    commit_latency: Option<Duration>,
    /// Let the server use one processor only
    #[arg(long)]
    one_processor: bool,
    /// Also measure other designs
    #[arg(long, default_value = "on", value_name = "ON|OFF")]
    baselines: Switch,
    /// Payouts of one run of a baseline; it also ends after 30 s
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000), value_name = "N")]
    baseline_payouts: u64,
    /// Make the bank misbehave: a body of POST /_faults. A run in which something is missing fails
    #[arg(long, value_name = "JSON", value_parser = rule)]
    fault: Option<Value>,
    /// Folder for everything, emptied first and kept [default: one that is removed at the end]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Folder of PostgreSQL's programs [default: searched for]
    #[arg(long, value_name = "DIR")]
    postgres_bin: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

fn rule(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

/// Runs it.
///
/// # Errors
/// [`CliError`] says what is missing or wrong.
pub async fn run(args: &Args) -> Result<Exit, CliError> {
    let changes = args.changes()?;
    let mut signals = Signals::new()?;
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let place = Place {
        data_dir: args.data_dir.clone().unwrap_or_else(|| FOLDER.into()),
        listen: anywhere,
        sandbox_listen: anywhere,
        postgres_bin: args.postgres_bin.clone(),
    };
    let mut dev = Dev::claim(&place, true).await?.with(changes);
    let result = tokio::select! {
        result = work(&mut dev, args) => result,
        signal = signals.next() => Err(CliError::Broken(format!("{signal}: nothing was measured to its end"))),
    };
    let stopped = match args.data_dir {
        Some(_) => dev.stop(&mut signals).await,
        None => discard(dev, &mut signals).await,
    };
    let exit = result?;
    stopped.map(|_| exit)
}

async fn discard(dev: Dev, signals: &mut Signals) -> Result<Exit, CliError> {
    let stopped = dev.discard(signals).await;
    if let Some(parent) = Path::new(FOLDER).parent() {
        // It may hold what `dev` keeps there; only an empty one goes.
        let _ = std::fs::remove_dir(parent);
    }
    stopped
}

impl Args {
    /// What is otherwise than in `dev`.
    fn changes(&self) -> Result<Changes, CliError> {
        let refuse = |text: String| Err(CliError::Usage(text));
        if !(0.0..=1.0).contains(&self.bank_spread) {
            return refuse(format!("--bank-spread {} is no part: give 0 to 1", self.bank_spread));
        }
        if !(1..=MOST_CLIENTS).contains(&self.clients) {
            return refuse(format!("--clients must be 1 to {MOST_CLIENTS}"));
        }
        let mut postgres = Vec::new();
        if let Some(delay) = self.commit_latency {
            if delay > LONGEST_COMMIT_DELAY {
                return refuse(format!("--commit-latency is at most {LONGEST_COMMIT_DELAY:?}"));
            }
            postgres.push(format!("commit_delay={}", delay.as_micros()));
            // It waits also when nobody else is about to commit: that is how a slow disk behaves.
            postgres.push("commit_siblings=0".to_owned());
        }
        let mut server = BTreeMap::new();
        server.insert("TALLYSTICK_MAX_IN_FLIGHT".to_owned(), self.in_flight.to_string());
        let timeout = (self.bank_latency * 3).max(USUAL_TIMEOUT);
        if timeout > USUAL_TIMEOUT {
            server.insert("TALLYSTICK_GATEWAY_TIMEOUT".to_owned(), format!("{}ms", timeout.as_millis()));
            server.insert("TALLYSTICK_LEASE".to_owned(), format!("{}ms", (timeout * 3).as_millis()));
        }
        let processor = if self.one_processor { Some(one_processor()?) } else { None };
        Ok(Changes { postgres, server, processor })
    }

    fn manner(&self) -> Manner {
        Manner {
            latency: self.bank_latency,
            spread: self.bank_spread,
            settles_after: self.settles_after.unwrap_or(self.bank_latency),
            webhooks: true,
            seed: self.seed,
        }
    }

    /// What one account needs for all runs, some more included.
    fn each_minor(&self, accounts: u64, payouts: u64) -> Result<i64, CliError> {
        let warm_ups = WARM_UP * (2 + u64::from(self.runs) * 2);
        let all = payouts.checked_mul(u64::from(self.runs)).and_then(|all| all.checked_add(warm_ups));
        let each = all.map(|all| all.div_ceil(accounts) + u64::from(self.runs) + warm_ups);
        each.and_then(|each| i64::try_from(each).ok()?.checked_mul(AMOUNT_MINOR))
            .ok_or_else(|| CliError::Usage("so much money is no amount: fewer payouts".into()))
    }

    fn settings(&self, changes: &Changes) -> Value {
        json!({
            "payouts": self.payouts, "runs": self.runs, "accounts": self.accounts, "clients": self.clients,
            "in_flight": self.in_flight, "rate": self.rate, "bank_latency_ms": super::stats::millis(self.bank_latency),
            "bank_spread": self.bank_spread,
            "settles_after_ms": super::stats::millis(self.manner().settles_after), "bank_acknowledges": "async", "seed": self.seed,
            "commit_latency_ms": self.commit_latency.map(super::stats::millis), "one_processor": self.one_processor,
            "baseline_payouts": self.baseline_payouts, "baseline_workers": WORKERS, "fault": self.fault,
            "server": changes.server, "postgres": changes.postgres,
        })
    }
}

fn one_processor() -> Result<usize, CliError> {
    processor::last()
        .ok_or_else(|| CliError::Usage("a program can be held to one processor on Linux only".into()))
}

async fn work(dev: &mut Dev, args: &Args) -> Result<Exit, CliError> {
    let machine = Machine::look(dev.root())?;
    if let Some(doubt) = machine.doubt() {
        say(&doubt);
    }
    let environment = Environment::bring_up(dev, &args.manner()).await?;
    let mut bench = Bench::prepare(environment, args).await?;
    bench.all_rounds(args).await?;
    let mut report = bench.report(args, machine)?;
    say("verifying everything");
    let environment = &bench.environment;
    let verified = verify::report(&environment.db, Some(&environment.info.sandbox_url)).await?;
    let proved = verify::exit(&verified, true);
    for check in verified.checks.iter().filter(|check| check.status != Status::Held) {
        let (id, status, name, count) = (check.id, check.status.as_str(), check.name, check.violation_count);
        say(&format!("verify: {id} {status}, {count} times: {name}"));
    }
    report.verified = Some(verified);
    if args.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.text());
    }
    for gap in report.gaps() {
        say(&format!("missing: {gap}"));
    }
    if report.holds() {
        return Ok(proved);
    }
    say("the figures above are worth nothing: something is missing. --data-dir keeps everything to look at");
    Ok(Exit::Broken)
}

fn say(text: &str) {
    eprintln!("tallystick bench: {text}");
}

/// Everything that runs, round by round.
struct Bench<'a> {
    environment: Environment<'a>,
    accounts: Vec<Uuid>,
    one_account: Vec<Uuid>,
    many: Series,
    one: Option<Series>,
    first_design: Option<FirstDesign>,
    one_job: Option<Series>,
}

/// The baseline that has books of its own, with its accounts.
struct FirstDesign {
    design: CallInsideLock,
    accounts: Vec<AccountRef>,
    one_account: Vec<AccountRef>,
    many: Series,
    one: Option<Series>,
}

impl<'a> Bench<'a> {
    async fn prepare(mut environment: Environment<'a>, args: &Args) -> Result<Self, CliError> {
        let with_one = args.one_account == Switch::On && args.accounts > 1;
        let count = usize::try_from(args.accounts).unwrap_or(usize::MAX);
        let payouts = args.payouts + args.baseline_payouts;
        say(&format!("opening and funding {count} accounts"));
        let many = args.each_minor(u64::from(args.accounts), payouts)?;
        let accounts = accounts::funded(&mut environment.wire, "many", count, many).await?;
        let one_account = if with_one {
            accounts::funded(&mut environment.wire, "one", 1, args.each_minor(1, payouts)?).await?
        } else {
            Vec::new()
        };
        let named = |count: usize| format!("{count} account{}", if count == 1 { "" } else { "s" });
        let mut bench = Self {
            environment,
            accounts,
            one_account,
            many: Series::new("accounts", named(count)),
            one: with_one.then(|| Series::new("one_account", named(1))),
            first_design: None,
            one_job: None,
        };
        if args.baselines == Switch::On {
            bench.first_design = Some(FirstDesign::prepare(&mut bench.environment, args, with_one).await?);
            let what = format!("{WORKERS} workers, one job each until the bank answers");
            bench.one_job = Some(Series::new("one_job_per_thread", what));
        }
        bench.warm_up(args).await?;
        if let Some(rule) = &args.fault {
            bench.environment.bank.misbehave(rule).await?;
        }
        Ok(bench)
    }

    /// Work that is not measured, so that the first run is not the only cold one.
    async fn warm_up(&mut self, args: &Args) -> Result<(), CliError> {
        let ask = Ask { payouts: WARM_UP.min(args.payouts), rate: None, ..ask(args, 0, &self.accounts) };
        measure::warm_up(&mut self.environment, &ask).await
    }

    async fn all_rounds(&mut self, args: &Args) -> Result<(), CliError> {
        for round in 1..=args.runs {
            let run = measure::run(&mut self.environment, &ask(args, round, &self.accounts)).await?;
            push(&mut self.many, run, args);
            if let Some(one) = &mut self.one {
                let run = measure::run(&mut self.environment, &ask(args, round, &self.one_account)).await?;
                push(one, run, args);
            }
            if let Some(first) = &mut self.first_design {
                self.environment.stop_server().await;
                first.round(&self.environment, round, args).await?;
            }
            if self.one_job.is_some() {
                self.one_job_per_thread(round, args).await?;
            }
            if self.is_broken() {
                say("something is missing: no more rounds");
                return Ok(());
            }
        }
        Ok(())
    }

    fn is_broken(&self) -> bool {
        let first = self.first_design.iter().flat_map(|first| std::iter::once(&first.many).chain(&first.one));
        let mut all = std::iter::once(&self.many).chain(&self.one).chain(&self.one_job).chain(first);
        all.any(|series| series.runs.iter().any(|run| !run.gaps.is_empty()))
    }

    async fn one_job_per_thread(&mut self, round: u32, args: &Args) -> Result<(), CliError> {
        self.environment.restart_server(&one_job_per_thread::settings()).await?;
        let ask = Ask {
            payouts: args.baseline_payouts,
            clients: WORKERS.min(args.clients),
            rate: None,
            ..ask(args, round, &self.accounts)
        };
        let run = measure::run(&mut self.environment, &ask).await?;
        if let Some(series) = &mut self.one_job {
            push(series, run, args);
        }
        self.environment.restart_server(&BTreeMap::new()).await?;
        if round < args.runs { self.warm_up(args).await } else { Ok(()) }
    }

    fn report(&mut self, args: &Args, machine: Machine) -> Result<Report, CliError> {
        let mut baselines = Vec::new();
        if let Some(first) = &self.first_design {
            baselines.push((first.many.clone(), Compared::Many));
            baselines.extend(first.one.clone().map(|one| (one, Compared::One)));
        }
        baselines.extend(self.one_job.clone().map(|one_job| (one_job, Compared::Many)));
        Ok(Report {
            bench: "payouts",
            many: self.many.clone(),
            one: self.one.clone(),
            baselines,
            verified: None,
            machine,
            durability: self.environment.durability.clone(),
            settings: args.settings(&args.changes()?),
        })
    }
}

impl FirstDesign {
    async fn prepare(
        environment: &mut Environment<'_>,
        args: &Args,
        with_one: bool,
    ) -> Result<Self, CliError> {
        let count = usize::try_from(args.accounts).unwrap_or(usize::MAX);
        let design = CallInsideLock::set_up(environment, &args.manner()).await?;
        let many = args.each_minor(u64::from(args.accounts), args.baseline_payouts)?;
        let accounts = design.accounts(count, many).await?;
        let one = args.each_minor(1, args.baseline_payouts)?;
        let one_account = if with_one { design.accounts(1, one).await? } else { Vec::new() };
        let what = format!("{WORKERS} workers call the bank inside the lock");
        let many = Series::new("call_inside_lock", what.clone());
        let one =
            with_one.then(|| Series::new("call_inside_lock_one_account", format!("{what}, one account")));
        Ok(Self { design, accounts, one_account, many, one })
    }

    async fn round(
        &mut self,
        environment: &Environment<'_>,
        round: u32,
        args: &Args,
    ) -> Result<(), CliError> {
        let payouts = args.baseline_payouts;
        let run = self.design.run(environment, round, payouts, &self.accounts).await?;
        push(&mut self.many, run, args);
        if let Some(one) = &mut self.one {
            let run = self.design.run(environment, round, payouts, &self.one_account).await?;
            push(one, run, args);
        }
        Ok(())
    }
}

fn ask<'a>(args: &Args, round: u32, accounts: &'a [Uuid]) -> Ask<'a> {
    Ask {
        round,
        payouts: args.payouts,
        clients: args.clients,
        rate: args.rate,
        accounts,
        patience: environment::patience(args.bank_latency),
    }
}

fn push(series: &mut Series, run: Run, args: &Args) {
    say(&format!(
        "round {} of {}: {}: {} payouts in {:.1?}, {:.1} per second",
        run.round,
        args.runs,
        series.what,
        run.payouts,
        run.time,
        run.per_second()
    ));
    let others = report::others_percent(&run);
    if others > DISTURBING {
        say(&format!(
            "  other programs took {others} % of this machine meanwhile: the figures are worth less"
        ));
    }
    for gap in &run.gaps {
        say(&format!("  missing: {gap}"));
    }
    series.runs.push(run);
}
