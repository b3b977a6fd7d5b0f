//! What was measured, as JSON for programs and as tables for people. No figure stands without its spread.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};
use tallystick_payments::verify::Report as Verified;
use tallystick_runner::figures::Durability;

use super::cpu;
use super::machine::Machine;
use super::measure::Run;
use super::stats::{self, Spread};
use crate::cli::table;

/// Names of the server's transactions by the step of a payout's life that they are.
const STEPS: [(&str, &[&str]); 5] = [
    ("accept", &["payout.create"]),
    ("claim", &["dispatch.claim"]),
    ("record", &["dispatch.record"]),
    ("webhook_store", &["inbound.store"]),
    ("webhook_apply", &["inbound.apply"]),
];
/// Everything else that was committed.
const OTHER: &str = "other";

/// Runs of one kind, one per round.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in JSON.
    pub name: &'static str,
    /// What it is, for people.
    pub what: String,
    /// Its runs.
    pub runs: Vec<Run>,
}

impl Series {
    /// A series without runs yet.
    pub fn new(name: &'static str, what: impl Into<String>) -> Self {
        Self { name, what: what.into(), runs: Vec::new() }
    }

    /// The spread of a figure over its runs.
    fn spread(&self, figure: impl Fn(&Run) -> f64) -> Option<Spread> {
        stats::spread(self.runs.iter().map(figure))
    }

    /// `self` in units of `other`, round by round: what both rounds had in common, a slow disk for one, falls out.
    fn to(&self, other: &Self) -> Option<Spread> {
        let pairs = self.runs.iter().filter_map(|run| {
            let beside = other.runs.iter().find(|beside| beside.round == run.round)?;
            Some(stats::ratio(run.per_second(), beside.per_second()))
        });
        stats::spread(pairs)
    }
}

/// Everything that was measured.
pub struct Report {
    /// Name of the bench.
    pub bench: &'static str,
    /// Our runs with all accounts.
    pub many: Series,
    /// Our runs with one account.
    pub one: Option<Series>,
    /// Other designs, each with ours that has the same number of accounts.
    pub baselines: Vec<(Series, Compared)>,
    /// What verify said.
    pub verified: Option<Verified>,
    /// The machine.
    pub machine: Machine,
    /// How commits were made durable.
    pub durability: Durability,
    /// What was asked for.
    pub settings: Value,
}

/// Which of our runs a baseline is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Those with all accounts.
    Many,
    /// Those with one account.
    One,
}

/// A figure of a run: its name in JSON, its name for people, and how it is got.
type Figure = (&'static str, &'static str, fn(&Run) -> f64);

const FIGURES: &[Figure] = &[
    ("per_second", "payouts per second, whole life", Run::per_second),
    ("accepted_per_second", "requests accepted per second", |run| {
        stats::per_second(run.payouts, run.accepting)
    }),
    ("latency_p50_ms", "request to settled, half of them, ms", |run| latency(run, 50)),
    ("latency_p99_ms", "request to settled, 99 of 100, ms", |run| latency(run, 99)),
    ("worker_cpu_us", "processor time, server, µs each", |run| stats::each(run.used.server_us, run.payouts)),
    ("database_cpu_us", "processor time, PostgreSQL, µs each", |run| {
        stats::each(run.used.database_us, run.payouts)
    }),
    ("bank_cpu_us", "processor time, bank, µs each", |run| stats::each(run.used.bank_us, run.payouts)),
    ("load_cpu_us", "processor time, load and feed, µs each", |run| {
        stats::each(run.used.load_us, run.payouts)
    }),
    ("machine_busy_percent", "the machine was busy, %", |run| {
        stats::percent(run.used.machine.busy, run.used.machine.total)
    }),
    ("others_busy_percent", "busy with other programs, %", others_percent),
    ("machine_stolen_percent", "taken by other machines on it, %", |run| {
        stats::percent(run.used.machine.stolen, run.used.machine.total)
    }),
    ("commits_per_item", "commits each, reading ones included", |run| {
        stats::ratio(run.used.commits, count(run.payouts))
    }),
    ("writes_per_item", "transactions each that wrote", |run| stats::each(run.used.writes, run.payouts)),
    ("wal_bytes_per_item", "write-ahead log, bytes each", |run| stats::each(run.used.wal_bytes, run.payouts)),
];

/// How much of the machine programs took that have no part in a run.
pub fn others_percent(run: &Run) -> f64 {
    stats::percent(run.used.others_us, cpu::micros(run.used.machine.total))
}

/// Counts here are far below the integers that a float holds exactly.
fn count(items: u64) -> f64 {
    items as f64
}

fn latency(run: &Run, percent: usize) -> f64 {
    stats::percentile(&run.latencies, percent).map_or(0.0, stats::millis)
}

/// Transactions per item by step. What is committed without a name, outside of the steps, by the measuring itself, or
/// by PostgreSQL's own upkeep, is `other`.
fn steps(run: &Run) -> BTreeMap<&'static str, f64> {
    let of_step = |names: &[&str]| -> f64 {
        stats::sum(names.iter().map(|name| run.used.transactions.get(*name).copied().unwrap_or(0.0)))
    };
    let mut found: BTreeMap<&'static str, f64> = BTreeMap::new();
    let mut named = Vec::new();
    for (step, names) in STEPS {
        let transactions = of_step(names);
        named.push(transactions);
        found.insert(step, stats::ratio(transactions, count(run.payouts)));
    }
    let rest = stats::less(run.used.commits, stats::sum(named));
    found.insert(OTHER, stats::ratio(rest, count(run.payouts)));
    found
}

impl Report {
    /// True when nothing is missing anywhere and verify holds.
    pub fn holds(&self) -> bool {
        self.gaps().is_empty() && self.verified.as_ref().is_some_and(|verified| verified.ok)
    }

    /// What is missing, run by run, for people.
    pub fn gaps(&self) -> Vec<String> {
        let of = |series: &Series| -> Vec<String> {
            let in_run = |run: &Run| -> Vec<String> {
                run.gaps.iter().map(|gap| format!("{}, round {}: {gap}", series.name, run.round)).collect()
            };
            series.runs.iter().flat_map(in_run).collect()
        };
        self.all().flat_map(of).collect()
    }

    fn all(&self) -> impl Iterator<Item = &Series> {
        std::iter::once(&self.many).chain(&self.one).chain(self.baselines.iter().map(|(series, _)| series))
    }

    fn ours(&self, compared: Compared) -> &Series {
        match (compared, &self.one) {
            (Compared::One, Some(one)) => one,
            _ => &self.many,
        }
    }

    fn ratios(&self) -> Vec<(&'static str, String, Spread)> {
        let mut ratios = Vec::new();
        if let Some(one) = &self.one
            && let Some(ratio) = one.to(&self.many)
        {
            ratios.push(("one_account_to_many", "one account to many accounts".to_owned(), ratio));
        }
        for (series, compared) in &self.baselines {
            if let Some(ratio) = self.ours(*compared).to(series) {
                ratios.push((series.name, format!("ours to: {}", series.what), ratio));
            }
        }
        ratios
    }

    /// The form that programs read.
    pub fn json(&self) -> Value {
        let baselines: Map<String, Value> = self
            .baselines
            .iter()
            .map(|(series, _)| {
                let mut figures = summary(series);
                figures.insert("what".into(), json!(series.what));
                (series.name.to_owned(), Value::Object(figures))
            })
            .collect();
        let ratios: Map<String, Value> =
            self.ratios().into_iter().map(|(name, _, ratio)| (name.to_owned(), json!(ratio))).collect();
        let all = [Some(&self.many), self.one.as_ref()];
        let runs: Vec<Value> = all
            .into_iter()
            .flatten()
            .flat_map(|series| series.runs.iter().map(|run| of_run(series.name, run)))
            .collect();
        let baseline_runs: Vec<Value> = self
            .baselines
            .iter()
            .flat_map(|(series, _)| series.runs.iter().map(|run| of_run(series.name, run)))
            .collect();
        json!({
            "bench": self.bench,
            "result": summary(&self.many),
            "one_account": self.one.as_ref().map(summary),
            "runs": runs,
            "baselines": baselines,
            "baseline_runs": baseline_runs,
            "ratios": ratios,
            "missing": self.gaps(),
            "verify": self.verify_word(),
            "machine": self.machine,
            "settings": self.settings,
            "durability": durability(&self.durability),
        })
    }

    fn verify_word(&self) -> &'static str {
        match &self.verified {
            Some(verified) if verified.ok => "ok",
            Some(_) => "violated",
            None => "not run",
        }
    }

    /// The tables that people read.
    pub fn text(&self) -> String {
        let ours: Vec<&Series> = std::iter::once(&self.many).chain(&self.one).collect();
        let mut out = figures_table(&ours, FIGURES);
        out.push('\n');
        out.push_str(&steps_table(&ours));
        out.push('\n');
        out.push_str(&batches_table(&ours));
        if !self.baselines.is_empty() {
            out.push('\n');
            out.push_str(&self.baselines_table());
        }
        let ratios = self.ratios();
        if !ratios.is_empty() {
            let row = |(_, what, ratio): (&str, String, Spread)| vec![what, shown(ratio)];
            let rows: Vec<Vec<String>> = ratios.into_iter().map(row).collect();
            out.push('\n');
            out.push_str(&table::render(&["PAYOUTS PER SECOND", "TIMES"], &rows));
        }
        let Durability { server_version, wal_sync_method, commit_delay, commit_siblings, .. } =
            &self.durability;
        let Machine { processor, processors, memory_mib, system, file_system, sync_us } = &self.machine;
        let sync = sync_us.map_or_else(|| "unknown".to_owned(), |spread| format!("{} µs", shown(spread)));
        out.push_str(&format!(
            "\nEach figure is the median of {} runs, in brackets the smallest and the largest.\n\
             machine     {processor}, {processors} processors, {memory_mib} MiB, {system}\n\
             disk        {file_system}, a synced write takes {sync}\n\
             PostgreSQL  {server_version}, fsync, synchronous_commit and full_page_writes on, {wal_sync_method}, \
             commit_delay {commit_delay}, commit_siblings {commit_siblings}\n\
             verify      {}\n",
            self.many.runs.len(),
            self.verify_word(),
        ));
        out
    }

    fn baselines_table(&self) -> String {
        let shown_figures: [&str; 6] = [
            "per_second",
            "latency_p50_ms",
            "worker_cpu_us",
            "database_cpu_us",
            "commits_per_item",
            "wal_bytes_per_item",
        ];
        let chosen: Vec<Figure> =
            FIGURES.iter().filter(|(name, ..)| shown_figures.contains(name)).copied().collect();
        let baselines: Vec<&Series> = self.baselines.iter().map(|(series, _)| series).collect();
        let mut out = String::new();
        for series in baselines {
            let items: Vec<u64> = series.runs.iter().map(|run| run.payouts).collect();
            let rows = chosen
                .iter()
                .filter_map(|(_, what, get)| Some(vec![(*what).to_owned(), shown(series.spread(get)?)]));
            let heading = format!("BASELINE: {}", series.what.to_uppercase());
            out.push_str(&table::render(
                &[&heading, &format!("{items:?} PAYOUTS")],
                &rows.collect::<Vec<_>>(),
            ));
            out.push('\n');
        }
        out
    }
}

fn figures_table(series: &[&Series], figures: &[Figure]) -> String {
    let headings: Vec<String> = series.iter().map(|series| series.what.to_uppercase()).collect();
    let headings: Vec<&str> = std::iter::once("FIGURE").chain(headings.iter().map(String::as_str)).collect();
    let row = |(_, what, get): &Figure| {
        let cells = series.iter().map(|series| series.spread(get).map_or_else(|| "-".to_owned(), shown));
        std::iter::once((*what).to_owned()).chain(cells).collect()
    };
    table::render(&headings, &figures.iter().map(row).collect::<Vec<Vec<String>>>())
}

fn steps_table(series: &[&Series]) -> String {
    let headings: Vec<String> = series.iter().map(|series| series.what.to_uppercase()).collect();
    let headings: Vec<&str> =
        std::iter::once("COMMITS EACH, BY STEP").chain(headings.iter().map(String::as_str)).collect();
    let names = STEPS.iter().map(|(name, _)| *name).chain([OTHER]);
    let row = |name: &'static str| {
        let get = |run: &Run| steps(run).get(name).copied().unwrap_or(0.0);
        let cells = series.iter().map(|series| series.spread(get).map_or_else(|| "-".to_owned(), shown));
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    table::render(&headings, &names.map(row).collect::<Vec<Vec<String>>>())
}

fn batches_table(series: &[&Series]) -> String {
    let headings: Vec<String> = series.iter().map(|series| series.what.to_uppercase()).collect();
    let headings: Vec<&str> =
        std::iter::once("ITEMS IN ONE TRANSACTION").chain(headings.iter().map(String::as_str)).collect();
    let mut names: Vec<&str> = series
        .iter()
        .flat_map(|s| s.runs.iter().flat_map(|run| run.used.batches.keys().map(String::as_str)))
        .collect();
    names.sort_unstable();
    names.dedup();
    let row = |name: &str| {
        let get = |run: &Run| run.used.batches.get(name).map_or(0.0, |batches| batches.mean);
        let cells = series.iter().map(|series| series.spread(get).map_or_else(|| "-".to_owned(), shown));
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    table::render(&headings, &names.into_iter().map(row).collect::<Vec<Vec<String>>>())
}

/// The members that the contract names, as medians, and the spread of each figure.
fn summary(series: &Series) -> Map<String, Value> {
    let mut members = Map::new();
    let mut spreads = Map::new();
    let median = |get: fn(&Run) -> f64| series.spread(get).map(|spread| spread.median);
    for (name, _, get) in FIGURES {
        let Some(spread) = series.spread(get) else { continue };
        spreads.insert((*name).to_owned(), json!(spread));
        match *name {
            "per_second" => members.insert("per_second".into(), json!(spread)),
            "latency_p50_ms" | "latency_p99_ms" => None,
            name => members.insert(name.to_owned(), json!(spread.median)),
        };
    }
    let latency = json!({"p50": median(|run| latency(run, 50)), "p99": median(|run| latency(run, 99))});
    members.insert("latency_ms".into(), latency);
    let names = STEPS.iter().map(|(name, _)| *name).chain([OTHER]);
    let commits: Map<String, Value> = names
        .filter_map(|name| {
            let spread = series.spread(|run| steps(run).get(name).copied().unwrap_or(0.0))?;
            Some((name.to_owned(), json!(spread.median)))
        })
        .collect();
    members.insert("commits_by_step".into(), Value::Object(commits));
    members.insert("payouts".into(), json!(series.runs.iter().map(|run| run.payouts).collect::<Vec<u64>>()));
    members.insert("spread".into(), Value::Object(spreads));
    members
}

fn of_run(series: &str, run: &Run) -> Value {
    let mut members = Map::new();
    members.insert("series".into(), json!(series));
    members.insert("round".into(), json!(run.round));
    members.insert("payouts".into(), json!(run.payouts));
    members.insert("seconds".into(), json!(stats::rounded(run.time.as_secs_f64())));
    for (name, _, get) in FIGURES.iter().filter(|(name, ..)| !name.starts_with("latency")) {
        members.insert((*name).to_owned(), json!(get(run)));
    }
    members.insert("latency_ms".into(), json!({"p50": latency(run, 50), "p99": latency(run, 99)}));
    members.insert("commits_by_step".into(), json!(steps(run)));
    members.insert("transactions".into(), json!(run.used.transactions));
    members.insert("batches".into(), json!(run.used.batches));
    members.insert("refused".into(), json!(run.refused));
    members.insert("detours".into(), json!(run.detours));
    members.insert("overtaken".into(), json!(run.overtaken));
    members.insert("missing".into(), json!(run.gaps));
    Value::Object(members)
}

#[derive(Serialize)]
struct Shown<'a> {
    server_version: &'a str,
    fsync: &'a str,
    synchronous_commit: &'a str,
    full_page_writes: &'a str,
    wal_sync_method: &'a str,
    commit_delay_us: &'a str,
    commit_siblings: &'a str,
}

fn durability(durability: &Durability) -> Value {
    json!(Shown {
        server_version: &durability.server_version,
        fsync: &durability.fsync,
        synchronous_commit: &durability.synchronous_commit,
        full_page_writes: &durability.full_page_writes,
        wal_sync_method: &durability.wal_sync_method,
        commit_delay_us: &durability.commit_delay,
        commit_siblings: &durability.commit_siblings,
    })
}

/// `1234 (1200 to 1260)`; fewer digits where there are many before the point.
fn shown(spread: Spread) -> String {
    let one = |figure: f64| {
        let digits = match figure.abs() {
            size if size >= 100.0 => 0,
            size if size >= 10.0 => 1,
            size if size >= 1.0 => 2,
            _ => 4,
        };
        format!("{figure:.digits$}")
    };
    format!("{} ({} to {})", one(spread.median), one(spread.min), one(spread.max))
}

#[cfg(test)]
mod tests;
