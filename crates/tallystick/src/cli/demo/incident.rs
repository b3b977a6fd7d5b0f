//! The incident: the gateway takes the money, its reply is lost, the customer clicks Pay again.
//!
//! A service that calls the missing reply a failure charges twice. Here the outcome is *unknown* until there is
//! evidence, and the second click finds the payment that is being cleared up.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::dev::client::{Client, items, text};
use crate::cli::{CliError, Exit, verify};

/// 450,000 VND, a currency without decimals.
const AMOUNT: i64 = 450_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// A story as it is told.
struct Story<'a> {
    client: &'a Client,
    step: u32,
}

impl Story<'_> {
    fn step(&mut self, what: &str) {
        self.step += 1;
        println!("\n{}. {what}", self.step);
    }

    /// The gateway's book about a key must show one effect; prints it.
    async fn one_effect(&self, id: &str) -> Result<(), CliError> {
        let book = self.client.sandbox(&format!("/_book?key={id}")).await?;
        let effects = items(&book, "effects");
        for effect in effects {
            say("gateway's book", &short(effect, &["kind", "key", "amount_minor", "currency", "state"]));
        }
        must(
            effects.len() == 1,
            &format!("the gateway's book must have one effect for {id}, it has {}", effects.len()),
        )
    }

    async fn requests(&self, id: &str) -> Result<Vec<Value>, CliError> {
        let seen = self.client.sandbox(&format!("/_requests?key={id}")).await?;
        let seen = items(&seen, "requests").to_vec();
        for request in &seen {
            say("gateway heard", &short(request, &["operation", "key", "answer"]));
        }
        Ok(seen)
    }
}

/// Plays it.
///
/// # Errors
/// [`CliError::Broken`] names the step that did not go as it must.
pub async fn play(client: &Client, folder: &Path) -> Result<Exit, CliError> {
    let mut story = Story { client, step: 0 };
    let run = hex::encode(rand::random::<[u8; 3]>());
    let order = format!("order-101-{run}");
    println!("The incident: a charge whose reply is lost. {order}, 450,000 VND.");
    let id = first_click(&mut story, &order, &run).await?;
    unknown(&mut story, &id).await?;
    second_click(&mut story, &order, &run, &id).await?;
    resolution(&mut story, &id).await?;
    books(&mut story, &id).await?;
    told(&mut story, &id).await?;
    story.step("Proof. Every promise is checked, our books against the gateway's:");
    let exit = verify::run(&verify::Args::of_folder(folder)).await?;
    println!("\nOne order, two clicks, one lost reply: one charge, one journal, and nobody guessed.");
    Ok(exit)
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
    let reply = story.client.pay(&format!("click-1-{run}"), &order_body(order)).await?;
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
    let payment = story.client.until(id, &["unknown", "succeeded", "failed"], PATIENCE).await?;
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
    let reply = story.client.pay(&format!("click-2-{run}"), &order_body(order)).await?;
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
    story.client.until(id, &["succeeded"], PATIENCE).await?;
    let payment = story.client.get(&format!("/api/v1/payments/{id}?expand=history,attempts")).await?;
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
    let payment = story.client.get(&format!("/api/v1/payments/{id}?expand=journals")).await?;
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
    let payment = story.client.get(&format!("/api/v1/payments/{id}?expand=events")).await?;
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

fn say(who: &str, what: &str) {
    println!("   {who:<15} {what}");
}

/// The members of an object that matter here, on one line.
fn short(value: &Value, names: &[&str]) -> String {
    let one = |name: &&str| match &value[*name] {
        Value::String(text) => format!("{name}={text}"),
        other => format!("{name}={other}"),
    };
    names.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn must(holds: bool, what: &str) -> Result<(), CliError> {
    if holds { Ok(()) } else { Err(CliError::Broken(what.to_owned())) }
}
