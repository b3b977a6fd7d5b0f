//! A receiver of merchant webhooks, for tests and demonstrations. It keeps what came, in memory only.
//!
//! `fail_first` counts per webhook id, so that several events at once do not spend each other's failures.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::{self, Micros, rfc3339};

/// Items kept; older ones are forgotten.
const KEPT: usize = 50_000;

/// How the receiver answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manner {
    /// So many first attempts of each webhook id are answered with `status`.
    pub fail_first: u32,
    /// The status of a failure.
    pub status: u16,
    /// Time before any answer.
    #[serde(with = "clock::as_text")]
    pub delay: Duration,
}

impl Default for Manner {
    fn default() -> Self {
        Self { fail_first: 0, status: 500, delay: Duration::ZERO }
    }
}

impl Manner {
    /// The manner after a change: only what is named, `null` unsets.
    ///
    /// # Errors
    /// The name of the first field that is unknown or has a wrong value, and what is wrong with it.
    pub fn changed(&self, change: Map<String, Value>) -> Result<Self, (String, String)> {
        let mut all = match serde_json::to_value(self) {
            Ok(Value::Object(all)) => all,
            _ => Map::new(),
        };
        let Ok(Value::Object(default)) = serde_json::to_value(Self::default()) else {
            return Ok(self.clone());
        };
        for (name, value) in change {
            let Some(usual) = default.get(&name) else { return Err((name, "no such setting".to_owned())) };
            let value = if value.is_null() { usual.clone() } else { value };
            all.insert(name.clone(), value);
            if let Err(e) = serde_json::from_value::<Self>(Value::Object(all.clone())) {
                return Err((name, e.to_string()));
            }
        }
        let new: Self =
            serde_json::from_value(Value::Object(all)).map_err(|e| (String::new(), e.to_string()))?;
        match (100..600).contains(&new.status) {
            true => Ok(new),
            false => Err(("status".to_owned(), "an HTTP status".to_owned())),
        }
    }
}

/// Something that came.
#[derive(Clone, Debug, Serialize)]
pub struct Item {
    /// Its headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its body as text.
    pub body: String,
    /// When.
    pub at: String,
    /// The status that it was answered with.
    pub answered: u16,
}

#[derive(Default)]
struct Inner {
    manner: Manner,
    items: VecDeque<(Option<String>, Item)>,
    dropped: u64,
    by_payment: HashMap<String, VecDeque<u64>>,
    tries: HashMap<String, u32>,
}

/// The receiver.
#[derive(Default)]
pub struct MerchantReceiver(Mutex<Inner>);

impl MerchantReceiver {
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How it answers.
    #[must_use]
    pub fn manner(&self) -> Manner {
        self.with(|inner| inner.manner.clone())
    }

    /// Changes how it answers, and counts attempts anew.
    pub fn set_manner(&self, manner: Manner) {
        self.with(|inner| {
            inner.manner = manner;
            inner.tries.clear();
        });
    }

    /// Keeps what came; the status and the time to wait before answering.
    pub fn take(&self, headers: BTreeMap<String, String>, body: String, now: Micros) -> (u16, Duration) {
        let payment = serde_json::from_str::<Value>(&body).ok();
        let payment = payment.and_then(|v| Some(v.get("payment_id")?.as_str()?.to_owned()));
        let id = headers.get("webhook-id").cloned().unwrap_or_default();
        self.with(|inner| {
            let answered = if inner.manner.fail_first == 0 {
                200
            } else {
                let tries = inner.tries.entry(id).or_default();
                *tries = tries.saturating_add(1);
                if *tries <= inner.manner.fail_first { inner.manner.status } else { 200 }
            };
            inner.keep(payment, Item { headers, body, at: rfc3339(now), answered });
            (answered, inner.manner.delay)
        })
    }

    /// What came, of one payment or at all, oldest first.
    #[must_use]
    pub fn items(&self, payment: Option<&str>) -> Vec<Item> {
        self.with(|inner| match payment {
            None => inner.items.iter().map(|(_, item)| item.clone()).collect(),
            Some(payment) => {
                let numbers = inner.by_payment.get(payment).into_iter().flatten();
                let places = numbers.filter_map(|number| usize::try_from(number - inner.dropped).ok());
                places.filter_map(|place| inner.items.get(place)).map(|(_, item)| item.clone()).collect()
            }
        })
    }

    /// Forgets what came.
    pub fn clear(&self) {
        self.with(|inner| {
            *inner = Inner { manner: inner.manner.clone(), ..Inner::default() };
        });
    }
}

impl Inner {
    fn keep(&mut self, payment: Option<String>, item: Item) {
        let number = self.dropped + u64::try_from(self.items.len()).unwrap_or(0);
        if let Some(payment) = &payment {
            self.by_payment.entry(payment.clone()).or_default().push_back(number);
        }
        self.items.push_back((payment, item));
        if self.items.len() <= KEPT {
            return;
        }
        let Some((payment, _)) = self.items.pop_front() else { return };
        self.dropped += 1;
        let Some(payment) = payment else { return };
        if let Some(numbers) = self.by_payment.get_mut(&payment) {
            numbers.pop_front();
            if numbers.is_empty() {
                self.by_payment.remove(&payment);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(id: &str) -> BTreeMap<String, String> {
        [("webhook-id".to_owned(), id.to_owned())].into()
    }

    #[test]
    fn failures_are_counted_per_webhook_id() {
        let receiver = MerchantReceiver::default();
        let change = json!({"fail_first": 1, "status": 503, "delay": "1s"});
        receiver.set_manner(receiver.manner().changed(change.as_object().unwrap().clone()).unwrap());
        let body = r#"{"payment_id":"p1"}"#;
        let answers = ["a", "b", "a"].map(|id| receiver.take(headers(id), body.to_owned(), 0));
        assert_eq!(answers, [503, 503, 200].map(|status| (status, Duration::from_secs(1))));
        assert_eq!(receiver.items(Some("p1")).len(), 3);
        assert!(receiver.items(Some("p2")).is_empty());
        receiver.clear();
        assert!(receiver.items(None).is_empty());
        assert_eq!(receiver.manner().status, 503);
    }

    #[test]
    fn only_the_newest_are_kept() {
        let receiver = MerchantReceiver::default();
        for n in 0..KEPT + 2 {
            receiver.take(headers("x"), format!(r#"{{"payment_id":"p{}"}}"#, n % 3), 0);
        }
        assert_eq!(receiver.items(None).len(), KEPT);
        let of_each: usize = (0..3).map(|n| receiver.items(Some(&format!("p{n}"))).len()).sum();
        assert_eq!(of_each, KEPT);
        assert!(receiver.items(Some("p2")).iter().all(|item| item.body.contains("p2")));
    }

    #[test]
    fn unknown_manners_are_named() {
        let wrong =
            |value: Value| Manner::default().changed(value.as_object().unwrap().clone()).unwrap_err().0;
        assert_eq!(wrong(json!({"fail": 1})), "fail");
        assert_eq!(wrong(json!({"delay": 1})), "delay");
        assert_eq!(wrong(json!({"status": 7})), "status");
    }
}
