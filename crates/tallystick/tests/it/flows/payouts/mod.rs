//! Payouts through real servers and the sandbox's bank: debited first, sent once, reversed or returned as the bank says,
//! and never below the account's minimum. The sandbox's own book judges.

mod answers;
mod facts;
mod many_to_one;
mod overdraft;
mod reference;
mod silence;
mod values;

use serde_json::{Value, json};

use crate::dev::Dev;
use crate::support::until;

/// Funds of an account in these tests, in minor units.
const FUNDS: i64 = 10_000;
/// What a payout takes.
const AMOUNT: i64 = 1_234;

/// The body of a payout in euros.
pub fn wanted(account: &str, destination: &str, amount_minor: i64) -> Value {
    json!({"account_id": account, "destination": destination, "amount_minor": amount_minor, "currency": "EUR"})
}

/// A payout of [`AMOUNT`] from a new account with [`FUNDS`]: its id and the account's.
async fn paid_out(dev: &Dev, destination: &str) -> (String, String) {
    let account = dev.api().funded("EUR", FUNDS).await;
    let reply = dev.api().pay_out(&wanted(&account, destination, AMOUNT)).send().await;
    (reply.is(202).text("payout_id"), account)
}

/// A member of every row of a list.
fn each(object: &Value, list: &str, member: &str) -> Vec<Value> {
    object[list]
        .as_array()
        .unwrap_or_else(|| panic!("no {list}: {object}"))
        .iter()
        .map(|row| row[member].clone())
        .collect()
}

/// A text member of every row of a list.
fn texts(object: &Value, list: &str, member: &str) -> Vec<String> {
    each(object, list, member).iter().map(|text| text.as_str().expect("text").to_owned()).collect()
}

/// Submits among the requests that the bank got for a payout.
async fn submits(dev: &Dev, id: &str) -> usize {
    dev.requests(id).await.iter().filter(|request| request["operation"] == "payout").count()
}

/// Questions among them.
async fn questions(dev: &Dev, id: &str) -> usize {
    dev.requests(id).await.iter().filter(|request| request["operation"] == "status").count()
}

/// Fails unless an account has so much, and so much of it open.
#[track_caller]
fn holds(balance: &Value, total: i64, pending: i64, what: &str) {
    let found =
        ["balance_minor", "pending_minor", "settled_minor", "available_minor"].map(|m| balance[m].clone());
    assert_eq!(found, [total, pending, total - pending, total].map(Value::from), "{what}: {balance}");
}

/// Where the money must be once a payout has come to rest.
struct Rest {
    /// Kinds of effects in the bank's book.
    effects: &'static [&'static str],
    /// Journals with their statuses.
    journals: &'static [(&'static str, &'static str)],
    /// What has left the account for good.
    gone: bool,
}

fn rest(ends: &str) -> Rest {
    match ends {
        "succeeded" => Rest { effects: &["payout"], journals: &[("payout_debited", "settled")], gone: true },
        "failed" => Rest {
            effects: &[],
            journals: &[("payout_debited", "failed"), ("payout_reversed", "failed")],
            gone: false,
        },
        "returned" => Rest {
            effects: &["payout", "payout_return"],
            journals: &[("payout_debited", "settled"), ("payout_returned", "settled")],
            gone: false,
        },
        other => panic!("nothing rests in {other}"),
    }
}

/// Judges a payout of [`AMOUNT`], the only one of its account with [`FUNDS`], that came to rest in `ends`: the bank's
/// book, both journals to the cent, the account, history and events.
async fn judge(dev: &Dev, id: &str, account: &str, ends: &str, what: &str) {
    let payout = until(&format!("{what}: {id} in {ends}"), async || {
        Some(dev.api().payout(id).await).filter(|payout| payout["status"] == ends)
    })
    .await;
    let rest = rest(ends);
    let effects = dev.effects(id).await;
    let kinds: Vec<&str> = effects.iter().map(|effect| effect["kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, rest.effects, "{what}: the bank's book");
    for effect in &effects {
        let money = (&effect["amount_minor"], &effect["currency"], &effect["state"]);
        assert_eq!(money, (&json!(AMOUNT), &json!("EUR"), &json!("done")), "{what}: {effect}");
        assert_eq!(effect["reference"], payout["gateway_reference"], "{what}: the bank's id");
    }
    judge_journals(&payout, account, &rest, what);
    let total = if rest.gone { FUNDS - AMOUNT } else { FUNDS };
    holds(&dev.api().balance(account).await, total, 0, what);
    judge_words(&payout, what);
    assert!(payout["processed_at"].is_string() && payout["attention"].is_null(), "{what}: {payout}");
}

fn judge_journals(payout: &Value, account: &str, rest: &Rest, what: &str) {
    let mut journals: Vec<(String, String)> =
        texts(payout, "journals", "kind").into_iter().zip(texts(payout, "journals", "status")).collect();
    journals.sort_unstable();
    let journals: Vec<(&str, &str)> =
        journals.iter().map(|(kind, status)| (kind.as_str(), status.as_str())).collect();
    assert_eq!(journals, rest.journals, "{what}: journals");
    for journal in payout["journals"].as_array().expect("a list") {
        let out = journal["kind"] == "payout_debited";
        let customer = each(journal, "entries", "account_id").iter().position(|id| id == account);
        let customer =
            &journal["entries"][customer.unwrap_or_else(|| panic!("{what}: not its account: {journal}"))];
        assert_eq!(customer["direction"], if out { "D" } else { "C" }, "{what}: {journal}");
        assert_eq!(each(journal, "entries", "amount_minor"), [AMOUNT, AMOUNT], "{what}: {journal}");
        assert!(
            texts(journal, "entries", "account_name").contains(&"payout_bank".to_owned()),
            "{what}: {journal}"
        );
    }
}

/// History and events have every version once, tell the same, and lead to the status.
#[track_caller]
fn judge_words(payout: &Value, what: &str) {
    let all: Vec<Value> = (1..=payout["version"].as_i64().expect("a version")).map(Value::from).collect();
    assert_eq!(each(payout, "history", "version"), all, "{what}: history");
    assert_eq!(each(payout, "events", "sequence"), all, "{what}: events");
    let statuses = texts(payout, "history", "status");
    assert_eq!(statuses.last().map(String::as_str), payout["status"].as_str(), "{what}");
    let told = statuses.iter().enumerate().map(|(n, status)| match n {
        0 => "payout.created".to_owned(),
        _ => format!("payout.{status}"),
    });
    assert_eq!(texts(payout, "events", "type"), told.collect::<Vec<_>>(), "{what}: events");
    for event in payout["events"].as_array().expect("a list") {
        let about = (&event["payout_id"], &event["amount_minor"], &event["currency"]);
        assert_eq!(
            about,
            (&payout["payout_id"], &payout["amount_minor"], &payout["currency"]),
            "{what}: {event}"
        );
    }
    let mut ids = texts(payout, "events", "event_id");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), statuses.len(), "{what}: every event has an id of its own");
}

/// The evidence of a status that a payout passed.
#[track_caller]
fn evidence<'a>(payout: &'a Value, status: &str) -> &'a str {
    let history = payout["history"].as_array().expect("a list");
    let row = history.iter().find(|row| row["status"] == status);
    row.unwrap_or_else(|| panic!("never {status}: {payout}"))["evidence"].as_str().expect("text")
}

/// Fails unless `verify` finds nothing that does not hold; gives its report.
fn verified(dev: &Dev) -> Value {
    let output = dev.command(&["verify", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = report["checks"].as_array().expect("a list");
    let violated: Vec<&Value> = checks.iter().filter(|check| check["status"] == "violated").collect();
    assert!(violated.is_empty() && report["ok"] == true, "{violated:#?}");
    report
}
