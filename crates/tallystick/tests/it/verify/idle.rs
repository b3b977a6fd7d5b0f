//! What is open, and what only looks so.

use std::sync::Arc;
use std::time::Duration;

use tallystick_payments::idle::{self, Open};
use tallystick_payments::verify::Status;
use tallystick_runner::Shutdown;
use uuid::Uuid;

use super::book::{GatewayWithBook, sorted};
use super::fixture::{Fixture, engine, exceptions, verified};
use super::plant::{known, plant};
use crate::support::until;

const DAY: Duration = Duration::from_secs(86_400);

/// Plants, then looks both ways.
async fn look(fixture: &Fixture, sql: &str) -> (bool, Open) {
    let copy = fixture.copy().await;
    plant(&copy, &fixture.sql(sql)).await;
    let pool = copy.pool(Duration::from_secs(5)).await;
    let seen = (idle::is_idle(&pool, DAY).await.unwrap(), idle::open(&pool, DAY).await.unwrap());
    pool.pool().close().await;
    seen
}

fn operations(ids: &[Uuid]) -> Open {
    Open {
        operations: i64::try_from(ids.len()).unwrap(),
        operation_ids: ids.to_vec(),
        inbound: 0,
        inbound_ids: Vec::new(),
    }
}

/// SQL that lets every open operation but one wait for a person.
fn only(name: &str) -> String {
    ["payment", "payout"]
        .map(|object| {
            format!(
                "UPDATE payments.{object} SET attention_code = 'x', attention_break = '{{late break}}'
                  WHERE {object}_id <> '{{{name}}}' AND status IN ('pending', 'processing', 'unknown');"
            )
        })
        .concat()
}

#[tokio::test]
async fn open_is_what_moves_by_itself_and_nothing_that_waits_for_somebody() {
    let fixture = Fixture::new().await;
    let open = fixture.id("open");
    // The fixture has some that gateways work on, some with `attention`, one that waits for consent, and a parked
    // webhook.
    assert_eq!(look(&fixture, "").await, (false, operations(&fixture.open())));
    assert_eq!(look(&fixture, &only("open")).await, (false, operations(&[open])));
    assert_eq!(look(&fixture, &only("paid")).await, (true, operations(&[])));
    let unknown = |hours: u32| {
        only("open")
            + &format!(
                "UPDATE payments.payment SET status = 'unknown', unknown_since = now() WHERE payment_id = '{{open}}';
                 UPDATE payments.dispatch SET first_claimed_at = now() - interval '{hours} hours' WHERE operation_id = '{{open}}'"
            )
    };
    assert_eq!(look(&fixture, &unknown(23)).await, (false, operations(&[open])));
    assert_eq!(look(&fixture, &unknown(25)).await, (true, operations(&[])));
    // A lost row is made again by a loop; the quick look cannot know, the whole one does.
    let lost = only("open") + "DELETE FROM payments.dispatch WHERE operation_id = '{open}'";
    assert_eq!(look(&fixture, &lost).await, (true, operations(&[open])));
}

#[tokio::test]
async fn payouts_are_open_as_payments_are() {
    let fixture = Fixture::new().await;
    let fresh = fixture.id("fresh");
    assert_eq!(look(&fixture, &only("fresh")).await, (false, operations(&[fresh])));
    let gone = fixture.id("gone");
    let claimed = |hours: u32| {
        only("gone")
            + &format!(
                "UPDATE payments.dispatch SET first_claimed_at = now() - interval '{hours} hours' WHERE operation_id = '{{gone}}'"
            )
    };
    assert_eq!(look(&fixture, &claimed(23)).await, (false, operations(&[gone])));
    assert_eq!(look(&fixture, &claimed(25)).await, (true, operations(&[])));
    let lost = only("gone") + "DELETE FROM payments.dispatch WHERE operation_id = '{gone}'";
    assert_eq!(look(&fixture, &lost).await, (true, operations(&[gone])));
    // What is over and still has its row is open until that is removed.
    let left = only("sent")
        + "INSERT INTO payments.dispatch (operation_id, kind, gateway, due_at) VALUES ('{sent}', 2, 'test', now())";
    assert_eq!(look(&fixture, &left).await, (false, operations(&[fixture.id("sent")])));
}

#[tokio::test]
async fn gauges_count_operations_of_both_kinds() {
    let fixture = Fixture::new().await;
    let copy = fixture.copy().await;
    let hour =
        "UPDATE payments.payout SET unknown_since = now() - interval '1 hour' WHERE payout_id = '{gone}'";
    plant(&copy, &fixture.sql(hour)).await;
    let pool = copy.pool(Duration::from_secs(5)).await;
    let engine = engine(&pool, &Arc::new(GatewayWithBook::new()));
    let gauges = engine.gauges().await.unwrap();
    // What calls for a person keeps its row, and is looked at now and then.
    let open = fixture.open().len() + ["amount", "odd payout"].len();
    assert_eq!((gauges.unknown_count, gauges.open_operations), (1, i64::try_from(open).unwrap()));
    assert!((3_600..3_700).contains(&gauges.unknown_oldest_seconds), "{gauges:?}");
    assert_eq!(gauges.breaks_open, 4);
    let payment =
        "UPDATE payments.payment SET status = 'unknown', unknown_since = now() WHERE payment_id = '{open}'";
    plant(&copy, &fixture.sql(payment)).await;
    assert_eq!(engine.gauges().await.unwrap().unknown_count, 2);
    pool.pool().close().await;
}

#[tokio::test]
async fn rows_that_are_made_again_are_the_work_that_is_demanded() {
    let fixture = Fixture::new().await;
    let copy = fixture.copy().await;
    let lost = "DELETE FROM payments.dispatch;
                UPDATE payments.payment SET created_at = created_at - interval '1 minute';
                UPDATE payments.payout SET created_at = created_at - interval '1 minute'";
    plant(&copy, lost).await;
    let found = verified(&copy, Some(&fixture.book())).await;
    let mut wanted = known(&fixture);
    wanted.insert("I17", (Status::Violated, sorted(&fixture.open())));
    assert_eq!(exceptions(&found), wanted);
    let pool = copy.pool(Duration::from_secs(5)).await;
    let (engine, shutdown) = (engine(&pool, &Arc::new(GatewayWithBook::new())), Shutdown::new());
    engine.spawn_sweep(&shutdown);
    let open =
        "SELECT count(*) FROM payments.dispatch d JOIN payments.operation o USING (operation_id, kind)";
    let all = i64::try_from(fixture.open().len() + ["amount", "odd payout"].len()).unwrap();
    until("every row is there again", async || {
        let found: i64 = sqlx::query_scalar(open).fetch_one(&mut copy.admin().await).await.unwrap();
        (found == all).then_some(())
    })
    .await;
    shutdown.begin();
    shutdown.finished().await;
    pool.pool().close().await;
    assert_eq!(exceptions(&verified(&copy, Some(&fixture.book())).await), known(&fixture));
}

#[tokio::test]
async fn stored_webhooks_are_open_until_somebody_looked_and_ids_are_limited() {
    let fixture = Fixture::new().await;
    let sql = "DELETE FROM payments.dispatch; UPDATE payments.payment SET attention_code = 'x', attention_break = '{late break}';
               UPDATE payments.payout SET attention_code = 'x', attention_break = '{late break}';
               INSERT INTO payments.inbound_event (gateway, event_id, raw) SELECT 'test', 'n' || i, '' FROM generate_series(1, 30) i";
    let (is_idle, open) = look(&fixture, sql).await;
    assert!(!is_idle);
    assert_eq!((open.operations, open.inbound), (0, 30));
    assert_eq!(open.inbound_ids, (1..=20).map(|i| format!("test/n{i}")).collect::<Vec<_>>());
}
