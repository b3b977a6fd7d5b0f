//! Work in flight is never a violation.

use std::time::{Duration, Instant};

use tallystick_payments::ids::{PaymentId, TenantId};
use tallystick_payments::payment::{CreatePayment, PaymentStatus};
use tallystick_payments::verify::{self, Options, Status};
use tallystick_payments::{idle, tenants};
use uuid::Uuid;

use super::fixture::{Running, wanted};
use crate::support::until;

const DAY: Duration = Duration::from_secs(86_400);

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
    let (made, also, looks) = tokio::join!(load(&running, tenant, end), load(&running, tenant, end), prove);
    assert!(made + also > 50 && looks > 3, "{made} and {also} payments, {looks} looks");
    until("nothing is open", async || idle::is_idle(&running.pool, DAY).await.unwrap().then_some(())).await;
    let last = verify::run(&running.pool, Some(&*running.gateway)).await.unwrap();
    assert!(last.ok && last.checks.iter().all(|check| check.status == Status::Held), "{last:?}");
    let payments = last.checks.iter().find(|check| check.id == "I7").unwrap().checked;
    assert!(payments > 50, "{payments}");
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
