use std::time::Duration;

use super::*;
use crate::cli::bench::meter::Used;
use crate::cli::bench::scrape::Batches;

fn run(round: u32, seconds: u64) -> Run {
    let transactions = [("payout.create", 100.0), ("dispatch.claim", 50.0), ("ledger.other", 7.0)];
    let used = Used {
        server_us: 1_000_000,
        database_us: 500_000,
        bank_us: 250_000,
        load_us: 125_000,
        machine: cpu::Machine { busy: 75, stolen: 1, total: 100 },
        others_us: cpu::micros(3),
        commits: 250.0,
        writes: 200,
        wal_bytes: 4_000_000,
        transactions: transactions.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        batches: [("claim".to_owned(), Batches { count: 50.0, mean: 20.0, median_at_most: Some(32.0) })]
            .into(),
    };
    Run {
        round,
        payouts: 1_000,
        time: Duration::from_secs(seconds),
        accepting: Duration::from_secs(1),
        latencies: (1..=1_000).map(Duration::from_millis).collect(),
        used,
        refused: 0,
        detours: 0,
        overtaken: 0,
        gaps: Vec::new(),
    }
}

fn series(name: &'static str, seconds: &[u64]) -> Series {
    let runs = (1..).zip(seconds).map(|(round, seconds)| run(round, *seconds)).collect();
    Series { name, what: name.replace('_', " "), runs }
}

fn report() -> Report {
    Report {
        bench: "payouts",
        many: series("accounts", &[1, 2, 4]),
        one: Some(series("one_account", &[2, 2, 8])),
        baselines: vec![
            (series("call_inside_lock", &[50, 50, 50]), Compared::Many),
            (series("call_inside_lock_one_account", &[500, 500, 500]), Compared::One),
        ],
        verified: Some(Verified { ok: true, checks: Vec::new() }),
        machine: Machine {
            processor: "a processor".into(),
            processors: 2,
            memory_mib: 1_024,
            system: "linux 6".into(),
            file_system: "ext4".into(),
            sync_us: stats::spread([900.0]),
        },
        durability: Durability {
            server_version: "15.1".into(),
            fsync: "on".into(),
            synchronous_commit: "on".into(),
            full_page_writes: "on".into(),
            wal_sync_method: "fdatasync".into(),
            commit_delay: "0".into(),
            commit_siblings: "5".into(),
        },
        settings: json!({"payouts": 1_000}),
    }
}

#[test]
fn programs_find_the_members_that_are_promised() {
    let json = report().json();
    let result = &json["result"];
    assert_eq!(result["per_second"], json!({"median": 500.0, "min": 250.0, "max": 1_000.0}));
    assert_eq!(result["worker_cpu_us"], json!(1_000.0));
    assert_eq!(result["database_cpu_us"], json!(500.0));
    assert_eq!(result["commits_per_item"], json!(0.25));
    assert_eq!(result["wal_bytes_per_item"], json!(4_000.0));
    assert_eq!(result["latency_ms"], json!({"p50": 500.0, "p99": 990.0}));
    assert_eq!(result["spread"]["machine_busy_percent"], json!({"median": 75.0, "min": 75.0, "max": 75.0}));
    assert_eq!(result["others_busy_percent"], json!(3.0));
    assert_eq!(json["bench"], "payouts");
    assert_eq!(json["runs"].as_array().unwrap().len(), 6);
    assert_eq!(json["runs"][0]["batches"]["claim"]["mean"], json!(20.0));
    assert_eq!(json["baselines"]["call_inside_lock"]["per_second"]["median"], json!(20.0));
    assert_eq!(json["verify"], "ok");
    assert_eq!(json["machine"]["processors"], 2);
    assert_eq!(json["settings"]["payouts"], 1_000);
}

#[test]
fn ratios_are_taken_within_each_round() {
    let ratios = &report().json()["ratios"];
    // Rounds: 500/1000, 500/500, 125/250.
    assert_eq!(ratios["one_account_to_many"], json!({"median": 0.5, "min": 0.5, "max": 1.0}));
    assert_eq!(ratios["call_inside_lock"], json!({"median": 25.0, "min": 12.5, "max": 50.0}));
    // Compared with ours on one account: 500, 500 and 125 to 2.
    assert_eq!(ratios["call_inside_lock_one_account"], json!({"median": 250.0, "min": 62.5, "max": 250.0}));
}

#[test]
fn commits_are_told_by_step_and_nothing_is_left_out() {
    let steps = steps(&run(1, 1));
    assert_eq!((steps["accept"], steps["claim"], steps["record"]), (0.1, 0.05, 0.0));
    assert_eq!(steps["other"], 0.1, "250 commits less 150 of the steps");
    let sum = stats::rounded(stats::sum(steps.into_values()));
    assert_eq!(sum, 0.25);
}

#[test]
fn one_gap_or_one_violation_is_enough_to_fail() {
    assert!(report().holds());
    let mut gap = report();
    gap.baselines[0].0.runs[1].gaps.push(super::super::complete::Gap {
        what: "there is no journal",
        count: 2,
        payouts: Vec::new(),
    });
    assert!(!gap.holds());
    assert!(gap.gaps()[0].starts_with("call_inside_lock, round 2: 2 payouts: there is no journal"));
    let violated = Report { verified: Some(Verified { ok: false, checks: Vec::new() }), ..report() };
    assert!(!violated.holds());
    assert_eq!(violated.json()["verify"], "violated");
    assert!(!Report { verified: None, ..report() }.holds(), "not verified is not proved");
}

#[test]
fn people_see_every_figure_with_its_spread() {
    let text = report().text();
    for part in [
        "payouts per second, whole life          500 (250 to 1000)",
        "commits each, reading ones included",
        "webhook_apply",
        "BASELINE: CALL INSIDE LOCK",
        "ours to: call inside lock",
        "25.0 (12.5 to 50.0)",
        "verify      ok",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}
