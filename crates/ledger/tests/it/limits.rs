//! Accounts with a minimum.

use futures_util::future::join_all;
use sqlx::PgPool;
use tallystick_ledger::{
    AccountKind, AccountRef, Direction, LedgerError, NewJournal, lock_limited_in_tx, post_in_tx,
};
use uuid::Uuid;

use crate::support::{World, entry, journal, sql};

/// Two racing connections, funds for 50 of 100, one journal at a time.
#[sqlx::test(migrations = false)]
async fn two_connections_do_not_spend_the_same_money(pool: PgPool) {
    let world = World::new(pool).await;
    let bank = world.account(AccountKind::Asset, "EUR").await;
    for _ in 0..10 {
        let customer = world.customer().await;
        world.post(world.transfer(&bank, &customer, 500)).await.unwrap();
        let spend = || async {
            let mut done = 0;
            for _ in 0..50 {
                match world.post_within(world.transfer(&customer, &bank, 10)).await {
                    Ok(posted) => done += i32::from(!posted.already),
                    Err(LedgerError::MinimumBalance { account_id, minimum_minor: 0, balance_minor: 0 }) => {
                        assert_eq!(account_id, customer.account_id);
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            done
        };
        let (one, two) = tokio::join!(spend(), spend());
        assert_eq!((one + two, world.plain_balance(&customer).await), (50, 0));
    }
}

/// The same in batches, as whoever decides about many debits at once does it: lock, sum, take what fits.
#[sqlx::test(migrations = false)]
async fn two_batches_do_not_spend_the_same_money(pool: PgPool) {
    let world = World::new(pool).await;
    let bank = world.account(AccountKind::Asset, "EUR").await;
    let others = [world.customer().await, world.customer().await];
    for other in &others {
        world.post(world.transfer(&bank, other, 1_000_000)).await.unwrap();
    }
    for _ in 0..20 {
        let customer = world.customer().await;
        world.post(world.transfer(&bank, &customer, 500)).await.unwrap();
        let batch = |reversed: bool| {
            let mut debits: Vec<_> = (0..100)
                .map(|n| (if n % 2 == 0 { &customer } else { &others[n % 3 % 2] }, 10))
                .map(|(from, minor)| world.transfer(from, &bank, minor))
                .collect();
            if reversed {
                debits.reverse();
            }
            world.db.tx::<usize, LedgerError, _>("test.batch", move |conn| {
                let debits = debits.clone();
                Box::pin(async move {
                    let accounts: Vec<AccountRef> =
                        debits.iter().map(|debit| debit.entries[0].account).collect();
                    let mut limited = lock_limited_in_tx(conn, &accounts).await?;
                    let mut fits = Vec::new();
                    for debit in debits {
                        let state =
                            limited.get_mut(&debit.entries[0].account).expect("every source is limited");
                        if state.take(Direction::Debit, debit.entries[0].amount_minor)? {
                            fits.push(debit);
                        }
                    }
                    Ok(post_in_tx(conn, &fits).await?.len())
                })
            })
        };
        let (one, two) = tokio::join!(batch(false), batch(true));
        // 50 of each batch come from accounts with plenty; of the other 100 in all, 50 fit.
        assert_eq!((one.unwrap() + two.unwrap(), world.plain_balance(&customer).await), (150, 0));
    }
}

/// C085: hot accounts in both directions at once. Nobody sees a deadlock, and all is posted.
#[sqlx::test(migrations = false)]
async fn c085_hot_accounts_do_not_deadlock(pool: PgPool) {
    let world = World::new(pool).await;
    let bank = world.account(AccountKind::Asset, "EUR").await;
    let (a, b, c) = (world.customer().await, world.customer().await, world.customer().await);
    for account in [&a, &b, &c] {
        world.post(world.transfer(&bank, account, 10_000)).await.unwrap();
    }
    let client = |n: usize| {
        let (from, to) = [(&a, &b), (&b, &a), (&a, &c)][n % 3];
        let world = &world;
        async move {
            for _ in 0..10 {
                // One run each: a deadlock is not tried again here.
                let mut conn = world.conn().await;
                sql(&mut conn, "BEGIN").await.unwrap();
                tallystick_ledger::post_within_limits_in_tx(&mut conn, &world.transfer(from, to, 1))
                    .await
                    .unwrap();
                sql(&mut conn, "COMMIT").await.unwrap();
            }
        }
    };
    join_all((0..64).map(client)).await;
    let balances =
        [world.plain_balance(&a).await, world.plain_balance(&b).await, world.plain_balance(&c).await];
    assert_eq!(balances, [10_000 - 220 - 210 + 210, 10_000 + 220 - 210, 10_000 + 210]);
}

#[sqlx::test(migrations = false)]
async fn a_repeat_is_answered_whatever_is_left(pool: PgPool) {
    let world = World::new(pool).await;
    let (bank, customer) = (world.account(AccountKind::Asset, "EUR").await, world.customer().await);
    world.post(world.transfer(&bank, &customer, 1000)).await.unwrap();
    let first = world.transfer(&customer, &bank, 1000);
    assert!(!world.post_within(first.clone()).await.unwrap().already);
    let again = world.post_within(NewJournal { journal_id: Uuid::now_v7(), ..first.clone() }).await.unwrap();
    assert_eq!((again.journal_id, again.already), (first.journal_id, true));
    let other = NewJournal { entries: world.transfer(&customer, &bank, 999).entries, ..first };
    assert!(matches!(world.post_within(other).await, Err(LedgerError::Conflict { .. })));
    assert!(matches!(
        world.post_within(world.transfer(&customer, &bank, 1)).await,
        Err(LedgerError::MinimumBalance { .. })
    ));
    // Adding is always possible, and what counts is what a journal does to an account in all.
    let wash = vec![
        entry(&customer, Direction::Debit, 50),
        entry(&customer, Direction::Credit, 50),
        entry(&customer, Direction::Credit, 5),
        entry(&bank, Direction::Debit, 5),
    ];
    world.post_within(journal(world.tenant, wash)).await.unwrap();
    assert_eq!(world.plain_balance(&customer).await, 5);
}

#[sqlx::test(migrations = false)]
async fn only_limited_accounts_are_locked(pool: PgPool) {
    let world = World::new(pool).await;
    let (bank, customer) = (world.account(AccountKind::Asset, "EUR").await, world.customer().await);
    let overdraft = world.account_of(world.tenant, AccountKind::Asset, "EUR", Some(-50)).await;
    world.post(world.transfer(&bank, &customer, 1000)).await.unwrap();
    let mut holder = world.conn().await;
    sql(&mut holder, "BEGIN").await.unwrap();
    let refs = [bank.account_ref(), customer.account_ref(), overdraft.account_ref(), customer.account_ref()];
    let limited = lock_limited_in_tx(&mut holder, &refs).await.unwrap();
    assert_eq!(limited.len(), 2);
    assert_eq!(limited[&customer.account_ref()].available_minor, 1000);
    assert_eq!(limited[&customer.account_ref()].account_id, customer.account_id);
    assert_eq!(
        (limited[&overdraft.account_ref()].available_minor, limited[&overdraft.account_ref()].minimum_minor),
        (0, -50)
    );
    assert!(lock_limited_in_tx(&mut holder, &[]).await.unwrap().is_empty());

    // Posting goes on beside the lock; deciding about the locked account waits.
    let mut other = world.conn().await;
    sql(&mut other, "SET lock_timeout = '200ms'").await.unwrap();
    post_in_tx(&mut other, &[world.transfer(&bank, &customer, 1)]).await.unwrap();
    assert_eq!(lock_limited_in_tx(&mut other, &[bank.account_ref()]).await.unwrap().len(), 0);
    let waits = lock_limited_in_tx(&mut other, &[customer.account_ref()]).await.unwrap_err();
    assert!(matches!(&waits, LedgerError::Db(error) if error.is_lock_timeout()), "{waits}");
    sql(&mut other, "RESET lock_timeout").await.unwrap();
    sql(&mut holder, "ROLLBACK").await.unwrap();
    drop(holder);
    // An overdraft is used up to its minimum.
    world.post_within(world.transfer(&bank, &overdraft, 50)).await.unwrap();
    assert!(matches!(
        world.post_within(world.transfer(&bank, &overdraft, 1)).await,
        Err(LedgerError::MinimumBalance { balance_minor: -50, .. })
    ));
}
