//! Windows: nothing is skipped, nothing comes twice, order per object holds, whoever is still writing.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::RngExt;
use sqlx::{Executor, PgPool};
use tallystick_outbox::Cursor;
use uuid::Uuid;

use crate::common::*;

#[sqlx::test(migrations = false)]
async fn c116_an_earlier_writer_held_open_is_not_skipped_and_delays_nobody(superuser: PgPool) {
    let db = app(&superuser).await;
    let (early, late) = (event(Uuid::now_v7(), 1), event(Uuid::now_v7(), 1));
    let mut writer = held(&superuser).await;
    append(&mut writer, std::slice::from_ref(&early)).await;
    // Many windows pass while the first writer is still open.
    let mut later = Vec::new();
    for _ in 0..3 {
        later.extend(append_alone(&db, &[event(Uuid::now_v7(), 1)]).await);
        let all = tick_until(&db, &later).await;
        assert_eq!(ids(&all), later, "later writers are not delayed, the open one is not shown");
    }
    commit(writer).await;
    later.extend(append_alone(&db, std::slice::from_ref(&late)).await);
    let all = tick_until(&db, &[early.event_id, late.event_id]).await;
    assert_eq!(all.len(), 5);
    assert_story(&all);
    let seq = |id| all.iter().find(|e| e.event_id == id).map(|e| e.cursor.seq);
    assert!(seq(early.event_id) < seq(later[0]), "the early writer's number is lower, yet it came later");
    assert!(
        later[..3].iter().zip(&ids(&all)).all(|(a, b)| a == b),
        "what was read before stays where it was"
    );
}

#[sqlx::test(migrations = false)]
async fn c116_a_held_writer_that_rolls_back_leaves_no_trace(superuser: PgPool) {
    let db = app(&superuser).await;
    let mut writer = held(&superuser).await;
    append(&mut writer, &[event(Uuid::now_v7(), 1)]).await;
    let first = append_alone(&db, &[event(Uuid::now_v7(), 1)]).await;
    tick_until(&db, &first).await;
    writer.execute("ROLLBACK").await.expect("rollback");
    let second = append_alone(&db, &[event(Uuid::now_v7(), 1)]).await;
    let all = tick_until(&db, &second).await;
    assert_eq!(ids(&all), [first, second].concat());
}

/// A late writer's later event lies between fresh ones by number; it must come once, as part of the late transaction.
#[sqlx::test(migrations = false)]
async fn c116_a_late_writers_event_between_fresh_ones_comes_once(superuser: PgPool) {
    let db = app(&superuser).await;
    let one = || [event(Uuid::now_v7(), 1)];
    let mut late = held(&superuser).await;
    let [early] = one();
    append(&mut late, std::slice::from_ref(&early)).await;
    let first = append_alone(&db, &one()).await;
    tick_until(&db, &first).await;
    let before = append_alone(&db, &one()).await;
    let [between] = one();
    append(&mut late, std::slice::from_ref(&between)).await;
    let after = append_alone(&db, &one()).await;
    commit(late).await;
    let all = tick_until(&db, &[early.event_id, between.event_id, before[0], after[0]]).await;
    assert_eq!(ids(&all), [first[0], early.event_id, before[0], between.event_id, after[0]]);
}

/// Savepoints have transaction ids of their own, which no snapshot is asked about.
#[sqlx::test(migrations = false)]
async fn c116_events_written_behind_savepoints_come_with_their_transaction(superuser: PgPool) {
    let db = app(&superuser).await;
    let mut writer = held(&superuser).await;
    writer.execute("SAVEPOINT a").await.expect("savepoint");
    let kept = event(Uuid::now_v7(), 1);
    append(&mut writer, std::slice::from_ref(&kept)).await;
    writer.execute("RELEASE a; SAVEPOINT b").await.expect("savepoint");
    append(&mut writer, &[event(Uuid::now_v7(), 1)]).await;
    let meanwhile = append_alone(&db, &[event(Uuid::now_v7(), 1)]).await;
    assert_eq!(ids(&tick_until(&db, &meanwhile).await), meanwhile);
    writer.execute("ROLLBACK TO b").await.expect("rollback");
    commit(writer).await;
    let all = tick_until(&db, &[kept.event_id]).await;
    assert_eq!(ids(&all), [meanwhile[0], kept.event_id]);
}

/// The interleaving that order by transaction id gets wrong: A has the lower id, waits for the object that B holds,
/// B writes version 1 and A writes version 2. A third transaction stays open all the while.
#[sqlx::test(migrations = false)]
async fn c119_two_writers_of_one_object_keep_its_order(superuser: PgPool) {
    let db = app(&superuser).await;
    superuser.execute("CREATE TABLE public.object (id integer PRIMARY KEY)").await.expect("table");
    superuser.execute("INSERT INTO public.object VALUES (1)").await.expect("row");
    superuser.execute("GRANT SELECT, UPDATE ON public.object TO tallystick_app").await.expect("grant");
    let object = Uuid::now_v7();
    for round in 0..3 {
        let (mut a, mut between, mut b) =
            (held(&superuser).await, held(&superuser).await, held(&superuser).await);
        // A's id is the lowest, then comes one that has nothing to do with it, then B's.
        append(&mut a, &[event(Uuid::now_v7(), 1)]).await;
        append(&mut between, &[event(Uuid::now_v7(), 1)]).await;
        b.execute("SELECT FROM public.object WHERE id = 1 FOR NO KEY UPDATE").await.expect("lock");
        append(&mut b, &[event(object, 2 * round + 1)]).await;
        let second = event(object, 2 * round + 2);
        let id = second.event_id;
        let waiter = tokio::spawn(async move {
            a.execute("SELECT FROM public.object WHERE id = 1 FOR NO KEY UPDATE").await.expect("lock");
            append(&mut a, &[second]).await;
            commit(a).await;
        });
        until_somebody_waits(&superuser).await;
        tick(&db).await;
        commit(b).await;
        tick(&db).await;
        waiter.await.expect("no panic");
        let all = tick_until(&db, &[id]).await;
        assert_story(&all);
        commit(between).await;
    }
    let end = append_alone(&db, &[event(Uuid::now_v7(), 1)]).await;
    let all = tick_until(&db, &end).await;
    assert_story(&all);
    assert_eq!(all.len(), 3 * 4 + 1);
}

#[sqlx::test(migrations = false)]
async fn c119_many_writers_and_two_tickers_make_no_gap_and_no_double(superuser: PgPool) {
    const WRITERS: usize = 4;
    const OBJECTS: usize = 12;
    let db = app(&superuser).await;
    let other = pool(&superuser).await;
    let stop = Arc::new(AtomicBool::new(false));
    let tickers: Vec<_> = [db.clone(), other]
        .into_iter()
        .flat_map(|db| [db.clone(), db])
        .map(|db| {
            let stop = stop.clone();
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    tick(&db).await;
                }
            })
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let db = db.clone();
            tokio::spawn(async move {
                let mut written = Vec::new();
                for _ in 0..OBJECTS {
                    let object = Uuid::now_v7();
                    written.extend(append_alone(&db, &[event(object, 1)]).await);
                    written.extend(append_alone(&db, &[event(object, 2), event(object, 3)]).await);
                }
                written
            })
        })
        .collect();
    let mut written = Vec::new();
    for writer in writers {
        written.extend(writer.await.expect("no panic"));
    }
    let all = tick_until(&db, &written).await;
    stop.store(true, Ordering::Relaxed);
    for ticker in tickers {
        ticker.await.expect("no panic");
    }
    assert_story(&all);
    assert_eq!(ids(&all).into_iter().collect::<HashSet<_>>(), written.into_iter().collect());
    let (windows, last, events, total, chained): (i64, i64, i64, i64, i64) = sqlx::query_as(
        "SELECT count(*), max(no), sum(events)::bigint, max(total),
                count(*) FILTER (WHERE lo::text = before)
           FROM (SELECT *, lag(hi::text, 1, '1:1:') OVER (ORDER BY no) AS before FROM outbox.window) w",
    )
    .fetch_one(&superuser)
    .await
    .expect("windows");
    assert_eq!(
        (windows, chained),
        (last, last),
        "numbers without a gap; each begins where the last one ended"
    );
    let read = i64::try_from(all.len()).expect("small");
    assert_eq!((events, total), (read, read));
}

/// Moves one to three objects in one transaction, as the product would; one in eight rolls back.
async fn move_some(conn: &mut sqlx::PgConnection) {
    let mut objects: Vec<i32> =
        (0..rand::rng().random_range(1..=3)).map(|_| rand::rng().random_range(0..20)).collect();
    objects.sort_unstable();
    objects.dedup();
    conn.execute("BEGIN").await.expect("begin");
    if rand::rng().random_bool(0.5) {
        // Draws the transaction's id before it waits for any object, so that ids and versions disagree.
        conn.execute("SELECT pg_current_xact_id()").await.expect("id");
    }
    for object in objects {
        let moved = "UPDATE public.object SET version = version + 1 WHERE id = $1 RETURNING version";
        let version: i32 = sqlx::query_scalar(moved).bind(object).fetch_one(&mut *conn).await.expect("move");
        append(conn, &[event(Uuid::from_u128(object.unsigned_abs().into()), version)]).await;
    }
    conn.execute(if rand::rng().random_bool(0.125) { "ROLLBACK" } else { "COMMIT" }).await.expect("end");
}

#[sqlx::test(migrations = false)]
async fn c119_a_reader_that_follows_random_writers_sees_each_version_once_and_in_order(superuser: PgPool) {
    let db = app(&superuser).await;
    superuser
        .execute(
            "CREATE TABLE public.object (id integer PRIMARY KEY, version integer NOT NULL);
             INSERT INTO public.object SELECT i, 0 FROM generate_series(0, 19) i;
             GRANT SELECT, UPDATE ON public.object TO tallystick_app",
        )
        .await
        .expect("objects");
    let writers: Vec<_> = (0..6)
        .map(|_| {
            let superuser = superuser.clone();
            tokio::spawn(async move {
                let mut conn = held(&superuser).await;
                conn.execute("COMMIT").await.expect("commit");
                for _ in 0..60 {
                    move_some(&mut conn).await;
                }
            })
        })
        .collect();
    let stop = Arc::new(AtomicBool::new(false));
    let ticker = tokio::spawn({
        let (db, stop) = (db.clone(), Arc::clone(&stop));
        async move {
            while !stop.load(Ordering::Relaxed) {
                tick(&db).await;
            }
        }
    });
    let expected = |superuser: PgPool| async move {
        sqlx::query_scalar::<_, i64>("SELECT sum(version) FROM public.object")
            .fetch_one(&superuser)
            .await
            .expect("sum")
    };
    let (mut story, mut at) = (Vec::new(), Cursor::start());
    let end = std::time::Instant::now() + WAIT;
    loop {
        let done = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let (read, next) = read_from(&db, None, at, rand::rng().random_range(1..40)).await;
        (at, story) = (next, [story, read].concat());
        assert_story(&story);
        if done && i64::try_from(story.len()).expect("small") >= expected(superuser.clone()).await {
            break;
        }
        assert!(std::time::Instant::now() < end, "{} events read in time", story.len());
    }
    stop.store(true, Ordering::Relaxed);
    ticker.await.expect("no panic");
    for writer in writers {
        writer.await.expect("no panic");
    }
    assert_eq!(i64::try_from(story.len()).expect("small"), expected(superuser).await);
    let again = read_all(&db).await;
    assert_eq!(again, story, "whoever reads later reads the same");
    let mut conn = db.conn().await.expect("connection");
    let checked = tallystick_outbox::verify::versions_without_gap(&mut conn, "thing").await.expect("check");
    assert_eq!(checked, (20, vec![]));
}

#[sqlx::test(migrations = false)]
async fn ticks_without_news_write_nothing(superuser: PgPool) {
    let db = app(&superuser).await;
    assert_eq!(tick(&db).await, 0);
    let first = append_alone(&db, &[event(Uuid::now_v7(), 1)]).await;
    tick_until(&db, &first).await;
    for _ in 0..20 {
        assert_eq!(tick(&db).await, 0);
    }
    let windows: i64 =
        sqlx::query_scalar("SELECT count(*) FROM outbox.window").fetch_one(&superuser).await.expect("n");
    assert_eq!(windows, 1);
    let mut conn = db.conn().await.expect("connection");
    assert_eq!(tallystick_outbox::ticker_lag_seconds(&mut conn).await.expect("lag"), 0);
}

#[sqlx::test(migrations = false)]
async fn places_follow_the_slice(superuser: PgPool) {
    let db = app(&superuser).await;
    let object = Uuid::now_v7();
    let events: Vec<_> = (1..=3000).map(|version| event(object, version)).collect();
    let written = append_alone(&db, &events).await;
    let all = tick_until(&db, &written).await;
    assert_eq!(ids(&all), written);
    assert_story(&all);
    let read = &all[2999];
    let wrote = &events[2999];
    assert_eq!(
        (&read.payload, &read.kind, read.aggregate.as_str()),
        (&wrote.payload, &wrote.kind, wrote.aggregate)
    );
    assert_eq!((read.tenant_id, read.aggregate_id, read.version), (wrote.tenant_id, object, 3000));
    let age = jiff::Timestamp::now().duration_since(read.created_at);
    assert!(age.as_secs().abs() < 3600, "{age:?}");
}

#[sqlx::test(migrations = false)]
async fn limits_are_refused_before_anything_is_written(superuser: PgPool) {
    use tallystick_outbox::{MAX_EVENTS_PER_APPEND, MAX_PAYLOAD_BYTES, OutboxError, append_in_tx};
    let db = app(&superuser).await;
    let mut conn = db.conn().await.expect("connection");
    append_in_tx(&mut conn, &[]).await.expect("nothing to do");
    let mut big = event(Uuid::now_v7(), 1);
    big.payload = vec![b' '; MAX_PAYLOAD_BYTES + 1];
    assert!(matches!(
        append_in_tx(&mut conn, &[big.clone()]).await,
        Err(OutboxError::PayloadTooLarge { .. })
    ));
    let many = vec![event(Uuid::now_v7(), 1); MAX_EVENTS_PER_APPEND + 1];
    assert!(matches!(append_in_tx(&mut conn, &many).await, Err(OutboxError::TooManyEvents { .. })));
    assert!(matches!(append_in_tx(&mut conn, &[event(Uuid::now_v7(), 0)]).await, Err(OutboxError::Db(_))));
    big.payload.pop();
    append_in_tx(&mut conn, &[big]).await.expect("the most that is allowed");
    let kept: i64 =
        sqlx::query_scalar("SELECT count(*) FROM outbox.event").fetch_one(&mut *conn).await.expect("n");
    assert_eq!(kept, 1);
}

#[sqlx::test(migrations = false)]
async fn ticker_lag_tells_what_is_in_no_window(superuser: PgPool) {
    let db = app(&superuser).await;
    let mut conn = db.conn().await.expect("connection");
    append_alone(&db, &[event(Uuid::now_v7(), 1)]).await;
    let mut old = held(&superuser).await;
    append(&mut old, &[event(Uuid::now_v7(), 1)]).await;
    let first = append_alone(&db, &[event(Uuid::now_v7(), 1)]).await;
    tick_until(&db, &first).await;
    assert_eq!(
        tallystick_outbox::ticker_lag_seconds(&mut conn).await.expect("lag"),
        0,
        "an open one is not late"
    );
    commit(old).await;
    let end = std::time::Instant::now() + WAIT;
    while tallystick_outbox::ticker_lag_seconds(&mut conn).await.expect("lag") < 1 {
        assert!(std::time::Instant::now() < end, "the late writer's event waits for a window");
    }
}
