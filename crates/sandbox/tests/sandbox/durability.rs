//! What was answered survives kill -9, and what was left to do is done after it.

use std::io::Write;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Hook, Sandbox, charge, done, until};
use nix::sys::signal::Signal;
use serde_json::json;

#[test]
fn a_restart_after_kill_restores_everything() {
    let mut sandbox = Sandbox::new();
    sandbox.set(json!({"seed": 42, "payout_multiple": {"HUF": 100}}));
    let first = sandbox.charge("k", "tok_ok");
    sandbox.charge("no", "tok_decline");
    sandbox.swallowed("sandbox/charges", "never", &charge("tok_never_seen"));
    assert_eq!(sandbox.charge("before", "tok_error_before").status, 500);
    sandbox.fault(json!({"operation": "payout", "fault": "decline", "times": 2}));
    assert_eq!(sandbox.pay_out("p", "acct_ok").status, 402);
    sandbox.post("/_mix", json!({"seed": 3, "rates": {"garbage": 0.5}}));
    sandbox.post("/_clock", json!({"advance": "5h"}));
    sandbox.post("/_facts", json!({"fact": "refund", "key": "k", "amount_minor": 1}));
    sandbox.hook.wait_for("k", 2);
    until("the last deliveries", || (sandbox.deliveries("k") == 2).then_some(()));
    // Delivery results and questions are written within a moment even when nobody waits for them.
    let written = sandbox.journal();
    until("all is written", || {
        (std::fs::read_to_string(&written).ok()?.matches("\"delivered\"").count() >= 4).then_some(())
    });
    let paths =
        ["/_book", "/_requests", "/_events", "/_settings", "/_faults", "/_mix", "/_balance", "/_settlement"];
    let before = paths.map(|path| sandbox.call("GET", path, None).body);
    sandbox.kill();
    sandbox.start_again();
    let after = paths.map(|path| sandbox.call("GET", path, None).body);
    assert_eq!(before, after);
    assert_eq!(sandbox.charge("k", "tok_ok").body, first.body, "the key is still known");
    sandbox.post("/_mix", json!({"seed": 0, "rates": {}}));
    assert_eq!(sandbox.charge("never", "tok_never_seen").status, 200, "its vanishing is over");
    assert_eq!(sandbox.charge("before", "tok_error_before").status, 500, "the second of two");
    assert_eq!(sandbox.charge("before", "tok_error_before").status, 200);
    assert_eq!(sandbox.pay_out("q", "acct_ok").status, 402, "the rule had one case left");
    assert_eq!(sandbox.pay_out("r", "acct_ok").status, 202);
}

#[test]
fn what_was_left_to_do_is_done_after_a_restart() {
    let mut sandbox = Sandbox::new();
    sandbox.hook.answer(500);
    sandbox.charge("told", "tok_ok");
    sandbox.charge("late", "tok_late");
    sandbox.pay_out("back", "acct_returned");
    sandbox.hook.wait_for("told", 1);
    sandbox.kill();
    sandbox.hook.answer(200);
    sandbox.start_again();
    sandbox.becomes("late", "captured");
    sandbox.becomes("back", "returned");
    sandbox.hook.wait_for("late", 1);
    sandbox.hook.wait_for("back", 2);
    sandbox.hook.wait_for("told", 2);
    assert_eq!((sandbox.effects("late"), sandbox.effects("back").len()), (vec![done("charge", 1000)], 2));
}

#[test]
fn nothing_answered_is_lost_when_killed_under_load() {
    let mut sandbox = Sandbox::new();
    let answered = AtomicUsize::new(0);
    let mut keys = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                let (sandbox, answered) = (&sandbox, &answered);
                scope.spawn(move || {
                    let mut good = Vec::new();
                    for n in 0.. {
                        let key = format!("k-{worker}-{n}");
                        match sandbox.try_submit(
                            "sandbox/charges",
                            &key,
                            &charge("tok_ok"),
                            Duration::from_secs(5),
                        ) {
                            Ok(answer) if answer.status == 200 => good.push(key),
                            _ => return good,
                        }
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    good
                })
            })
            .collect();
        until("some answers", || (answered.load(Ordering::Relaxed) >= 200).then_some(()));
        sandbox.signal(Signal::SIGKILL);
        keys = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    });
    sandbox.kill();
    sandbox.start_again();
    assert!(keys.len() >= 200);
    for key in &keys {
        assert_eq!(sandbox.effects(key), [done("charge", 1000)], "{key}");
    }
}

#[test]
fn a_torn_last_line_is_dropped() {
    let mut sandbox = Sandbox::new();
    sandbox.charge("k", "tok_ok");
    sandbox.kill();
    let mut file = std::fs::OpenOptions::new().append(true).open(sandbox.journal()).unwrap();
    file.write_all(b"[{\"effect\":{\"seq\":2,\"at\":17").unwrap();
    drop(file);
    sandbox.start_again();
    assert_eq!(sandbox.get("/_book")["effects"].as_array().unwrap().len(), 1);
    sandbox.charge("l", "tok_ok");
    sandbox.kill();
    sandbox.start_again();
    assert_eq!(sandbox.get("/_book")["effects"].as_array().unwrap().len(), 2);
}

#[test]
fn one_program_per_folder_and_a_clean_stop() {
    let mut sandbox = Sandbox::new();
    let twin = sandbox.twin().output().unwrap();
    let said = String::from_utf8_lossy(&twin.stderr).into_owned();
    assert_eq!(twin.status.code(), Some(3), "{said}");
    assert!(said.contains("in use"), "{said}");
    sandbox.charge("k", "tok_ok");
    sandbox.swallowed("sandbox/charges", "lost", &charge("tok_lost_reply"));
    let begun = Instant::now();
    assert_eq!(sandbox.stop(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(5));
    sandbox.start_again();
    assert_eq!(sandbox.effects("k").len(), 1);
    let wrong = sandbox.twin().env_remove("TALLYSTICK_SANDBOX_SECRET").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let wrong = sandbox.twin().env("TALLYSTICK_SANDBOX_WEBHOOK_SECRET", "plain").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn each_submit_is_one_whole_line_before_its_answer() {
    let sandbox = Sandbox::new();
    sandbox.set(json!({"webhooks": false}));
    let (workers, each) = (16, 25);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let sandbox = &sandbox;
            scope.spawn(move || {
                for n in 0..each {
                    assert_eq!(sandbox.charge(&format!("k-{worker}-{n}"), "tok_ok").status, 200);
                }
            });
        }
    });
    let text = std::fs::read_to_string(sandbox.journal()).unwrap();
    let lines = text.lines().filter(|line| line.contains("\"effect\"")).count();
    assert_eq!(lines, workers * each);
    let journal = sandbox.get("/_health")["journal"].clone();
    assert!(journal["syncs"].as_u64() <= journal["lines"].as_u64(), "{journal}");
    let page = sandbox.get("/_book?after=100&limit=7");
    let seqs: Vec<_> =
        page["effects"].as_array().unwrap().iter().map(|e| e["seq"].as_u64().unwrap()).collect();
    assert_eq!((seqs, &page["next"]), ((101..108).collect(), &json!(107)));
}

#[test]
fn a_receiver_that_is_away_is_tried_until_it_is_back() {
    let mut sandbox = Sandbox::new();
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    sandbox.kill();
    sandbox.hook.address = away;
    sandbox.start_again();
    sandbox.pay_out("k", "acct_ok");
    let failed = until("failed deliveries", || {
        let deliveries = sandbox.events("k").first()?["deliveries"].as_array()?.clone();
        (deliveries.len() >= 2).then_some(deliveries)
    });
    assert!(failed.iter().all(|d| d["status"].is_null()), "{failed:?}");
    sandbox.hook = Hook::on(TcpListener::bind(away).unwrap());
    assert!(sandbox.hook.wait_for("k", 1)[0].is_signed());
}
