//! Status by key. It knows every key that was ever executed, whatever its retention.

use std::time::Duration;

use super::submit::body;
use super::{Arrival, Decision, Engine, Reply, State};
use crate::book::Change;
use crate::clock::Micros;
use crate::faults::{Case, Chosen, StatusFault};
use crate::model::Status;

impl Engine {
    /// Answers a status question.
    #[must_use]
    pub fn status(&self, arrival: &Arrival) -> Decision {
        let now = self.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        let mut changes = Vec::new();
        let (reply, delay) = state.look_up(&mut changes, arrival, now);
        if let Some(change) = state.answered(arrival, reply.answer()) {
            state.apply(&mut changes, change);
        }
        // Nobody waits for the record of a question, but the answer must not tell what could still be lost.
        let position = state.awaited;
        state.append(&changes, false);
        Decision { reply, position, delay, deliver_first: None }
    }
}

impl State {
    fn look_up(&mut self, changes: &mut Vec<Change>, arrival: &Arrival, now: Micros) -> (Reply, Duration) {
        let known = self.book.key(arrival.gateway, &arrival.key);
        let operation = known.and_then(|state| state.operation.as_deref());
        let destination = operation.map(|operation| operation.submit.instrument.as_str());
        let case =
            Case { key: &arrival.key, destination, number: arrival.number, seed: self.book.settings.seed };
        let chosen = self.book.faults.of_status(case);
        let used = chosen.as_ref().and_then(|chosen| chosen.used.clone());
        let not_found = || Reply::error(404, "not_found", "no operation with this key");
        let visible = operation.filter(|operation| operation.hidden_until.is_none_or(|until| now >= until));
        let shown = visible.map(|operation| (operation, operation.outcome(200)));
        let plain = shown.as_ref().map_or_else(not_found, |(o, outcome)| Reply::Json(200, body(o, outcome)));
        let (reply, delay) = match (chosen, shown) {
            (Some(Chosen { fault: StatusFault::Lost, .. }), _) => (Reply::Silence, Duration::ZERO),
            (Some(Chosen { fault: StatusFault::NotFound, .. }), _) => (not_found(), Duration::ZERO),
            (Some(Chosen { fault: StatusFault::Delay, delay, .. }), _) => (plain, delay),
            (Some(Chosen { fault: StatusFault::Pending, .. }), Some((operation, mut outcome))) => {
                (outcome.status, outcome.decline) = (Status::Pending, None);
                (Reply::Json(200, body(operation, &outcome)), Duration::ZERO)
            }
            _ => (plain, Duration::ZERO),
        };
        if let Some(id) = used {
            self.apply(changes, Change::RuleUsed(id));
        }
        (reply, delay)
    }
}
