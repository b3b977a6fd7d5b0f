//! Money out, right after the incident: a payout whose reply is lost, and one that the bank rejects later.
//!
//! The ledger comes first: the debit is booked, pending, before the bank hears of the payout, so the money is there for
//! nobody else and no lock is held while the bank is called. What the bank says makes the debit final or undoes it.

use serde_json::{Value, json};

use super::story::{PATIENCE, Story, must, say, short};
use crate::cli::CliError;
use crate::cli::dev::client::{PAYOUTS, items, text};

/// What the customer has, in VND.
const FUNDS: i64 = 900_000;
/// What is paid out first.
const FIRST: i64 = 250_000;
/// What is rejected.
const SECOND: i64 = 400_000;

/// Plays it.
///
/// # Errors
/// [`CliError::Broken`] names the step that did not go as it must.
pub async fn play(story: &mut Story<'_>, run: &str) -> Result<(), CliError> {
    println!("\nMoney out: two payouts from a customer's account.");
    let account = funded(story, run).await?;
    let id = in_doubt(story, run, &account).await?;
    settled(story, &account, &id).await?;
    rejected(story, run, &account).await
}

/// Asks for something to be made; it must be answered with this status.
async fn made(
    story: &Story<'_>,
    path: &str,
    key: &str,
    body: &Value,
    status: u16,
) -> Result<Value, CliError> {
    let reply = story.client.post(path, key, body).await?;
    must(reply.status == status, &format!("{path} must answer {status}: {} {}", reply.status, reply.body))?;
    Ok(reply.body)
}

async fn funded(story: &mut Story<'_>, run: &str) -> Result<String, CliError> {
    story.step("A customer's account that may not go below zero, and 900,000 VND on it by a journal.");
    let account = async |name: &str, kind: &str, minimum: Value| {
        let body = json!({"name": format!("{name} {run}"), "kind": kind, "currency": "VND", "minimum_minor": minimum});
        let made = made(story, "/api/v1/accounts", &format!("{name}-{run}"), &body, 201).await?;
        Ok::<_, CliError>(text(&made, "account_id").to_owned())
    };
    let customer = account("customer", "liability", json!(0)).await?;
    let cash = account("cash", "asset", Value::Null).await?;
    let entry =
        |account: &str, side: &str| json!({"account_id": account, "direction": side, "amount_minor": FUNDS});
    let deposit = json!({"description": "deposit", "entries": [entry(&cash, "D"), entry(&customer, "C")]});
    made(story, "/api/v1/journals", &format!("deposit-{run}"), &deposit, 201).await?;
    let balance = balance(story, &customer).await?;
    must(balance["available_minor"] == FUNDS, "the deposit must be there")?;
    Ok(customer)
}

async fn pay_out(
    story: &Story<'_>,
    key: &str,
    account: &str,
    destination: &str,
    amount: i64,
) -> Result<String, CliError> {
    let body = json!({
        "account_id": account, "destination": destination, "amount_minor": amount, "currency": "VND", "reference": key,
    });
    let payout = made(story, PAYOUTS, key, &body, 202).await?;
    say("API", &short(&payout, &["payout_id", "status", "amount", "currency"]));
    Ok(text(&payout, "payout_id").to_owned())
}

async fn in_doubt(story: &mut Story<'_>, run: &str, account: &str) -> Result<String, CliError> {
    story.step(
        "They want 250,000 VND. First the debit, pending; then the bank is called, and its reply is lost.",
    );
    let id = pay_out(story, &format!("withdrawal-1-{run}"), account, "acct_lost_reply", FIRST).await?;
    let payout = story.client.until(PAYOUTS, &id, &["unknown", "succeeded", "failed"], PATIENCE).await?;
    say("API", &short(&payout, &["status", "unknown_since"]));
    must(text(&payout, "status") == "unknown", &format!("the payout must be unknown: {payout}"))?;
    let journals = journals(story, &id).await?;
    let balance = balance(story, account).await?;
    must(balance["available_minor"] == FUNDS - FIRST, "the money must not be available any more")?;
    // On a slow machine the bank may have been asked by now.
    let pending = text(&journals[0], "status") == "pending" && balance["pending_minor"] == -FIRST;
    let over = text(&story.client.get(&format!("{PAYOUTS}/{id}")).await?, "status") != "unknown";
    must(pending || over, &format!("the debit must be pending: {journals:?} {balance}"))?;
    println!("   Spent once, whatever comes: available to nobody else, and not called gone before it is.");
    Ok(id)
}

async fn settled(story: &mut Story<'_>, account: &str, id: &str) -> Result<(), CliError> {
    story.step(
        "The bank is asked by the same key: it has paid. The same debit is settled, nothing is sent again.",
    );
    story.client.until(PAYOUTS, id, &["succeeded"], PATIENCE).await?;
    history(story, id).await?;
    let journals = journals(story, id).await?;
    let balance = balance(story, account).await?;
    must(
        journals.len() == 1 && text(&journals[0], "status") == "settled",
        &format!("one settled debit must stand: {journals:?}"),
    )?;
    must(
        balance["balance_minor"] == FUNDS - FIRST && balance["pending_minor"] == 0,
        &format!("the money must be gone for good: {balance}"),
    )?;
    let seen = story.requests(id).await?;
    let submits = seen.iter().filter(|r| text(r, "operation") == "payout").count();
    must(submits == 1, &format!("one payout must have been sent, there were {submits}"))?;
    events(story, id, "payout.succeeded").await?;
    story.one_effect(id).await
}

async fn rejected(story: &mut Story<'_>, run: &str, account: &str) -> Result<(), CliError> {
    story.step("They want 400,000 VND more. The bank acknowledges it, and rejects it a moment later.");
    let id = pay_out(story, &format!("withdrawal-2-{run}"), account, "acct_reject_later", SECOND).await?;
    let payout = story.client.until(PAYOUTS, &id, &["failed", "succeeded"], PATIENCE).await?;
    say("API", &short(&payout, &["status", "failure"]));
    must(text(&payout, "status") == "failed", &format!("the payout must have failed: {payout}"))?;
    history(story, &id).await?;
    println!(
        "   Nothing is rolled back and nothing is erased: the debit is reversed, and both are called failed."
    );
    let journals = journals(story, &id).await?;
    must(
        journals.len() == 2 && journals.iter().all(|journal| text(journal, "status") == "failed"),
        &format!("debit and reversal must stand, both failed: {journals:?}"),
    )?;
    let balance = balance(story, account).await?;
    must(
        balance["available_minor"] == FUNDS - FIRST && balance["pending_minor"] == 0,
        &format!("the account must have what it had before: {balance}"),
    )?;
    events(story, &id, "payout.failed").await?;
    story.effects(&id, 0).await?;
    say("gateway's book", "nothing under this key");
    Ok(())
}

async fn balance(story: &Story<'_>, account: &str) -> Result<Value, CliError> {
    let balance = story.client.get(&format!("/api/v1/accounts/{account}/balance")).await?;
    say("balance", &short(&balance, &["balance_minor", "pending_minor", "available_minor", "currency"]));
    Ok(balance)
}

async fn history(story: &Story<'_>, id: &str) -> Result<(), CliError> {
    let payout = story.client.get(&format!("{PAYOUTS}/{id}?expand=history")).await?;
    for row in items(&payout, "history") {
        say("history", &short(row, &["version", "status", "evidence", "at"]));
    }
    Ok(())
}

/// Its journals, of which there is at least one; prints them.
async fn journals(story: &Story<'_>, id: &str) -> Result<Vec<Value>, CliError> {
    let payout = story.client.get(&format!("{PAYOUTS}/{id}?expand=journals")).await?;
    let journals = items(&payout, "journals").to_vec();
    for journal in &journals {
        say("journal", &short(journal, &["kind", "status"]));
        for entry in items(journal, "entries") {
            say("  entry", &short(entry, &["direction", "amount_minor", "currency", "account_name"]));
        }
    }
    must(!journals.is_empty(), &format!("payout {id} must have been debited"))?;
    Ok(journals)
}

/// Its events, one per move; the last one must be this.
async fn events(story: &Story<'_>, id: &str, last: &str) -> Result<(), CliError> {
    let payout = story.client.get(&format!("{PAYOUTS}/{id}?expand=events")).await?;
    let events = items(&payout, "events");
    for event in events {
        say("event", &short(event, &["sequence", "type", "event_id"]));
    }
    let in_order = (1i64..).zip(events).all(|(n, event)| event["sequence"].as_i64() == Some(n));
    let told = events.last().is_some_and(|event| text(event, "type") == last);
    must(in_order && told, &format!("events must come once per move and end with {last}"))
}
