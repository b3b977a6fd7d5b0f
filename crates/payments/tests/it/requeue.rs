//! Giving operations their work again, by anybody and as often as they like: one effect each at the bank.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::PgPool;
use tallystick_ledger::JournalStatus;
use tallystick_payments::Settings;
use tallystick_payments::ids::{PaymentId, PayoutId, TenantId};
use tallystick_payments::payout::PayoutStatus::{Failed, Pending, Processing, Succeeded, Unknown};
use tallystick_payments::requeue::{self, ListFilter, Outcome, Requeued, Work};
use tallystick_runner::Db;
use uuid::Uuid;

use crate::common::{Process, World, quick, until};
use crate::payouts::{balance, becomes, funded, journals, named, pay_out, world};

/// Everything that has lost its work, given it again.
async fn everything(db: Db) -> Vec<Requeued> {
    let (mut done, mut after) = (Vec::new(), Some(Uuid::nil()));
    while let Some(from) = after {
        let look = requeue::without_work(&db, from).await.unwrap();
        done.extend(look.requeued);
        after = look.next;
    }
    done
}

/// The payouts that need work and have none, oldest first.
async fn lost(process: &Process) -> Vec<Uuid> {
    let filter = ListFilter { without_work: true, ..ListFilter::default() };
    let found = requeue::list_payouts(process.engine.db(), &filter, 100).await.unwrap();
    assert!(found.iter().all(|payout| payout.work.is_none() && payout.age_seconds >= 0));
    found.into_iter().map(|payout| payout.payout_id.0).collect()
}

fn outcomes(done: &[Requeued]) -> BTreeMap<Uuid, Outcome> {
    done.iter().map(|one| (one.id, one.outcome)).collect()
}

/// Settings under which nothing is looked at again by itself, and a call may take as long as a test.
fn patient() -> Settings {
    Settings {
        gateway_timeout: Duration::from_secs(40),
        lease: Duration::from_secs(81),
        sweep_after: Duration::from_secs(300),
        sweep_max_backoff: Duration::from_secs(300),
        status_check_after: Duration::from_secs(600),
        ..quick()
    }
}

/// Payouts that lost their rows in every state, and a payment.
struct Lost {
    account: Uuid,
    never_claimed: PayoutId,
    /// Debited; the bank was away, nothing was sent.
    unsent: PayoutId,
    /// Debited and paid; the worker died before the answer.
    dead_worker: PayoutId,
    processing: PayoutId,
    unknown: PayoutId,
    payment: PaymentId,
    /// Never claimed, with its row.
    sound: PayoutId,
    over: Vec<PayoutId>,
}

impl Lost {
    fn payouts(&self) -> [PayoutId; 5] {
        [self.unsent, self.unknown, self.processing, self.dead_worker, self.never_claimed]
    }

    /// All that need work, without and with a row.
    fn all(&self) -> Vec<Uuid> {
        let payouts = self.payouts().map(|id| id.0);
        payouts.into_iter().chain([self.payment.0, self.sound.0]).collect()
    }
}

async fn lose(world: &World, api: &Process) -> Lost {
    let account = funded(world, api, 10_000).await;
    let worker = world.process_with(patient()).await;
    let mut over = Vec::new();
    for (destination, end) in [("ok", Succeeded), ("decline", Failed)] {
        let id = pay_out(world, &worker, account, destination, 100).await;
        becomes(world, &worker, id, end).await;
        over.push(id);
    }
    world.gateway.closed.store(true, Ordering::SeqCst);
    let unsent = pay_out(world, &worker, account, "ok", 100).await;
    world.until_number("SELECT count(*) FROM payments.dispatch WHERE finished > 0", 1).await;
    world.sql("DELETE FROM payments.dispatch").await;
    world.gateway.closed.store(false, Ordering::SeqCst);

    let unknown = pay_out(world, &worker, account, "lost", 100).await;
    becomes(world, &worker, unknown, Unknown).await;
    let payment = world.pay(&worker, "lost").await;
    world.becomes(&worker, payment, &[tallystick_payments::payment::PaymentStatus::Unknown]).await;
    let processing = pay_out(world, &worker, account, "accept", 100).await;
    becomes(world, &worker, processing, Processing).await;
    let dead_worker = pay_out(world, &worker, account, "gated", 100).await;
    until("the call is under way", async || world.gateway.waiting.load(Ordering::SeqCst) == 1).await;
    worker.shutdown.abort();
    worker.shutdown.finished().await;

    let never_claimed = pay_out(world, api, account, "ok", 100).await;
    world.sql("DELETE FROM payments.dispatch").await;
    let sound = pay_out(world, api, account, "ok", 100).await;
    Lost { account, never_claimed, unsent, dead_worker, processing, unknown, payment, sound, over }
}

/// Rows lost in every state: the list shows exactly those, two that requeue at once make each row once, and whoever
/// requeues while two processes work changes nothing about the one effect.
#[sqlx::test(migrations = false)]
async fn lost_work_is_given_again_once_in_effect(pool: PgPool) {
    let world = world(pool).await;
    let api = world.api_only(quick()).await;
    let lost_ones = lose(&world, &api).await;
    let expected = lost_ones.payouts().map(|id| id.0);
    assert_eq!(lost(&api).await, expected, "exactly the lost ones, oldest first");

    let db = api.engine.db();
    let (one, two) = tokio::join!(everything(db.clone()), everything(db.clone()));
    let mut made = Vec::new();
    for found in [&one, &two] {
        made.extend(found.iter().filter(|r| r.outcome == Outcome::MadeAgain).map(|r| r.id));
        assert!(found.iter().all(|r| r.outcome != Outcome::UnknownId && r.outcome != Outcome::NothingToDo));
    }
    made.sort_unstable();
    let all_lost: BTreeSet<Uuid> = expected.into_iter().chain([lost_ones.payment.0]).collect();
    assert_eq!(made, all_lost.iter().copied().collect::<Vec<_>>(), "each is made again by one of the two");
    assert_eq!(lost(&api).await, [] as [Uuid; 0]);
    assert_eq!(world.number("SELECT count(*) FROM payments.dispatch").await, 7);

    // Lost once more, and now everybody works and everybody requeues.
    world.sql(&format!("DELETE FROM payments.dispatch WHERE operation_id <> '{}'", lost_ones.sound)).await;
    world.gateway.pay_late(&lost_ones.processing.to_string(), 100);
    let workers = [world.process().await, world.process().await];
    let requeuing: Vec<_> = (workers.iter())
        .map(|worker| {
            let (db, ids) = (worker.engine.db().clone(), lost_ones.all());
            tokio::spawn(async move {
                loop {
                    everything(db.clone()).await;
                    let done = requeue::by_ids(&db, &ids).await.unwrap();
                    if done.iter().all(|r| r.outcome == Outcome::NothingToDo) {
                        return;
                    }
                }
            })
        })
        .collect();
    for id in lost_ones.payouts().into_iter().chain([lost_ones.sound]) {
        becomes(&world, &workers[0], id, Succeeded).await;
        assert_eq!(
            journals(&world, &workers[0], id).await,
            named(&[("payout_debited", JournalStatus::Settled)])
        );
        assert_eq!((id, world.gateway.effects(&id.to_string()).len()), (id, 1));
        assert_eq!((id, world.gateway.submits(&id.to_string())), (id, 1));
    }
    world.succeeds(&workers[0], lost_ones.payment).await;
    world.charged_once(&workers[0], lost_ones.payment).await;
    for one in requeuing {
        one.await.unwrap();
    }
    // One paid before, six now.
    assert_eq!(balance(&world, &workers[0], lost_ones.account).await, (10_000 - 700, 0));
    assert_eq!(world.number("SELECT count(*) FROM payments.dispatch").await, 0);
    for id in &lost_ones.over {
        let done = requeue::by_ids(api.engine.db(), &[id.0]).await.unwrap();
        assert_eq!(done[0].outcome, Outcome::NothingToDo);
    }
    // Never in doubt, as its debit did not stand.
    let history = api.engine.history(lost_ones.never_claimed.0).await.unwrap();
    assert_eq!(history.iter().map(|h| h.status.as_str()).collect::<Vec<_>>(), ["pending", "succeeded"]);
    for process in workers.into_iter().chain([api]) {
        process.stop().await;
    }
}

/// What somebody works on right now is not touched: neither its fence nor the end of its lease.
#[sqlx::test(migrations = false)]
async fn leased_work_is_left_alone(pool: PgPool) {
    let world = world(pool).await;
    let worker = world.process_with(patient()).await;
    let account = funded(&world, &worker, 1_000).await;
    let id = pay_out(&world, &worker, account, "gated", 100).await;
    until("the call is under way", async || world.gateway.waiting.load(Ordering::SeqCst) == 1).await;
    let standing = "SELECT hashtextextended(d::text, 0) FROM payments.dispatch d";
    let before = world.number(standing).await;
    let done = requeue::by_ids(worker.engine.db(), &[id.0]).await.unwrap();
    let expected =
        Requeued { id: id.0, kind: Some("payout"), status: Some("pending"), outcome: Outcome::InWork };
    assert_eq!(done, [expected]);
    assert_eq!(everything(worker.engine.db().clone()).await, []);
    assert_eq!(world.number(standing).await, before, "the row is as it was");
    let listed = requeue::list_payouts(worker.engine.db(), &ListFilter::default(), 10).await.unwrap();
    assert_eq!(listed.iter().map(|p| (p.payout_id, p.work)).collect::<Vec<_>>(), [(id, Some(Work::Leased))]);
    world.gateway.gate.add_permits(1);
    becomes(&world, &worker, id, Succeeded).await;
    assert_eq!(world.gateway.submits(&id.to_string()), 1);
    worker.stop().await;
}

/// What waits for its next look is looked at now: payments and payouts alike. What is due already keeps its place.
#[sqlx::test(migrations = false)]
async fn waiting_work_is_made_due(pool: PgPool) {
    let world = world(pool).await;
    let worker = world.process_with(patient()).await;
    let account = funded(&world, &worker, 1_000).await;
    let payout = pay_out(&world, &worker, account, "accept", 100).await;
    becomes(&world, &worker, payout, Processing).await;
    let payment = world.pay(&worker, "lost").await;
    world.until_number("SELECT count(*) FROM payments.payment WHERE status = 'unknown'", 1).await;
    world.gateway.pay_late(&payout.to_string(), 100);
    let listed = requeue::list_payouts(worker.engine.db(), &ListFilter::default(), 10).await.unwrap();
    assert_eq!(listed[0].work, Some(Work::Waits));

    let done = requeue::by_ids(worker.engine.db(), &[payout.0, payment.0]).await.unwrap();
    let expected = [
        Requeued {
            id: payout.0,
            kind: Some("payout"),
            status: Some("processing"),
            outcome: Outcome::MadeDue,
        },
        Requeued { id: payment.0, kind: Some("payment"), status: Some("unknown"), outcome: Outcome::MadeDue },
    ];
    assert_eq!(done, expected);
    becomes(&world, &worker, payout, Succeeded).await;
    world.succeeds(&worker, payment).await;
    assert_eq!(
        (world.gateway.submits(&payout.to_string()), world.gateway.submits(&payment.to_string())),
        (1, 1)
    );
    worker.stop().await;

    let api = world.api_only(quick()).await;
    let first = pay_out(&world, &api, account, "ok", 1).await;
    let due = "SELECT (extract(epoch FROM due_at) * 1000000)::bigint FROM payments.dispatch";
    let before = world.number(due).await;
    assert_eq!(requeue::by_ids(api.engine.db(), &[first.0]).await.unwrap()[0].outcome, Outcome::MadeDue);
    assert_eq!(world.number(due).await, before, "in its place");
    api.stop().await;
}

/// Ids are answered once each, in their order; what is final and what is nothing gets no row.
#[sqlx::test(migrations = false)]
async fn final_and_unknown_ids_get_no_work(pool: PgPool) {
    let world = world(pool).await;
    let worker = world.process().await;
    let account = funded(&world, &worker, 1_000).await;
    let done = pay_out(&world, &worker, account, "ok", 100).await;
    becomes(&world, &worker, done, Succeeded).await;
    let failed = world.pay(&worker, "decline").await;
    world.until_number("SELECT count(*) FROM payments.dispatch", 0).await;
    let nobody = Uuid::now_v7();
    let ids = [nobody, failed.0, done.0, nobody, failed.0];
    let found = requeue::by_ids(worker.engine.db(), &ids).await.unwrap();
    assert_eq!(found.iter().map(|one| one.id).collect::<Vec<_>>(), [nobody, failed.0, done.0]);
    assert_eq!(
        outcomes(&found),
        BTreeMap::from([
            (nobody, Outcome::UnknownId),
            (failed.0, Outcome::NothingToDo),
            (done.0, Outcome::NothingToDo)
        ])
    );
    assert_eq!((found[0].kind, found[0].status), (None, None));
    assert_eq!(world.number("SELECT count(*) FROM payments.dispatch").await, 0);
    assert_eq!(requeue::by_ids(worker.engine.db(), &[]).await.unwrap(), []);
    worker.stop().await;
}

/// More than one page, of payments and payouts mixed: nothing is left out and nothing is done twice.
#[sqlx::test(migrations = false)]
async fn many_lost_ones_are_found_in_pages(pool: PgPool) {
    let world = world(pool).await;
    let tenant = world.tenant;
    // Ids in the order of n: payments at even n, payouts at odd n; every third has its row.
    world
        .sql(&format!(
            "INSERT INTO payments.payment (payment_id, tenant_id, status, currency, amount_minor, capture, payment_method, gateway, created_at, updated_at)
             SELECT lpad(to_hex(n), 32, '0')::uuid, '{tenant}', 'pending', 'EUR', 1, 'automatic', 'ok', 'cards', now(), now() FROM generate_series(2, 2500, 2) n;
             INSERT INTO payments.payout (payout_id, tenant_id, status, account_id, destination, currency, amount_minor, gateway, created_at, updated_at)
             SELECT lpad(to_hex(n), 32, '0')::uuid, '{tenant}', 'pending', '{tenant}', 'ok', 'EUR', 1, 'cards', now(), now() FROM generate_series(1, 2500, 2) n;
             INSERT INTO payments.dispatch (operation_id, kind, gateway, due_at)
             SELECT operation_id, kind, gateway, now() FROM payments.operation
              WHERE ('x' || right(operation_id::text, 8))::bit(32)::integer % 3 = 0"
        ))
        .await;
    let api = world.api_only(quick()).await;
    let filter = ListFilter { without_work: true, ..ListFilter::default() };
    let listed = requeue::list_payouts(api.engine.db(), &filter, 10_000).await.unwrap();
    assert_eq!(listed.len(), (1..=2500).filter(|n| n % 3 != 0 && n % 2 == 1).count());
    let some = requeue::list_payouts(api.engine.db(), &filter, 7).await.unwrap();
    let ids = |list: &[requeue::ListedPayout]| list.iter().map(|p| p.payout_id).collect::<Vec<_>>();
    assert_eq!(ids(&some), ids(&listed)[..7], "the oldest ones");
    for other in [
        ListFilter { status: Some(Processing), ..filter.clone() },
        ListFilter { tenant: Some(TenantId::new()), ..filter.clone() },
    ] {
        assert_eq!(requeue::list_payouts(api.engine.db(), &other, 10).await.unwrap().len(), 0);
    }
    let mine = ListFilter { status: Some(Pending), tenant: Some(tenant), without_work: false };
    assert_eq!(requeue::list_payouts(api.engine.db(), &mine, 10_000).await.unwrap().len(), 1250);

    let done = everything(api.engine.db().clone()).await;
    let lost: Vec<u128> = (1..=2500).filter(|n| n % 3 != 0).collect();
    assert_eq!(done.iter().map(|one| one.id.as_u128()).collect::<Vec<_>>(), lost);
    assert!(done.iter().all(|one| one.outcome == Outcome::MadeAgain));
    let kinds: BTreeSet<_> = done.iter().map(|one| (one.id.as_u128() % 2, one.kind.unwrap())).collect();
    assert_eq!(kinds, BTreeSet::from([(0, "payment"), (1, "payout")]));
    assert_eq!(world.number("SELECT count(*) FROM payments.dispatch").await, 2500);
    assert_eq!(
        world.number("SELECT count(*) FROM payments.dispatch d JOIN payments.operation o USING (operation_id) WHERE d.kind <> o.kind").await,
        0
    );
    assert_eq!(everything(api.engine.db().clone()).await, []);
    // By id, more than one transaction takes.
    let all: Vec<Uuid> = (1..=2500).map(Uuid::from_u128).collect();
    let again = requeue::by_ids(api.engine.db(), &all).await.unwrap();
    assert_eq!(again.len(), 2500);
    assert!(again.iter().all(|one| one.outcome == Outcome::MadeDue));
    api.stop().await;
}
