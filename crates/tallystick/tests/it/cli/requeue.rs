//! `tallystick requeue` and `tallystick payouts list`, as an operator runs them after a repair by hand.

use std::collections::BTreeSet;
use std::process::Output;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::dev::{Dev, ran, said};
use crate::flows::payouts::wanted;
use crate::serve::stopping::Second;
use crate::support::until;

/// The server of `dev` only takes requests; others do the work. Nothing is looked at again by itself.
const SLOW: [(&str, &str); 5] = [
    ("TALLYSTICK_GATEWAY_TIMEOUT", "1s"),
    ("TALLYSTICK_LEASE", "3s"),
    ("TALLYSTICK_SWEEP_AFTER", "300s"),
    ("TALLYSTICK_SWEEP_MAX_BACKOFF", "300s"),
    ("TALLYSTICK_STATUS_CHECK_AFTER", "300s"),
];
const WORK: [&str; 2] = ["--roles", "dispatch"];

fn answer(output: &Output, code: i32) -> Value {
    assert_eq!(output.status.code(), Some(code), "{}", said(output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(output)))
}

/// The ids that a list tells.
fn ids(list: &Value) -> Vec<String> {
    let rows = list["payouts"].as_array().expect("a list");
    rows.iter().map(|row| row["payout_id"].as_str().expect("an id").to_owned()).collect()
}

fn list(dev: &Dev, args: &[&str]) -> Value {
    answer(&dev.command(&[&["payouts", "list", "--json"], args].concat()), 0)
}

async fn create(dev: &Dev, account: &str, destination: &str) -> String {
    dev.api().pay_out(&wanted(account, destination, 100)).send().await.is(202).text("payout_id")
}

/// Payouts whose rows are gone, in every state: acknowledged, unknown, with a dead worker, never claimed. Oldest first.
async fn lose(dev: &Dev, account: &str) -> Vec<String> {
    dev.tell_sandbox("PUT", "/_settings", &json!({"webhooks": false})).await;
    let worker = Second::start(dev, &WORK, &SLOW).await;
    let acknowledged = create(dev, account, "acct_ok").await;
    dev.api().payout_in(&acknowledged, "processing").await;
    let unknown = create(dev, account, "acct_lost_reply").await;
    dev.api().payout_in(&unknown, "unknown").await;
    dev.tell_sandbox("POST", "/_faults", &json!({"operation": "payout", "fault": "delay", "delay": "900ms"}))
        .await;
    let dead_worker = create(dev, account, "acct_ok").await;
    until("the bank has paid", async || (!dev.effects(&dead_worker).await.is_empty()).then_some(())).await;
    worker.signal(Signal::SIGKILL);
    drop(worker);
    assert_eq!(dev.api().payout(&dead_worker).await["status"], "pending", "the answer reached nobody");
    let never_claimed = create(dev, account, "acct_ok").await;
    let deleted = sqlx::query("DELETE FROM payments.dispatch").execute(&mut dev.database().await).await;
    assert_eq!(deleted.expect("a superuser may").rows_affected(), 4);
    vec![acknowledged, unknown, dead_worker, never_claimed]
}

#[tokio::test]
async fn lost_payouts_are_listed_and_requeued_with_one_effect_each() {
    let dev = Dev::start(&[("TALLYSTICK_ROLES", "api")]);
    let account = dev.api().funded("EUR", 10_000).await;
    let lost = lose(&dev, &account).await;
    let sound = create(&dev, &account, "acct_ok").await;

    // The list has exactly the lost ones, oldest first, and every filter narrows it.
    let listed = list(&dev, &["--without-work"]);
    assert_eq!((ids(&listed), &listed["more"]), (lost.clone(), &json!(false)));
    for row in listed["payouts"].as_array().unwrap() {
        assert!(row["work"].is_null() && row["age_seconds"].as_i64().is_some_and(|age| age >= 0), "{row}");
        assert_eq!(
            (&row["tenant"], &row["amount_minor"], &row["currency"]),
            (&json!("default"), &json!(100), &json!("EUR"))
        );
    }
    let all = list(&dev, &[]);
    assert_eq!(ids(&all), [lost.clone(), vec![sound.clone()]].concat());
    assert_eq!(all["payouts"][4]["work"], "due");
    let two = list(&dev, &["--limit", "2"]);
    assert_eq!((ids(&two), &two["more"]), (lost[..2].to_vec(), &json!(true)));
    assert_eq!(ids(&list(&dev, &["--without-work", "--status", "unknown"])), lost[1..2]);
    assert_eq!(ids(&list(&dev, &["--tenant", "other"])), [""; 0]);
    assert_eq!(dev.command(&["payouts", "list", "--tenant", "nobody"]).status.code(), Some(2));
    let table = dev.command(&["payouts", "list", "--without-work"]);
    let text = said(&table);
    assert!(table.status.success() && text.contains("AGE") && text.contains("NONE"), "{text}");
    assert!(lost.iter().all(|id| text.contains(id.as_str())) && !text.contains(&sound), "{text}");

    requeue_by_two_while_two_work(&dev, &lost, &sound).await;
    for id in lost.iter().chain([&sound]) {
        let payout = dev.api().payout_in(id, "succeeded").await;
        assert_eq!(payout["journals"].as_array().map(Vec::len), Some(1), "one debit: {payout}");
        let sent = dev.requests(id).await.iter().filter(|r| r["operation"] == "payout").count();
        assert_eq!((dev.effects(id).await.len(), sent), (1, 1), "{id}");
    }
    assert_eq!(dev.api().balance(&account).await["balance_minor"], json!(10_000 - 500));
    assert_eq!(ids(&list(&dev, &["--without-work"])), [""; 0]);

    // A final one has nothing to do; an unknown id is told, and the others are done all the same.
    let nobody = Uuid::now_v7().to_string();
    let last = dev.command(&["requeue", &sound, &nobody, "--json"]);
    let told = answer(&last, 1);
    let expected = json!({"requeued": [
        {"id": sound, "kind": "payout", "status": "succeeded", "outcome": "nothing_to_do"},
        {"id": nobody, "kind": null, "status": null, "outcome": "unknown_id"},
    ]});
    assert_eq!(told, expected);
    assert!(String::from_utf8_lossy(&last.stderr).contains(&nobody), "{}", said(&last));
    let verify = dev.command(&["verify"]);
    assert!(verify.status.success(), "{}", said(&verify));
}

/// Both of them again and again, by id and for all that is lost, while two servers work.
async fn requeue_by_two_while_two_work(dev: &Dev, lost: &[String], sound: &str) {
    dev.tell_sandbox("DELETE", "/_faults", &json!({})).await;
    let first = dev.command(&["requeue", "--without-work", "--json"]);
    let made = answer(&first, 0);
    let rows = made["requeued"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["outcome"] == "made_again" && row["kind"] == "payout"), "{made}");
    let found: BTreeSet<&str> = rows.iter().filter_map(|row| row["id"].as_str()).collect();
    assert_eq!(found, lost.iter().map(String::as_str).collect());
    assert!(
        String::from_utf8_lossy(&first.stderr).contains("5 payments and payouts looked at, 4 had lost"),
        "{}",
        said(&first)
    );
    // Lost once more.
    let forget = format!("DELETE FROM payments.dispatch WHERE operation_id <> '{sound}'");
    sqlx::query(AssertSqlSafe(forget)).execute(&mut dev.database().await).await.expect("a superuser may");

    let workers = [Second::start(dev, &WORK, &SLOW).await, Second::start(dev, &WORK, &SLOW).await];
    let data = dev.data.to_str().expect("a plain path").to_owned();
    let requeuing: Vec<_> = ["--without-work", "by id"]
        .into_iter()
        .map(|how| {
            let (data, ids) = (data.clone(), [lost, &[sound.to_owned()]].concat());
            tokio::task::spawn_blocking(move || {
                let which: Vec<&str> =
                    if how == "by id" { ids.iter().map(String::as_str).collect() } else { vec![how] };
                for _ in 0..10 {
                    let output = ran(&[&["requeue", "--data-dir", &data], &which[..]].concat());
                    assert!(output.status.success(), "{}", said(&output));
                }
            })
        })
        .collect();
    for one in requeuing {
        one.await.expect("it goes on");
    }
    // What is only acknowledged by now would be asked about in minutes: asked for by hand, it is asked at once.
    let all: Vec<&str> = lost.iter().map(String::as_str).chain([sound]).collect();
    until("nothing is left to do", async || {
        let told = answer(&dev.command(&[&["requeue", "--json"], &all[..]].concat()), 0);
        let rows = told["requeued"].as_array()?;
        rows.iter().all(|row| row["outcome"] == "nothing_to_do").then_some(())
    })
    .await;
    drop(workers);
}

/// A call is under way: the one who works on it keeps it.
#[tokio::test]
async fn work_in_progress_is_left_to_its_server() {
    let dev = Dev::start(&[("TALLYSTICK_GATEWAY_TIMEOUT", "20s"), ("TALLYSTICK_LEASE", "41s")]);
    let account = dev.api().funded("EUR", 1_000).await;
    // Without webhooks: one that comes while the answer is held ends the work, and there is nothing left to disturb.
    dev.tell_sandbox("PUT", "/_settings", &json!({"webhooks": false})).await;
    dev.tell_sandbox("POST", "/_faults", &json!({"operation": "payout", "fault": "delay", "delay": "10s"}))
        .await;
    let id = create(&dev, &account, "acct_ok").await;
    until("the call is under way", async || (!dev.requests(&id).await.is_empty()).then_some(())).await;
    let row = "SELECT d::text FROM payments.dispatch d";
    let before: String = sqlx::query_scalar(row).fetch_one(&mut dev.database().await).await.unwrap();
    let table = dev.command(&["requeue", &id]);
    assert!(table.status.success() && said(&table).contains("in work"), "{}", said(&table));
    let after: Option<String> =
        sqlx::query_scalar(row).fetch_optional(&mut dev.database().await).await.unwrap();
    // Unless the call ended meanwhile, on a machine that was very slow.
    assert!(after.is_none_or(|after| after == before), "fence and lease are as they were");
    dev.api().payout_in(&id, "succeeded").await;
    assert_eq!(dev.effects(&id).await.len(), 1);
}
