//! What workers that die, leases that end and rows that are bad lead to.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::PgPool;
use tallystick_gateway::Replay;
use tallystick_payments::Settings;
use tallystick_payments::payment::PaymentStatus::{Succeeded, Unknown};

use crate::common::{World, quick, until};
use crate::gateway::Scripted;

async fn world(pool: PgPool) -> World {
    World::new(pool, Scripted::new("cards", Replay::SameResult)).await
}

/// A row as a worker leaves it that died after its claim: leased, and the lease is over.
const DEAD_WORKER: &str = "UPDATE payments.dispatch
    SET started = 1, finished = 0, fence = 1, first_claimed_at = now() - interval '10 s', due_at = now() - interval '1 s'";

/// C012: whatever a worker did before it died, the next one asks first. The gateway knows the key: no submit.
#[sqlx::test(migrations = false)]
async fn c012_claim_after_a_dead_worker_asks_before_it_sends(pool: PgPool) {
    let world = world(pool).await;
    let api = world.api_only(quick()).await;
    let (charged, not_charged) = (world.pay(&api, "ok").await, world.pay(&api, "ok").await);
    world.gateway.charge_late(&charged.to_string(), 10_000, "EUR");
    world.sql(DEAD_WORKER).await;
    let worker = world.process().await;
    for id in [charged, not_charged] {
        world.succeeds(&worker, id).await;
        world.charged_once(&worker, id).await;
        assert_eq!(world.statuses(&worker, id).await, ["pending", "unknown", "succeeded"]);
        let history = worker.engine.history(id.0).await.unwrap();
        assert_eq!(history[1].evidence, "expiry");
        let first = &worker.engine.attempts(id.0).await.unwrap()[0];
        assert_eq!(first.action, "ask", "the first act after a lost lease is a question");
    }
    assert_eq!(world.gateway.submits(&charged.to_string()), 0, "it was charged before");
    assert_eq!(world.gateway.submits(&not_charged.to_string()), 1);
    worker.stop().await;
    api.stop().await;
}

/// C106: a call that outlives its lease is taken over; its late result is still learnt, once.
#[sqlx::test(migrations = false)]
async fn c106_late_result_of_a_lost_lease_is_learnt_once(pool: PgPool) {
    let world = world(pool).await;
    let slow =
        Settings { gateway_timeout: Duration::from_secs(20), lease: Duration::from_secs(41), ..quick() };
    let first = world.process_with(slow).await;
    let id = world.pay(&first, "gated").await;
    until("the call is under way", async || world.gateway.waiting.load(Ordering::SeqCst) == 1).await;
    // As if the first process had been paused for longer than its lease.
    world.sql("UPDATE payments.dispatch SET due_at = now() - interval '1 s'").await;
    let second = world.process().await;
    world.succeeds(&second, id).await;
    world.gateway.gate.add_permits(1);
    first.stop().await;
    world.charged_once(&second, id).await;
    assert_eq!(world.gateway.submits(&id.to_string()), 1);
    second.stop().await;
}

/// C115: a payment whose dispatch row is gone is found and finished once; it counts as possibly sent.
#[sqlx::test(migrations = false)]
async fn c115_lost_dispatch_row_is_made_again(pool: PgPool) {
    let world = world(pool).await;
    let api = world.api_only(quick()).await;
    let ids = [world.pay(&api, "ok").await, world.pay(&api, "ok").await];
    world.gateway.charge_late(&ids[0].to_string(), 10_000, "EUR");
    world.sql("DELETE FROM payments.dispatch").await;
    world.sql("UPDATE payments.payment SET created_at = now() - interval '1 min'").await;
    let worker = world.process().await;
    for id in ids {
        world.succeeds(&worker, id).await;
        world.charged_once(&worker, id).await;
    }
    assert_eq!(world.gateway.submits(&ids[0].to_string()), 0);
    // Its fence begins above every one of the lost row, so no attempt of the old row hides one of the new.
    assert!(world.number("SELECT min(fence) FROM payments.attempt").await > 1_000_000_000);
    worker.stop().await;
    api.stop().await;
}

/// C105, C104: hundreds of payments whose questions get no answer do not hold up younger ones.
#[sqlx::test(migrations = false)]
async fn c105_failing_head_does_not_starve_the_rest(pool: PgPool) {
    let world = world(pool).await;
    let settings = Settings { max_in_flight: 32, batch: 32, ..quick() };
    let process = world.process_with(settings).await;
    world.gateway.mute.store(true, Ordering::SeqCst);
    let mut stuck = Vec::new();
    for _ in 0..300 {
        stuck.push(world.pay(&process, "lost").await);
    }
    world.until_number("SELECT count(*) FROM payments.payment WHERE status = 'unknown'", 300).await;
    for _ in 0..50 {
        let id = world.pay(&process, "ok").await;
        world.succeeds(&process, id).await;
    }
    assert_eq!(world.get(&process, stuck[0]).await.status, Unknown);
    world.gateway.mute.store(false, Ordering::SeqCst);
    for id in stuck {
        world.succeeds(&process, id).await;
    }
    process.stop().await;
}

/// One row that cannot be recorded is set apart; the others of its batch go on.
#[sqlx::test(migrations = false)]
async fn one_bad_row_in_a_batch_is_set_apart(pool: PgPool) {
    let world = world(pool).await;
    let api = world.api_only(quick()).await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(world.pay(&api, "ok").await);
    }
    let bad = ids.remove(7);
    // Its history already holds version 2, so the writer cannot record a move of this one.
    world
        .sql(&format!(
            "INSERT INTO payments.history (object_id, version, status, at, evidence)
             VALUES ('{bad}', 2, 'succeeded', now(), 'reply')"
        ))
        .await;
    let worker = world.process().await;
    for id in ids {
        world.succeeds(&worker, id).await;
        world.charged_once(&worker, id).await;
    }
    assert_ne!(world.get(&worker, bad).await.status, Succeeded);
    assert_eq!(world.number("SELECT count(*) FROM payments.dispatch").await, 1);
    worker.stop().await;
    api.stop().await;
}

/// Two processes claim from one table: every charge is sent once.
#[sqlx::test(migrations = false)]
async fn two_processes_share_the_work(pool: PgPool) {
    let world = world(pool).await;
    let (one, two) = (world.process().await, world.process().await);
    let mut ids = Vec::new();
    for n in 0..100 {
        let process = if n % 2 == 0 { &one } else { &two };
        ids.push(world.pay(process, if n % 5 == 0 { "lost" } else { "ok" }).await);
    }
    for id in &ids {
        world.succeeds(&one, *id).await;
        assert_eq!(world.gateway.submits(&id.to_string()), 1);
        world.charged_once(&one, *id).await;
    }
    let keys: HashSet<String> = world.gateway.keys().into_iter().collect();
    assert_eq!(keys, ids.iter().map(ToString::to_string).collect());
    one.stop().await;
    two.stop().await;
}

/// A process that stops finishes what it has begun and leaves no lease behind.
#[sqlx::test(migrations = false)]
async fn graceful_stop_drains_and_leaves_no_lease(pool: PgPool) {
    let world = world(pool).await;
    let settings =
        Settings { gateway_timeout: Duration::from_secs(5), lease: Duration::from_secs(12), ..quick() };
    let process = world.process_with(settings).await;
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(world.pay(&process, "gated").await);
    }
    until("all calls are under way", async || world.gateway.waiting.load(Ordering::SeqCst) == 10).await;
    process.shutdown.begin();
    world.gateway.gate.add_permits(10);
    process.shutdown.finished().await;
    assert_eq!(world.number("SELECT count(*) FROM payments.payment WHERE status = 'succeeded'").await, 10);
    assert_eq!(world.number("SELECT count(*) FROM payments.dispatch WHERE started > finished").await, 0);
}

/// C110: nothing depends on a notification: work that another process accepted is found by polling.
#[sqlx::test(migrations = false)]
async fn c110_work_of_another_process_is_found_by_polling(pool: PgPool) {
    let world = world(pool).await;
    let worker = world.process().await;
    let api = world.api_only(quick()).await;
    let id = world.pay(&api, "ok").await;
    world.succeeds(&worker, id).await;
    worker.stop().await;
    api.stop().await;
}

/// Every connection is cut in the middle of the work: all of it is still done, once.
#[sqlx::test(migrations = false)]
async fn cut_connections_lose_nothing(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let mut ids = Vec::new();
    for round in 0..6 {
        for n in 0..15 {
            let method = if n % 3 == 0 { "lost" } else { "ok" };
            // A create that is cut off is tried again with its key, as clients do.
            let key = format!("cut-{round}-{n}");
            let id = loop {
                match process.engine.create_payment(world.tenant, &key, world.order(method, 500, None)).await
                {
                    Ok(answer) => break answer.id,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            };
            ids.push(tallystick_payments::ids::PaymentId(id));
        }
        world
            .sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
            .await;
    }
    for id in ids {
        world.succeeds(&process, id).await;
        world.charged_once(&process, id).await;
    }
    process.stop().await;
}
