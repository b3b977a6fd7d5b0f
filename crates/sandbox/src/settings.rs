//! What `PUT /_settings` changes. Only what is named changes; `null` goes back to the default.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock;
use crate::model::words;
use crate::seed::Part;

words! {
    /// How a submit is acknowledged.
    pub enum Acknowledge {
        /// The answer is the outcome.
        Sync = "sync",
        /// The answer is 202, the outcome comes later.
        Async = "async",
    }
}

words! {
    /// What a webhook about a refund tells.
    pub enum RefundEvents {
        /// One refund: its key, reference and amount.
        Single = "single",
        /// The charge: its key, reference and captured amount, with all that was refunded of it.
        Cumulative = "cumulative",
    }
}

/// The sandbox's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Time from request to answer; half before the effect, half after.
    #[serde(with = "clock::as_text")]
    pub latency: Duration,
    /// How much the latency varies, as a part of itself.
    pub spread: Part,
    /// Part of the ordinary submits that is not declined.
    pub success_rate: Part,
    /// How submits are acknowledged; absent: cards at once, the bank later.
    pub acknowledge: Option<Acknowledge>,
    /// Whether webhooks are sent; events are made in any case.
    pub webhooks: bool,
    /// From the effect to its webhook, and from the bank's acknowledgement to the outcome.
    #[serde(with = "clock::as_text")]
    pub webhook_delay: Duration,
    /// How long a key keeps its result.
    #[serde(with = "clock::as_text")]
    pub key_retention: Duration,
    /// Seed of all chance but the mix's.
    pub seed: u64,
    /// What a webhook about a refund tells.
    pub refund_events: RefundEvents,
    /// Currencies whose payouts must be multiples of so many minor units.
    pub payout_multiple: BTreeMap<String, i64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            latency: Duration::from_millis(5),
            spread: Part::per_million(300_000),
            success_rate: Part::WHOLE,
            acknowledge: None,
            webhooks: true,
            webhook_delay: Duration::from_millis(50),
            key_retention: Duration::from_secs(24 * 3600),
            seed: 1,
            refund_events: RefundEvents::Single,
            payout_multiple: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// The settings after a change.
    ///
    /// # Errors
    /// The name of the first field that is unknown or has a wrong value, and what is wrong with it.
    pub fn changed(&self, change: Map<String, Value>) -> Result<Self, (String, String)> {
        let (mut new, default) = (self.clone(), Self::default());
        for (name, value) in change {
            let done = match name.as_str() {
                "latency" => set_duration(&mut new.latency, default.latency, value),
                "spread" => set(&mut new.spread, default.spread, value),
                "success_rate" => set(&mut new.success_rate, default.success_rate, value),
                "acknowledge" => set(&mut new.acknowledge, None, value),
                "webhooks" => set(&mut new.webhooks, default.webhooks, value),
                "webhook_delay" => set_duration(&mut new.webhook_delay, default.webhook_delay, value),
                "key_retention" => set_duration(&mut new.key_retention, default.key_retention, value),
                "seed" => set(&mut new.seed, default.seed, value),
                "refund_events" => set(&mut new.refund_events, default.refund_events, value),
                "payout_multiple" => {
                    set(&mut new.payout_multiple, BTreeMap::new(), value).and_then(|()| multiples(&new))
                }
                _ => Err("no such setting".to_owned()),
            };
            done.map_err(|message| (name, message))?;
        }
        Ok(new)
    }
}

fn set<T: DeserializeOwned>(field: &mut T, default: T, value: Value) -> Result<(), String> {
    *field = match value {
        Value::Null => default,
        value => serde_json::from_value(value).map_err(|e| e.to_string())?,
    };
    Ok(())
}

fn set_duration(field: &mut Duration, default: Duration, value: Value) -> Result<(), String> {
    *field = match value {
        Value::Null => default,
        Value::String(text) => clock::parse_duration(&text)?,
        _ => return Err("expected a text like \"20ms\"".to_owned()),
    };
    Ok(())
}

fn multiples(new: &Settings) -> Result<(), String> {
    match new.payout_multiple.values().all(|multiple| *multiple > 0) {
        true => Ok(()),
        false => Err("multiples are positive".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(of: &Settings, value: Value) -> Result<Settings, (String, String)> {
        of.changed(value.as_object().expect("an object").clone())
    }

    #[test]
    fn only_what_is_named_changes_and_null_unsets() {
        let default = Settings::default();
        let one = change(&default, json!({"latency": "20ms", "acknowledge": "async", "success_rate": 0.9}))
            .unwrap();
        assert_eq!((one.latency, one.acknowledge), (Duration::from_millis(20), Some(Acknowledge::Async)));
        assert_eq!(one.webhook_delay, default.webhook_delay);
        let back = change(&one, json!({"latency": null, "acknowledge": null, "success_rate": null})).unwrap();
        assert_eq!(back, default);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let default = Settings::default();
        for (value, name) in [
            (json!({"latencies": "1s"}), "latencies"),
            (json!({"latency": 5}), "latency"),
            (json!({"success_rate": 1.5}), "success_rate"),
            (json!({"payout_multiple": {"HUF": 0}}), "payout_multiple"),
            (json!({"acknowledge": "later"}), "acknowledge"),
        ] {
            assert_eq!(change(&default, value).unwrap_err().0, name);
        }
    }

    #[test]
    fn they_survive_writing_and_reading() {
        let some =
            change(&Settings::default(), json!({"payout_multiple": {"HUF": 100}, "spread": 0})).unwrap();
        let text = serde_json::to_string(&some).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), some);
    }
}
