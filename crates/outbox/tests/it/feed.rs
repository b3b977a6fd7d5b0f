//! Pages.

use sqlx::PgPool;
use tallystick_outbox::{Cursor, CursorError, OutboxError, events_of, page};
use uuid::Uuid;

use crate::common::*;

/// A feed of many windows, small and large, two of them with late transactions.
async fn story(superuser: &PgPool, db: &tallystick_runner::Db) -> Vec<tallystick_outbox::StoredEvent> {
    let mut written = Vec::new();
    for round in 0..3 {
        let mut late = held(superuser).await;
        let of_late: Vec<_> = (0..7).map(|_| event(Uuid::now_v7(), 1)).collect();
        append(&mut late, &of_late[..4]).await;
        for size in [1, 5, 40] {
            let events: Vec<_> = (0..size).map(|_| event(Uuid::now_v7(), 1)).collect();
            written.extend(append_alone(db, &events).await);
            tick_until(db, &written).await;
        }
        append(&mut late, &of_late[4..]).await;
        commit(late).await;
        written.extend(of_late.iter().map(|e| e.event_id));
        if round == 1 {
            tick_until(db, &written).await;
        }
    }
    let all = tick_until(db, &written).await;
    assert_eq!(all.len(), written.len());
    all
}

#[sqlx::test(migrations = false)]
async fn pages_of_any_size_tell_the_same_story(superuser: PgPool) {
    let db = app(&superuser).await;
    let all = story(&superuser, &db).await;
    assert_story(&all);
    assert!(all.iter().any(|e| e.cursor.window > 5));
    for limit in [1, 2, 3, 7, 50, 1000] {
        let (read, end) = read_from(&db, None, Cursor::start(), limit).await;
        assert_eq!(read, all, "limit {limit}");
        assert_eq!(Some(end), all.last().map(|e| e.cursor));
        let (read, _) = read_from(&db, Some(tenant()), Cursor::start(), limit).await;
        assert_eq!(read, all, "limit {limit}, one tenant");
    }
    // From each position on, by its text, the rest follows; the same position gives the same page.
    let mut conn = db.conn().await.expect("connection");
    for (i, e) in all.iter().enumerate().step_by(13) {
        let at: Cursor = e.cursor.to_string().parse().expect("cursor");
        assert_eq!(read_from(&db, None, at, 11).await.0, all[i + 1..]);
        let twice = [
            page(&mut conn, None, at, 5).await.expect("page"),
            page(&mut conn, None, at, 5).await.expect("page"),
        ];
        assert_eq!(twice[0], twice[1]);
    }
}

#[sqlx::test(migrations = false)]
async fn the_position_is_good_at_the_start_and_at_the_end(superuser: PgPool) {
    let db = app(&superuser).await;
    let mut conn = db.conn().await.expect("connection");
    let empty = page(&mut conn, None, Cursor::start(), 10).await.expect("page");
    assert_eq!((empty.events.len(), empty.next), (0, Cursor::start()));
    let first = append_alone(&db, &[event(Uuid::now_v7(), 1)]).await;
    tick_until(&db, &first).await;
    assert_eq!(ids(&page(&mut conn, None, empty.next, 10).await.expect("page").events), first);
    let (_, end) = read_from(&db, None, Cursor::start(), 10).await;
    for _ in 0..3 {
        let at_end = page(&mut conn, None, end, 10).await.expect("page");
        assert_eq!((at_end.events.len(), at_end.next), (0, end));
    }
    let second = append_alone(&db, &[event(Uuid::now_v7(), 1)]).await;
    tick_until(&db, &second).await;
    assert_eq!(ids(&page(&mut conn, None, end, 10).await.expect("page").events), second);
    // Limits outside of the range are moved into it.
    for limit in [i64::MIN, 0, 1] {
        assert_eq!(page(&mut conn, None, Cursor::start(), limit).await.expect("page").events.len(), 1);
    }
    assert_eq!(page(&mut conn, None, Cursor::start(), i64::MAX).await.expect("page").events.len(), 2);
}

#[sqlx::test(migrations = false)]
async fn positions_of_another_feed_are_refused(superuser: PgPool) {
    let db = app(&superuser).await;
    let mut conn = db.conn().await.expect("connection");
    let first = append_alone(&db, &[event(Uuid::now_v7(), 1)]).await;
    let all = tick_until(&db, &first).await;
    let good = all[0].cursor;
    for (bad, why) in [
        (Cursor { window: good.window + 1, ..good }, CursorError::Ahead),
        (Cursor { window: i64::MAX, seq: i64::MAX, epoch: 0 }, CursorError::Ahead),
        (Cursor { epoch: good.epoch + 1, ..good }, CursorError::OtherEpoch),
    ] {
        match page(&mut conn, None, bad, 10).await {
            Err(OutboxError::Cursor(found)) => assert_eq!(found, why),
            other => panic!("{bad:?}: {other:?}"),
        }
    }
    let behind = Cursor { seq: i64::MAX, ..good };
    assert_eq!(page(&mut conn, None, behind, 10).await.expect("page").events, []);
}

#[sqlx::test(migrations = false)]
async fn c023_each_tenant_reads_its_own(superuser: PgPool) {
    let db = app(&superuser).await;
    let (many, few, none) = (Uuid::from_u128(11), Uuid::from_u128(12), Uuid::from_u128(13));
    let rare = event_of(few, Uuid::now_v7(), 1);
    let mut written = Vec::new();
    for i in 0..30 {
        let mut events: Vec<_> = (0..40).map(|_| event_of(many, Uuid::now_v7(), 1)).collect();
        if i == 29 {
            events.push(rare.clone());
        }
        written.extend(append_alone(&db, &events).await);
        tick(&db).await;
    }
    tick_until(&db, &written).await;
    assert_eq!(read_from(&db, Some(many), Cursor::start(), 100).await.0.len(), 1200);
    let (theirs, _) = read_from(&db, Some(few), Cursor::start(), 5).await;
    assert_eq!(ids(&theirs), [rare.event_id]);
    let (nothing, end) = read_from(&db, Some(none), Cursor::start(), 5).await;
    assert!(nothing.is_empty() && end.window > 0, "the position moves over what is not theirs");
    // A single call looks far beyond its limit, so that a quiet tenant does not page through everybody's events.
    let mut conn = db.conn().await.expect("connection");
    let one = page(&mut conn, Some(few), Cursor::start(), 20).await.expect("page");
    assert_eq!(ids(&one.events), [rare.event_id]);

    let of = events_of(&mut conn, few, &[rare.aggregate_id, Uuid::now_v7()]).await.expect("events");
    assert_eq!(of.iter().map(|e| e.event_id).collect::<Vec<_>>(), [rare.event_id]);
    assert!(events_of(&mut conn, many, &[rare.aggregate_id]).await.expect("events").is_empty());
    assert!(events_of(&mut conn, few, &[]).await.expect("events").is_empty());
}

#[sqlx::test(migrations = false)]
async fn the_events_of_an_object_come_by_version_without_a_window(superuser: PgPool) {
    let db = app(&superuser).await;
    let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
    append_alone(&db, &[event(b, 1), event(a, 2), event(a, 1)]).await;
    let mut conn = db.conn().await.expect("connection");
    let of = events_of(&mut conn, tenant(), &[b, a]).await.expect("events");
    assert_eq!(of.iter().map(|e| (e.aggregate_id, e.version)).collect::<Vec<_>>(), [(a, 1), (a, 2), (b, 1)]);
}
