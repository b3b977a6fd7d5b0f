//! The gateway and the bank: one engine, in which the operations differ only in small parts.
//!
//! A request goes through three moments. It *arrives*: it gets its number, and a key that is already under way is
//! refused. It is *decided*, under the book's lock: replay, refusal or effect, together with the request's own answer
//! and the events to tell, as one line of the journal file. It is *answered* when that line is durable. What happens
//! by itself later (late outcomes, returns, webhooks) is a step in the book with a due time, so that a restart finds it.

mod capture;
mod charge;
mod execute;
mod facts;
mod payout;
mod refund;
mod status;
mod submit;
mod tell;
mod timers;
mod void;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

pub use facts::{FactError, FactMade, FactRequest};
pub use timers::{Parcel, ToSend};

use crate::book::{Book, Change};
use crate::clock::{Clock, Micros};
use crate::journal_file::{Durable, JournalError, JournalFile, Progress};
use crate::model::{Asked, Gateway, Request, Submit};
use crate::seed;

/// How a submit or question is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// HTTP status and body.
    Json(u16, Vec<u8>),
    /// None; the connection stays open.
    Silence,
    /// A reset of the connection.
    Reset,
    /// 200 and half of this body.
    Garbage(Vec<u8>),
}

impl Reply {
    /// An error with its code and words.
    #[must_use]
    pub fn error(status: u16, code: &str, message: &str) -> Self {
        let body = serde_json::json!({"error": code, "message": message});
        Self::Json(status, body.to_string().into_bytes())
    }

    /// What the list of requests shows: the status that the caller could read, if any.
    #[must_use]
    pub const fn answer(&self) -> Option<u16> {
        match self {
            Self::Json(status, _) => Some(*status),
            Self::Garbage(_) => Some(200),
            Self::Silence | Self::Reset => None,
        }
    }
}

/// A decision, to be carried out when it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The answer.
    pub reply: Reply,
    /// Line that must be durable before.
    pub position: u64,
    /// Additional time before the answer.
    pub delay: Duration,
    /// A send that is made and waited for before the answer: event and send by number.
    pub deliver_first: Option<(u64, u32)>,
}

/// A request that has arrived.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Its number.
    pub seq: u64,
    /// Account.
    pub gateway: Gateway,
    /// What is asked.
    pub operation: Asked,
    /// The gateway key.
    pub key: String,
    /// How many submits, or questions, of this key have arrived with it.
    pub number: u64,
    /// Time before the decision, and again before the answer.
    pub pause: Duration,
}

/// Something due at a moment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Step(Gateway, String),
    Send(u64, u32),
}

pub(crate) struct State {
    pub(crate) book: Book,
    file: JournalFile,
    awaited: u64,
    under_way: HashMap<(Gateway, String), Submit>,
    delivering: HashSet<(u64, u32)>,
    timers: BinaryHeap<Reverse<(Micros, Due)>>,
    /// Until then the timers' loop sleeps.
    asleep_until: Micros,
    last_arrival: u64,
}

impl State {
    fn apply(&mut self, changes: &mut Vec<Change>, change: Change) {
        self.book.apply(&change);
        match &change {
            Change::Operation(operation) => {
                if let Some(step) = operation.next {
                    self.timers
                        .push(Reverse((step.due, Due::Step(operation.gateway, operation.key.clone()))));
                }
            }
            Change::Event(event) => {
                for send in &event.sends {
                    self.timers.push(Reverse((send.due, Due::Send(event.seq, send.no))));
                }
            }
            Change::Delivered { event, send, again: Some(due), .. } => {
                self.timers.push(Reverse((*due, Due::Send(*event, *send))));
            }
            Change::Redeliver { event, send } => {
                self.timers.push(Reverse((send.due, Due::Send(*event, send.no))));
            }
            _ => {}
        }
        changes.push(change);
    }

    /// Queues the changes as one line; its position.
    fn append(&mut self, changes: &[Change], awaited: bool) -> u64 {
        let line = serde_json::to_vec(changes).expect("changes have text keys and no failing serializers");
        let position = self.file.append(line, awaited);
        if awaited {
            self.awaited = position;
        }
        position
    }

    /// The answer of a request, as a change.
    fn answered(&self, arrival: &Arrival, answer: Option<u16>) -> Option<Change> {
        let request = self.book.requests.get(arrival.seq)?;
        Some(Change::Request(Request { answer, ..request.clone() }))
    }
}

/// The gateway and the bank.
pub struct Engine {
    state: Mutex<State>,
    clock: Clock,
    wake: Notify,
    durable: Durable,
}

impl Engine {
    /// Opens the book in a folder and takes up what was left to do.
    ///
    /// # Errors
    /// When the journal file is in use, unreadable or damaged.
    pub fn open(folder: &Path) -> Result<Arc<Self>, JournalError> {
        std::fs::create_dir_all(folder)?;
        let mut book = Book::default();
        let file = JournalFile::open(&folder.join("journal.jsonl"), |line| {
            let changes = serde_json::from_slice::<Vec<Change>>(line).map_err(|e| e.to_string())?;
            changes.iter().for_each(|change| book.apply(change));
            Ok(())
        })?;
        let clock = Clock::default();
        clock.set_offset(book.offset);
        let steps = book.with_steps().filter_map(|operation| {
            Some((operation.next?.due, Due::Step(operation.gateway, operation.key.clone())))
        });
        let sends = book
            .events
            .iter()
            .flat_map(|event| event.sends.iter().map(|send| (send.due, Due::Send(event.seq, send.no))));
        let timers = steps.chain(sends).map(Reverse).collect();
        let durable = file.durable();
        let last_arrival = book.requests.next_number() - 1;
        let state = State {
            book,
            file,
            awaited: 0,
            under_way: HashMap::new(),
            delivering: HashSet::new(),
            timers,
            asleep_until: Micros::MAX,
            last_arrival,
        };
        Ok(Arc::new(Self { state: Mutex::new(state), clock, wake: Notify::new(), durable }))
    }

    /// The sandbox's present moment.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in the middle of a decision leaves at worst a half-applied change in memory, which the file does
        // not have; going on is what a gateway would do.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the book.
    pub fn read<T>(&self, look: impl FnOnce(&Book) -> T) -> T {
        look(&self.lock().book)
    }

    /// Looks at the book and waits until what was seen is durable.
    ///
    /// # Errors
    /// When the journal file can no longer be written.
    pub async fn read_durable<T>(&self, look: impl FnOnce(&Book) -> T) -> Result<T, JournalError> {
        let (found, position) = {
            let state = self.lock();
            (look(&state.book), state.awaited)
        };
        self.durable(position).await?;
        Ok(found)
    }

    /// Changes settings, rules, mix or clock, durably.
    ///
    /// # Errors
    /// When the journal file can no longer be written, or what `make` says.
    pub async fn change<T, E: From<JournalError>>(
        &self,
        make: impl FnOnce(&Book) -> Result<(Change, T), E>,
    ) -> Result<T, E> {
        let (made, position) = {
            let mut state = self.lock();
            let (change, made) = make(&state.book)?;
            let mut changes = Vec::new();
            state.apply(&mut changes, change);
            self.clock.set_offset(state.book.offset);
            (made, state.append(&changes, true))
        };
        self.wake.notify_one();
        self.durable(position).await?;
        Ok(made)
    }

    /// Waits until a line is on disk.
    ///
    /// # Errors
    /// When the journal file can no longer be written.
    pub async fn durable(&self, position: u64) -> Result<(), JournalError> {
        self.durable.clone().wait(position).await
    }

    /// How far the journal file is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.durable.progress()
    }

    /// Ends when the journal file can no longer be written.
    pub async fn broken(&self) {
        self.durable.clone().closed().await;
    }

    /// Writes what is queued and stops writing.
    pub fn close(&self) {
        self.lock().file.close();
    }

    /// Takes in a request. Its answer is recorded by the decision, or by [`Engine::refuse`].
    #[must_use]
    pub fn arrive(&self, gateway: Gateway, operation: Asked, key: &str) -> Arrival {
        let at = self.now();
        let mut state = self.lock();
        state.last_arrival += 1;
        let seq = state.last_arrival;
        state.book.arrived(Request { seq, at, gateway, operation, key: key.to_owned(), answer: None });
        let known = state.book.key(gateway, key);
        let number =
            known.map_or(1, |known| if operation == Asked::Status { known.asked } else { known.attempts });
        let settings = &state.book.settings;
        let latency = crate::clock::micros(settings.latency);
        let parts = i64::try_from(settings.spread.parts()).unwrap_or(0);
        let reach = latency.checked_mul(parts).unwrap_or(0) / 1_000_000;
        let width = u64::try_from(reach.saturating_mul(2)).unwrap_or(0).saturating_add(1);
        let drawn = seed::draw(settings.seed, "latency", key, seq) % width;
        let whole = latency - reach + i64::try_from(drawn).unwrap_or(0);
        Arrival {
            seq,
            gateway,
            operation,
            key: key.to_owned(),
            number,
            pause: crate::clock::duration(whole / 2),
        }
    }

    /// Records that a request was refused before it was looked at.
    pub fn refuse(&self, arrival: &Arrival, answer: u16) {
        let mut state = self.lock();
        if let Some(change) = state.answered(arrival, Some(answer)) {
            state.book.apply(&change);
            state.append(&[change], false);
        }
    }
}
