//! A short chaos run, as part of every test run. Longer ones: `make chaos`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const PAYMENTS: u64 = 200;
const KILLS: u64 = 5;

#[test]
fn after_five_kills_under_faults_all_books_agree() {
    let xtask = Path::new(env!("CARGO_BIN_EXE_xtask"));
    let programs = xtask.parent().expect("a program is in a folder");
    build_what_is_missing(programs);
    let run = Command::new(xtask)
        .args([
            "chaos",
            "--seed",
            "11",
            "--json",
            "--payments",
            &PAYMENTS.to_string(),
            "--kills",
            &KILLS.to_string(),
        ])
        .arg("--programs")
        .arg(programs)
        .output()
        .expect("xtask runs");
    let said = format!("{}\n{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&run.stdout).expect(&said);
    for (name, expected) in
        [("payments", PAYMENTS), ("kills", KILLS), ("lost", 0), ("double_effects", 0), ("unknown_left", 0)]
    {
        assert_eq!(report[name], expected, "{name}: {said}");
    }
    assert_eq!(report["verify"], "ok", "{said}");
    let ended: u64 = report["final"].as_object().expect(&said).values().filter_map(Value::as_u64).sum();
    assert_eq!(ended, PAYMENTS, "{said}");
    assert!(report["unknowns"].as_u64() > Some(0), "faults and kills left their mark: {said}");
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
