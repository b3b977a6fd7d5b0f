//! The command line's texts and exit codes, and documents that are made from the code.

mod requeue;

use std::path::{Path, PathBuf};

use crate::dev::{ran, said};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Compares a document with what the code says, between its two markers; rewrites it with `UPDATE_DOCS=1`.
#[track_caller]
fn compare(file: &str, section: &str, generated: &str) {
    let path = docs().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (begin, end) = (format!("<!-- generated: {section} -->\n"), format!("<!-- end: {section} -->"));
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{file} has no marker {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{file} has no marker {end}"));
    let right = format!("{before}{begin}\n{}\n\n{end}{after}", generated.trim());
    if right == text {
        return;
    }
    assert!(
        std::env::var_os("UPDATE_DOCS").is_some(),
        "docs/{file} is not what the code says: run with UPDATE_DOCS=1"
    );
    std::fs::write(&path, right).expect("the document can be written");
}

#[test]
fn the_reference_of_settings_is_what_the_code_reads() {
    compare("settings.md", "settings", &tallystick::config::settings::reference());
}

#[test]
fn the_reference_of_metrics_is_what_the_code_counts() {
    compare("operations.md", "metrics", &tallystick::telemetry::reference());
}

#[test]
fn the_reference_of_commands_is_their_help() {
    let mut text = String::new();
    for (name, help) in tallystick::cli::help_of_all() {
        let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
        text.push_str(&format!("## `{name}`\n\n```text\n{}\n```\n\n", help.join("\n")));
    }
    compare("commands.md", "commands", &text);
}

/// Every name in a macro of the crate `metrics` is described, and every described one is used.
#[test]
fn every_metric_is_described() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut used = std::collections::BTreeSet::new();
    let mut folders: Vec<PathBuf> = ["runner", "ledger", "outbox", "gateway", "payments", "tallystick"]
        .map(|name| crates.join(name).join("src"))
        .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("sources are there").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("telemetry.rs") {
                let text = std::fs::read_to_string(&path).expect("sources are text");
                let quoted = text.split('"').skip(1).step_by(2).filter(|word| is_metric(word));
                used.extend(quoted.map(str::to_owned));
            }
        }
    }
    let described = tallystick::telemetry::METRICS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(used, described);
}

fn is_metric(word: &str) -> bool {
    let ends =
        ["_total", "_seconds", "_size", "_up", "_flight", "_payments", "_operations", "_open", "_left"];
    word.starts_with("tallystick_")
        && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        && ends.iter().any(|end| word.ends_with(end))
        && word != "tallystick_payments"
}

#[test]
fn wrong_use_is_exit_2_and_help_is_exit_0() {
    for (args, code) in [
        (&[][..], 2),
        (&["--help"], 0),
        (&["--version"], 0),
        (&["help", "dev"], 0),
        (&["serve", "--help"], 0),
        (&["fly"], 2),
        (&["dev", "--colour"], 2),
        (&["tenants"], 2),
        (&["keys", "create", "--tenant", "x", "--scope", "king"], 2),
        (&["keys", "revoke", "not-an-id"], 2),
        (&["tenants", "list", "--data-dir", "a", "--database-url", "b"], 2),
        (&["tenants", "list"], 2),
        (&["tenants", "list", "--data-dir", "/nowhere"], 3),
        (&["verify", "--data-dir", "/nowhere"], 3),
        (&["payouts"], 2),
        (&["payouts", "list"], 2),
        (&["payouts", "list", "--status", "gone"], 2),
        (&["payouts", "list", "--limit", "0"], 2),
        (&["payouts", "list", "--limit", "10001"], 2),
        (&["payouts", "list", "--without-work", "--data-dir", "/nowhere"], 3),
        (&["requeue"], 2),
        (&["requeue", "not-an-id"], 2),
        (&["requeue", "--without-work", "0198c5a0-5f3e-7cc1-9f57-2d1f0a4c8e11"], 2),
        (&["requeue", "--without-work", "--data-dir", "/nowhere"], 3),
        (&["migrate"], 2),
        (&["bench"], 2),
        (&["bench", "payouts", "--payouts", "0"], 2),
        (&["bench", "payouts", "--bank-spread", "2"], 2),
        (&["bench", "payouts", "--clients", "0"], 2),
        (&["bench", "payouts", "--commit-latency", "1s"], 2),
        (&["bench", "payouts", "--fault", "{"], 2),
        (&["migrate", "--sql"], 0),
    ] {
        let output = ran(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", said(&output));
        assert_eq!(code == 0, output.stderr.is_empty(), "errors go to stderr: {args:?}: {}", said(&output));
    }
}
