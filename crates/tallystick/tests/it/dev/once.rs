//! Commands that play by themselves: `dev --once` and `demo`.

use super::{Dev, folder, said, tallystick};

#[test]
fn once_runs_one_payment_verifies_and_stops() {
    super::build_sandbox();
    let folder = folder();
    let data = folder.path().join("data");
    let mut command =
        tallystick(&["dev", "--once", "--listen", "127.0.0.1:0", "--sandbox-listen", "127.0.0.1:0"]);
    let once = command.arg("--data-dir").arg(&data).output().expect("the program runs");
    assert_eq!(once.status.code(), Some(0), "{}", said(&once));
    let said = said(&once);
    assert!(said.contains("is succeeded") && said.contains("I8 "), "{said}");
    assert!(!data.join("dev.json").exists(), "stopped in good order");
}

#[test]
fn the_demo_brings_its_own_environment() {
    super::build_sandbox();
    let folder = folder();
    let data = folder.path().join("data");
    let mut command = tallystick(&[
        "demo",
        "incident",
        "--once",
        "--listen",
        "127.0.0.1:0",
        "--sandbox-listen",
        "127.0.0.1:0",
    ]);
    let demo = command.arg("--data-dir").arg(&data).output().expect("the program runs");
    assert_eq!(demo.status.code(), Some(0), "{}", said(&demo));
    for part in [
        "Existing-Payment: true",
        "kind=payout_debited status=pending",
        "kind=payout_debited status=settled",
        "kind=payout_reversed status=failed",
        "type=payout.failed",
        "0 violated",
    ] {
        assert!(said(&demo).contains(part), "{part}: {}", said(&demo));
    }
    assert!(!data.join("dev.json").exists(), "stopped in good order");
}

#[tokio::test]
async fn the_demo_uses_a_running_dev_and_leaves_it_running() {
    let dev = Dev::start(&[("TALLYSTICK_GATEWAY_TIMEOUT", "500ms"), ("TALLYSTICK_SWEEP_AFTER", "1s")]);
    // Twice: what the first one left does not matter to the second.
    for _ in 0..2 {
        let demo = dev.command(&["demo"]);
        assert_eq!(demo.status.code(), Some(0), "{}", said(&demo));
    }
    dev.api().get("/health/ready").send().await.is(200);
}
