//! Statuses of journals and what they do to balances.

use futures_util::future::join_all;
use sqlx::PgPool;
use tallystick_ledger::{Account, AccountKind, JournalStatus, LedgerError, NewJournal, set_status_in_tx};
use uuid::Uuid;

use crate::support::{World, sql};

use JournalStatus::{Failed, Pending, Settled};

async fn say(world: &World, changes: Vec<(Uuid, JournalStatus)>) -> Result<(), LedgerError> {
    let changes: Vec<_> = changes.into_iter().map(|(id, status)| (id, status, "test".to_owned())).collect();
    world
        .db
        .tx("test.status", move |conn| {
            let changes = changes.clone();
            Box::pin(async move { set_status_in_tx(conn, &changes).await })
        })
        .await
}

/// Balance, pending, settled.
async fn three(world: &World, account: &Account) -> (i64, i64, i64) {
    let balance = world.balance(account).await;
    assert_eq!(balance.available_minor, balance.balance_minor);
    assert_eq!(balance.held_minor, 0);
    assert!(balance.complete);
    (balance.balance_minor, balance.pending_minor, balance.settled_minor)
}

fn pending(journal: NewJournal) -> NewJournal {
    NewJournal { status: Some((Pending, "claimed".to_owned())), ..journal }
}

#[sqlx::test(migrations = false)]
async fn pending_settled_and_failed_money(pool: PgPool) {
    let world = World::new(pool).await;
    let (bank, customer) = (world.account(AccountKind::Asset, "EUR").await, world.customer().await);
    world.post(world.transfer(&bank, &customer, 1000)).await.unwrap();
    assert_eq!(three(&world, &customer).await, (1000, 0, 1000));

    let debits: Vec<_> = [300, 200].map(|minor| pending(world.transfer(&customer, &bank, minor))).to_vec();
    world.post_all(debits.clone()).await.unwrap();
    assert_eq!(three(&world, &customer).await, (500, -500, 1000));
    assert_eq!(three(&world, &bank).await, (500, -500, 1000));
    // A repeat writes nothing, statuses included.
    assert!(world.post_all(debits.clone()).await.unwrap().iter().all(|posted| posted.already));

    say(&world, vec![(debits[0].journal_id, Settled)]).await.unwrap();
    assert_eq!(three(&world, &customer).await, (500, -200, 700));

    // Rejected: the mirror and both failed, in one transaction.
    let mut mirror = world.transfer(&bank, &customer, 200);
    mirror.kind = "reversed";
    mirror.status = Some((Failed, "reply".to_owned()));
    let failed = debits[1].journal_id;
    world
        .db
        .tx::<_, LedgerError, _>("test.reject", move |conn| {
            let mirror = mirror.clone();
            Box::pin(async move {
                tallystick_ledger::post_in_tx(conn, &[mirror]).await?;
                set_status_in_tx(conn, &[(failed, Failed, "reply".to_owned())]).await
            })
        })
        .await
        .unwrap();
    assert_eq!(three(&world, &customer).await, (700, 0, 700));

    // The same again is no change, the opposite is an error.
    say(&world, vec![(debits[0].journal_id, Settled), (debits[0].journal_id, Pending), (failed, Failed)])
        .await
        .unwrap();
    let conflict = say(&world, vec![(debits[0].journal_id, Failed)]).await;
    assert!(
        matches!(conflict, Err(LedgerError::StatusConflict { journal_id }) if journal_id == debits[0].journal_id)
    );
    assert!(matches!(say(&world, vec![(failed, Settled)]).await, Err(LedgerError::StatusConflict { .. })));
    assert_eq!(three(&world, &customer).await, (700, 0, 700));
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM ledger.pending_journal")
        .fetch_one(&world.app)
        .await
        .unwrap();
    assert_eq!(left, 0);
}

#[sqlx::test(migrations = false)]
async fn pending_is_said_when_the_journal_is_posted_or_never(pool: PgPool) {
    let world = World::new(pool).await;
    let (bank, customer) = (world.account(AccountKind::Asset, "EUR").await, world.customer().await);
    let posted = world.post(world.transfer(&bank, &customer, 1000)).await.unwrap();
    let late = say(&world, vec![(posted.journal_id, Pending)]).await;
    assert!(
        matches!(late, Err(LedgerError::PendingTooLate { journal_id }) if journal_id == posted.journal_id)
    );
    let nobody = Uuid::new_v4();
    assert!(
        matches!(say(&world, vec![(nobody, Settled)]).await, Err(LedgerError::UnknownJournal(id)) if id == nobody)
    );
    // Without a status it counts as settled: that may be said, and nothing else.
    say(&world, vec![(posted.journal_id, Settled)]).await.unwrap();
    assert!(matches!(
        say(&world, vec![(posted.journal_id, Pending)]).await,
        Err(LedgerError::PendingTooLate { .. })
    ));
    // What was never pending cannot fail, alone or beside another status in one call.
    let posted = world.post(world.transfer(&bank, &customer, 1)).await.unwrap();
    for said in [vec![Failed], vec![Settled, Failed]] {
        let said = said.into_iter().map(|status| (posted.journal_id, status)).collect();
        assert!(matches!(say(&world, said).await, Err(LedgerError::NeverPending { .. })));
    }
    say(&world, vec![]).await.unwrap();
    assert_eq!(three(&world, &customer).await, (1001, 0, 1001));

    // Before the journal has its entries there is nothing to be pending.
    let mut conn = world.conn().await;
    let early = "BEGIN;
        INSERT INTO ledger.journal (journal_id, tenant_id, kind, source, entry_count, entries_hash, description)
        VALUES ('00000000-0000-0000-0000-00000000000a', gen_random_uuid(), 'manual', gen_random_uuid(), 2, sha256(''), '');
        SELECT ledger.set_status('{00000000-0000-0000-0000-00000000000a}', '{pending}', '{x}')";
    let error = sql(&mut conn, early).await.unwrap_err();
    assert_eq!(error.constraint(), Some("journal_status_pending_first"));
    sql(&mut conn, "ROLLBACK").await.unwrap();
}

#[sqlx::test(migrations = false)]
async fn of_two_final_statuses_that_race_one_wins(pool: PgPool) {
    let world = World::new(pool).await;
    let (bank, customer) = (world.account(AccountKind::Asset, "EUR").await, world.customer().await);
    for _ in 0..10 {
        let batch: Vec<_> = (0..10).map(|_| pending(world.transfer(&bank, &customer, 10))).collect();
        world.post_all(batch.clone()).await.unwrap();
        let all = |status, reversed: bool| {
            let mut changes: Vec<_> = batch.iter().map(|journal| (journal.journal_id, status)).collect();
            if reversed {
                changes.reverse();
            }
            say(&world, changes)
        };
        let said =
            join_all([all(Settled, false), all(Failed, true), all(Settled, true), all(Failed, false)]).await;
        let won = said.iter().filter(|said| said.is_ok()).count();
        assert_eq!(won, 2, "the winner and its twin");
        assert_eq!(said[0].is_ok(), said[2].is_ok());
        let lost = said.into_iter().filter_map(Result::err);
        assert!(lost.into_iter().all(|error| matches!(error, LedgerError::StatusConflict { .. })));
    }
    assert_eq!(world.balance(&customer).await.pending_minor, 0);
}
