//! Events: what the gateway tells, when, and with which fault.

use serde::Serialize;
use uuid::Uuid;

use super::State;
use crate::book::Change;
use crate::clock::{self, Micros, SECOND};
use crate::faults::{Case, WebhookFault};
use crate::model::{Event, Fact, Gateway, Kind, Operation, Send};
use crate::plan::LATE;
use crate::settings::RefundEvents;

/// How long a reordered webhook is held back, so that what follows a second later overtakes it.
const HELD_BACK: Micros = 2 * SECOND;
/// When a webhook that should come before the answer is sent at the latest.
const FIRST_AT_LATEST: Micros = 5 * SECOND / 2;

/// When an event is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// So many microseconds later, unless the operation is quiet.
    After(Micros),
    /// By the one who is about to answer; at the latest in a while.
    BeforeAnswer,
    /// At once, quiet or not, because somebody asked for it.
    AtOnce,
    /// Never by itself.
    Never,
}

/// What an event tells beside its operation.
#[derive(Clone, Debug)]
pub(super) struct News {
    pub fact: Fact,
    /// Amount in minor units where it is not the operation's own.
    pub amount_minor: Option<i64>,
    /// Reference where it is not the operation's own.
    pub reference: Option<String>,
    /// A fee in minor units.
    pub fee_minor: Option<i64>,
}

impl News {
    pub(super) const fn of(fact: Fact) -> Self {
        Self { fact, amount_minor: None, reference: None, fee_minor: None }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    fact: Fact,
    key: &'a str,
    reference: &'a str,
    amount_minor: i64,
    currency: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    refunded_minor: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fee_minor: Option<i64>,
    occurred_at: String,
}

/// A new name of the gateway for something, such as `ch_…`.
pub(super) fn reference(prefix: &str) -> String {
    format!("{prefix}_{}", Uuid::now_v7().simple())
}

impl State {
    /// Makes the event of a fact (two events where each fact is told twice over); their numbers.
    pub(super) fn tell(
        &mut self,
        changes: &mut Vec<Change>,
        operation: &Operation,
        news: News,
        when: When,
        now: Micros,
    ) -> Vec<u64> {
        let due = match when {
            _ if !self.book.settings.webhooks => None,
            When::Never => None,
            When::AtOnce => Some(now),
            _ if operation.quiet => None,
            When::After(delay) => Some(now.saturating_add(delay)),
            When::BeforeAnswer => Some(now.saturating_add(FIRST_AT_LATEST)),
        };
        // Told twice over: one event that is sent twice, and another one about the same fact.
        let copies: &[u32] = if operation.dup { &[2, 1] } else { &[1] };
        let mut made = Vec::new();
        for sends in copies {
            let dues = due.map_or(Vec::new(), |due| self.dues(changes, operation, due, *sends));
            made.push(self.event(changes, operation, &news, &dues, now));
        }
        made
    }

    /// The moments at which an event is sent, after the faults of webhooks.
    fn dues(
        &mut self,
        changes: &mut Vec<Change>,
        operation: &Operation,
        due: Micros,
        sends: u32,
    ) -> Vec<Micros> {
        let number = self.book.key(operation.gateway, &operation.key).map_or(0, |state| state.told) + 1;
        let destination =
            (operation.submit.kind == Kind::Payout).then_some(operation.submit.instrument.as_str());
        let case = Case { key: &operation.key, destination, number, seed: self.book.settings.seed };
        let chosen = self.book.faults.of_webhook(case);
        if let Some(id) = chosen.as_ref().and_then(|chosen| chosen.used.clone()) {
            self.apply(changes, Change::RuleUsed(id));
        }
        let (sends, due) = match chosen.map(|chosen| chosen.fault) {
            None => (sends, due),
            Some(WebhookFault::Drop) => (0, due),
            Some(WebhookFault::Dup) => (sends + 1, due),
            Some(WebhookFault::Late) => (sends, due.saturating_add(LATE)),
            Some(WebhookFault::Reorder) => (sends, due.saturating_add(HELD_BACK)),
        };
        (0..sends).map(|_| due).collect()
    }

    fn event(
        &mut self,
        changes: &mut Vec<Change>,
        operation: &Operation,
        news: &News,
        dues: &[Micros],
        now: Micros,
    ) -> u64 {
        let id = reference("evt");
        let about = self.about(operation, news);
        let body = Body {
            id: &id,
            fact: news.fact,
            key: &about.key,
            reference: &about.reference,
            amount_minor: about.amount_minor,
            currency: &operation.currency,
            refunded_minor: about.refunded_minor,
            fee_minor: news.fee_minor,
            occurred_at: clock::rfc3339(now),
        };
        let body = serde_json::to_string(&body).expect("a struct of texts and numbers");
        let seq = self.book.events.next_number();
        let sends = (1..).zip(dues).map(|(no, due)| Send { no, due: *due, failed: 0 }).collect();
        let event = Event {
            seq,
            id,
            gateway: operation.gateway,
            fact: news.fact,
            key: operation.key.clone(),
            reference: about.reference,
            body,
            signed_at: clock::real_seconds(),
            deliveries: Vec::new(),
            sends,
        };
        self.apply(changes, Change::Event(Box::new(event)));
        seq
    }

    /// Key, reference and amount that the body shows.
    fn about(&self, operation: &Operation, news: &News) -> About {
        let cumulative = self.book.settings.refund_events == RefundEvents::Cumulative;
        if news.fact == Fact::Refund && cumulative {
            let charge = match operation.submit.kind {
                Kind::Refund => charge_of(self, operation.gateway, operation),
                _ => Some(operation),
            };
            if let Some(charge) = charge {
                return About {
                    key: charge.key.clone(),
                    reference: charge.reference.clone(),
                    amount_minor: charge.captured_minor,
                    refunded_minor: Some(charge.refunded_minor),
                };
            }
        }
        About {
            key: operation.key.clone(),
            reference: news.reference.clone().unwrap_or_else(|| operation.reference.clone()),
            amount_minor: news.amount_minor.unwrap_or(operation.amount_minor),
            refunded_minor: None,
        }
    }
}

struct About {
    key: String,
    reference: String,
    amount_minor: i64,
    refunded_minor: Option<i64>,
}

fn charge_of<'a>(state: &'a State, gateway: Gateway, operation: &Operation) -> Option<&'a Operation> {
    state.book.operation(gateway, operation.submit.charge_key.as_deref()?)
}
