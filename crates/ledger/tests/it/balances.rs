//! Balances, checkpoints, trial balances.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use sqlx::PgPool;
use tallystick_ledger::{
    Account, AccountKind, Direction, JournalStatus, LedgerError, NewJournal, balance, checkpoint_step,
    set_status_in_tx, trial_balance,
};
use uuid::Uuid;

use crate::support::{World, entry, journal, plain_balance, sql, until};

/// Makes checkpoints until the account's last one covers everything that is posted.
async fn checkpoint_all(world: &World, account: &Account) {
    until("a checkpoint covers all entries", || async {
        let mut conn = world.conn().await;
        checkpoint_step(&mut conn, 0, 1000, 0).await.unwrap();
        let open: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM ledger.entry e JOIN ledger.account a ON a.id = e.account_id
              WHERE a.account_id = $1
                AND e.mark >= coalesce((SELECT max(horizon) FROM ledger.checkpoint c WHERE c.account_id = a.id), 0)",
        )
        .bind(account.account_id)
        .fetch_one(&mut *conn)
        .await
        .unwrap();
        (open == 0).then_some(())
    })
    .await;
}

/// Writers post, checkpoints are made, and every snapshot has balances equal to plain sums and a trial balance of zero.
#[sqlx::test(migrations = false)]
async fn every_snapshot_agrees_with_the_entries(pool: PgPool) {
    let world = World::new(pool).await;
    let mut accounts = Vec::new();
    for kind in [AccountKind::Asset, AccountKind::Liability, AccountKind::Revenue, AccountKind::Expense] {
        accounts.push(world.account(kind, "EUR").await);
    }
    let done = AtomicBool::new(false);
    let writer = |n: usize| {
        let (world, accounts) = (&world, &accounts);
        async move {
            for i in 0..60 {
                let (debit, credit) = (&accounts[(n + i) % 4], &accounts[(n + i + 1 + i % 3) % 4]);
                let mut one = world.transfer(debit, credit, i64::try_from(i).unwrap() + 1);
                if i % 3 == 0 {
                    one.status = Some((JournalStatus::Pending, "test".to_owned()));
                }
                world.post_all(vec![one, world.transfer(credit, debit, 2)]).await.unwrap();
            }
        }
    };
    let checkpointer = || async {
        let mut made = 0;
        let mut after = 0;
        while !done.load(Ordering::Relaxed) {
            let mut conn = world.conn().await;
            let (next, new) = checkpoint_step(&mut conn, after, 3, 2).await.unwrap();
            after = next;
            made += new;
        }
        made
    };
    let reader = || async {
        let mut reads = 0;
        while !done.load(Ordering::Relaxed) {
            let mut conn = world.conn().await;
            sql(&mut conn, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.unwrap();
            let trial = trial_balance(&mut conn, world.tenant, "EUR".parse().unwrap(), None).await.unwrap();
            assert_eq!(trial.debits_minor, trial.credits_minor);
            for (account, row) in accounts
                .iter()
                .map(|a| (a, trial.accounts.iter().find(|r| r.account_id == a.account_id).unwrap()))
            {
                let read = balance(&mut conn, world.tenant, account.account_id, None).await.unwrap().unwrap();
                let plain = plain_balance(&mut conn, account).await;
                assert_eq!((read.balance_minor, row.balance_minor), (plain, plain));
                assert_eq!(read.settled_minor + read.pending_minor, read.balance_minor);
            }
            sql(&mut conn, "COMMIT").await.unwrap();
            reads += 1;
        }
        reads
    };
    let writers = async {
        join_all((0..6).map(writer)).await;
        done.store(true, Ordering::Relaxed);
    };
    let ((), one, two, reads, more) =
        tokio::join!(writers, checkpointer(), checkpointer(), reader(), reader());
    assert!(reads + more > 0, "no snapshot was read");
    checkpoint_all(&world, &accounts[0]).await;
    for account in &accounts {
        assert_eq!(world.balance(account).await.balance_minor, world.plain_balance(account).await);
    }
    let mut conn = world.conn().await;
    let finding = tallystick_ledger::verify::checkpoints_match(&mut conn).await.unwrap();
    assert!(finding.held() && finding.checked >= one.max(two), "{finding:?}");
}

/// A lower mark that commits after a checkpoint was made is not lost.
#[sqlx::test(migrations = false)]
async fn a_late_commit_is_not_hidden_by_a_checkpoint(pool: PgPool) {
    let world = World::new(pool).await;
    let (cash, sales) =
        (world.account(AccountKind::Asset, "EUR").await, world.account(AccountKind::Revenue, "EUR").await);
    let mut late = world.conn().await;
    sql(&mut late, "BEGIN").await.unwrap();
    tallystick_ledger::post_in_tx(&mut late, &[world.transfer(&cash, &sales, 1)]).await.unwrap();
    for _ in 0..5 {
        world.post(world.transfer(&cash, &sales, 10)).await.unwrap();
    }
    // Everything is above the open transaction's mark: nothing is decided, no checkpoint is due.
    let mut conn = world.conn().await;
    assert_eq!(checkpoint_step(&mut conn, 0, 1000, 0).await.unwrap(), (0, 0));
    assert_eq!(world.balance(&cash).await.balance_minor, 50);
    sql(&mut late, "COMMIT").await.unwrap();
    drop(late);
    checkpoint_all(&world, &cash).await;
    assert_eq!(world.balance(&cash).await.balance_minor, 51);
    world.post(world.transfer(&cash, &sales, 9)).await.unwrap();
    assert_eq!(world.balance(&cash).await.balance_minor, 60);
}

#[sqlx::test(migrations = false)]
async fn checkpoints_go_through_the_accounts_in_pages(pool: PgPool) {
    let world = World::new(pool).await;
    let cash = world.account(AccountKind::Asset, "EUR").await;
    let mut quiet = Vec::new();
    for _ in 0..4 {
        quiet.push(world.account(AccountKind::Revenue, "EUR").await);
    }
    for to in &quiet {
        world.post(world.transfer(&cash, to, 10)).await.unwrap();
    }
    let step = |after: i64, threshold: i64| {
        let world = &world;
        async move { checkpoint_step(&mut *world.conn().await, after, 2, threshold).await.unwrap() }
    };
    // Four entries above nothing: due with a threshold of three, not of four.
    until("all is decided", || async { (step(0, 3).await.1 == 1).then_some(()) }).await;
    let (next, made) = step(0, 3).await;
    assert!(next > 0 && made == 0, "nothing new since");
    let mut after = next;
    let mut pages = 1;
    while after != 0 {
        after = step(after, 4).await.0;
        pages += 1;
    }
    assert_eq!(pages, 3, "five accounts in pages of two");
    let rows: i64 =
        sqlx::query_scalar("SELECT count(*) FROM ledger.checkpoint").fetch_one(&world.app).await.unwrap();
    assert_eq!(rows, 1);
}

#[sqlx::test(migrations = false)]
async fn balances_as_of_an_instant(pool: PgPool) {
    let world = World::new(pool).await;
    let (cash, sales) =
        (world.account(AccountKind::Asset, "EUR").await, world.account(AccountKind::Revenue, "EUR").await);
    let now = || async {
        let now: jiff_sqlx::Timestamp =
            sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&world.admin).await.unwrap();
        now.to_jiff()
    };
    let at = |when| {
        let (world, cash) = (&world, &cash);
        async move {
            let mut conn = world.conn().await;
            balance(&mut conn, world.tenant, cash.account_id, Some(when)).await.unwrap().unwrap()
        }
    };
    let before = now().await;
    let first = NewJournal {
        status: Some((JournalStatus::Pending, "test".to_owned())),
        effective_at: Some("2020-02-29T12:00:00Z".parse().unwrap()),
        ..world.transfer(&cash, &sales, 100)
    };
    world.post(first.clone()).await.unwrap();
    let between = now().await;
    checkpoint_all(&world, &cash).await;
    world.post(world.transfer(&cash, &sales, 20)).await.unwrap();
    let mut conn = world.conn().await;
    set_status_in_tx(&mut conn, &[(first.journal_id, JournalStatus::Settled, "test".to_owned())])
        .await
        .unwrap();
    let after = now().await;
    checkpoint_all(&world, &cash).await;
    world.post(world.transfer(&cash, &sales, 3)).await.unwrap();

    for (when, total, pending) in
        [(before, 0, 0), (between, 100, 100), (after, 120, 0), (now().await, 123, 0)]
    {
        let read = at(when).await;
        assert_eq!(
            (read.balance_minor, read.pending_minor, read.settled_minor),
            (total, pending, total - pending),
            "{when}"
        );
        assert_eq!(read.at, when);
        let trial = trial_balance(&mut conn, world.tenant, cash.currency, Some(when)).await.unwrap();
        assert_eq!((trial.debits_minor, trial.credits_minor), (total, total));
    }
    drop(conn);

    // A transaction that began earlier and is still open may yet add to an instant.
    let mut open = world.conn().await;
    sql(&mut open, "BEGIN").await.unwrap();
    sql(&mut open, "SELECT now()").await.unwrap();
    let during = now().await;
    until("nothing else is open", || async { at(after).await.complete.then_some(()) }).await;
    assert!(!at(during).await.complete);
    tallystick_ledger::post_in_tx(&mut open, &[world.transfer(&cash, &sales, 1000)]).await.unwrap();
    sql(&mut open, "COMMIT").await.unwrap();
    drop(open);
    until("nothing is open", || async { at(during).await.complete.then_some(()) }).await;
    assert_eq!(at(during).await.balance_minor, 1123);
    let future = during.checked_add(jiff::SignedDuration::from_hours(1)).unwrap();
    assert!(!at(future).await.complete);
    let nobody = balance(&mut *world.conn().await, Uuid::new_v4(), cash.account_id, None).await.unwrap();
    assert_eq!(nobody, None);
}

#[sqlx::test(migrations = false)]
async fn natural_sides_and_the_trial_balance(pool: PgPool) {
    let world = World::new(pool).await;
    let (asset, expense) =
        (world.account(AccountKind::Asset, "EUR").await, world.account(AccountKind::Expense, "EUR").await);
    let (liability, equity) =
        (world.account(AccountKind::Liability, "EUR").await, world.account(AccountKind::Equity, "EUR").await);
    let revenue = world.account(AccountKind::Revenue, "EUR").await;
    let (yen, loss) =
        (world.account(AccountKind::Asset, "JPY").await, world.account(AccountKind::Expense, "JPY").await);
    world
        .post(journal(
            world.tenant,
            vec![
                entry(&asset, Direction::Debit, 90),
                entry(&expense, Direction::Debit, 10),
                entry(&liability, Direction::Credit, 50),
                entry(&equity, Direction::Credit, 20),
                entry(&revenue, Direction::Credit, 30),
                // A second currency balances by itself.
                entry(&yen, Direction::Credit, 7),
                entry(&loss, Direction::Debit, 7),
            ],
        ))
        .await
        .unwrap();
    for (account, minor) in [
        (&asset, 90),
        (&expense, 10),
        (&liability, 50),
        (&equity, 20),
        (&revenue, 30),
        (&yen, -7),
        (&loss, 7),
    ] {
        assert_eq!(world.balance(account).await.balance_minor, minor, "{}", account.name);
    }
    let mut conn = world.conn().await;
    let trial = trial_balance(&mut conn, world.tenant, asset.currency, None).await.unwrap();
    assert_eq!((trial.debits_minor, trial.credits_minor, trial.accounts.len()), (100, 100, 5));
    assert_eq!(trial.accounts[0].name, "asset EUR");
    let strangers = trial_balance(&mut conn, Uuid::new_v4(), asset.currency, None).await.unwrap();
    assert_eq!((strangers.debits_minor, strangers.accounts.len()), (0, 0));
}

/// Sums that leave 64 bits are an error, never a wrong number.
#[sqlx::test(migrations = false)]
async fn sums_beyond_64_bits_are_an_error(pool: PgPool) {
    let world = World::new(pool).await;
    let (cash, sales) =
        (world.account(AccountKind::Asset, "EUR").await, world.account(AccountKind::Revenue, "EUR").await);
    let half = |side, account| (0..500).map(move |_| entry(account, side, tallystick_money::MAX_MINOR));
    let large: Vec<_> = (0..19)
        .map(|_| {
            journal(
                world.tenant,
                half(Direction::Debit, &cash).chain(half(Direction::Credit, &sales)).collect(),
            )
        })
        .collect();
    world.post_all(large[..18].to_vec()).await.unwrap();
    assert_eq!(world.balance(&cash).await.balance_minor, 18 * 500 * tallystick_money::MAX_MINOR);
    world.post_all(large[18..].to_vec()).await.unwrap();
    let mut conn = world.conn().await;
    let sum = balance(&mut conn, world.tenant, cash.account_id, None).await;
    assert!(matches!(sum, Err(LedgerError::Overflow)), "{sum:?}");
    let trial = trial_balance(&mut conn, world.tenant, cash.currency, None).await;
    assert!(matches!(trial, Err(LedgerError::Overflow)), "{trial:?}");
    checkpoint_all(&world, &cash).await;
}
