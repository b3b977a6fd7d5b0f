//! A tenant that asks for approval: what it wants to pay out waits, and nothing is sent without consent.

use sqlx::PgPool;
use tallystick_payments::Engine;
use tallystick_payments::ids::PayoutId;
use tallystick_payments::payout::PayoutStatus::{Pending, RequiresApproval, Succeeded};
use tallystick_payments::payout::{Payout, PayoutStatus};
use tallystick_payments::requeue::{self, ListFilter, Outcome};
use tallystick_payments::tenants::{self, Scope};
use uuid::Uuid;

use crate::common::{World, quick, until};
use crate::payouts::{balance, becomes, funded, journals, pay_out, request, world};

async fn switch(engine: &Engine, on: bool) {
    tenants::set(engine.db(), "shop", "payout_approval", on).await.unwrap();
}

async fn status(world: &World, engine: &Engine, id: PayoutId) -> PayoutStatus {
    engine.payout(world.tenant, id).await.unwrap().unwrap().status
}

/// It stays as it is whatever is tried: no row, no debit, nothing sent, and a row that somebody makes by hand goes away.
#[sqlx::test(migrations = false)]
async fn payout_that_needs_approval_is_not_sent(pool: PgPool) {
    let world = world(pool).await;
    let worker = world.process().await;
    let account = funded(&world, &worker, 1_000).await;
    switch(&worker.engine, true).await;
    let waits = pay_out(&world, &worker, account, "ok", 100).await;
    let payout = becomes(&world, &worker, waits, RequiresApproval).await;
    assert_eq!((payout.version, payout.processed_at), (1, None));
    let events = worker.engine.events_of(world.tenant, waits.0).await.unwrap();
    assert_eq!(
        (events.len(), &events[0]["type"], &events[0]["status"]),
        (1, &"payout.created".into(), &"requires_approval".into())
    );
    let history = worker.engine.history(waits.0).await.unwrap();
    assert_eq!((history.len(), history[0].status.as_str()), (1, "requires_approval"));

    let count = "SELECT count(*) FROM payments.dispatch";
    assert_eq!(world.number(count).await, 0);
    let done = requeue::by_ids(worker.engine.db(), &[waits.0]).await.unwrap();
    assert_eq!((done[0].outcome, done[0].status), (Outcome::NothingToDo, Some("requires_approval")));
    let look = requeue::without_work(worker.engine.db(), Uuid::nil()).await.unwrap();
    assert!(look.requeued.is_empty());
    let lost = ListFilter { without_work: true, ..ListFilter::default() };
    assert!(requeue::list_payouts(worker.engine.db(), &lost, 10).await.unwrap().is_empty());
    assert_eq!(world.number(count).await, 0);
    world
        .sql(&format!(
            "INSERT INTO payments.dispatch (operation_id, kind, gateway, due_at, started, finished) VALUES ('{waits}', 2, 'cards', now(), 1, 0)"
        ))
        .await;
    world.until_number(count, 0).await;
    assert_eq!(status(&world, &worker.engine, waits).await, RequiresApproval);
    assert_eq!(
        (world.gateway.submits(&waits.to_string()), world.gateway.queries(&waits.to_string())),
        (0, 0)
    );
    assert!(journals(&world, &worker, waits).await.is_empty());
    assert_eq!(balance(&world, &worker, account).await, (1_000, 0));
    worker.stop().await;
}

/// The setting is asked for once in a while and not for every payout; a change is seen soon, on and off, by keys and
/// without. What was created before keeps its way.
#[sqlx::test(migrations = false)]
async fn a_changed_setting_is_seen_soon(pool: PgPool) {
    let world = world(pool).await;
    let worker = world.process().await;
    let account = funded(&world, &worker, 10_000).await;
    let (_, key) = tenants::key_create(worker.engine.db(), "shop", Scope::Client).await.unwrap();
    let before = pay_out(&world, &worker, account, "ok", 1).await;
    becomes(&world, &worker, before, Succeeded).await;
    let mut waiting = Vec::new();
    for (on, first) in [(true, RequiresApproval), (false, Pending)] {
        switch(&worker.engine, on).await;
        until("the setting is seen", async || {
            // As requests do: the key brings the setting along.
            assert!(worker.engine.authenticate(&key).await.unwrap().is_some());
            let answer = worker
                .engine
                .create_payout(world.tenant, &Uuid::now_v7().to_string(), request(account, "ok", 1))
                .await
                .unwrap();
            let created: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            let found = created["status"] == first.as_str();
            if created["status"] == "requires_approval" {
                waiting.push(PayoutId(answer.id));
            }
            found
        })
        .await;
    }
    assert!(!waiting.is_empty());
    let last = pay_out(&world, &worker, account, "ok", 1).await;
    becomes(&world, &worker, last, Succeeded).await;
    for id in waiting {
        assert_eq!(status(&world, &worker.engine, id).await, RequiresApproval);
        assert_eq!(world.gateway.submits(&id.to_string()), 0);
    }
    worker.stop().await;
}

/// A repeat gets the same bytes although the setting changed; the reference's payout that waits is found, and another
/// tenant's payouts are none of this.
#[sqlx::test(migrations = false)]
async fn approval_keeps_keys_references_and_tenants_apart(pool: PgPool) {
    let world = world(pool).await;
    let api = world.api_only(quick()).await;
    let account = funded(&world, &api, 1_000).await;
    switch(&api.engine, true).await;
    let wanted = || {
        let mut wanted = request(account, "ok", 5);
        wanted.reference = Some("invoice".into());
        wanted
    };
    let first = api.engine.create_payout(world.tenant, "k", wanted()).await.unwrap();
    let again = api.engine.create_payout(world.tenant, "k", wanted()).await.unwrap();
    assert_eq!((first.status, again.status, again.replayed, &first.body), (202, 200, true, &again.body));
    switch(&api.engine, false).await;
    // Another process has nothing in memory.
    let other = world.api_only(quick()).await;
    let again = other.engine.create_payout(world.tenant, "k", wanted()).await.unwrap();
    assert_eq!((again.status, &again.body), (200, &first.body));
    let found = other.engine.create_payout(world.tenant, "k2", wanted()).await.unwrap();
    assert_eq!((found.status, found.existing, found.id), (200, true, first.id));
    let shown: serde_json::Value = serde_json::from_slice(&found.body).unwrap();
    assert_eq!(shown["status"], "requires_approval");
    assert_eq!(world.number("SELECT count(*) FROM payments.dispatch").await, 0);

    tenants::create(other.engine.db(), "elsewhere").await.unwrap();
    tenants::set(other.engine.db(), "elsewhere", "payout_approval", true).await.unwrap();
    let third = world.api_only(quick()).await;
    let free = third.engine.create_payout(world.tenant, "k3", request(account, "ok", 5)).await.unwrap();
    let free: Payout = third.engine.payout(world.tenant, PayoutId(free.id)).await.unwrap().unwrap();
    assert_eq!(free.status, Pending);
    for process in [api, other, third] {
        process.stop().await;
    }
}
