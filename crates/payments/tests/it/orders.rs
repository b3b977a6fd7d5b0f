//! Creating: keys, orders, twins.

use std::sync::Arc;

use sqlx::PgPool;
use tallystick_gateway::Replay;
use tallystick_payments::CreateError;
use tallystick_payments::ids::PaymentId;
use tallystick_payments::payment::PaymentStatus::Failed;
use tallystick_payments::{migrate, tenants};

use crate::common::{World, quick, until};
use crate::gateway::Scripted;

async fn world(pool: PgPool) -> World {
    World::new(pool, Scripted::new("cards", Replay::SameResult)).await
}

/// C016, C039: fifty twins over two processes: one payment, equal bodies, and the same after a restart.
#[sqlx::test(migrations = false)]
async fn c016_fifty_twins_over_two_processes(pool: PgPool) {
    let world = Arc::new(world(pool).await);
    let (one, two) = (Arc::new(world.api_only(quick()).await), Arc::new(world.api_only(quick()).await));
    let twins = (0..50).map(|n| {
        let (world, process) = (world.clone(), if n % 2 == 0 { one.clone() } else { two.clone() });
        tokio::spawn(async move {
            process.engine.create_payment(world.tenant, "twin", world.order("ok", 100, None)).await.unwrap()
        })
    });
    let mut answers = Vec::new();
    for twin in twins.collect::<Vec<_>>() {
        answers.push(twin.await.unwrap());
    }
    assert_eq!(answers.iter().filter(|a| a.status == 202).count(), 1);
    assert!(answers.iter().all(|a| a.body == answers[0].body && a.replayed == (a.status == 200)));
    assert_eq!(world.number("SELECT count(*) FROM payments.payment").await, 1);
    let later = world.api_only(quick()).await;
    let again =
        later.engine.create_payment(world.tenant, "twin", world.order("ok", 100, None)).await.unwrap();
    assert_eq!((again.status, again.body), (200, answers[0].body.clone()));
}

/// A twin in another process that does not end holds up only its own request, and strangers go on.
#[sqlx::test(migrations = false)]
async fn request_with_a_held_key_is_told_so_and_strangers_go_on(pool: PgPool) {
    let world = Arc::new(world(pool).await);
    let process = Arc::new(world.api_only(quick()).await);
    let mut held = world.superuser.acquire().await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
        "BEGIN; INSERT INTO payments.idempotency (tenant_id, route, key, fingerprint, fields, status, body)
         VALUES ('{}', 'POST /api/v1/payments', 'held', '', '', 202, '')",
        world.tenant
    )))
    .execute(&mut *held)
    .await
    .unwrap();
    let create = |key: &'static str| {
        let (world, process) = (world.clone(), process.clone());
        tokio::spawn(async move {
            process.engine.create_payment(world.tenant, key, world.order("ok", 100, None)).await
        })
    };
    let requests = [create("held"), create("stranger-1"), create("stranger-2")];
    let [held_key, first, second] = requests;
    assert!(matches!(held_key.await.unwrap(), Err(CreateError::InFlight)));
    assert_eq!(first.await.unwrap().unwrap().status, 202);
    assert_eq!(second.await.unwrap().unwrap().status, 202);
    sqlx::raw_sql("ROLLBACK").execute(&mut *held).await.unwrap();
    assert_eq!(world.number("SELECT count(*) FROM payments.payment").await, 2);
}

/// C014, C001: the order's active payment is returned; another amount is a conflict that names it.
#[sqlx::test(migrations = false)]
async fn c014_one_active_payment_per_order(pool: PgPool) {
    let world = world(pool).await;
    let process = world.api_only(quick()).await;
    let first = world.create(&process, world.order("ok", 10_000, Some("7"))).await.unwrap();
    let key = "second-click";
    let second =
        process.engine.create_payment(world.tenant, key, world.order("ok", 10_000, Some("7"))).await.unwrap();
    assert_eq!((second.status, second.existing, second.id), (200, true, first.id));
    let refused = world.create(&process, world.order("ok", 12_000, Some("7"))).await;
    let Err(CreateError::OrderConflict { id, field, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((id, field), (first.id, "/amount_minor"));
    assert_eq!(world.number("SELECT count(*) FROM payments.payment").await, 1);
    assert_eq!(world.number("SELECT count(*) FROM payments.idempotency").await, 2, "refusals are not stored");
}

/// After a decline the order is free again; the second click's stored answer stays what it was.
#[sqlx::test(migrations = false)]
async fn declined_payment_frees_its_order_but_not_the_stored_answer(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let first = world.create(&process, world.order("decline", 10_000, Some("9"))).await.unwrap();
    let create = async |key: &str| {
        process
            .engine
            .create_payment(world.tenant, key, world.order("decline", 10_000, Some("9")))
            .await
            .unwrap()
    };
    let clicked = create("click").await;
    world.becomes(&process, PaymentId(first.id), &[Failed]).await;
    let replayed = create("click").await;
    assert_eq!((replayed.status, replayed.body, replayed.replayed), (200, clicked.body, true));
    let fresh = create("new key").await;
    assert_eq!(fresh.status, 202);
    assert_ne!(fresh.id, first.id);
    process.stop().await;
}

/// Twenty clicks on one order at once, each with its own key, over two processes: one payment.
#[sqlx::test(migrations = false)]
async fn many_clicks_on_one_order_make_one_payment(pool: PgPool) {
    let world = Arc::new(world(pool).await);
    let (one, two) = (Arc::new(world.api_only(quick()).await), Arc::new(world.api_only(quick()).await));
    let clicks = (0..20).map(|n| {
        let (world, process) = (world.clone(), if n % 2 == 0 { one.clone() } else { two.clone() });
        tokio::spawn(
            async move { world.create(&process, world.order("ok", 100, Some("42"))).await.unwrap().id },
        )
    });
    let mut ids = std::collections::HashSet::new();
    for click in clicks.collect::<Vec<_>>() {
        ids.insert(click.await.unwrap());
    }
    assert_eq!(ids.len(), 1);
}

/// C017, C018, C023, C024: what a key covers.
#[sqlx::test(migrations = false)]
async fn c017_key_with_another_request_names_the_field(pool: PgPool) {
    let world = world(pool).await;
    let process = world.api_only(quick()).await;
    let create = async |tenant, minor| {
        process.engine.create_payment(tenant, "k", world.order("ok", minor, None)).await
    };
    let first = create(world.tenant, 100).await.unwrap();
    let refused = create(world.tenant, 101).await;
    let Err(CreateError::IdempotencyMismatch { fields }) = refused else { panic!("{refused:?}") };
    assert_eq!(fields, ["/amount_minor"]);
    let (other, _) = tenants::create(process.engine.db(), "other").await.unwrap();
    let theirs = create(other, 999).await.unwrap();
    assert_eq!(theirs.status, 202);
    assert!(process.engine.payment(world.tenant, PaymentId(theirs.id)).await.unwrap().is_none());
    assert!(process.engine.payment(other, PaymentId(first.id)).await.unwrap().is_none());
}

/// More than the queue holds is refused, and nothing of it is stored.
#[sqlx::test(migrations = false)]
async fn full_queue_refuses_and_stores_nothing(pool: PgPool) {
    let world = world(pool).await;
    // No writer takes anything out: the engine has no roles.
    let engine = world.engine(tallystick_payments::Settings { max_queued: 1, ..quick() }).await;
    let waiting = {
        let (engine, tenant, request) = (engine.clone(), world.tenant, world.order("ok", 1, None));
        tokio::spawn(async move { engine.create_payment(tenant, "a", request).await })
    };
    until("one waits", async || {
        let refused = engine.create_payment(world.tenant, "b", world.order("ok", 1, None));
        let refused = tokio::time::timeout(std::time::Duration::from_millis(200), refused).await;
        matches!(refused, Ok(Err(CreateError::Overloaded)))
    })
    .await;
    waiting.abort();
    assert_eq!(world.number("SELECT count(*) FROM payments.idempotency").await, 0);
}

/// Migrating twice is the same as once, and the SQL that people may run themselves is complete.
#[sqlx::test(migrations = false)]
async fn migrating_twice_changes_nothing(pool: PgPool) {
    let world = world(pool).await;
    let again = migrate::run(world.url()).await.unwrap();
    assert_eq!((again.applied.len(), again.api_key), (0, None));
    assert!(migrate::check(world.engine(quick()).await.db()).await.is_ok());
    world.sql("INSERT INTO payments._sqlx_migrations VALUES (9999, 'later', now(), true, '', 1)").await;
    let newer = migrate::check(world.engine(quick()).await.db()).await.unwrap_err();
    assert!(newer.to_string().contains("newer version"), "{newer}");
}

/// C001: the reply is lost and the customer pays again: the first payment is returned, and charged once.
#[sqlx::test(migrations = false)]
async fn c001_time_out_then_the_customer_pays_again(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let first = world.create(&process, world.order("lost", 10_000, Some("101"))).await.unwrap();
    let id = PaymentId(first.id);
    until("the outcome is unknown", async || world.statuses(&process, id).await.len() >= 2).await;
    let second = world.create(&process, world.order("lost", 10_000, Some("101"))).await.unwrap();
    assert_eq!((second.existing, second.id), (true, first.id));
    world.succeeds(&process, id).await;
    world.charged_once(&process, id).await;
    assert_eq!(world.gateway.keys().len(), 1);
    process.stop().await;
}

/// C009: looking at an unknown payment changes nothing, and another means of payment meets the active one.
#[sqlx::test(migrations = false)]
async fn c009_looking_again_does_not_reopen_an_attempt(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    world.gateway.mute.store(true, std::sync::atomic::Ordering::SeqCst);
    let first = world.create(&process, world.order("lost", 10_000, Some("5"))).await.unwrap();
    let id = PaymentId(first.id);
    until("the outcome is unknown", async || world.statuses(&process, id).await.len() >= 2).await;
    for _ in 0..10 {
        world.get(&process, id).await;
    }
    let other = world.create(&process, world.order("ok", 10_000, Some("5"))).await.unwrap();
    assert_eq!((other.existing, other.id), (true, first.id));
    assert_eq!(world.statuses(&process, id).await, ["pending", "unknown"]);
    assert_eq!(world.gateway.submits(&id.to_string()), 1);
    process.stop().await;
}

/// C113: work of a payment that was rolled back is never done, and the request works once the fault is gone.
#[sqlx::test(migrations = false)]
async fn c113_nothing_is_sent_for_a_payment_that_was_rolled_back(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    // The event is the last row of the transaction: everything else was inserted when it fails.
    world
        .sql("ALTER TABLE outbox.event ADD CONSTRAINT broken CHECK (type <> 'payment.created') NOT VALID")
        .await;
    let refused = process.engine.create_payment(world.tenant, "k", world.order("ok", 100, None)).await;
    assert!(refused.is_err());
    world.sql("ALTER TABLE outbox.event DROP CONSTRAINT broken").await;
    assert_eq!(world.number("SELECT count(*) FROM payments.payment").await, 0);
    assert_eq!(world.number("SELECT count(*) FROM payments.dispatch").await, 0);
    assert!(world.gateway.keys().is_empty());
    let accepted =
        process.engine.create_payment(world.tenant, "k", world.order("ok", 100, None)).await.unwrap();
    assert_eq!(accepted.status, 202);
    world.succeeds(&process, PaymentId(accepted.id)).await;
    assert_eq!(world.gateway.keys(), [accepted.id.to_string()]);
    process.stop().await;
}
