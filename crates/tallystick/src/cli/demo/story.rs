//! How a story is told: numbered steps, the evidence of each on lines of its own, and checks that end it with 1.

use std::time::Duration;

use serde_json::Value;

use crate::cli::CliError;
use crate::cli::dev::client::{Client, items};

/// How long a story waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A story as it is told.
pub struct Story<'a> {
    /// Speaks to the environment that it plays in.
    pub client: &'a Client,
    step: u32,
}

impl<'a> Story<'a> {
    /// Before its first step.
    pub fn new(client: &'a Client) -> Self {
        Self { client, step: 0 }
    }

    /// Says what happens next.
    pub fn step(&mut self, what: &str) {
        self.step += 1;
        println!("\n{}. {what}", self.step);
    }

    /// The gateway's book about a key must show one effect; prints it.
    ///
    /// # Errors
    /// [`CliError::Broken`] when it does not.
    pub async fn one_effect(&self, id: &str) -> Result<(), CliError> {
        self.effects(id, 1).await
    }

    /// The gateway's book about a key must show so many effects; prints them.
    ///
    /// # Errors
    /// [`CliError::Broken`] when it does not.
    pub async fn effects(&self, id: &str, expected: usize) -> Result<(), CliError> {
        let book = self.client.sandbox(&format!("/_book?key={id}")).await?;
        let effects = items(&book, "effects");
        for effect in effects {
            say("gateway's book", &short(effect, &["kind", "key", "amount_minor", "currency", "state"]));
        }
        must(
            effects.len() == expected,
            &format!("the gateway's book must have {expected} effects for {id}, it has {}", effects.len()),
        )
    }

    /// What the gateway heard about a key; prints it.
    ///
    /// # Errors
    /// As the client's.
    pub async fn requests(&self, id: &str) -> Result<Vec<Value>, CliError> {
        let seen = self.client.sandbox(&format!("/_requests?key={id}")).await?;
        let seen = items(&seen, "requests").to_vec();
        for request in &seen {
            say("gateway heard", &short(request, &["operation", "key", "answer"]));
        }
        Ok(seen)
    }
}

/// A line of evidence.
pub fn say(who: &str, what: &str) {
    println!("   {who:<15} {what}");
}

/// The members of an object that matter here, on one line.
pub fn short(value: &Value, names: &[&str]) -> String {
    let one = |name: &&str| match &value[*name] {
        Value::String(text) => format!("{name}={text}"),
        other => format!("{name}={other}"),
    };
    names.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// What a story depends on.
///
/// # Errors
/// [`CliError::Broken`] when it does not hold.
pub fn must(holds: bool, what: &str) -> Result<(), CliError> {
    if holds { Ok(()) } else { Err(CliError::Broken(what.to_owned())) }
}
