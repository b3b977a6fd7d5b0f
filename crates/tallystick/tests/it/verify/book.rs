//! The rules about the gateway's book, with books that were falsified.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tallystick_gateway::{
    Answer, Capability, Gateway, LostCause, NotSentCause, Operation, Outcome, Report as Webhook, ReportKind,
    Stage, Submit, WebhookError, WebhookMessage,
};
use tallystick_payments::verify::{self, Book, BookAway, Effect, EffectKind, Options, Status};
use uuid::Uuid;

use super::fixture::{AMOUNT, Fixture, exceptions, verified};
use super::plant::known;
use crate::support::gateway::{self, ScriptedGateway};

/// The scripted gateway with a book of its effects. It knows two more methods: `vanish` (no effect, no reply, and no
/// answer when it is asked) and `unreachable` (nothing is ever sent). And it tells of payouts that came back.
pub struct GatewayWithBook {
    inner: ScriptedGateway,
    effects: Mutex<Vec<Effect>>,
    vanished: Mutex<HashSet<String>>,
    questions: AtomicUsize,
}

impl GatewayWithBook {
    pub fn new() -> Self {
        Self {
            inner: ScriptedGateway::new(),
            effects: Mutex::default(),
            vanished: Mutex::default(),
            questions: AtomicUsize::new(0),
        }
    }

    pub fn effects(&self) -> Vec<Effect> {
        self.effects.lock().unwrap().clone()
    }

    /// It takes money by itself.
    pub fn takes(&self, key: Uuid, amount_minor: i64) {
        self.enter(&key.to_string(), EffectKind::Charge, amount_minor);
    }

    /// It pays out by itself.
    pub fn pays(&self, key: Uuid, amount_minor: i64) {
        self.enter(&key.to_string(), EffectKind::Payout, amount_minor);
    }

    /// A payout of [`AMOUNT`] comes back.
    pub fn returns(&self, key: Uuid) {
        self.enter(&key.to_string(), EffectKind::PayoutReturn, AMOUNT);
    }

    /// How often its book was asked about one key.
    pub fn questions(&self) -> usize {
        self.questions.load(Ordering::Relaxed)
    }

    /// Answers what is held, from now on.
    pub fn release(&self) {
        self.inner.release();
    }

    fn enter(&self, key: &str, kind: EffectKind, amount_minor: i64) {
        let mut effects = self.effects.lock().unwrap();
        let seq = effects.len() as u64 + 1;
        effects.push(Effect {
            seq,
            gateway: Some(gateway::NAME.into()),
            kind,
            key: key.into(),
            reference: format!("ref-{key}"),
            amount_minor,
            currency: "EUR".into(),
            standing: true,
        });
    }
}

#[async_trait]
impl Gateway for GatewayWithBook {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capability(&self) -> &Capability {
        self.inner.capability()
    }

    async fn submit(&self, submit: &Submit, deadline: Duration) -> Outcome {
        let (wish, kind) = match &submit.operation {
            Operation::Charge { payment_method, capture: true } => (payment_method, EffectKind::Charge),
            Operation::Charge { payment_method, capture: false } => (payment_method, EffectKind::Authorize),
            Operation::Payout { destination } => (destination, EffectKind::Payout),
        };
        match wish.as_str() {
            "vanish" => {
                self.vanished.lock().unwrap().insert(submit.key.clone());
                return Outcome::Lost(LostCause::Timeout);
            }
            "unreachable" => return Outcome::NotSent(NotSentCause::Connect("refused".into())),
            _ => {}
        }
        let outcome = self.inner.submit(submit, deadline).await;
        if matches!(outcome, Outcome::Approved(_)) || wish == "lose" {
            // In the book before the answer is out, as every gateway's.
            self.enter(&submit.key, kind, submit.amount.minor);
        }
        outcome
    }

    async fn query(&self, key: &str, deadline: Duration) -> Answer {
        if self.vanished.lock().unwrap().contains(key) {
            return Answer::Unanswered("silence".into());
        }
        self.inner.query(key, deadline).await
    }

    fn verify_webhook(&self, message: WebhookMessage<'_>, now: i64) -> Result<(), WebhookError> {
        self.inner.verify_webhook(message, now)
    }

    fn read_webhook(&self, body: &Bytes) -> Result<Vec<Webhook>, WebhookError> {
        let mut reports = self.inner.read_webhook(body)?;
        let back =
            |report: &&mut Webhook| matches!(&report.kind, ReportKind::Other(kind) if kind == "returned");
        for report in reports.iter_mut().filter(back) {
            let event: serde_json::Value = serde_json::from_slice(body).expect("it was read before");
            report.kind = ReportKind::Approved {
                stage: Stage::Returned,
                amount_minor: event["amount_minor"].as_i64().unwrap_or_default(),
                currency: event["currency"].as_str().unwrap_or_default().to_owned(),
            };
        }
        Ok(reports)
    }
}

fn page(effects: &[Effect], after: u64) -> Vec<Effect> {
    effects.iter().filter(|effect| effect.seq > after).take(4).cloned().collect()
}

#[async_trait]
impl Book for GatewayWithBook {
    async fn effects_after(&self, after: u64) -> Result<Vec<Effect>, BookAway> {
        Ok(page(&self.effects(), after))
    }

    async fn effects_of(&self, key: &str) -> Result<Vec<Effect>, BookAway> {
        self.questions.fetch_add(1, Ordering::Relaxed);
        Ok(self.effects().into_iter().filter(|effect| effect.key == key).collect())
    }
}

/// A book that says what it was given.
pub struct PlainBook {
    effects: Vec<Effect>,
    /// Questions that are answered before it is away.
    pub answers: usize,
    /// Questions about keys before it says the truth; until then it knows nothing about them.
    pub slow: usize,
    asked: AtomicUsize,
    asked_keys: AtomicUsize,
}

impl PlainBook {
    pub fn new(effects: Vec<Effect>) -> Self {
        Self {
            effects,
            answers: usize::MAX,
            slow: 0,
            asked: AtomicUsize::new(0),
            asked_keys: AtomicUsize::new(0),
        }
    }
}

#[async_trait]
impl Book for PlainBook {
    async fn effects_after(&self, after: u64) -> Result<Vec<Effect>, BookAway> {
        if self.asked.fetch_add(1, Ordering::Relaxed) >= self.answers {
            return Err(BookAway("on holiday".into()));
        }
        Ok(if self.slow > 0 { Vec::new() } else { page(&self.effects, after) })
    }

    async fn effects_of(&self, key: &str) -> Result<Vec<Effect>, BookAway> {
        if self.asked_keys.fetch_add(1, Ordering::Relaxed) < self.slow {
            return Ok(Vec::new());
        }
        Ok(self.effects.iter().filter(|effect| effect.key == key).cloned().collect())
    }
}

/// Changes the book and compares: these checks are violated by these ids, and everything else is as before.
pub async fn expect(
    fixture: &Fixture,
    change: impl FnOnce(&mut Vec<Effect>),
    violated: &[(&'static str, &[&str])],
) {
    let mut effects = fixture.effects.clone();
    change(&mut effects);
    for (seq, effect) in (1..).zip(&mut effects) {
        effect.seq = seq;
    }
    let copy = fixture.copy().await;
    let report = verified(&copy, Some(&PlainBook::new(effects))).await;
    let mut wanted = known(fixture);
    for (check, ids) in violated {
        let mut ids: Vec<String> = ids.iter().map(|id| fixture.sql(id)).collect();
        ids.sort_unstable();
        wanted.insert(check, (Status::Violated, ids));
    }
    assert_eq!(exceptions(&report), wanted);
}

/// The first effect of a key.
pub fn of(effects: &mut [Effect], id: Uuid) -> &mut Effect {
    effects.iter_mut().find(|effect| effect.key == id.to_string()).expect("it has one")
}

#[tokio::test]
async fn a_second_effect_of_a_key_and_of_an_order() {
    let fixture = Fixture::new().await;
    let again = fixture.effect("paid");
    expect(&fixture, |book| book.push(again), &[("I8", &["{paid}"])]).await;
    let taken_back = Effect { standing: false, ..fixture.effect("lost") };
    expect(&fixture, |book| book.push(taken_back), &[("I8", &["{lost}"])]).await;
    // The order was declined first and paid then; now the gateway took the first one, too.
    let first = Effect { key: fixture.id("declined").to_string(), ..fixture.effect("again") };
    let mut wanted = known(&fixture);
    let mut both = vec![fixture.id("declined").to_string(), fixture.id("again").to_string()];
    both.sort_unstable();
    wanted.insert("I8", (Status::Violated, both));
    let taken = ["declined", "late", "late payout"].map(|name| fixture.id(name));
    wanted.insert("I11", (Status::Violated, sorted(&taken)));
    let mut effects = fixture.effects.clone();
    effects.push(Effect { seq: effects.len() as u64 + 1, ..first });
    let copy = fixture.copy().await;
    assert_eq!(exceptions(&verified(&copy, Some(&PlainBook::new(effects))).await), wanted);
}

pub fn sorted(ids: &[Uuid]) -> Vec<String> {
    let mut ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn keys_that_are_not_ours() {
    let fixture = Fixture::new().await;
    for key in ["somebody-elses", "00000000-0000-7000-8000-000000000001"] {
        let foreign = Effect { key: key.into(), ..fixture.effect("paid") };
        expect(&fixture, |book| book.push(foreign), &[("I9", &[key])]).await;
    }
    // Ours, but written differently: to a gateway that is another key.
    let spelt = fixture.id("open").to_string().to_uppercase();
    let foreign = Effect { key: spelt.clone(), ..fixture.effect("paid") };
    expect(&fixture, |book| book.push(foreign), &[("I9", &[&spelt])]).await;
    // Ours, at an account that we did not send it to.
    let elsewhere = Effect {
        key: fixture.id("open").to_string(),
        gateway: Some("elsewhere".into()),
        ..fixture.effect("paid")
    };
    expect(&fixture, |book| book.push(elsewhere), &[("I9", &["{open}"])]).await;
}

#[tokio::test]
async fn captures_and_holds_that_the_book_does_not_have_or_has_otherwise() {
    let fixture = Fixture::new().await;
    for name in ["paid", "held", "theirs"] {
        let (id, wrong) = (fixture.id(name), format!("{{{name}}}"));
        let violated: &[(&'static str, &[&str])] = &[("I10", &[&wrong])];
        expect(&fixture, |book| book.retain(|effect| effect.key != id.to_string()), violated).await;
        expect(&fixture, |book| of(book, id).amount_minor = AMOUNT - 1, violated).await;
        expect(&fixture, |book| of(book, id).currency = "USD".into(), violated).await;
        expect(&fixture, |book| of(book, id).reference = "another".into(), violated).await;
    }
    let id = fixture.id("paid");
    expect(&fixture, |book| of(book, id).standing = false, &[("I10", &["{paid}"])]).await;
    let held = fixture.id("held");
    expect(&fixture, |book| of(book, held).standing = false, &[]).await;
}

#[tokio::test]
async fn an_effect_of_what_failed_is_a_violation_unless_an_open_break_names_it() {
    let fixture = Fixture::new().await;
    let copy = fixture.copy().await;
    super::plant::plant(
        &copy,
        &fixture.sql(
            "UPDATE payments.payment SET attention_code = NULL, attention_break = NULL WHERE payment_id = '{late}';
             UPDATE payments.break SET status = 'resolved', resolved_at = now() WHERE break_id = '{late break}';
             INSERT INTO outbox.event (event_id, tenant_id, aggregate, aggregate_id, version, type, payload)
             SELECT event_id, tenant_id, aggregate, aggregate_id, 2, 'break.resolved',
                    convert_to(replace(replace(replace(convert_from(payload, 'UTF8'), '\"sequence\":1', '\"sequence\":2'),
                    'break.created', 'break.resolved'), '\"status\":\"open\"', '\"status\":\"resolved\"'), 'UTF8')
               FROM outbox.event WHERE aggregate_id = '{late break}'",
        ),
    )
    .await;
    let found = verified(&copy, Some(&fixture.book())).await;
    let both = sorted(&[fixture.id("late"), fixture.id("late payout")]);
    assert_eq!(exceptions(&found), BTreeMap::from([("I11", (Status::Violated, both))]));
    // Given back at the gateway: nothing is left to explain but the payout.
    let mut effects = fixture.effects.clone();
    let back = Effect { kind: EffectKind::Refund, seq: effects.len() as u64 + 1, ..fixture.effect("late") };
    effects.push(back);
    let found = verified(&copy, Some(&PlainBook::new(effects))).await;
    let wanted = BTreeMap::from([("I11", (Status::Explained, sorted(&[fixture.id("late payout")])))]);
    assert_eq!(exceptions(&found), wanted);
}

#[tokio::test]
async fn without_a_book_or_with_one_that_goes_away_the_rest_is_checked() {
    let fixture = Fixture::new().await;
    let copy = fixture.copy().await;
    let skipped = |report: &verify::Report, reason: &str| {
        let ids: Vec<&str> = report
            .checks
            .iter()
            .filter(|check| check.status == Status::Skipped)
            .inspect(|check| assert_eq!(check.reason.as_deref(), Some(reason)))
            .map(|check| check.id)
            .collect();
        assert_eq!(ids, ["I8", "I9", "I10", "I11"]);
        assert!(report.checks.iter().all(|check| matches!(check.status, Status::Held | Status::Skipped)));
        assert!(report.ok);
    };
    skipped(&verified(&copy, None).await, "no book was given");
    // At once, in the middle of the first reading, and before the second one.
    let pages = fixture.effects.len().div_ceil(4);
    for answers in [0, 1, pages + 1] {
        let book = PlainBook { answers, ..fixture.book() };
        skipped(&verified(&copy, Some(&book)).await, "on holiday");
    }
}

#[tokio::test]
async fn what_agrees_within_patience_is_no_violation() {
    let fixture = Fixture::new().await;
    let copy = fixture.copy().await;
    let pool = copy.pool(Duration::from_secs(5)).await;
    // The book shows its effects only when asked for a second time about each.
    let claimed = ["paid", "again", "lost", "held", "theirs"].into_iter().chain([
        "sent",
        "resent",
        "lost payout",
        "back",
        "after back",
        "their payout",
    ]);
    let claimed: Vec<Uuid> = claimed.map(|name| fixture.id(name)).collect();
    let slow = || PlainBook { slow: claimed.len() * 2, ..fixture.book() };
    let options = |patience| Options { patience, ..Options::default() };
    let patient = verify::run_with(&pool, Some(&slow()), &options(Duration::from_secs(20))).await.unwrap();
    assert_eq!(exceptions(&patient), BTreeMap::new(), "the late ones have no effect that was seen");
    let hasty = verify::run_with(&pool, Some(&slow()), &options(Duration::ZERO)).await.unwrap();
    assert_eq!(exceptions(&hasty), BTreeMap::from([("I10", (Status::Violated, sorted(&claimed)))]));
}
