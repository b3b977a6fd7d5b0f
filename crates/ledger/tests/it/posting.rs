//! Posting: repeats, conflicts, batches, twins, system accounts, reversals.

use std::collections::HashSet;

use futures_util::future::join_all;
use sqlx::PgPool;
use tallystick_ledger::{
    AccountCache, AccountKind, Direction, JournalStatus, LedgerError, NewJournal, SystemAccount, post_in_tx,
    reverse_in_tx, system_accounts_in_tx,
};
use uuid::Uuid;

use crate::support::{World, entry, journal, sql, until};

async fn count(world: &World, table: &'static str) -> i64 {
    let query = match table {
        "journal" => "SELECT count(*) FROM ledger.journal",
        _ => "SELECT count(*) FROM ledger.entry",
    };
    sqlx::query_scalar(query).fetch_one(&world.app).await.unwrap()
}

#[sqlx::test(migrations = false)]
async fn the_same_source_is_posted_once_and_other_content_is_a_conflict(pool: PgPool) {
    let world = World::new(pool).await;
    let (cash, sales) =
        (world.account(AccountKind::Asset, "EUR").await, world.account(AccountKind::Revenue, "EUR").await);
    let first = journal(
        world.tenant,
        vec![
            entry(&cash, Direction::Debit, 60),
            entry(&cash, Direction::Debit, 40),
            entry(&sales, Direction::Credit, 100),
        ],
    );
    let posted = world.post(first.clone()).await.unwrap();
    assert_eq!((posted.journal_id, posted.already), (first.journal_id, false));

    let mut again = NewJournal { journal_id: Uuid::now_v7(), ..first.clone() };
    again.entries.reverse();
    let repeat = world.post(again.clone()).await.unwrap();
    assert_eq!((repeat.journal_id, repeat.already), (first.journal_id, true));
    let same_id = world.post(first.clone()).await.unwrap();
    assert_eq!((same_id.journal_id, same_id.already), (first.journal_id, true));

    again.entries[0].amount_minor = 99;
    again.entries.truncate(1);
    again.entries.push(entry(&cash, Direction::Debit, 99));
    let error = world.post(again.clone()).await.unwrap_err();
    assert!(
        matches!(&error, LedgerError::Conflict { kind, source_id } if kind == "manual" && *source_id == first.source),
        "{error}"
    );

    // Another ordinal, kind or tenant is another journal.
    let other = NewJournal { ordinal: 1, ..again.clone() };
    assert!(!world.post(other).await.unwrap().already);
    let other = NewJournal { kind: "correction", journal_id: Uuid::now_v7(), ..again };
    assert!(!world.post(other).await.unwrap().already);
    assert_eq!((count(&world, "journal").await, count(&world, "entry").await), (3, 7));

    // An id that stands under another source.
    let taken = NewJournal { source: Uuid::new_v4(), ..first.clone() };
    assert!(
        matches!(world.post(taken).await, Err(LedgerError::JournalIdTaken(id)) if id == first.journal_id)
    );
}

#[sqlx::test(migrations = false)]
async fn refusals_come_before_anything_is_written(pool: PgPool) {
    let world = World::new(pool).await;
    let (cash, sales) =
        (world.account(AccountKind::Asset, "EUR").await, world.account(AccountKind::Revenue, "EUR").await);
    let theirs = world.account_of(Uuid::new_v4(), AccountKind::Revenue, "EUR", None).await;
    let mut uneven = world.transfer(&cash, &sales, 100);
    uneven.entries[1].amount_minor = 99;
    let good = world.transfer(&cash, &sales, 100);
    assert!(matches!(
        world.post_all(vec![good, uneven]).await,
        Err(LedgerError::Unbalanced { debit: 100, credit: 99, .. })
    ));
    assert!(matches!(world.post(world.transfer(&cash, &sales, 0)).await, Err(LedgerError::AmountRange)));
    assert!(matches!(world.post(world.transfer(&cash, &theirs, 1)).await, Err(LedgerError::OtherTenant)));
    assert!(matches!(world.post(journal(world.tenant, vec![])).await, Err(LedgerError::TooFewEntries)));
    assert_eq!(world.post_all(vec![]).await.unwrap(), vec![]);
    // A handle that no longer fits its account, which only a superuser can bring about.
    let stale = world.account(AccountKind::Revenue, "EUR").await;
    let mut admin = world.admin.acquire().await.unwrap();
    let change = format!(
        "BEGIN; SET LOCAL session_replication_role = replica;
         UPDATE ledger.account SET currency = 'USD' WHERE account_id = '{}'; COMMIT",
        stale.account_id
    );
    sql(&mut admin, &change).await.unwrap();
    assert!(matches!(world.post(world.transfer(&cash, &stale, 1)).await, Err(LedgerError::CurrencyMismatch)));
    assert_eq!(count(&world, "journal").await, 0);
}

#[sqlx::test(migrations = false)]
async fn a_batch_of_500_is_one_call_and_knows_its_repeats(pool: PgPool) {
    let world = World::new(pool).await;
    let (cash, sales) =
        (world.account(AccountKind::Asset, "EUR").await, world.account(AccountKind::Revenue, "EUR").await);
    let mut batch: Vec<NewJournal> = (1..=500).map(|minor| world.transfer(&cash, &sales, minor)).collect();
    let posted = world.post_all(batch.clone()).await.unwrap();
    for (asked, got) in batch.iter().zip(&posted) {
        assert_eq!((got.journal_id, got.already), (asked.journal_id, false));
    }
    assert_eq!(world.plain_balance(&cash).await, 500 * 501 / 2);

    // Half of it again under new ids, some new ones, and one source twice in the batch.
    for journal in &mut batch {
        journal.journal_id = Uuid::now_v7();
    }
    batch.truncate(250);
    batch.push(world.transfer(&cash, &sales, 7));
    batch.push(NewJournal { journal_id: Uuid::now_v7(), ..batch[250].clone() });
    let again = world.post_all(batch.clone()).await.unwrap();
    for (first, repeat) in posted.iter().zip(&again[..250]) {
        assert_eq!((repeat.journal_id, repeat.already), (first.journal_id, true));
    }
    assert_eq!((again[250].journal_id, again[250].already), (batch[250].journal_id, false));
    assert_eq!((again[251].journal_id, again[251].already), (batch[250].journal_id, true));
    assert_eq!(count(&world, "journal").await, 501);

    batch[251] = NewJournal { entries: batch[0].entries.clone(), ..batch[251].clone() };
    assert!(matches!(world.post_all(batch).await, Err(LedgerError::Conflict { .. })));

    // More than one statement's worth.
    let many: Vec<NewJournal> = (0..2_100).map(|_| world.transfer(&cash, &sales, 1)).collect();
    assert!(world.post_all(many).await.unwrap().iter().all(|posted| !posted.already));
    assert_eq!(count(&world, "entry").await, 2 * (501 + 2_100));
}

/// C086: twins race for one source; every answer names a row that stands.
#[sqlx::test(migrations = false)]
async fn c086_twins_get_the_same_journal(pool: PgPool) {
    let world = World::new(pool).await;
    let (cash, sales) =
        (world.account(AccountKind::Asset, "EUR").await, world.account(AccountKind::Revenue, "EUR").await);
    for round in 0..10 {
        let first = world.transfer(&cash, &sales, 100);
        // Even rounds: the same id too, as when a request is sent again.
        let twin = |n| {
            if (round + n) % 2 == 0 {
                first.clone()
            } else {
                NewJournal { journal_id: Uuid::now_v7(), ..first.clone() }
            }
        };
        let posted = join_all((0..16).map(|n| world.post(twin(n)))).await;
        let posted: Vec<_> = posted.into_iter().map(Result::unwrap).collect();
        assert_eq!(posted.iter().filter(|posted| !posted.already).count(), 1);
        assert_eq!(posted.iter().map(|posted| posted.journal_id).collect::<HashSet<_>>().len(), 1);
    }
    assert_eq!(count(&world, "journal").await, 10);
}

/// C086: 50 connections post at once; as many rows as answers.
#[sqlx::test(migrations = false)]
async fn c086_every_answer_has_a_row(pool: PgPool) {
    let world = World::new(pool).await;
    let (cash, sales) =
        (world.account(AccountKind::Asset, "EUR").await, world.account(AccountKind::Revenue, "EUR").await);
    let poster = || async {
        let mut ids = Vec::new();
        for _ in 0..20 {
            ids.push(world.post(world.transfer(&cash, &sales, 1)).await.unwrap().journal_id);
        }
        ids
    };
    let ids: Vec<Uuid> = join_all((0..50).map(|_| poster())).await.into_iter().flatten().collect();
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM ledger.journal WHERE journal_id = ANY($1)")
        .bind(&ids)
        .fetch_one(&world.app)
        .await
        .unwrap();
    assert_eq!((rows, count(&world, "journal").await, world.plain_balance(&cash).await), (1000, 1000, 1000));
}

/// Batches with the same sources in opposite orders wait for each other instead of deadlocking.
#[sqlx::test(migrations = false)]
async fn batches_in_any_order_do_not_deadlock(pool: PgPool) {
    let world = World::new(pool).await;
    let (cash, sales) =
        (world.account(AccountKind::Asset, "EUR").await, world.account(AccountKind::Revenue, "EUR").await);
    for _ in 0..10 {
        let forth: Vec<NewJournal> = (0..40).map(|_| world.transfer(&cash, &sales, 1)).collect();
        let back: Vec<NewJournal> = forth.iter().rev().cloned().collect();
        // One run each: a deadlock would be an error here, not something that is tried again.
        let once = async |batch: &[NewJournal]| {
            let mut conn = world.conn().await;
            sql(&mut conn, "BEGIN").await.unwrap();
            let posted = post_in_tx(&mut conn, batch).await.unwrap();
            sql(&mut conn, "COMMIT").await.unwrap();
            posted.iter().filter(|posted| !posted.already).count()
        };
        let new = join_all([once(&forth), once(&back), once(&forth), once(&back)]).await;
        assert_eq!(new.iter().sum::<usize>(), 40, "{new:?}");
    }
}

fn system(world: &World, key: &str) -> SystemAccount {
    SystemAccount {
        tenant_id: world.tenant,
        key: key.to_owned(),
        name: "sales",
        kind: AccountKind::Revenue,
        currency: "EUR".parse().unwrap(),
    }
}

#[sqlx::test(migrations = false)]
async fn system_accounts_are_made_once_and_cached_only_when_committed(pool: PgPool) {
    let world = World::new(pool).await;
    let cache = AccountCache::default();
    let wanted =
        [system(&world, "gateway/sales"), system(&world, "gateway/refunds"), system(&world, "gateway/sales")];
    let mut conn = world.conn().await;
    sql(&mut conn, "BEGIN").await.unwrap();
    assert_eq!(system_accounts_in_tx(&mut conn, &cache, &wanted).await.unwrap().len(), 2);
    // The same transaction sees its own rows again, yet they may be rolled back.
    assert_eq!(system_accounts_in_tx(&mut conn, &cache, &wanted).await.unwrap().len(), 2);
    sql(&mut conn, "ROLLBACK").await.unwrap();

    sql(&mut conn, "BEGIN").await.unwrap();
    let made = system_accounts_in_tx(&mut conn, &cache, &wanted).await.unwrap();
    let entries: Vec<_> = made
        .values()
        .zip([Direction::Debit, Direction::Credit])
        .map(|(account, direction)| tallystick_ledger::NewEntry {
            account: *account,
            direction,
            amount_minor: 5,
        })
        .collect();
    post_in_tx(&mut conn, &[journal(world.tenant, entries)]).await.unwrap();
    sql(&mut conn, "COMMIT").await.unwrap();

    // Once they are cached, no statement is needed: it works where every statement would fail.
    until("the accounts are cached", || async {
        let mut conn = world.conn().await;
        assert_eq!(system_accounts_in_tx(&mut conn, &cache, &wanted).await.unwrap(), made);
        sql(&mut conn, "BEGIN").await.unwrap();
        sql(&mut conn, "SELECT 1 / 0").await.unwrap_err();
        let cached = system_accounts_in_tx(&mut conn, &cache, &wanted).await;
        sql(&mut conn, "ROLLBACK").await.unwrap();
        cached.is_ok_and(|cached| cached == made).then_some(())
    })
    .await;
}

#[sqlx::test(migrations = false)]
async fn system_accounts_race_without_deadlock(pool: PgPool) {
    let world = World::new(pool).await;
    let make = |reversed: bool| {
        let mut wanted: Vec<_> = (0..20).map(|n| system(&world, &format!("gateway/{n}"))).collect();
        if reversed {
            wanted.reverse();
        }
        let world = &world;
        async move {
            let mut conn = world.conn().await;
            sql(&mut conn, "BEGIN").await.unwrap();
            let made = system_accounts_in_tx(&mut conn, &AccountCache::default(), &wanted).await.unwrap();
            sql(&mut conn, "COMMIT").await.unwrap();
            made
        }
    };
    let made = join_all((0..12).map(|n| make(n % 2 == 0))).await;
    assert_eq!(made[0].len(), 20);
    assert!(made.iter().all(|other| *other == made[0]));
}

#[sqlx::test(migrations = false)]
async fn a_journal_is_reversed_once(pool: PgPool) {
    let world = World::new(pool).await;
    let (cash, customer) = (world.account(AccountKind::Asset, "EUR").await, world.customer().await);
    let funded = world.post(world.transfer(&cash, &customer, 1000)).await.unwrap().journal_id;
    let reverse = |id: Uuid| {
        let tenant = world.tenant;
        world.db.tx("test.reverse", move |conn| {
            Box::pin(async move { reverse_in_tx(conn, tenant, id, "booked twice", None).await })
        })
    };
    let both = join_all((0..8).map(|_| reverse(funded))).await;
    let both: Vec<_> = both.into_iter().map(Result::unwrap).collect();
    assert_eq!(both.iter().filter(|posted| !posted.already).count(), 1);
    assert_eq!(both.iter().map(|posted| posted.journal_id).collect::<HashSet<_>>().len(), 1);
    assert_eq!((world.plain_balance(&cash).await, world.plain_balance(&customer).await), (0, 0));
    let mut conn = world.conn().await;
    let shown =
        tallystick_ledger::journal(&mut conn, world.tenant, both[0].journal_id).await.unwrap().unwrap();
    assert_eq!((shown.kind.as_str(), shown.corrects), ("correction", Some(funded)));
    assert_eq!((shown.description.as_str(), shown.source), ("booked twice", funded.to_string()));
    assert_eq!(shown.entries[0].direction, Direction::Credit);

    // A reversal can be reversed, also once.
    assert!(!reverse(both[0].journal_id).await.unwrap().already);
    assert!(reverse(both[0].journal_id).await.unwrap().already);
    assert_eq!(world.plain_balance(&customer).await, 1000);

    assert!(matches!(reverse(Uuid::new_v4()).await, Err(LedgerError::UnknownJournal(_))));
    let stranger = reverse_in_tx(&mut conn, Uuid::new_v4(), funded, "not theirs", None).await;
    assert!(matches!(stranger, Err(LedgerError::UnknownJournal(_))));

    // What was spent since cannot be taken back below the minimum.
    let second = world.post(world.transfer(&cash, &customer, 500)).await.unwrap().journal_id;
    world.post(world.transfer(&customer, &cash, 1200)).await.unwrap();
    assert!(matches!(
        reverse(second).await,
        Err(LedgerError::MinimumBalance { balance_minor: 300, minimum_minor: 0, .. })
    ));

    let mut pending = world.transfer(&customer, &cash, 10);
    pending.status = Some((JournalStatus::Pending, "claimed".to_owned()));
    let pending = world.post(pending).await.unwrap().journal_id;
    assert!(matches!(
        reverse(pending).await,
        Err(LedgerError::NotReversible { status: JournalStatus::Pending, .. })
    ));
}
