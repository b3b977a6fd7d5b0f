//! The sandbox as the bank: how it is set, and what it says happened.
//!
//! It is a program of its own with a book of its own, written and synced before it answers: the witness.

use std::collections::HashMap;
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::wire::{Side, Wire};
use crate::cli::CliError;

/// Items of one page of the book or the events.
const PAGE: usize = 2_000;

/// How the bank behaves.
#[derive(Clone, Debug)]
pub struct Manner {
    /// From request to answer, on average.
    pub latency: Duration,
    /// How much that varies, as a part of itself.
    pub spread: f64,
    /// From taking a payout on to paying it, which is when its webhook goes out. The answer is on its way meanwhile.
    pub settles_after: Duration,
    /// Whether it tells by webhook what became of a payout.
    pub webhooks: bool,
    /// Seed of its chance.
    pub seed: u64,
}

/// One line of its book.
#[derive(Debug, Deserialize)]
struct Effect {
    seq: u64,
    kind: String,
    key: String,
    state: String,
}

/// One event that it made and, if webhooks are on, delivered.
#[derive(Debug, Deserialize)]
struct Event {
    seq: u64,
    r#type: String,
    key: String,
    deliveries: Vec<Delivery>,
}

#[derive(Debug, Deserialize)]
struct Delivery {
    status: Option<u16>,
}

#[derive(Deserialize)]
struct Effects {
    effects: Vec<Effect>,
}

#[derive(Deserialize)]
struct Events {
    events: Vec<Event>,
}

/// The bank's own account of some payouts.
#[derive(Debug, Default)]
pub struct Account {
    /// Payouts that stand in the book, by key, and how often.
    pub paid: HashMap<Uuid, u32>,
    /// Keys whose settlement was told and taken (2xx).
    pub told: HashMap<Uuid, u32>,
}

/// Where in the bank's book and events we are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    effects: u64,
    events: u64,
}

/// The bank's control.
pub struct Bank {
    wire: Wire,
}

impl Bank {
    /// The bank at an address.
    ///
    /// # Errors
    /// [`CliError::Broken`] when it is none.
    pub fn at(url: &str) -> Result<Self, CliError> {
        Ok(Self { wire: Side::at(url)?.wire() })
    }

    /// Sets how it behaves. It acknowledges first and pays afterwards.
    ///
    /// # Errors
    /// [`CliError`] when it does not answer or refuses.
    pub async fn set(&mut self, manner: &Manner) -> Result<(), CliError> {
        let text = |time: Duration| format!("{}ms", time.as_millis());
        let (latency, delay) = (text(manner.latency), text(manner.settles_after));
        let settings = json!({
            "latency": latency, "spread": manner.spread, "acknowledge": "async", "webhooks": manner.webhooks,
            "webhook_delay": delay, "seed": manner.seed,
        });
        self.wire.send(Method::PUT, "/_settings", None, &settings, 200).await?;
        Ok(())
    }

    /// Makes it misbehave by a rule of its own.
    ///
    /// # Errors
    /// [`CliError`] when it does not answer or refuses.
    pub async fn misbehave(&mut self, rule: &Value) -> Result<(), CliError> {
        self.wire.send(Method::POST, "/_faults", None, rule, 201).await?;
        Ok(())
    }

    /// What it says about all payouts behind a place, and the place behind them.
    ///
    /// # Errors
    /// [`CliError`] when it does not answer.
    pub async fn account(&mut self, from: Place) -> Result<(Account, Place), CliError> {
        let (mut account, mut place) = (Account::default(), from);
        loop {
            let path = format!("/_book?after={}&limit={PAGE}", place.effects);
            let Effects { effects } = self.wire.get(&path).await?;
            for effect in &effects {
                if let (true, Ok(key)) =
                    (effect.kind == "payout" && effect.state == "done", effect.key.parse())
                {
                    *account.paid.entry(key).or_default() += 1;
                }
            }
            place.effects = effects.last().map_or(place.effects, |effect| effect.seq);
            if effects.len() < PAGE {
                break;
            }
        }
        loop {
            let path = format!("/_events?after={}&limit={PAGE}", place.events);
            let Events { events } = self.wire.get(&path).await?;
            for event in &events {
                let taken =
                    event.deliveries.iter().any(|d| d.status.is_some_and(|s| (200..300).contains(&s)));
                if let (true, Ok(key)) = (event.r#type == "settled" && taken, event.key.parse()) {
                    *account.told.entry(key).or_default() += 1;
                }
            }
            place.events = events.last().map_or(place.events, |event| event.seq);
            if events.len() < PAGE {
                break;
            }
        }
        Ok((account, place))
    }
}
