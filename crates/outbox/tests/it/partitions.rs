//! Partitions ahead of time.

use sqlx::{Executor, PgPool};
use tallystick_outbox::{ensure_partitions, partition_days_left};
use uuid::Uuid;

use crate::common::*;

#[sqlx::test(migrations = false)]
async fn partitions_are_made_once_whoever_asks(superuser: PgPool) {
    let db = app(&superuser).await;
    let before = partition_days_left(&db).await.expect("days");
    // The migration makes a week; midnight may have passed since.
    assert!((6..=7).contains(&before), "{before}");
    let other = pool(&superuser).await;
    let asking: Vec<_> = [&db, &other, &db, &other, &db, &other]
        .into_iter()
        .map(|db| {
            let db = db.clone();
            tokio::spawn(async move { ensure_partitions(&db, 10).await.expect("partitions") })
        })
        .collect();
    let mut made = 0;
    for one in asking {
        made += one.await.expect("no panic");
    }
    assert!((3..=4).contains(&made), "each of the missing days once: {made}");
    assert!((9..=10).contains(&partition_days_left(&db).await.expect("days")));
    assert_eq!(ensure_partitions(&db, 0).await.expect("partitions"), 0);
    let attached: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox.event'::regclass")
            .fetch_one(&superuser)
            .await
            .expect("count");
    assert!((11..=12).contains(&attached));
}

#[sqlx::test(migrations = false)]
async fn days_left_stops_at_the_first_hole(superuser: PgPool) {
    let db = app(&superuser).await;
    let day = |ahead: i32| format!("to_char((now() AT TIME ZONE 'UTC')::date + {ahead}, 'YYYYMMDD')");
    for (ahead, left) in [(4, 3), (1, 0), (0, -1)] {
        let detach = format!(
            "DO $$ BEGIN EXECUTE 'ALTER TABLE outbox.event DETACH PARTITION outbox.event_' || {0};
             EXECUTE 'DROP TABLE outbox.event_' || {0}; END $$",
            day(ahead)
        );
        superuser.execute(sqlx::AssertSqlSafe(detach)).await.expect("detach");
        assert_eq!(partition_days_left(&db).await.expect("days"), left);
    }
    let mut conn = db.conn().await.expect("connection");
    let refused = tallystick_outbox::append_in_tx(&mut conn, &[event(Uuid::now_v7(), 1)]).await;
    assert!(refused.is_err(), "no event without a partition for today");
    assert_eq!(ensure_partitions(&db, 7).await.expect("partitions"), 3);
    tallystick_outbox::append_in_tx(&mut conn, &[event(Uuid::now_v7(), 1)]).await.expect("append");
}

#[sqlx::test(migrations = false)]
async fn making_partitions_waits_for_no_writer_and_no_reader(superuser: PgPool) {
    let db = app(&superuser).await;
    let mut writer = held(&superuser).await;
    append(&mut writer, &[event(Uuid::now_v7(), 1)]).await;
    let mut reader = held(&superuser).await;
    reader.execute("SELECT count(*) FROM outbox.event").await.expect("read");
    assert!(ensure_partitions(&db, 9).await.expect("partitions") >= 2);
    append(&mut writer, &[event(Uuid::now_v7(), 1)]).await;
    commit(writer).await;
}
