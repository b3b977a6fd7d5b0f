//! The incident: the gateway takes the money, its reply is lost, the customer clicks Pay again.
//!
//! A service that calls the missing reply a failure charges twice. Here the outcome is *unknown* until there is
//! evidence, and the second click finds the payment that is being cleared up.

use serde_json::{Value, json};

use super::story::{PATIENCE, Story, must, say, short};
use crate::cli::CliError;
use crate::cli::dev::client::{PAYMENTS, items, text};

/// 450,000 VND, a currency without decimals.
const AMOUNT: i64 = 450_000;

/// Plays it.
///
/// # Errors
/// [`CliError::Broken`] names the step that did not go as it must.
pub async fn play(story: &mut Story<'_>, run: &str) -> Result<(), CliError> {
    let order = format!("order-101-{run}");
    println!("The incident: a charge whose reply is lost. {order}, 450,000 VND.");
    let id = first_click(story, &order, run).await?;
    unknown(story, &id).await?;
    second_click(story, &order, run, &id).await?;
    resolution(story, &id).await?;
    books(story, &id).await?;
    told(story, &id).await
}

fn order_body(order: &str) -> Value {
    json!({
        "amount_minor": AMOUNT, "currency": "VND", "order_id": order, "payment_method": "tok_lost_reply",
        "description": "Order 101", "metadata": {"cart": 101},
    })
}

async fn first_click(story: &mut Story<'_>, order: &str, run: &str) -> Result<String, CliError> {
    story.step(
        "The customer clicks Pay. The payment and its gateway key are stored before the gateway hears of it.",
    );
    let reply = story.client.post(PAYMENTS, &format!("click-1-{run}"), &order_body(order)).await?;
    must(
        reply.status == 202,
        &format!("the payment must be accepted with 202: {} {}", reply.status, reply.body),
    )?;
    say(
        "API",
        &format!("{} {}", reply.status, short(&reply.body, &["payment_id", "status", "amount", "currency"])),
    );
    Ok(text(&reply.body, "payment_id").to_owned())
}

async fn unknown(story: &mut Story<'_>, id: &str) -> Result<(), CliError> {
    story.step(
        "The gateway captures the money. Its reply is lost; after the deadline the outcome is unknown.",
    );
    let payment = story.client.until(PAYMENTS, id, &["unknown", "succeeded", "failed"], PATIENCE).await?;
    say("API", &short(&payment, &["status", "unknown_since", "captured_minor"]));
    must(text(&payment, "status") == "unknown", &format!("the payment must be unknown: {payment}"))?;
    story.one_effect(id).await?;
    let seen = story.requests(id).await?;
    must(seen.first().is_some_and(|r| r["answer"].is_null()), "the first request must have had no answer")?;
    println!("   The shop shows \"being confirmed\", not \"failed, try again\".");
    Ok(())
}

async fn second_click(story: &mut Story<'_>, order: &str, run: &str, id: &str) -> Result<(), CliError> {
    story.step("The customer clicks Pay again: a new request with a new key, for the same order.");
    let reply = story.client.post(PAYMENTS, &format!("click-2-{run}"), &order_body(order)).await?;
    let existing = reply.header("existing-payment").unwrap_or("absent");
    say(
        "API",
        &format!(
            "{} Existing-Payment: {existing} {}",
            reply.status,
            short(&reply.body, &["payment_id", "status"])
        ),
    );
    must(
        reply.status == 200 && existing == "true",
        &format!("the order's payment must be found: {}", reply.body),
    )?;
    must(text(&reply.body, "payment_id") == id, "the second click must get the same payment")?;
    story.one_effect(id).await
}

async fn resolution(story: &mut Story<'_>, id: &str) -> Result<(), CliError> {
    story.step("The gateway is asked by the same key what became of it. Only its answer ends the unknown.");
    story.client.until(PAYMENTS, id, &["succeeded"], PATIENCE).await?;
    let payment = story.client.get(&format!("{PAYMENTS}/{id}?expand=history,attempts")).await?;
    for row in items(&payment, "history") {
        say("history", &short(row, &["version", "status", "evidence", "at"]));
    }
    for row in items(&payment, "attempts") {
        say("calls", &short(row, &["action", "outcome", "duration_ms"]));
    }
    let seen = story.requests(id).await?;
    let submits = seen.iter().filter(|r| text(r, "operation") == "charge").count();
    must(submits == 1, &format!("one charge must have been sent, there were {submits}"))?;
    story.one_effect(id).await
}

async fn books(story: &mut Story<'_>, id: &str) -> Result<(), CliError> {
    story.step("Status, journal and event were committed together. The journal balances:");
    let payment = story.client.get(&format!("{PAYMENTS}/{id}?expand=journals")).await?;
    let journals = items(&payment, "journals");
    for journal in journals {
        say("journal", &short(journal, &["kind", "status", "source"]));
        for entry in items(journal, "entries") {
            say("  entry", &short(entry, &["direction", "amount_minor", "currency", "account_id"]));
        }
    }
    must(journals.len() == 1, &format!("one journal must stand, there are {}", journals.len()))?;
    let trial = story.client.get("/api/v1/trial-balance?currency=VND").await?;
    for account in items(&trial, "accounts") {
        say("balance", &short(account, &["name", "kind", "balance_minor"]));
    }
    must(trial["debits_minor"] == trial["credits_minor"], "debits and credits must be equal")
}

async fn told(story: &mut Story<'_>, id: &str) -> Result<(), CliError> {
    story.step("The rest of the company hears of it by events, one per move, in order:");
    let payment = story.client.get(&format!("{PAYMENTS}/{id}?expand=events")).await?;
    let events = items(&payment, "events");
    for event in events {
        say("event", &short(event, &["sequence", "type", "event_id"]));
    }
    let in_order = (1i64..).zip(events).all(|(n, event)| event["sequence"].as_i64() == Some(n));
    must(in_order && events.len() >= 3, "events must come once per move, without a gap")?;
    story.step("The gateway's settlement file has it once, and finance finds it in our books:");
    let file = story.client.sandbox_text("/_settlement").await?;
    let mut lines = file.lines();
    let heading = lines.next().unwrap_or_default();
    let rows: Vec<&str> = lines.filter(|line| line.contains(id)).collect();
    say("settlement", heading);
    for row in &rows {
        say("settlement", row);
    }
    must(rows.len() == 1, &format!("the settlement must have one row for {id}, it has {}", rows.len()))
}
