//! Charges through claim, call and record: what each answer of a gateway leads to.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::PgPool;
use tallystick_gateway::Replay;
use tallystick_payments::payment::PaymentStatus::{Failed, Processing, Succeeded, Unknown};

use crate::common::{World, captured, deliver, quick, until};
use crate::gateway::Scripted;

async fn world(pool: PgPool) -> World {
    World::new(pool, Scripted::new("cards", Replay::SameResult)).await
}

#[sqlx::test(migrations = false)]
async fn approved_and_declined(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let (yes, no) = (world.pay(&process, "ok").await, world.pay(&process, "decline").await);
    world.succeeds(&process, yes).await;
    world.charged_once(&process, yes).await;
    let failed = world.becomes(&process, no, &[Failed]).await;
    assert_eq!(failed.failure.map(|f| f.code).as_deref(), Some("declined"));
    assert!(world.gateway.effects(&no.to_string()).is_empty());
    assert!(process.engine.journals_of(world.tenant, no.0).await.unwrap().is_empty());
    world.told_every_move(&process, no).await;
    world.until_number("SELECT count(*) FROM payments.dispatch", 0).await;
    process.stop().await;
}

/// C001, C002: reply lost after the effect. Unknown, asked, one submit.
#[sqlx::test(migrations = false)]
async fn c002_lost_reply_after_the_effect(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let id = world.pay(&process, "lost").await;
    world.succeeds(&process, id).await;
    assert_eq!(world.statuses(&process, id).await, ["pending", "unknown", "succeeded"]);
    assert_eq!(world.gateway.submits(&id.to_string()), 1);
    world.charged_once(&process, id).await;
    let attempts = process.engine.attempts(id.0).await.unwrap();
    let shown: Vec<(&str, &str)> = attempts.iter().map(|a| (a.action.as_str(), a.outcome.as_str())).collect();
    assert_eq!(shown, [("submit", "lost"), ("ask", "approved")]);
    process.stop().await;
}

/// The first request vanished: the gateway does not know the key, and the same key is sent again.
#[sqlx::test(migrations = false)]
async fn vanished_request_is_sent_again_with_the_same_key(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let id = world.pay(&process, "vanish_once").await;
    world.succeeds(&process, id).await;
    assert_eq!(world.gateway.submits(&id.to_string()), 2);
    assert_eq!(world.gateway.keys(), [id.to_string()]);
    world.charged_once(&process, id).await;
    process.stop().await;
}

/// C004: the gateway captured and then answers nothing for longer than all tries. Unknown until it answers.
#[sqlx::test(migrations = false)]
async fn c004_exhausted_retries_never_become_failed(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    world.gateway.mute.store(true, Ordering::SeqCst);
    let id = world.pay(&process, "lost").await;
    let key = id.to_string();
    until("ten questions", async || world.gateway.queries(&key) >= 10).await;
    assert_eq!(world.get(&process, id).await.status, Unknown);
    world.gateway.mute.store(false, Ordering::SeqCst);
    world.succeeds(&process, id).await;
    assert_eq!(world.statuses(&process, id).await, ["pending", "unknown", "succeeded"]);
    assert_eq!(world.gateway.submits(&key), 1);
    process.stop().await;
}

/// C006: connection refused is not a decline and not a loss; the payment stays what it was.
#[sqlx::test(migrations = false)]
async fn c006_connection_refused_is_not_a_decline(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    world.gateway.closed.store(true, Ordering::SeqCst);
    let id = world.pay(&process, "ok").await;
    until("three tries", async || process.engine.attempts(id.0).await.unwrap().len() >= 3).await;
    assert_eq!(world.statuses(&process, id).await, ["pending"]);
    world.gateway.closed.store(false, Ordering::SeqCst);
    world.succeeds(&process, id).await;
    assert_eq!(world.gateway.submits(&id.to_string()), 1);
    process.stop().await;
}

/// C015: other amount, other currency: kept with the gateway's id, no journal, a person is called.
#[sqlx::test(migrations = false)]
async fn c015_another_amount_or_currency_calls_a_person(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    for (method, code) in [("other_amount", "amount_mismatch"), ("other_currency", "currency_mismatch")] {
        let id = world.pay(&process, method).await;
        let payment = world.becomes(&process, id, &[Unknown]).await;
        assert_eq!(payment.attention.as_ref().map(|a| a.code.as_str()), Some(code));
        assert!(payment.gateway_reference.is_some());
        assert!(process.engine.journals_of(world.tenant, id.0).await.unwrap().is_empty());
        let breaks = process.engine.breaks(world.tenant, Some("open"), None, 10).await.unwrap();
        let of_it: Vec<_> = breaks.iter().filter(|b| b.payment_id == Some(id)).collect();
        assert_eq!(of_it.len(), 1, "{breaks:?}");
        assert_eq!(of_it[0].expected_minor, 10_000);
        assert_eq!(world.gateway.submits(&id.to_string()), 1);
    }
    process.stop().await;
}

/// A gateway that runs a key again is sent it once: after a loss it is only asked, and its late "no" proves nothing.
#[sqlx::test(migrations = false)]
async fn gateway_that_re_executes_is_sent_each_key_once(pool: PgPool) {
    let world = World::new(pool, Scripted::new("cards", Replay::ReExecutes)).await;
    let process = world.process().await;
    let lost = world.pay(&process, "lost_then_declined").await;
    world.succeeds(&process, lost).await;
    world.charged_once(&process, lost).await;
    let vanished = world.pay(&process, "vanish_always").await;
    let key = vanished.to_string();
    until("five questions", async || world.gateway.queries(&key) >= 5).await;
    assert_eq!((world.get(&process, vanished).await.status, world.gateway.submits(&key)), (Unknown, 1));
    process.stop().await;
}

/// Past the gateway's memory of a key nothing is sent any more, whatever it answers.
#[sqlx::test(migrations = false)]
async fn nothing_is_sent_past_the_key_retention(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    world.gateway.mute.store(true, Ordering::SeqCst);
    let id = world.pay(&process, "vanish_always").await;
    let key = id.to_string();
    world.becomes(&process, id, &[Unknown]).await;
    until("a question", async || world.gateway.queries(&key) >= 1).await;
    world.sql("UPDATE payments.dispatch SET first_claimed_at = now() - interval '23 h'").await;
    let (sent, asked) = (world.gateway.submits(&key), world.gateway.queries(&key));
    world.gateway.mute.store(false, Ordering::SeqCst);
    until("more questions", async || world.gateway.queries(&key) >= asked + 5).await;
    assert_eq!((world.gateway.submits(&key), sent), (1, 1));
    assert_eq!(world.get(&process, id).await.status, Unknown);
    process.stop().await;
}

/// Status lags: `not_found` right after a lost reply is no proof; the repeat with the same key has no second effect.
#[sqlx::test(migrations = false)]
async fn not_found_that_lags_makes_no_second_effect(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    world.gateway.lagging.store(3, Ordering::SeqCst);
    let id = world.pay(&process, "lost").await;
    world.succeeds(&process, id).await;
    world.charged_once(&process, id).await;
    process.stop().await;
}

/// An acknowledged charge whose webhook never comes is asked about.
#[sqlx::test(migrations = false)]
async fn acknowledged_charge_without_news_is_asked_about(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let id = world.pay(&process, "accept").await;
    world.becomes(&process, id, &[Processing]).await;
    world.gateway.charge_late(&id.to_string(), 10_000, "EUR");
    world.succeeds(&process, id).await;
    assert_eq!(world.statuses(&process, id).await, ["pending", "processing", "succeeded"]);
    assert_eq!(world.gateway.submits(&id.to_string()), 1);
    process.stop().await;
}

/// C111: the gateway's wish to wait is honoured, and the rate-limited submit does not count as lost.
#[sqlx::test(migrations = false)]
async fn c111_retry_after_is_honoured(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let id = world.pay(&process, "busy").await;
    world.succeeds(&process, id).await;
    assert_eq!(world.statuses(&process, id).await, ["pending", "succeeded"]);
    let attempts = process.engine.attempts(id.0).await.unwrap();
    assert!(attempts[1].at.duration_since(attempts[0].at) >= jiff::SignedDuration::from_millis(300));
    process.stop().await;
}

/// C114: an answer that was under way when a webhook brought the outcome changes nothing.
#[sqlx::test(migrations = false)]
async fn c114_old_answer_after_a_newer_webhook(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let id = world.pay(&process, "gated").await;
    until("the call is under way", async || world.gateway.waiting.load(Ordering::SeqCst) == 1).await;
    deliver(&process, "evt-1", &captured(id, 10_000)).await.unwrap();
    world.succeeds(&process, id).await;
    world.gateway.gate.add_permits(1);
    until("the reply is recorded", async || !process.engine.attempts(id.0).await.unwrap().is_empty()).await;
    world.charged_once(&process, id).await;
    assert_eq!(world.statuses(&process, id).await, ["pending", "succeeded"]);
    process.stop().await;
}

/// No transaction and no row lock is open while a gateway is called.
#[sqlx::test(migrations = false)]
async fn nothing_is_open_during_a_call(pool: PgPool) {
    let world = world(pool).await;
    let settings = tallystick_payments::Settings {
        gateway_timeout: Duration::from_secs(5),
        lease: Duration::from_secs(12),
        ..quick()
    };
    let process = world.process_with(settings).await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(world.pay(&process, "gated").await);
    }
    until("all calls are under way", async || world.gateway.waiting.load(Ordering::SeqCst) == 20).await;
    for _ in 0..20 {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
                     AND xact_start < now() - interval '1 s'";
        assert_eq!(world.number(open).await, 0, "transactions older than a second");
        // A row that somebody locks is left out here.
        let free = "SELECT count(*) FROM (SELECT 1 FROM payments.payment FOR UPDATE SKIP LOCKED) p";
        assert_eq!(world.number(free).await, 20, "rows without a lock");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.gateway.gate.add_permits(20);
    for id in ids {
        world.succeeds(&process, id).await;
    }
    process.stop().await;
}

/// Two hundred charges are recorded in far fewer transactions, each once.
#[sqlx::test(migrations = false)]
async fn results_are_recorded_in_batches(pool: PgPool) {
    let world = world(pool).await;
    let api = world.api_only(quick()).await;
    let mut ids = Vec::new();
    for _ in 0..200 {
        ids.push(world.pay(&api, "ok").await);
    }
    let worker = world.process().await;
    for id in &ids {
        world.becomes(&worker, *id, &[Succeeded]).await;
    }
    let transactions = world
        .number("SELECT count(DISTINCT xid::text) FROM outbox.event WHERE type = 'payment.succeeded'")
        .await;
    assert!(transactions <= 20, "{transactions} transactions recorded 200 results");
    worker.stop().await;
    api.stop().await;
}
