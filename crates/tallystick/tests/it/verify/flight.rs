//! Work in flight is never a violation.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tallystick_ledger::AccountKind;
use tallystick_payments::ids::{PaymentId, TenantId};
use tallystick_payments::payment::{CreatePayment, PaymentStatus};
use tallystick_payments::payout::{CreatePayout, PayoutStatus};
use tallystick_payments::verify::{self, Options, Status};
use tallystick_payments::{idle, tenants};
use uuid::Uuid;

use super::fixture::{AMOUNT, Running, wanted};
use super::payout_fixture::{self, funded, told};
use crate::support::until;

const DAY: Duration = Duration::from_secs(86_400);

/// Payouts without a pause until `end`: paid, refused, lost, acknowledged and paid later, sent back, and some that
/// find nothing left.
async fn payouts(running: &Running, tenant: TenantId, end: Instant) -> usize {
    let wages = funded(running, tenant, "wages").await;
    let empty = running.open(tenant, "empty", AccountKind::Liability, Some(0)).await;
    let send = async |account, destination: &str| {
        let request = CreatePayout {
            reference: Some(Uuid::now_v7().to_string()),
            ..payout_fixture::wanted(account, destination)
        };
        let key = Uuid::now_v7().to_string();
        running.engine.create_payout(tenant, &key, request).await.expect("created").id
    };
    let (mut made, mut acknowledged, mut paid) = (0, VecDeque::new(), VecDeque::new());
    while Instant::now() < end {
        send(empty, "approve").await;
        send(wages, "decline").await;
        send(wages, "lose").await;
        acknowledged.push_back(send(wages, "accept").await);
        paid.push_back(send(wages, "approve").await);
        made += 5;
        if let Some(id) = reached(running, tenant, &mut acknowledged, PayoutStatus::Processing).await {
            running.gateway.pays(id, AMOUNT);
            running.webhook(&format!("paid {id}"), &told("settled", id, AMOUNT)).await;
        }
        if let Some(id) = reached(running, tenant, &mut paid, PayoutStatus::Succeeded).await {
            running.gateway.returns(id);
            running.webhook(&format!("back {id}"), &told("returned", id, AMOUNT)).await;
        }
    }
    for id in acknowledged {
        until("it is acknowledged", async || {
            (running.payout(tenant, id).await.status == PayoutStatus::Processing).then_some(())
        })
        .await;
        running.gateway.pays(id, AMOUNT);
        running.webhook(&format!("paid {id}"), &told("settled", id, AMOUNT)).await;
    }
    made
}

/// Takes the oldest of these payouts once it is in a status: the bank says nothing about what it was not sent.
async fn reached(
    running: &Running,
    tenant: TenantId,
    waiting: &mut VecDeque<Uuid>,
    status: PayoutStatus,
) -> Option<Uuid> {
    let oldest = *waiting.front()?;
    (running.payout(tenant, oldest).await.status == status).then(|| waiting.pop_front())?
}

/// Payments without a pause until `end`: approved, declined, lost, and second clicks of paid orders.
async fn load(running: &Running, tenant: TenantId, end: Instant) -> usize {
    let mut made = 0;
    while Instant::now() < end {
        let methods = ["approve", "decline", "lose", "approve"];
        let order = Uuid::now_v7().to_string();
        for method in methods {
            let request = CreatePayment { order_id: Some(order.clone()), ..wanted(method) };
            let created = running.engine.create_payment(tenant, &Uuid::now_v7().to_string(), request).await;
            // An order that is being paid already is refused now and then; that is not what is tested here.
            made += usize::from(created.is_ok());
        }
    }
    made
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_holds_in_every_snapshot_while_payments_are_made() {
    let running = Running::start().await;
    let tenant = tenants::find(&running.pool, "default").await.unwrap();
    let end = Instant::now() + Duration::from_secs(6);
    let options = Options { page: 500, ..Options::default() };
    let prove = async {
        let mut looks = 0;
        while Instant::now() < end {
            let report = verify::run_with(&running.pool, Some(&*running.gateway), &options).await.unwrap();
            let odd: Vec<_> = report.checks.iter().filter(|check| check.status != Status::Held).collect();
            assert!(odd.is_empty(), "{odd:?}");
            looks += 1;
        }
        looks
    };
    let (made, sent, looks) =
        tokio::join!(load(&running, tenant, end), payouts(&running, tenant, end), prove);
    assert!(made > 25 && sent > 25 && looks > 3, "{made} payments, {sent} payouts, {looks} looks");
    until("nothing is open", async || idle::is_idle(&running.pool, DAY).await.unwrap().then_some(())).await;
    let last = verify::run(&running.pool, Some(&*running.gateway)).await.unwrap();
    assert!(last.ok && last.checks.iter().all(|check| check.status == Status::Held), "{last:?}");
    let operations = last.checks.iter().find(|check| check.id == "I7").unwrap().checked;
    assert!(operations > 50, "{operations}");
    let kinds = "SELECT count(DISTINCT status) FROM payments.payout WHERE status IN ('succeeded', 'failed', 'returned')";
    let ends: i64 = sqlx::query_scalar(kinds).fetch_one(&mut running.db.admin().await).await.unwrap();
    assert_eq!(ends, 3, "payouts ended in every way");
    running.stop().await;
}

#[tokio::test]
async fn a_payment_that_is_being_made_is_open_until_it_is_final() {
    let running = Running::start().await;
    let tenant = tenants::find(&running.pool, "default").await.unwrap();
    assert!(idle::is_idle(&running.pool, DAY).await.unwrap());
    let id = running.engine.create_payment(tenant, "k", wanted("hold")).await.unwrap().id;
    assert!(!idle::is_idle(&running.pool, DAY).await.unwrap());
    let open = idle::open(&running.pool, DAY).await.unwrap();
    assert_eq!((open.operations, open.operation_ids, open.inbound), (1, vec![id], 0));
    let report = verify::run(&running.pool, Some(&*running.gateway)).await.unwrap();
    assert!(report.checks.iter().all(|check| check.status == Status::Held), "{report:?}");
    running.gateway.release();
    running.reaches(tenant, id, PaymentStatus::Succeeded).await;
    until("nothing is open", async || idle::is_idle(&running.pool, DAY).await.unwrap().then_some(())).await;
    assert!(running.engine.payment(tenant, PaymentId(id)).await.unwrap().is_some());
    running.stop().await;
}

#[tokio::test]
async fn a_payout_that_is_being_sent_is_open_until_it_is_final() {
    let running = Running::start().await;
    let tenant = tenants::find(&running.pool, "default").await.unwrap();
    let wages = funded(&running, tenant, "wages").await;
    let wanted = payout_fixture::wanted(wages, "hold");
    let id = running.engine.create_payout(tenant, "k", wanted).await.unwrap().id;
    until("it is debited", async || {
        (!running.engine.journals_of(tenant, id).await.unwrap().is_empty()).then_some(())
    })
    .await;
    assert!(!idle::is_idle(&running.pool, DAY).await.unwrap());
    let open = idle::open(&running.pool, DAY).await.unwrap();
    assert_eq!((open.operations, open.operation_ids, open.inbound), (1, vec![id], 0));
    assert_eq!(running.payout(tenant, id).await.status, PayoutStatus::Pending);
    let report = verify::run(&running.pool, Some(&*running.gateway)).await.unwrap();
    assert!(report.checks.iter().all(|check| check.status == Status::Held), "{report:?}");
    running.gateway.release();
    until("it is paid", async || {
        (running.payout(tenant, id).await.status == PayoutStatus::Succeeded).then_some(())
    })
    .await;
    until("nothing is open", async || idle::is_idle(&running.pool, DAY).await.unwrap().then_some(())).await;
    running.stop().await;
}
