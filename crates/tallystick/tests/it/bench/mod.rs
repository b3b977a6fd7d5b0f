//! `tallystick bench` from the outside: the form of its figures, what it says when something is missing, what it
//! leaves behind.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::dev::{build_sandbox, folder, pause, said, signal, tallystick};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// A short run with a bank in a hurry.
const SHORT: &[&str] =
    &["bench", "payouts", "--json", "--runs=1", "--clients=8", "--accounts=4", "--bank-latency=20ms"];

fn bench(work_in: &Path, more: &[&str]) -> Command {
    build_sandbox();
    let mut command = tallystick(&[SHORT, more].concat());
    command.current_dir(work_in);
    command
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("no JSON: {e}: {}", said(output)))
}

/// Processes that were started for an environment in this folder and still run.
fn left_in(folder: &Path) -> Vec<String> {
    let mark = folder.to_str().expect("a plain path").as_bytes().to_vec();
    let mut left = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("processes can be listed").flatten() {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let place = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        if environment.windows(mark.len()).any(|part| part == mark) || place.starts_with(folder) {
            left.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    left
}

#[test]
fn figures_have_the_promised_form_and_nothing_is_left_behind() {
    let folder = folder();
    let output =
        bench(folder.path(), &["--payouts=40", "--baseline-payouts=10"]).output().expect("the program runs");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let json = json(&output);
    let number = |path: &str| json.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN);
    for path in [
        "/result/per_second/median",
        "/result/per_second/min",
        "/result/per_second/max",
        "/result/wal_bytes_per_item",
        "/result/latency_ms/p50",
        "/result/latency_ms/p99",
        "/result/commits_by_step/accept",
        "/result/commits_by_step/webhook_apply",
        "/one_account/per_second/median",
        "/runs/0/batches/create/mean",
        "/baselines/call_inside_lock/per_second/median",
        "/baselines/call_inside_lock_one_account/per_second/median",
        "/baselines/one_job_per_thread/per_second/median",
        "/ratios/one_account_to_many/median",
        "/ratios/call_inside_lock/median",
        "/ratios/call_inside_lock_one_account/max",
        "/ratios/one_job_per_thread/min",
        "/machine/processors",
        "/settings/payouts",
    ] {
        assert!(number(path) > 0.0, "{path} in {json}");
    }
    // Of few payouts these may be nothing: processor time comes in steps of 10 ms, and what an idle server commits by
    // itself is taken off the commits.
    let small = ["worker_cpu_us", "database_cpu_us", "bank_cpu_us", "load_cpu_us", "commits_per_item"];
    for path in small.map(|name| format!("/result/{name}")) {
        assert!(number(&path) >= 0.0, "{path} in {json}");
    }
    assert_eq!(json["bench"], "payouts");
    assert_eq!(json["verify"], "ok");
    assert_eq!(json["missing"], serde_json::json!([]));
    assert_eq!(json["runs"].as_array().map(Vec::len), Some(2), "{json}");
    assert_eq!(json["durability"]["fsync"], "on");
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0, "its folder is gone");
    assert_eq!(left_in(folder.path()), [""; 0]);
}

#[test]
fn webhooks_that_were_dropped_are_missing_and_the_run_fails() {
    let folder = folder();
    let data = folder.path().join("kept");
    let rule = r#"{"operation": "webhook", "fault": "drop", "times": 3}"#;
    let mut command =
        bench(folder.path(), &["--payouts=40", "--one-account=off", "--baselines=off", "--fault", rule]);
    // The payouts still come to their end: the bank is asked.
    command.arg("--data-dir").arg(&data).env("TALLYSTICK_STATUS_CHECK_AFTER", "1s");
    let output = command.output().expect("the program runs");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let json = json(&output);
    let gaps = json["runs"][0]["missing"].as_array().expect("a list");
    let [gap] = &gaps[..] else { panic!("one gap: {}", said(&output)) };
    assert_eq!(gap["what"], "the bank's webhook about it was not taken");
    assert_eq!(gap["count"], 3);
    assert_eq!(json["runs"][0]["payouts"], 40);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("3 payouts: the bank's webhook"),
        "{}",
        said(&output)
    );
    assert!(data.join("logs/server.log").is_file(), "what was asked for is kept");
    assert!(!data.join("dev.json").exists() && left_in(folder.path()).is_empty(), "but nothing runs");
}

#[test]
fn ctrl_c_ends_everything_and_is_no_success() {
    let folder = folder();
    let log = folder.path().join("said");
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).expect("a folder can be made");
    let mut command = bench(&inner, &["--payouts=1000000"]);
    command.stderr(std::fs::File::create(&log).expect("a log can be written"));
    let mut child = command.spawn().expect("the program runs");
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    let deadline = Instant::now() + PATIENCE;
    while !text().contains("opening and funding") {
        let ended = child.try_wait().expect("a child can be asked");
        assert!(ended.is_none() && Instant::now() < deadline, "{ended:?}: {}", text());
        pause();
    }
    signal(i32::try_from(child.id()).expect("a process id"), Signal::SIGINT);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be asked") {
            break status;
        }
        assert!(Instant::now() < deadline, "it does not end: {}", text());
        pause();
    };
    assert_eq!(status.code(), Some(1), "{}", text());
    assert!(text().contains("SIGINT: nothing was measured"), "{}", text());
    assert_eq!(std::fs::read_dir(&inner).expect("it is there").count(), 0, "its folder is gone");
    assert_eq!(left_in(folder.path()), [""; 0]);
}
