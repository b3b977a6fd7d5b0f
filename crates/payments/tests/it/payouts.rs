//! Payouts: debited with the claim, sent once, settled or reversed by what the bank says.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection, PgPool};
use tallystick_gateway::Replay;
use tallystick_ledger::{AccountKind, Direction, JournalStatus};
use tallystick_payments::Settings;
use tallystick_payments::bookkeeping::{OpenAccount, PostEntry, PostJournal};
use tallystick_payments::ids::PayoutId;
use tallystick_payments::payout::PayoutStatus::{self, Failed, Processing, Returned, Succeeded, Unknown};
use tallystick_payments::payout::{CreatePayout, Payout};
use uuid::Uuid;

use crate::common::{PATIENCE, Process, World, deliver, quick, until};
use crate::gateway::Scripted;

pub async fn world(pool: PgPool) -> World {
    World::new(pool, Scripted::new("cards", Replay::SameResult)).await
}

pub fn key() -> String {
    Uuid::now_v7().to_string()
}

/// A customer's account that may not go below zero, with this much on it.
pub async fn funded(world: &World, process: &Process, minor: i64) -> Uuid {
    let eur = "EUR".parse().unwrap();
    let account = |name: &str, kind, minimum_minor| OpenAccount {
        name: name.into(),
        kind,
        currency: eur,
        minimum_minor,
        metadata: None,
    };
    let engine = &process.engine;
    let customer = account("customer", AccountKind::Liability, Some(0));
    let customer = engine.open_account(world.tenant, &key(), customer).await.unwrap().id;
    let cash = account("cash", AccountKind::Asset, None);
    let cash = engine.open_account(world.tenant, &key(), cash).await.unwrap().id;
    let entry = |account_id, direction| PostEntry { account_id, direction, amount_minor: minor };
    let journal = PostJournal {
        source: None,
        description: "deposit".into(),
        effective_at: None,
        metadata: None,
        entries: vec![entry(cash, Direction::Debit), entry(customer, Direction::Credit)],
    };
    engine.post_journal(world.tenant, &key(), journal).await.unwrap();
    customer
}

pub fn request(account_id: Uuid, destination: &str, minor: i64) -> CreatePayout {
    CreatePayout {
        account_id,
        destination: destination.into(),
        amount: tallystick_money::Money::new(minor, "EUR".parse().unwrap()).unwrap(),
        reference: None,
        description: None,
        metadata: None,
        gateway: None,
        webhook_url: None,
    }
}

pub async fn pay_out(
    world: &World,
    process: &Process,
    account: Uuid,
    destination: &str,
    minor: i64,
) -> PayoutId {
    let request = request(account, destination, minor);
    PayoutId(process.engine.create_payout(world.tenant, &key(), request).await.expect("accepted").id)
}

pub async fn becomes(world: &World, process: &Process, id: PayoutId, status: PayoutStatus) -> Payout {
    let end = Instant::now() + PATIENCE;
    loop {
        let payout = process.engine.payout(world.tenant, id).await.unwrap().expect("the payout");
        if payout.status == status {
            return payout;
        }
        assert!(Instant::now() < end, "still {:?}, not {status:?}: {payout:?}", payout.status);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub async fn journals(world: &World, process: &Process, id: PayoutId) -> Vec<(String, JournalStatus)> {
    let journals = process.engine.journals_of(world.tenant, id.0).await.unwrap();
    journals.into_iter().map(|j| (j.kind, j.status)).collect()
}

/// Total and pending.
pub async fn balance(world: &World, process: &Process, account: Uuid) -> (i64, i64) {
    let balance = process.engine.balance(world.tenant, account, None).await.unwrap().unwrap();
    (balance.balance_minor, balance.pending_minor)
}

fn told(kind: &str, id: PayoutId, minor: i64) -> Value {
    json!({"type": kind, "key": id, "reference": format!("ref-{id}-0"), "amount_minor": minor, "currency": "EUR"})
}

pub fn named(kinds: &[(&str, JournalStatus)]) -> Vec<(String, JournalStatus)> {
    kinds.iter().map(|(kind, status)| ((*kind).to_owned(), *status)).collect()
}

/// The debit is there, pending, before the bank has answered; the money is not available to anybody else.
#[sqlx::test(migrations = false)]
async fn debit_stands_pending_while_the_bank_is_called(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let account = funded(&world, &process, 1_000).await;
    let id = pay_out(&world, &process, account, "gated", 700).await;
    until("the call is under way", async || world.gateway.waiting.load(Ordering::SeqCst) == 1).await;
    assert_eq!(balance(&world, &process, account).await, (300, -700));
    assert_eq!(journals(&world, &process, id).await, named(&[("payout_debited", JournalStatus::Pending)]));
    let other = pay_out(&world, &process, account, "ok", 301).await;
    let refused = becomes(&world, &process, other, Failed).await;
    assert_eq!(refused.failure.unwrap().code, "insufficient_funds");
    world.gateway.gate.add_permits(1);
    becomes(&world, &process, id, Succeeded).await;
    assert_eq!(journals(&world, &process, id).await, named(&[("payout_debited", JournalStatus::Settled)]));
    assert_eq!(balance(&world, &process, account).await, (300, 0));
    process.stop().await;
}

/// In one claim the payouts are decided in the order in which they came due; what does not fit is refused, and the
/// next smaller one may still fit. What is refused has no journal and is never sent.
#[sqlx::test(migrations = false)]
async fn funds_are_given_in_order_within_one_claim(pool: PgPool) {
    let world = world(pool).await;
    let api = world.api_only(quick()).await;
    let account = funded(&world, &api, 2_500).await;
    let mut ids = Vec::new();
    for minor in [1_000, 3_000, 1_500, 1] {
        ids.push(pay_out(&world, &api, account, "ok", minor).await);
    }
    let worker = world.process().await;
    for (id, status) in ids.iter().zip([Succeeded, Failed, Succeeded, Failed]) {
        let payout = becomes(&world, &worker, *id, status).await;
        assert_eq!(payout.failure.is_some(), status == Failed);
        assert_eq!(world.gateway.submits(&id.to_string()), usize::from(status == Succeeded));
        if status == Failed {
            assert!(journals(&world, &worker, *id).await.is_empty());
            let history = worker.engine.history(id.0).await.unwrap();
            assert_eq!(history.last().unwrap().evidence, "ledger");
        }
    }
    assert_eq!(balance(&world, &worker, account).await, (0, 0));
    assert_eq!(world.number("SELECT count(*) FROM payments.dispatch").await, 0);
    worker.stop().await;
    api.stop().await;
}

/// A worker that died after its claim may have sent it: the bank is asked first, and the debit is not written again.
#[sqlx::test(migrations = false)]
async fn after_a_dead_worker_the_bank_is_asked_and_the_debit_stands(pool: PgPool) {
    let world = world(pool).await;
    let slow =
        Settings { gateway_timeout: Duration::from_secs(20), lease: Duration::from_secs(41), ..quick() };
    let first = world.process_with(slow).await;
    let account = funded(&world, &first, 1_000).await;
    let id = pay_out(&world, &first, account, "gated", 600).await;
    until("the call is under way", async || world.gateway.waiting.load(Ordering::SeqCst) == 1).await;
    // As if the first process had died: its lease is over.
    world.sql("UPDATE payments.dispatch SET due_at = now() - interval '1 s'").await;
    let second = world.process().await;
    becomes(&world, &second, id, Succeeded).await;
    assert_eq!(world.gateway.submits(&id.to_string()), 1);
    assert_eq!(journals(&world, &second, id).await, named(&[("payout_debited", JournalStatus::Settled)]));
    assert_eq!(balance(&world, &second, account).await, (400, 0));
    world.gateway.gate.add_permits(1);
    first.stop().await;
    second.stop().await;
}

/// A row that was lost before the first claim: without a debit nothing can have been sent, so it is simply sent.
/// One that was lost after it is asked about.
#[sqlx::test(migrations = false)]
async fn lost_rows_are_told_apart_by_their_debit(pool: PgPool) {
    let world = world(pool).await;
    let api = world.api_only(quick()).await;
    let account = funded(&world, &api, 1_000).await;
    let never_claimed = pay_out(&world, &api, account, "ok", 100).await;
    world.sql("DELETE FROM payments.dispatch").await;
    world.sql("UPDATE payments.payout SET created_at = now() - interval '1 min'").await;
    let worker = world.process().await;
    becomes(&world, &worker, never_claimed, Succeeded).await;
    let history = worker.engine.history(never_claimed.0).await.unwrap();
    let statuses: Vec<&str> = history.iter().map(|h| h.status.as_str()).collect();
    assert_eq!(statuses, ["pending", "succeeded"], "it was never in doubt");
    let attempts = worker.engine.attempts(never_claimed.0).await.unwrap();
    assert_eq!(attempts.iter().map(|a| a.action.as_str()).collect::<Vec<_>>(), ["submit"]);

    let claimed = pay_out(&world, &worker, account, "gated", 100).await;
    until("the call is under way", async || world.gateway.waiting.load(Ordering::SeqCst) == 1).await;
    world.sql("DELETE FROM payments.dispatch").await;
    world
        .sql("UPDATE payments.payout SET created_at = now() - interval '1 min' WHERE status = 'pending'")
        .await;
    let other = world.process().await;
    becomes(&world, &other, claimed, Succeeded).await;
    assert_eq!(world.gateway.submits(&claimed.to_string()), 1, "it was asked about");
    assert_eq!(world.gateway.effects(&claimed.to_string()).len(), 1);
    assert_eq!(balance(&world, &other, account).await, (800, 0));
    world.gateway.gate.add_permits(1);
    for process in [worker, other, api] {
        process.stop().await;
    }
}

/// An account whose sum no longer fits into 64 bits refuses its own payouts and nobody else's.
#[sqlx::test(migrations = false)]
async fn one_account_that_cannot_be_summed_holds_nobody_up(pool: PgPool) {
    let world = world(pool).await;
    let api = world.api_only(quick()).await;
    let (broken, sound) = (funded(&world, &api, 1_000).await, funded(&world, &api, 1_000).await);
    let stuck = pay_out(&world, &api, broken, "ok", 1).await;
    let mut others = Vec::new();
    for _ in 0..5 {
        others.push(pay_out(&world, &api, sound, "ok", 100).await);
    }
    world
        .sql(&format!(
            "INSERT INTO ledger.checkpoint (account_id, horizon, debits, credits, entries, made_at)
             SELECT id, 1, 1e30, 2e30, 1, now() FROM ledger.account WHERE account_id = '{broken}'"
        ))
        .await;
    let worker = world.process().await;
    for id in others {
        becomes(&world, &worker, id, Succeeded).await;
    }
    let payout = worker.engine.payout(world.tenant, stuck).await.unwrap().unwrap();
    assert_eq!(payout.status, PayoutStatus::Pending);
    assert_eq!(world.gateway.submits(&stuck.to_string()), 0);
    assert!(journals(&world, &worker, stuck).await.is_empty());
    worker.stop().await;
    api.stop().await;
}

/// Events, where they end, the journals with their statuses, and what has left the account.
type Case = (&'static [&'static str], PayoutStatus, Vec<(&'static str, JournalStatus)>, i64);

/// Acknowledged, then told by webhooks that come twice and in any order.
#[sqlx::test(migrations = false)]
async fn webhooks_settle_reverse_and_return_once(pool: PgPool) {
    let world = world(pool).await;
    let never_asked = Settings { status_check_after: Duration::from_secs(600), ..quick() };
    let process = world.process_with(never_asked).await;
    let account = funded(&world, &process, 10_000).await;
    let debit = |status| ("payout_debited", status);
    let cases: [Case; 6] = [
        (&["settled", "settled"], Succeeded, vec![debit(JournalStatus::Settled)], 100),
        (
            &["rejected", "rejected"],
            Failed,
            vec![debit(JournalStatus::Failed), ("payout_reversed", JournalStatus::Failed)],
            0,
        ),
        (
            &["settled", "returned", "settled"],
            Returned,
            vec![debit(JournalStatus::Settled), ("payout_returned", JournalStatus::Settled)],
            0,
        ),
        (
            &["returned", "settled", "returned"],
            Returned,
            vec![debit(JournalStatus::Settled), ("payout_returned", JournalStatus::Settled)],
            0,
        ),
        (
            &["settled", "rejected", "returned"],
            Returned,
            vec![debit(JournalStatus::Settled), ("payout_returned", JournalStatus::Settled)],
            0,
        ),
        (&["settled", "pending"], Succeeded, vec![debit(JournalStatus::Settled)], 100),
    ];
    let mut spent = 0;
    for (events, end, expected, gone) in cases {
        let id = pay_out(&world, &process, account, "accept", 100).await;
        becomes(&world, &process, id, Processing).await;
        for (nth, kind) in events.iter().enumerate() {
            deliver(&process, &format!("{id}-{nth}"), &told(kind, id, 100)).await.unwrap();
            world.until_number("SELECT count(*) FROM payments.inbound_event WHERE ended_at IS NULL", 0).await;
        }
        let payout = becomes(&world, &process, id, end).await;
        assert_eq!(journals(&world, &process, id).await, named(&expected), "{events:?}");
        spent += gone;
        assert_eq!(balance(&world, &process, account).await, (10_000 - spent, 0), "{events:?}");
        let history = process.engine.history(id.0).await.unwrap();
        let versions: Vec<i32> = history.iter().map(|h| h.version).collect();
        assert_eq!(versions, (1..=payout.version).collect::<Vec<_>>());
        let events = process.engine.events_of(world.tenant, id.0).await.unwrap();
        let statuses: Vec<&str> = history.iter().map(|h| h.status.as_str()).collect();
        assert_eq!(events.iter().map(|e| e["status"].as_str().unwrap()).collect::<Vec<_>>(), statuses);
        assert_eq!(world.gateway.submits(&id.to_string()), 1);
    }
    process.stop().await;
}

/// Money that left after a definite no calls a person; the ledger stays as it was.
#[sqlx::test(migrations = false)]
async fn paid_after_a_no_opens_a_break_and_books_nothing(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let account = funded(&world, &process, 1_000).await;
    let id = pay_out(&world, &process, account, "decline", 100).await;
    becomes(&world, &process, id, Failed).await;
    let before = journals(&world, &process, id).await;
    for nth in 0..2 {
        deliver(&process, &format!("{id}-{nth}"), &told("settled", id, 100)).await.unwrap();
    }
    world.until_number("SELECT count(*) FROM payments.break WHERE status = 'open'", 1).await;
    let payout = becomes(&world, &process, id, Failed).await;
    assert_eq!(payout.attention.unwrap().code, "late_payout");
    assert_eq!(journals(&world, &process, id).await, before);
    assert_eq!(balance(&world, &process, account).await, (1_000, 0));
    let found = process.engine.breaks(world.tenant, Some("open"), None, 10).await.unwrap();
    assert_eq!((found[0].payout_id, found[0].payment_id), (Some(id), None));
    process.stop().await;
}

/// The bank that pays another amount than asked: in doubt until a person has looked.
#[sqlx::test(migrations = false)]
async fn another_amount_stays_unknown_with_its_debit_pending(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let account = funded(&world, &process, 5_000).await;
    let id = pay_out(&world, &process, account, "other_amount", 3_000).await;
    let payout = becomes(&world, &process, id, Unknown).await;
    assert_eq!(payout.attention.unwrap().code, "amount_mismatch");
    deliver(&process, "late-no", &told("rejected", id, 3_000)).await.unwrap();
    world.until_number("SELECT count(*) FROM payments.inbound_event WHERE ended_at IS NULL", 0).await;
    becomes(&world, &process, id, Unknown).await;
    assert_eq!(balance(&world, &process, account).await, (2_000, -3_000));
    process.stop().await;
}

/// A silent acknowledgement is asked about; the answer is evidence like any other.
#[sqlx::test(migrations = false)]
async fn a_silent_acknowledgement_is_asked_about(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let account = funded(&world, &process, 1_000).await;
    let id = pay_out(&world, &process, account, "accept", 100).await;
    becomes(&world, &process, id, Processing).await;
    world.gateway.pay_late(&id.to_string(), 100);
    becomes(&world, &process, id, Succeeded).await;
    let history = process.engine.history(id.0).await.unwrap();
    assert_eq!(history.last().unwrap().evidence, "status_query");
    assert_eq!(world.gateway.submits(&id.to_string()), 1);
    process.stop().await;
}

/// While nobody listens at the bank the payout is debited once and not lost; then it is sent once.
#[sqlx::test(migrations = false)]
async fn a_bank_that_is_away_costs_one_debit(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let account = funded(&world, &process, 150).await;
    world.gateway.closed.store(true, Ordering::SeqCst);
    let id = pay_out(&world, &process, account, "ok", 100).await;
    world.until_number("SELECT count(*) FROM payments.dispatch WHERE fence >= 3", 1).await;
    assert_eq!(balance(&world, &process, account).await, (50, -100));
    world.gateway.closed.store(false, Ordering::SeqCst);
    becomes(&world, &process, id, Succeeded).await;
    assert_eq!(world.gateway.effects(&id.to_string()).len(), 1);
    assert_eq!(balance(&world, &process, account).await, (50, 0));
    process.stop().await;
}

/// Somebody has waited too long for a lock, and waits for it again.
async fn waits_again(world: &World) {
    let since =
        "SELECT coalesce(max(extract(epoch FROM xact_start) * 1000000)::bigint, 0) FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let first = std::cell::Cell::new(0);
    until("a lock is waited for", async || {
        first.set(world.number(since).await);
        first.get() > 0
    })
    .await;
    until("it is waited for again", async || world.number(since).await > first.get()).await;
}

/// A lock that was waited for too long says nothing about the bank: claim and record are tried again by themselves, and
/// the payout is debited once, sent once, and never failed.
#[sqlx::test(migrations = false)]
async fn lock_waits_are_tried_again_by_themselves(pool: PgPool) {
    let world = world(pool).await;
    let patient =
        Settings { gateway_timeout: Duration::from_secs(20), lease: Duration::from_secs(41), ..quick() };
    let process = world.process_with(patient).await;
    let account = funded(&world, &process, 1_000).await;
    let hold = async |row: String| {
        let mut held = PgConnection::connect(world.url()).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("BEGIN; {row}"))).execute(&mut held).await.unwrap();
        held
    };
    let held = hold(format!("SELECT 1 FROM ledger.account WHERE account_id = '{account}' FOR UPDATE")).await;
    let claimed = pay_out(&world, &process, account, "ok", 100).await;
    waits_again(&world).await;
    assert_eq!(world.gateway.submits(&claimed.to_string()), 0, "not sent before it is debited");
    held.close().await.unwrap();
    becomes(&world, &process, claimed, Succeeded).await;

    let recorded = pay_out(&world, &process, account, "gated", 100).await;
    until("the call is under way", async || world.gateway.waiting.load(Ordering::SeqCst) == 1).await;
    let held = hold(format!("SELECT 1 FROM payments.payout WHERE payout_id = '{recorded}' FOR UPDATE")).await;
    world.gateway.gate.add_permits(1);
    waits_again(&world).await;
    held.close().await.unwrap();
    becomes(&world, &process, recorded, Succeeded).await;
    for id in [claimed, recorded] {
        let history = process.engine.history(id.0).await.unwrap();
        assert_eq!(history.iter().map(|h| h.status.as_str()).collect::<Vec<_>>(), ["pending", "succeeded"]);
        assert_eq!(world.gateway.submits(&id.to_string()), 1);
        assert_eq!(
            journals(&world, &process, id).await,
            named(&[("payout_debited", JournalStatus::Settled)])
        );
    }
    assert_eq!(balance(&world, &process, account).await, (800, 0));
    process.stop().await;
}
