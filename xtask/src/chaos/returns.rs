//! Payouts that came back after they were paid. Nobody asks about a payout that is paid, so the bank's webhook is all
//! that tells of a return; one that the mix of faults dropped is sent again here, as a real bank's operators would.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::http::Http;
use super::load::Accepted;
use super::read::{self, Effect};
use super::wanted::{Ending, What};

/// How long it may take until every return is told.
const WITHIN: Duration = Duration::from_secs(60);

/// A webhook of the sandbox.
#[derive(Debug, Deserialize)]
struct Event {
    seq: u64,
    id: String,
    r#type: String,
    key: String,
    deliveries: Vec<Delivery>,
}

#[derive(Debug, Deserialize)]
struct Delivery {
    status: Option<u16>,
}

impl Event {
    fn is_delivered(&self) -> bool {
        self.deliveries.iter().any(|delivery| delivery.status.is_some_and(|s| (200..300).contains(&s)))
    }
}

/// Waits until every payout that must come back has come back and our server knows; gives the keys of those of which
/// it was not told in time.
///
/// # Errors
/// When the sandbox does not answer as it should.
pub async fn tell(http: &Http, sandbox: &str, accepted: &[Accepted]) -> Result<BTreeSet<String>> {
    let comes_back =
        |one: &&Accepted| matches!(one.wanted.what, What::Payout { ending: Ending::Returned, .. });
    let keys: BTreeSet<&str> = accepted.iter().filter(comes_back).map(|one| one.id.as_str()).collect();
    let (began, mut sent_again) = (Instant::now(), BTreeSet::new());
    loop {
        let effects = read::effects(http, sandbox).await?;
        let events = events(http, sandbox).await?;
        let missing = missing(&keys, &effects, &events);
        if missing.is_empty() || began.elapsed() > WITHIN {
            return Ok(missing.into_iter().map(str::to_owned).collect());
        }
        let undelivered = events.iter().filter(|event| is_of(event, &missing) && event.deliveries.is_empty());
        for event in undelivered {
            // What was sent once is repeated by the sandbox itself.
            if sent_again.insert(event.id.clone()) {
                let url = format!("{sandbox}/_events/{}/redeliver", event.id);
                http.change(Method::POST, &url, &json!({})).await?;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Keys of payouts that were paid and whose return was not told: it has not happened yet, or no webhook arrived.
fn missing<'a>(keys: &BTreeSet<&'a str>, effects: &[Effect], events: &[Event]) -> BTreeSet<&'a str> {
    let paid: BTreeSet<&str> = effects.iter().map(|effect| effect.key.as_str()).collect();
    let told: BTreeSet<&str> =
        events.iter().filter(|event| event.is_delivered()).map(|event| event.key.as_str()).collect();
    keys.iter().copied().filter(|key| paid.contains(key) && !told.contains(key)).collect()
}

fn is_of(event: &Event, keys: &BTreeSet<&str>) -> bool {
    keys.contains(event.key.as_str())
}

/// Webhooks that tell of a return.
async fn events(http: &Http, sandbox: &str) -> Result<Vec<Event>> {
    #[derive(Deserialize)]
    struct Page {
        events: Vec<Event>,
    }
    let all =
        read::pages(http, sandbox, "_events", |page: Page| page.events, |event: &Event| event.seq).await?;
    Ok(all.into_iter().filter(|event| event.r#type == "returned").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(key: &str, statuses: &[Option<u16>]) -> Event {
        let deliveries = statuses.iter().map(|status| Delivery { status: *status }).collect();
        Event { seq: 1, id: "e".to_owned(), r#type: "returned".to_owned(), key: key.to_owned(), deliveries }
    }

    #[test]
    fn what_was_paid_and_not_told_is_missing() {
        let effect = |key: &str| Effect { key: key.to_owned(), ..Effect::default() };
        let keys = BTreeSet::from(["told", "refused", "dropped", "due", "unpaid"]);
        let effects = ["told", "refused", "dropped", "due", "other"].map(effect);
        let events = [
            event("told", &[Some(503), Some(200)]),
            event("refused", &[None, Some(500)]),
            event("dropped", &[]),
        ];
        assert_eq!(missing(&keys, &effects, &events), BTreeSet::from(["dropped", "due", "refused"]));
    }
}
