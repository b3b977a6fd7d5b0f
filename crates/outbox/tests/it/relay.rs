//! The relay and its fence.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sqlx::{Executor, PgPool};
use tallystick_outbox::sinks::memory::Memory;
use tallystick_outbox::{EventSink, OutboxError, SinkError, StoredEvent, lag, relay_step};
use tallystick_runner::{Db, StepReport};
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

use crate::common::*;

const LEASE: Duration = Duration::from_secs(60);

async fn written(db: &Db, events: usize) -> Vec<Uuid> {
    let events: Vec<_> = (0..events).map(|_| event(Uuid::now_v7(), 1)).collect();
    let ids = append_alone(db, &events).await;
    tick_until(db, &ids).await;
    ids
}

async fn position(superuser: &PgPool) -> (i64, i64, i64) {
    sqlx::query_as("SELECT window_no, seq, fence FROM outbox.sink").fetch_one(superuser).await.expect("sink")
}

/// Lets the lease end, as time would.
async fn expire(superuser: &PgPool) {
    superuser
        .execute("UPDATE outbox.sink SET lease_until = now() - interval '1 second'")
        .await
        .expect("expire");
}

/// Announces each call and waits until it is let go.
struct Slow {
    inner: Memory,
    called: Notify,
    go: Semaphore,
}

impl Slow {
    fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self { inner: Memory::new(name), called: Notify::new(), go: Semaphore::new(0) })
    }
}

#[async_trait]
impl EventSink for Slow {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn publish(&self, events: &[StoredEvent]) -> Result<usize, SinkError> {
        self.called.notify_one();
        let _turn = self.go.acquire().await.map_err(|e| SinkError::Refused(e.to_string()))?;
        self.inner.publish(events).await
    }
}

#[sqlx::test(migrations = false)]
async fn everything_is_published_once_in_order(superuser: PgPool) {
    let db = app(&superuser).await;
    let (sink, owner) = (Memory::new("memory"), Uuid::now_v7());
    assert_eq!(relay_step(&db, &sink, owner, LEASE).await.expect("step"), StepReport::default());
    let ids_written = written(&db, 1203).await;
    let mut done = Vec::new();
    loop {
        let report = relay_step(&db, &sink, owner, LEASE).await.expect("step");
        done.push(report.done);
        if !report.more {
            break;
        }
    }
    assert_eq!(done, [500, 500, 203]);
    assert_eq!(ids(&sink.taken()), ids_written);
    assert_eq!(relay_step(&db, &sink, owner, LEASE).await.expect("step"), StepReport::default());
    assert_eq!(sink.calls(), 3, "an empty batch is not published");
    // A second sink has a position of its own.
    let second = Memory::new("second");
    assert_eq!(relay_step(&db, &second, owner, LEASE).await.expect("step").done, 500);
    let mut conn = db.conn().await.expect("connection");
    let behind: Vec<_> = lag(&mut conn).await.expect("lag");
    assert_eq!(
        behind.iter().map(|l| (l.sink.as_str(), l.events_behind)).collect::<Vec<_>>(),
        [("memory", 0), ("second", 1203)]
    );
    assert_eq!(behind[0].oldest_unpublished_seconds, 0);
}

#[sqlx::test(migrations = false)]
async fn a_sink_that_fails_in_the_middle_gets_the_rest_again(superuser: PgPool) {
    let db = app(&superuser).await;
    let (sink, owner) = (Memory::new("memory"), Uuid::now_v7());
    let ids_written = written(&db, 10).await;
    sink.confirm_at_most(3);
    for round in 1..=2 {
        match relay_step(&db, &sink, owner, LEASE).await {
            Err(OutboxError::Partial { confirmed: 3, of, .. }) => assert_eq!(of, 10 - 3 * (round - 1)),
            other => panic!("{other:?}"),
        }
        assert_eq!(ids(&sink.taken()), ids_written[..3 * round]);
    }
    sink.refuse();
    let before = position(&superuser).await;
    assert!(matches!(relay_step(&db, &sink, owner, LEASE).await, Err(OutboxError::Sink { .. })));
    sink.heal();
    sink.confirm_at_most(0);
    assert!(matches!(
        relay_step(&db, &sink, owner, LEASE).await,
        Err(OutboxError::Partial { confirmed: 0, .. })
    ));
    assert_eq!(position(&superuser).await, before);
    sink.heal();
    assert_eq!(relay_step(&db, &sink, owner, LEASE).await.expect("step").done, 4);
    assert_eq!(ids(&sink.taken()), ids_written);
}

#[sqlx::test(migrations = false)]
async fn one_process_works_for_a_sink(superuser: PgPool) {
    let db = app(&superuser).await;
    let (sink, a, b) = (Memory::new("memory"), Uuid::now_v7(), Uuid::now_v7());
    let first = written(&db, 2).await;
    assert_eq!(relay_step(&db, &sink, a, LEASE).await.expect("step").done, 2);
    let second = written(&db, 2).await;
    assert_eq!(relay_step(&db, &sink, b, LEASE).await.expect("step"), StepReport::default());
    expire(&superuser).await;
    let (_, _, fence) = position(&superuser).await;
    assert_eq!(relay_step(&db, &sink, b, LEASE).await.expect("step").done, 2);
    assert_eq!(position(&superuser).await.2, fence + 1);
    assert_eq!(relay_step(&db, &sink, a, LEASE).await.expect("step"), StepReport::default());
    assert_eq!(ids(&sink.taken()), [first, second].concat());
}

#[sqlx::test(migrations = false)]
async fn a_paused_owner_moves_the_position_neither_on_nor_back(superuser: PgPool) {
    let db = app(&superuser).await;
    let (slow, a, b) = (Slow::new("memory"), Uuid::now_v7(), Uuid::now_v7());
    let first = written(&db, 3).await;
    for later in [0, 2] {
        // A has read its batch and is paused inside of the sink; B takes over and gets further, or just as far.
        expire_if_any(&superuser).await;
        let paused = tokio::spawn({
            let (db, slow) = (db.clone(), Arc::clone(&slow));
            async move { relay_step(&db, slow.as_ref(), a, LEASE).await }
        });
        slow.called.notified().await;
        written_if(&db, later).await;
        expire(&superuser).await;
        let other = Memory::new("memory");
        assert!(relay_step(&db, &other, b, LEASE).await.expect("step").done > 0);
        let reached = position(&superuser).await;
        slow.go.add_permits(1);
        assert!(matches!(paused.await.expect("no panic"), Err(OutboxError::LostLease { .. })));
        assert_eq!(position(&superuser).await, reached);
        slow.go.forget_permits(1);
        written(&db, 1).await;
    }
    assert_eq!(ids(&slow.inner.taken())[..3], first);
}

async fn expire_if_any(superuser: &PgPool) {
    superuser.execute("UPDATE outbox.sink SET lease_until = '-infinity'").await.expect("expire");
}

async fn written_if(db: &Db, events: usize) {
    if events > 0 {
        written(db, events).await;
    }
}

/// Two steps of one process at once, as after a loop that was started twice: the position still moves once.
#[sqlx::test(migrations = false)]
async fn the_same_owner_twice_is_fenced_by_the_position(superuser: PgPool) {
    let db = app(&superuser).await;
    let (slow, owner) = (Slow::new("memory"), Uuid::now_v7());
    written(&db, 3).await;
    let paused = tokio::spawn({
        let (db, slow) = (db.clone(), Arc::clone(&slow));
        async move { relay_step(&db, slow.as_ref(), owner, LEASE).await }
    });
    slow.called.notified().await;
    let other = Memory::new("memory");
    assert_eq!(relay_step(&db, &other, owner, LEASE).await.expect("step").done, 3);
    slow.go.add_permits(1);
    assert!(matches!(paused.await.expect("no panic"), Err(OutboxError::LostLease { .. })));
}

#[sqlx::test(migrations = false)]
async fn a_sink_that_hangs_is_given_up_when_the_lease_ends(superuser: PgPool) {
    let db = app(&superuser).await;
    let slow = Slow::new("memory");
    written(&db, 1).await;
    let started = Instant::now();
    let result = relay_step(&db, slow.as_ref(), Uuid::now_v7(), Duration::from_millis(200)).await;
    assert!(matches!(result, Err(OutboxError::Sink { source: SinkError::Timeout(_), .. })), "{result:?}");
    assert!(started.elapsed() < WAIT);
    assert_eq!(position(&superuser).await.0, 0);
}

#[sqlx::test(migrations = false)]
async fn no_transaction_is_open_while_the_sink_is_called(superuser: PgPool) {
    let db = app(&superuser).await;
    let slow = Slow::new("memory");
    written(&db, 1).await;
    let step = tokio::spawn({
        let (db, slow) = (db.clone(), Arc::clone(&slow));
        async move { relay_step(&db, slow.as_ref(), Uuid::now_v7(), LEASE).await }
    });
    slow.called.notified().await;
    let end = Instant::now() + WAIT;
    loop {
        let open: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity
              WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
                AND backend_type = 'client backend'",
        )
        .fetch_one(&superuser)
        .await
        .expect("activity");
        if open == 0 {
            break;
        }
        assert!(Instant::now() < end, "a transaction stays open");
    }
    slow.go.add_permits(1);
    assert_eq!(step.await.expect("no panic").expect("step").done, 1);
}

#[sqlx::test(migrations = false)]
async fn a_disabled_sink_keeps_its_position(superuser: PgPool) {
    let db = app(&superuser).await;
    let (sink, owner) = (Memory::new("memory"), Uuid::now_v7());
    relay_step(&db, &sink, owner, LEASE).await.expect("step");
    superuser.execute("UPDATE outbox.sink SET enabled = false").await.expect("disable");
    let ids_written = written(&db, 2).await;
    expire(&superuser).await;
    for owner in [owner, Uuid::now_v7()] {
        assert_eq!(relay_step(&db, &sink, owner, LEASE).await.expect("step"), StepReport::default());
    }
    let mut conn = db.conn().await.expect("connection");
    let behind = lag(&mut conn).await.expect("lag");
    assert_eq!((behind[0].enabled, behind[0].events_behind), (false, 2));
    superuser.execute("UPDATE outbox.sink SET enabled = true").await.expect("enable");
    assert_eq!(relay_step(&db, &sink, owner, LEASE).await.expect("step").done, 2);
    assert_eq!(ids(&sink.taken()), ids_written);
}

#[sqlx::test(migrations = false)]
async fn an_idle_relay_that_holds_the_lease_writes_nothing(superuser: PgPool) {
    let db = app(&superuser).await;
    let (sink, owner) = (Memory::new("memory"), Uuid::now_v7());
    relay_step(&db, &sink, owner, LEASE).await.expect("step");
    let row = "SELECT xmin::text FROM outbox.sink";
    let before: String = sqlx::query_scalar(row).fetch_one(&superuser).await.expect("row");
    for _ in 0..5 {
        relay_step(&db, &sink, owner, LEASE).await.expect("step");
    }
    let after: String = sqlx::query_scalar(row).fetch_one(&superuser).await.expect("row");
    assert_eq!(before, after);
}

/// C119: several relays, a sink that fails now and then; per object nothing is seen for the first time too early.
#[sqlx::test(migrations = false)]
async fn c119_several_relays_keep_the_order_of_first_sight(superuser: PgPool) {
    let db = app(&superuser).await;
    let sink = Arc::new(Memory::new("memory"));
    sink.confirm_at_most(7);
    let mut wanted = Vec::new();
    for _ in 0..40 {
        let object = Uuid::now_v7();
        wanted.extend(append_alone(&db, &[event(object, 1), event(object, 2)]).await);
        wanted.extend(append_alone(&db, &[event(object, 3), event(object, 4)]).await);
    }
    tick_until(&db, &wanted).await;
    let relays: Vec<_> = (0..4)
        .map(|_| {
            let (db, sink, owner) = (db.clone(), Arc::clone(&sink), Uuid::now_v7());
            tokio::spawn(async move {
                let end = Instant::now() + WAIT;
                while sink.taken().len() < 160 {
                    assert!(Instant::now() < end, "not published in time");
                    // Failures and lost leases are part of the test.
                    let _ = relay_step(&db, sink.as_ref(), owner, Duration::from_millis(20)).await;
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for relay in relays {
        relay.await.expect("no panic");
    }
    let mut first_sight = Vec::new();
    for e in sink.taken() {
        if !first_sight.iter().any(|seen: &StoredEvent| seen.event_id == e.event_id) {
            first_sight.push(e);
        }
    }
    assert_story(&first_sight);
}
