//! What happens by itself: steps of operations, and deliveries of events.

use std::cmp::Reverse;
use std::time::Duration;

use super::execute::Refusal;
use super::submit::why;
use super::tell::{News, When};
use super::{Due, Engine, State};
use crate::book::Change;
use crate::clock::{self, Micros, SECOND};
use crate::model::{Act, Decline, Delivery, Event, Fact, Gateway, Send, Status, Step};

/// Waits between attempts to deliver: 0.2 s, doubled up to 5 s.
const FIRST_WAIT: Micros = SECOND / 5;
const LONGEST_WAIT: Micros = 5 * SECOND;
/// Attempts of one send; with the waits above about ten minutes.
const ATTEMPTS: u32 = 124;

/// A delivery that is due: event and send by number.
pub type ToSend = (u64, u32);

/// How long a step waits for a charge that is not decided yet.
const LATER: Micros = SECOND / 10;

/// An event on its way.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// Event id.
    pub id: String,
    /// Account, and with it the address.
    pub gateway: Gateway,
    /// The bytes.
    pub body: String,
    /// Line that must be durable before it is sent.
    pub position: u64,
}

impl Engine {
    /// Wakes the timers' loop when something is due earlier than it sleeps.
    pub(super) fn wake_for(&self, state: &State) {
        if state.timers.peek().is_some_and(|Reverse((due, _))| *due < state.asleep_until) {
            self.wake.notify_one();
        }
    }

    /// Does all that is due and returns the deliveries to make, and the time to sleep.
    #[must_use]
    pub fn run_due(&self) -> (Vec<ToSend>, Duration) {
        let now = self.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        let (mut changes, mut sends) = (Vec::new(), Vec::new());
        while state.timers.peek().is_some_and(|Reverse((due, _))| *due <= now) {
            let Some(Reverse((due, what))) = state.timers.pop() else { break };
            match what {
                Due::Step(gateway, key) => {
                    changes.clear();
                    state.step(&mut changes, gateway, &key, due, now);
                    if !changes.is_empty() {
                        state.append(&changes, true);
                    }
                }
                Due::Send(event, no) => {
                    let current = state.book.events.get(event).and_then(|event| send_of(event, no));
                    // A timer whose send was made or moved meanwhile is stale.
                    if current.is_some_and(|send| send.due == due) {
                        sends.push((event, no));
                    }
                }
            }
        }
        state.asleep_until = state.timers.peek().map_or(Micros::MAX, |Reverse((due, _))| *due);
        (sends, clock::duration(state.asleep_until.saturating_sub(now)))
    }

    /// Waits until something may be due earlier.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Takes a send in hand; nothing when it was made already or is being made.
    #[must_use]
    pub fn parcel(&self, (event, no): ToSend) -> Option<Parcel> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let found = state.book.events.get(event)?;
        send_of(found, no)?;
        let parcel = Parcel {
            id: found.id.clone(),
            gateway: found.gateway,
            body: found.body.clone(),
            position: state.awaited,
        };
        state.delivering.insert((event, no)).then_some(parcel)
    }

    /// Records how an attempt ended; it is tried again unless the receiver said 2xx.
    pub fn delivered(&self, (event, no): ToSend, status: Option<u16>, signed_at: i64) {
        let now = self.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        state.delivering.remove(&(event, no));
        let Some(send) = state.book.events.get(event).and_then(|event| send_of(event, no)) else { return };
        let done = status.is_some_and(|status| (200..300).contains(&status));
        let again = (!done && send.failed.saturating_add(1) < ATTEMPTS)
            .then(|| now.saturating_add(wait_after(send.failed)));
        let delivery = Delivery { at: now, status };
        let mut changes = Vec::new();
        state.apply(&mut changes, Change::Delivered { event, send: no, delivery, again, signed_at });
        state.append(&changes, false);
        self.wake_for(state);
    }

    /// Has an event delivered once more: the same bytes and id. Its position, or nothing when there is none such.
    #[must_use]
    pub fn redeliver(&self, id: &str) -> Option<u64> {
        let now = self.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        let event = state.book.event(id)?;
        let taken = u32::try_from(event.deliveries.len()).unwrap_or(u32::MAX);
        let highest = event.sends.iter().map(|send| send.no).max().unwrap_or(0);
        // Above every number that this event's sends ever had: each of them left a delivery or is still there.
        let no = taken.max(highest).saturating_add(1);
        let (event, send) = (event.seq, Send { no, due: now, failed: 0 });
        let mut changes = Vec::new();
        state.apply(&mut changes, Change::Redeliver { event, send });
        let position = state.append(&changes, true);
        self.wake_for(state);
        Some(position)
    }
}

fn send_of(event: &Event, no: u32) -> Option<Send> {
    event.sends.iter().find(|send| send.no == no).copied()
}

/// The wait after so many failed attempts before this one.
fn wait_after(failed: u32) -> Micros {
    FIRST_WAIT.saturating_mul(1_i64.checked_shl(failed.min(10)).unwrap_or(1024)).min(LONGEST_WAIT)
}

impl State {
    /// Does an operation's step, unless it was overtaken by a fact.
    fn step(&mut self, changes: &mut Vec<Change>, gateway: Gateway, key: &str, due: Micros, now: Micros) {
        let Some(found) = self.book.operation(gateway, key) else { return };
        let Some(step) = found.next.filter(|step| step.due == due) else { return };
        let mut operation = found.clone();
        operation.next = None;
        match step.act {
            Act::Execute => match self.execute(changes, &mut operation, now, When::After(0)) {
                Ok(()) => {
                    let next = |(act, after)| Step { due: now.saturating_add(after), act, then: None };
                    operation.next = step.then.map(next);
                }
                Err(Refusal::NotYet) => {
                    operation.next = Some(Step { due: now.saturating_add(LATER), ..step });
                }
                // Refused already and shall happen nevertheless, but the charge cannot take it any more.
                Err(_) if !operation.status.is_open() => {}
                Err(refusal) => self.decline(changes, &mut operation, why(refusal), now, When::After(0)),
            },
            Act::Decline => {
                let decline = Decline::new("declined", "refused by the other side's bank");
                self.decline(changes, &mut operation, decline, now, When::After(0));
            }
            Act::Return if operation.status == Status::Paid => {
                self.come_back(changes, &mut operation, now);
                self.tell(changes, &operation, News::of(Fact::Returned), When::After(0), now);
            }
            Act::Return => {}
        }
        self.apply(changes, Change::Operation(Box::new(operation)));
    }
}
