//! Short chaos runs, as part of every test run. Longer ones: `make chaos`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn after_five_kills_under_faults_all_books_agree() {
    let report = all_books_agree(&[("payments", 200), ("kills", 5), ("seed", 11)]);
    assert_eq!(report["final_by_kind"]["payouts"], serde_json::json!({}), "{report}");
}

#[test]
fn after_kills_of_two_servers_payouts_and_balances_agree_with_the_banks_book() {
    let report = all_books_agree(&[("payments", 60), ("payouts", 200), ("kills", 6), ("seed", 12)]);
    assert_eq!(report["servers"], 2, "{report}");
    let payouts = &report["final_by_kind"]["payouts"];
    for status in ["succeeded", "failed", "returned"] {
        assert!(payouts[status].as_u64() > Some(0), "none {status}: {report}");
    }
    assert!(report["insufficient_funds"].as_u64() > Some(0), "an account had too little: {report}");
    assert!(report["balances_looked_at"].as_u64() > Some(0), "balances were looked at meanwhile: {report}");
}

/// Runs chaos with these numbers; gives its report, in which nothing is lost, doubled or left open.
fn all_books_agree(numbers: &[(&str, u64)]) -> Value {
    let xtask = Path::new(env!("CARGO_BIN_EXE_xtask"));
    let programs = xtask.parent().expect("a program is in a folder");
    build_what_is_missing(programs);
    let mut command = Command::new(xtask);
    command.args(["chaos", "--json"]).arg("--programs").arg(programs);
    for (name, number) in numbers {
        command.arg(format!("--{name}")).arg(number.to_string());
    }
    let run = command.output().expect("xtask runs");
    let said = format!("{}\n{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&run.stdout).expect(&said);
    for (name, expected) in numbers.iter().chain(&[("lost", 0), ("double_effects", 0), ("unknown_left", 0)]) {
        assert_eq!(report[name], *expected, "{name}: {said}");
    }
    assert_eq!(report["verify"], "ok", "{said}");
    let ended: u64 = report["final"].as_object().expect(&said).values().filter_map(Value::as_u64).sum();
    let wanted = |name: &str| numbers.iter().find(|(of, _)| *of == name).map_or(0, |(_, number)| *number);
    assert_eq!(ended, wanted("payments") + wanted("payouts"), "{said}");
    assert!(report["unknowns"].as_u64() > Some(0), "faults and kills left their mark: {said}");
    report
}

/// The programs are other packages'; a test run of the whole workspace has built them.
fn build_what_is_missing(programs: &Path) {
    if ["tallystick", "tallystick-sandbox"].iter().all(|name| programs.join(name).exists()) {
        return;
    }
    let profile = match programs.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "-p", "tallystick", "-p", "tallystick-sandbox", "--profile", profile]);
    let built =
        cargo.arg("--target-dir").arg(programs.parent().expect("a profile is in a target folder")).status();
    assert!(built.expect("cargo runs").success(), "the programs can be built");
}
