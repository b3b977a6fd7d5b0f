//! What is open, and what only looks so.

use std::time::Duration;

use tallystick_payments::idle::{self, Open};
use uuid::Uuid;

use super::fixture::Fixture;
use super::plant::plant;

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

#[tokio::test]
async fn open_is_what_moves_by_itself_and_nothing_that_waits_for_somebody() {
    let fixture = Fixture::new().await;
    let open = fixture.id("open");
    // The fixture has one that the gateway works on, one with `attention`, and a parked webhook.
    assert_eq!(look(&fixture, "").await, (false, operations(&[open])));
    let attention = "UPDATE payments.payment SET attention_code = 'x', attention_break = '{late break}' WHERE payment_id = '{open}'";
    assert_eq!(look(&fixture, attention).await, (true, operations(&[])));
    let unknown = |hours: u32| {
        format!(
            "UPDATE payments.payment SET status = 'unknown', unknown_since = now() WHERE payment_id = '{{open}}';
             UPDATE payments.dispatch SET first_claimed_at = now() - interval '{hours} hours' WHERE operation_id = '{{open}}'"
        )
    };
    assert_eq!(look(&fixture, &unknown(23)).await, (false, operations(&[open])));
    assert_eq!(look(&fixture, &unknown(25)).await, (true, operations(&[])));
    // A lost row is made again by a loop; the quick look cannot know, the whole one does.
    let lost = "DELETE FROM payments.dispatch WHERE operation_id = '{open}'";
    assert_eq!(look(&fixture, lost).await, (true, operations(&[open])));
}

#[tokio::test]
async fn stored_webhooks_are_open_until_somebody_looked_and_ids_are_limited() {
    let fixture = Fixture::new().await;
    let sql = "DELETE FROM payments.dispatch; UPDATE payments.payment SET attention_code = 'x', attention_break = '{late break}';
               INSERT INTO payments.inbound_event (gateway, event_id, raw) SELECT 'test', 'n' || i, '' FROM generate_series(1, 30) i";
    let (is_idle, open) = look(&fixture, sql).await;
    assert!(!is_idle);
    assert_eq!((open.operations, open.inbound), (0, 30));
    assert_eq!(open.inbound_ids, (1..=20).map(|i| format!("test/n{i}")).collect::<Vec<_>>());
}
