//! All that the sandbox knows, as the sum of its changes.
//!
//! Each change is applied here and appended to the journal file; after a restart the same changes are applied again.
//! A line of the file is an array of changes that belong together.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::clock::Micros;
use crate::faults::{Faults, Mix, Rule, SubmitFault};
use crate::model::{
    Asked, Delivery, Effect, EffectKind, EffectState, Event, Gateway, Operation, Request, Send,
};
use crate::series::Series;
use crate::settings::Settings;

/// Requests kept in memory; older ones stay in the file only.
pub const REQUESTS_KEPT: usize = 1_000_000;
/// Events kept in memory; older ones stay in the file only.
pub const EVENTS_KEPT: usize = 300_000;

/// One change of the book.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A request was answered, or will not be.
    Request(Request),
    /// A key is in the middle of a fault that lasts over several submits, or through with it.
    Unfinished {
        /// Account.
        gateway: Gateway,
        /// Gateway key.
        key: String,
        /// Which fault and how often it was shown.
        unfinished: Option<Unfinished>,
    },
    /// A key's retention is over: its next submit is a new one.
    Forgotten {
        /// Account.
        gateway: Gateway,
        /// Gateway key.
        key: String,
        /// Submits of the key before.
        attempts: u64,
    },
    /// An operation is new or changed.
    Operation(Box<Operation>),
    /// Money moved.
    Effect(Effect),
    /// An effect was taken back.
    Undone {
        /// Which.
        seq: u64,
        /// When.
        at: Micros,
    },
    /// The gateway has something to tell.
    Event(Box<Event>),
    /// An attempt to deliver ended.
    Delivered {
        /// Event by number.
        event: u64,
        /// Send by number.
        send: u32,
        /// How it ended.
        delivery: Delivery,
        /// When it is tried again.
        again: Option<Micros>,
        /// Seconds since 1970 of its signature.
        signed_at: i64,
    },
    /// An event shall be delivered once more.
    Redeliver {
        /// Event by number.
        event: u64,
        /// The delivery.
        send: Send,
    },
    /// New settings.
    Settings(Box<Settings>),
    /// A new rule.
    Rule(Box<Rule>),
    /// A rule with a limited number of cases was used.
    RuleUsed(String),
    /// All rules were removed.
    RulesCleared,
    /// A new mix.
    Mix(Mix),
    /// The clock is so far ahead.
    Clock(Micros),
}

/// A fault that lasts over several submits of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    /// Which.
    pub fault: SubmitFault,
    /// How often it was shown.
    pub shown: u32,
}

/// What is known of a gateway key.
#[derive(Debug, Default)]
pub struct KeyState {
    /// Its operation, once it was executed.
    pub operation: Option<Box<Operation>>,
    /// Submits so far.
    pub attempts: u64,
    /// Submits before the key was forgotten.
    pub forgotten: u64,
    /// Status questions so far.
    pub asked: u64,
    /// Events so far.
    pub told: u64,
    /// A fault that is not through yet.
    pub unfinished: Option<Unfinished>,
}

/// Sums of one currency of one account, in minor units, of what stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Charged and captured.
    pub captured_minor: i64,
    /// Refunded.
    pub refunded_minor: i64,
    /// Paid out.
    pub paid_out_minor: i64,
    /// Paid out and come back.
    pub returned_minor: i64,
}

impl Totals {
    /// What is left of it all, in minor units.
    #[must_use]
    pub const fn balance_minor(self) -> i64 {
        self.captured_minor
            .saturating_sub(self.refunded_minor)
            .saturating_sub(self.paid_out_minor)
            .saturating_add(self.returned_minor)
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            captured_minor: self.captured_minor.saturating_add(other.captured_minor),
            refunded_minor: self.refunded_minor.saturating_add(other.refunded_minor),
            paid_out_minor: self.paid_out_minor.saturating_add(other.paid_out_minor),
            returned_minor: self.returned_minor.saturating_add(other.returned_minor),
        }
    }

    const fn count(&mut self, kind: EffectKind, amount_minor: i64) {
        let sum = match kind {
            EffectKind::Charge | EffectKind::Capture => &mut self.captured_minor,
            EffectKind::Refund => &mut self.refunded_minor,
            EffectKind::Payout => &mut self.paid_out_minor,
            EffectKind::PayoutReturn => &mut self.returned_minor,
            EffectKind::Authorize | EffectKind::Void => return,
        };
        *sum = sum.saturating_add(amount_minor);
    }
}

/// The sum of all changes.
#[derive(Debug)]
pub struct Book {
    /// Effects on money.
    pub effects: Series<Effect>,
    /// Requests to the gateway API.
    pub requests: Series<Request>,
    /// Events.
    pub events: Series<Event>,
    /// Settings.
    pub settings: Settings,
    /// Rules and mix.
    pub faults: Faults,
    /// How far the clock is ahead, in microseconds.
    pub offset: Micros,
    keys: [HashMap<String, KeyState>; 2],
    event_ids: HashMap<String, u64>,
    totals: BTreeMap<(Gateway, String), Totals>,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            effects: Series::with_limit(usize::MAX),
            requests: Series::with_limit(REQUESTS_KEPT),
            events: Series::with_limit(EVENTS_KEPT),
            settings: Settings::default(),
            faults: Faults::default(),
            offset: 0,
            keys: [HashMap::new(), HashMap::new()],
            event_ids: HashMap::new(),
            totals: BTreeMap::new(),
        }
    }
}

const fn index(gateway: Gateway) -> usize {
    match gateway {
        Gateway::Sandbox => 0,
        Gateway::Reexecutes => 1,
    }
}

impl Book {
    /// Applies one change. A request counts as arrived when it was not yet known.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Request(request) => match self.requests.get_mut(request.seq) {
                Some(known) => known.answer = request.answer,
                None => self.arrived(request.clone()),
            },
            Change::Unfinished { gateway, key, unfinished } => {
                self.key_mut(*gateway, key).unfinished = *unfinished;
            }
            Change::Forgotten { gateway, key, attempts } => {
                let state = self.key_mut(*gateway, key);
                (state.forgotten, state.unfinished) = (*attempts, None);
            }
            Change::Operation(operation) => {
                self.key_mut(operation.gateway, &operation.key).operation = Some(operation.clone());
            }
            Change::Effect(effect) => {
                self.total_mut(effect).count(effect.kind, effect.amount_minor);
                self.effects.insert(effect.seq, &effect.key, effect.clone(), |e| &e.key);
            }
            Change::Undone { seq, at } => self.undone(*seq, *at),
            Change::Event(event) => self.told(event),
            Change::Delivered { event, send, delivery, again, signed_at } => {
                if let Some(event) = self.events.get_mut(*event) {
                    event.signed_at = *signed_at;
                    event.deliveries.push(delivery.clone());
                    match again {
                        None => event.sends.retain(|known| known.no != *send),
                        Some(due) => {
                            for known in event.sends.iter_mut().filter(|known| known.no == *send) {
                                (known.due, known.failed) = (*due, known.failed.saturating_add(1));
                            }
                        }
                    }
                }
            }
            Change::Redeliver { event, send } => {
                if let Some(event) = self.events.get_mut(*event) {
                    event.sends.push(*send);
                }
            }
            Change::Settings(settings) => self.settings = (**settings).clone(),
            Change::Rule(rule) => self.faults.rules.push((**rule).clone()),
            Change::RuleUsed(id) => self.faults.use_up(id),
            Change::RulesCleared => self.faults.rules.clear(),
            Change::Mix(mix) => self.faults.mix = mix.clone(),
            Change::Clock(offset) => self.offset = *offset,
        }
    }

    /// Takes in a request that has just arrived.
    pub fn arrived(&mut self, request: Request) {
        let state = self.key_mut(request.gateway, &request.key);
        match request.operation {
            Asked::Status => state.asked += 1,
            _ => state.attempts += 1,
        }
        let (seq, key) = (request.seq, request.key.clone());
        self.requests.insert(seq, &key, request, |r| &r.key);
    }

    fn told(&mut self, event: &Event) {
        self.key_mut(event.gateway, &event.key).told += 1;
        self.event_ids.insert(event.id.clone(), event.seq);
        if let Some(old) = self.events.insert(event.seq, &event.key, event.clone(), |e| &e.key) {
            self.event_ids.remove(&old.id);
        }
    }

    fn undone(&mut self, seq: u64, at: Micros) {
        let Some(effect) = self.effects.get_mut(seq) else { return };
        if effect.state == EffectState::Undone {
            return;
        }
        (effect.state, effect.undone_at) = (EffectState::Undone, Some(at));
        let effect = effect.clone();
        self.total_mut(&effect).count(effect.kind, effect.amount_minor.saturating_neg());
    }

    fn total_mut(&mut self, effect: &Effect) -> &mut Totals {
        self.totals.entry((effect.gateway, effect.currency.clone())).or_default()
    }

    fn key_mut(&mut self, gateway: Gateway, key: &str) -> &mut KeyState {
        let keys = &mut self.keys[index(gateway)];
        if !keys.contains_key(key) {
            keys.insert(key.to_owned(), KeyState::default());
        }
        keys.get_mut(key).expect("it was inserted just now")
    }

    /// What is known of a key.
    #[must_use]
    pub fn key(&self, gateway: Gateway, key: &str) -> Option<&KeyState> {
        self.keys[index(gateway)].get(key)
    }

    /// The operation of a key.
    #[must_use]
    pub fn operation(&self, gateway: Gateway, key: &str) -> Option<&Operation> {
        self.key(gateway, key).and_then(|state| state.operation.as_deref())
    }

    /// All operations that still do something by themselves.
    pub fn with_steps(&self) -> impl Iterator<Item = &Operation> {
        let operations =
            self.keys.iter().flat_map(HashMap::values).filter_map(|state| state.operation.as_deref());
        operations.filter(|operation| operation.next.is_some())
    }

    /// An event by its id.
    #[must_use]
    pub fn event(&self, id: &str) -> Option<&Event> {
        self.events.get(*self.event_ids.get(id)?)
    }

    /// Sums by currency, of one account or of both.
    #[must_use]
    pub fn totals(&self, gateway: Option<Gateway>) -> BTreeMap<String, Totals> {
        let mut sums = BTreeMap::<String, Totals>::new();
        for ((of, currency), totals) in &self.totals {
            if gateway.is_none_or(|gateway| gateway == *of) {
                let sum = sums.entry(currency.clone()).or_default();
                *sum = sum.plus(*totals);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(seq: u64, kind: EffectKind, amount_minor: i64) -> Change {
        Change::Effect(Effect {
            seq,
            at: 0,
            gateway: Gateway::Sandbox,
            kind,
            key: "k".to_owned(),
            reference: "r".to_owned(),
            amount_minor,
            currency: "EUR".to_owned(),
            state: EffectState::Done,
            undone_at: None,
        })
    }

    #[test]
    fn totals_follow_effects_and_what_is_undone_once() {
        let mut book = Book::default();
        for change in [
            effect(1, EffectKind::Charge, 1000),
            effect(2, EffectKind::Refund, 400),
            effect(3, EffectKind::Payout, 300),
            effect(4, EffectKind::PayoutReturn, 300),
            effect(5, EffectKind::Authorize, 7000),
            Change::Undone { seq: 2, at: 5 },
            Change::Undone { seq: 2, at: 6 },
        ] {
            book.apply(&change);
        }
        let totals = book.totals(None)["EUR"];
        assert_eq!((totals.balance_minor(), totals.refunded_minor, totals.paid_out_minor), (1000, 0, 300));
        assert!(book.totals(Some(Gateway::Reexecutes)).is_empty());
        assert_eq!(book.effects.get(2).unwrap().undone_at, Some(5));
    }

    #[test]
    fn a_request_counts_once_whether_seen_alive_or_read_back() {
        let request = Request {
            seq: 1,
            at: 0,
            gateway: Gateway::Sandbox,
            operation: Asked::Charge,
            key: "k".to_owned(),
            answer: None,
        };
        let answered = Change::Request(Request { answer: Some(200), ..request.clone() });
        let (mut alive, mut read) = (Book::default(), Book::default());
        alive.arrived(request);
        alive.apply(&answered);
        let line = serde_json::to_vec(&[answered]).unwrap();
        for change in serde_json::from_slice::<Vec<Change>>(&line).unwrap() {
            read.apply(&change);
        }
        for book in [alive, read] {
            assert_eq!(book.key(Gateway::Sandbox, "k").unwrap().attempts, 1);
            assert_eq!(book.requests.get(1).unwrap().answer, Some(200));
        }
    }
}
