//! Submits: replayed, refused, or carried out with the fault that is chosen for them.

use std::time::Duration;

use super::execute::{Checked, Refusal, check};
use super::tell::{When, reference};
use super::{Arrival, Decision, Engine, Reply, State};
use crate::book::{Change, KeyState, Unfinished};
use crate::clock::{self, Micros};
use crate::faults::{Case, Chosen, SubmitFault, magic};
use crate::model::{Act, Decline, Gateway, Kind, Operation, Status, Step, Submit};
use crate::plan::{Form, Happens, Plan, plan};
use crate::seed;
use crate::settings::Acknowledge;

/// How a submit is answered, before its line has a position.
struct Decided {
    reply: Reply,
    delay: Duration,
    deliver_first: Option<(u64, u32)>,
}

impl From<Reply> for Decided {
    fn from(reply: Reply) -> Self {
        Self { reply, delay: Duration::ZERO, deliver_first: None }
    }
}

impl Engine {
    /// Marks a key as under way, or says why it may not be: the same key is being executed just now.
    ///
    /// # Errors
    /// The answer to give.
    pub fn begin(&self, arrival: &Arrival, submit: &Submit) -> Result<(), Reply> {
        let mut state = self.lock();
        let place = (arrival.gateway, arrival.key.clone());
        match state.under_way.get(&place) {
            Some(other) if other != submit => Err(key_reuse()),
            Some(_) => Err(Reply::error(409, "in_flight", "a request with this key is under way")),
            None => {
                state.under_way.insert(place, submit.clone());
                Ok(())
            }
        }
    }

    /// Decides a submit that was begun.
    #[must_use]
    pub fn submit(&self, arrival: &Arrival, submit: &Submit) -> Decision {
        let now = self.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        state.under_way.remove(&(arrival.gateway, arrival.key.clone()));
        let mut changes = Vec::new();
        let decided = state.decide(&mut changes, arrival, submit, now);
        if let Some(change) = state.answered(arrival, decided.reply.answer()) {
            state.apply(&mut changes, change);
        }
        let position = state.append(&changes, true);
        self.wake_for(state);
        let Decided { reply, delay, deliver_first } = decided;
        Decision { reply, position, delay, deliver_first }
    }
}

fn key_reuse() -> Reply {
    Reply::error(422, "key_reuse", "this key was used with other parameters")
}

/// How often a fault that lasts over several submits is shown.
const fn shows(fault: SubmitFault) -> u32 {
    if matches!(fault, SubmitFault::ErrorBefore) { 2 } else { 1 }
}

impl State {
    fn decide(
        &mut self,
        changes: &mut Vec<Change>,
        arrival: &Arrival,
        submit: &Submit,
        now: Micros,
    ) -> Decided {
        let (gateway, key) = (arrival.gateway, arrival.key.as_str());
        let retention = clock::micros(self.book.settings.key_retention);
        let known = self.book.operation(gateway, key);
        let kept = known.filter(|operation| now < operation.first_at.saturating_add(retention));
        if let Some(operation) = kept
            && let Some(result) = &operation.result
        {
            return match operation.submit == *submit {
                true => Reply::Json(result.code, body(operation, result)).into(),
                false => key_reuse().into(),
            };
        }
        let again = kept.is_some();
        if known.is_some() && !again {
            let attempts = arrival.number.saturating_sub(1);
            self.apply(changes, Change::Forgotten { gateway, key: key.to_owned(), attempts });
        }
        let chosen = self.choose(arrival, submit, again);
        if let Some(id) = chosen.used.clone() {
            self.apply(changes, Change::RuleUsed(id));
        }
        match chosen.fault {
            SubmitFault::RateLimited => Reply::error(429, "rate_limited", "too many requests").into(),
            SubmitFault::Unavailable => Reply::error(503, "unavailable", "not available just now").into(),
            SubmitFault::NeverSeen => {
                self.shown(changes, arrival, chosen.fault);
                Reply::Silence.into()
            }
            SubmitFault::ErrorBefore => {
                self.shown(changes, arrival, chosen.fault);
                Reply::error(500, "internal", "something went wrong").into()
            }
            _ => match check(&self.book, gateway, submit) {
                Ok(checked) => self.carry_out(changes, arrival, submit, &chosen, Ok(checked), now),
                Err(Refusal::Declined(why)) => {
                    self.carry_out(changes, arrival, submit, &chosen, Err(why), now)
                }
                Err(Refusal::NotFound) => Reply::error(404, "not_found", "no such charge").into(),
                Err(Refusal::NotYet) => {
                    Reply::error(422, "invalid_state", "the charge is not decided yet").into()
                }
            },
        }
    }

    /// The fault of a submit that is about to execute; `again` when the key has executed before.
    fn choose(&self, arrival: &Arrival, submit: &Submit, again: bool) -> Chosen<SubmitFault> {
        let plain = |fault| Chosen { fault, delay: crate::faults::DEFAULT_DELAY, used: None };
        let nothing = KeyState::default();
        let known = self.book.key(arrival.gateway, &arrival.key).unwrap_or(&nothing);
        match known.unfinished {
            Some(unfinished) if unfinished.shown < shows(unfinished.fault) => return plain(unfinished.fault),
            // What went by way of silence or errors stays without a webhook when it works in the end.
            Some(_) => return plain(SubmitFault::NoWebhook),
            None => {}
        }
        let number = arrival.number.saturating_sub(known.forgotten);
        let own = match magic(submit.kind, &submit.instrument) {
            SubmitFault::RateLimited | SubmitFault::Unavailable if number > 1 => SubmitFault::Ok,
            fault if again && fault.is_of_transport() => SubmitFault::NoWebhook,
            fault => fault,
        };
        let settings = &self.book.settings;
        let destination = (submit.kind == Kind::Payout).then_some(submit.instrument.as_str());
        let case = Case { key: &arrival.key, destination, number, seed: settings.seed };
        let chosen = self.book.faults.of_submit(submit.kind, case, own);
        let lucky =
            seed::happens(seed::draw(settings.seed, "success", &arrival.key, 0), settings.success_rate);
        match chosen.fault {
            SubmitFault::Ok if !lucky => plain(SubmitFault::Decline),
            _ => chosen,
        }
    }

    /// Notes that a fault which lasts over several submits was shown once more.
    fn shown(&mut self, changes: &mut Vec<Change>, arrival: &Arrival, fault: SubmitFault) {
        let before = self.book.key(arrival.gateway, &arrival.key).and_then(|state| state.unfinished);
        let shown = before.map_or(0, |unfinished| unfinished.shown).saturating_add(1);
        let unfinished = Some(Unfinished { fault, shown });
        self.apply(
            changes,
            Change::Unfinished { gateway: arrival.gateway, key: arrival.key.clone(), unfinished },
        );
    }

    /// Makes the operation, does what its plan says, and forms the answer.
    fn carry_out(
        &mut self,
        changes: &mut Vec<Change>,
        arrival: &Arrival,
        submit: &Submit,
        chosen: &Chosen<SubmitFault>,
        checked: Result<Checked, Decline>,
        now: Micros,
    ) -> Decided {
        let settings = &self.book.settings;
        let wait = clock::micros(settings.webhook_delay);
        let acknowledged = match settings.acknowledge {
            Some(acknowledge) => acknowledge == Acknowledge::Async,
            None => submit.kind == Kind::Payout,
        };
        let plan = plan(chosen.fault, submit.kind, acknowledged, wait, chosen.delay);
        let mut operation = new_operation(arrival, submit, &plan, checked.as_ref().ok(), now);
        if operation.currency.is_empty() {
            // A void that is refused has its charge's currency, if there is a charge.
            let charge =
                submit.charge_key.as_deref().and_then(|key| self.book.operation(arrival.gateway, key));
            operation.currency = charge.map_or_else(String::new, |charge| charge.currency.clone());
        }
        let first_event = self.book.events.next_number();
        match checked {
            Ok(_) => self.follow(changes, &mut operation, &plan, chosen.fault, wait, now),
            Err(decline) => self.decline(changes, &mut operation, decline, now, When::After(wait)),
        }
        let code = match operation.status {
            Status::Declined | Status::Rejected => 402,
            status if status.is_open() => 202,
            _ => 200,
        };
        let outcome = operation.outcome(code);
        let answered = matches!(plan.form, Form::Plain | Form::Delayed(_) | Form::AfterWebhook);
        if arrival.gateway == Gateway::Sandbox || (answered && code < 300) {
            operation.result = Some(outcome.clone());
        }
        let body = body(&operation, &outcome);
        self.apply(changes, Change::Operation(Box::new(operation)));
        self.form(plan.form, code, body, first_event)
    }

    /// Does at once what the plan says, and puts down what comes later.
    fn follow(
        &mut self,
        changes: &mut Vec<Change>,
        operation: &mut Operation,
        plan: &Plan,
        fault: SubmitFault,
        wait: Micros,
        now: Micros,
    ) {
        let open = match operation.submit.kind {
            Kind::Payout => Status::Accepted,
            _ => Status::Pending,
        };
        let step = |after: Micros, act, then| Some(Step { due: now.saturating_add(after), act, then });
        let usual = When::After(wait);
        match plan.happens {
            Happens::Now => {
                let tell = if plan.form == Form::AfterWebhook { When::BeforeAnswer } else { usual };
                if let Err(refusal) = self.execute(changes, operation, now, tell) {
                    self.decline(changes, operation, why(refusal), now, usual);
                } else if let Some((act, after)) = plan.then {
                    operation.next = step(after, act, None);
                }
            }
            Happens::Later(after) => {
                (operation.status, operation.next) = (open, step(after, Act::Execute, plan.then));
            }
            Happens::Refused => self.decline(changes, operation, refused(fault), now, usual),
            Happens::RefusedLater(after) => {
                (operation.status, operation.next) = (open, step(after, Act::Decline, None));
            }
            Happens::RefusedThenDone(after) => {
                self.decline(changes, operation, refused(fault), now, usual);
                operation.next = step(after, Act::Execute, None);
            }
        }
    }

    fn form(&self, form: Form, code: u16, body: Vec<u8>, first_event: u64) -> Decided {
        let reply = Reply::Json(code, body);
        match (form, reply) {
            (Form::Delayed(delay), reply) => Decided { delay, ..reply.into() },
            (Form::AfterWebhook, reply) => {
                let event = self.book.events.get(first_event);
                let deliver_first = event.and_then(|event| Some((event.seq, event.sends.first()?.no)));
                Decided { deliver_first, ..reply.into() }
            }
            (Form::Error, _) => Reply::error(500, "internal", "something went wrong").into(),
            (Form::Silence, _) => Reply::Silence.into(),
            (Form::Reset, _) => Reply::Reset.into(),
            (Form::Garbage, Reply::Json(_, body)) => Reply::Garbage(body).into(),
            (_, reply) => reply.into(),
        }
    }
}

fn new_operation(
    arrival: &Arrival,
    submit: &Submit,
    plan: &Plan,
    checked: Option<&Checked>,
    now: Micros,
) -> Operation {
    let prefix = match submit.kind {
        Kind::Charge => "ch",
        Kind::Capture => "cap",
        Kind::Void => "void",
        Kind::Refund => "re",
        Kind::Payout => "po",
    };
    let asked = checked.map_or(submit.amount_minor, |checked| Some(checked.amount_minor)).unwrap_or(0);
    let currency = checked.map_or_else(|| submit.currency.clone(), |checked| Some(checked.currency.clone()));
    Operation {
        gateway: arrival.gateway,
        key: arrival.key.clone(),
        submit: submit.clone(),
        reference: reference(prefix),
        status: Status::Pending,
        amount_minor: asked.saturating_add(plan.extra_minor),
        currency: currency.unwrap_or_default(),
        captured_minor: 0,
        refunded_minor: 0,
        decline: None,
        first_at: now,
        hidden_until: plan.hidden_for.map(|span| now.saturating_add(span)),
        quiet: plan.quiet,
        dup: plan.dup,
        effect: None,
        next: None,
        result: None,
        fee_minor: None,
        dispute: None,
    }
}

/// The decline that a fault stands for.
fn refused(fault: SubmitFault) -> Decline {
    match fault {
        SubmitFault::Closed => Decline::new("account_closed", "the destination's account is closed"),
        _ => Decline::new("declined", "refused by the other side's bank"),
    }
}

/// A refusal that came between check and effect, as a decline.
pub(super) fn why(refusal: Refusal) -> Decline {
    match refusal {
        Refusal::Declined(decline) => decline,
        Refusal::NotFound | Refusal::NotYet => Decline::new("invalid_state", "the charge cannot take it"),
    }
}

/// The bytes of an answer.
pub(super) fn body(operation: &Operation, outcome: &crate::model::Outcome) -> Vec<u8> {
    serde_json::to_vec(&operation.body(outcome)).expect("a struct of texts and numbers")
}
