//! What is shown: forms and pages.

use serde_json::json;
use sqlx::PgPool;
use tallystick_ledger::{
    AccountKind, JournalStatus, LedgerError, NewAccount, NewJournal, account, account_entries, accounts,
    accounts_by_uuid_in_tx, journal, journals_of, open_account_in_tx,
};
use uuid::Uuid;

use crate::support::World;

#[sqlx::test(migrations = false)]
async fn accounts_are_opened_and_listed(pool: PgPool) {
    let world = World::new(pool).await;
    let mut conn = world.conn().await;
    let metadata = json!({"z": 1, "a": "\u{0}", "exact": 0.1});
    let new = NewAccount {
        account_id: Uuid::now_v7(),
        tenant_id: world.tenant,
        name: "Ada".to_owned(),
        kind: AccountKind::Liability,
        currency: "EUR".parse().unwrap(),
        minimum_minor: Some(0),
        metadata: Some(metadata.clone()),
    };
    let opened = open_account_in_tx(&mut conn, &new).await.unwrap();
    let shown = serde_json::to_value(&opened).unwrap();
    assert_eq!(
        shown,
        json!({"account_id": new.account_id, "name": "Ada", "kind": "liability", "currency": "EUR", "minimum_minor": 0,
               "metadata": metadata, "created_at": opened.created_at.to_string()})
    );
    assert_eq!(shown["metadata"].to_string(), metadata.to_string(), "members keep their order");
    assert!(
        matches!(open_account_in_tx(&mut conn, &new).await, Err(LedgerError::AccountTaken(id)) if id == new.account_id)
    );
    let above = NewAccount { account_id: Uuid::now_v7(), minimum_minor: Some(1), ..new.clone() };
    assert!(matches!(open_account_in_tx(&mut conn, &above).await, Err(LedgerError::MinimumRange)));

    let mut ids = vec![opened.account_id];
    for _ in 0..4 {
        ids.push(world.account(AccountKind::Asset, "EUR").await.account_id);
    }
    ids.reverse();
    let stranger = world.account_of(Uuid::new_v4(), AccountKind::Asset, "EUR", None).await;
    let mut cursor: Option<String> = None;
    let mut seen = Vec::new();
    loop {
        let page = accounts(&mut conn, world.tenant, cursor.as_deref(), 2).await.unwrap();
        assert!(page.data.len() <= 2);
        seen.extend(page.data.iter().map(|account| account.account_id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids);
    for bad in ["x", &stranger.account_id.to_string()] {
        assert!(
            matches!(accounts(&mut conn, world.tenant, Some(bad), 2).await, Err(LedgerError::BadCursor)),
            "{bad}"
        );
    }
    assert!(account(&mut conn, world.tenant, stranger.account_id).await.unwrap().is_none());
    let found =
        accounts_by_uuid_in_tx(&mut conn, world.tenant, &[ids[0], stranger.account_id]).await.unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), [&ids[0]]);
}

#[sqlx::test(migrations = false)]
async fn a_journal_is_shown_in_the_form_of_the_api(pool: PgPool) {
    let world = World::new(pool).await;
    let (cash, sales) =
        (world.account(AccountKind::Asset, "EUR").await, world.account(AccountKind::Revenue, "EUR").await);
    let source = Uuid::new_v4();
    let new = NewJournal {
        source,
        source_text: Some("invoice 7".to_owned()),
        metadata: Some(json!({"b": 1, "a": 2})),
        effective_at: Some("2026-01-02T03:04:05Z".parse().unwrap()),
        ..world.transfer(&cash, &sales, 1250)
    };
    world.post(new.clone()).await.unwrap();
    let second = NewJournal {
        kind: "fee",
        source,
        status: Some((JournalStatus::Pending, "test".to_owned())),
        corrects: Some(new.journal_id),
        ..world.transfer(&sales, &cash, 50)
    };
    world.post(second.clone()).await.unwrap();
    let mut conn = world.conn().await;
    let shown = journal(&mut conn, world.tenant, new.journal_id).await.unwrap().unwrap();
    assert_eq!(
        serde_json::to_value(&shown).unwrap(),
        json!({
            "journal_id": new.journal_id, "kind": "manual", "source": "invoice 7", "status": "settled", "description": "test",
            "metadata": {"b": 1, "a": 2},
            "entries": [
                {"account_id": cash.account_id, "account_name": "asset EUR", "direction": "D", "amount": "12.50", "amount_minor": 1250, "currency": "EUR"},
                {"account_id": sales.account_id, "account_name": "revenue EUR", "direction": "C", "amount": "12.50", "amount_minor": 1250, "currency": "EUR"},
            ],
            "recorded_at": shown.recorded_at.to_string(), "effective_at": "2026-01-02T03:04:05Z", "corrects": null,
        })
    );
    assert!(journal(&mut conn, Uuid::new_v4(), new.journal_id).await.unwrap().is_none());

    let both = journals_of(&mut conn, world.tenant, &[source, Uuid::new_v4()]).await.unwrap();
    assert_eq!(both.iter().map(|j| j.journal_id).collect::<Vec<_>>(), [new.journal_id, second.journal_id]);
    assert_eq!((both[1].status, both[1].corrects), (JournalStatus::Pending, Some(new.journal_id)));
    assert_eq!((both[1].source.clone(), both[1].effective_at), (source.to_string(), both[1].recorded_at));
    assert!(journals_of(&mut conn, Uuid::new_v4(), &[source]).await.unwrap().is_empty());
}

#[sqlx::test(migrations = false)]
async fn an_accounts_entries_come_in_pages(pool: PgPool) {
    let world = World::new(pool).await;
    let (cash, sales) =
        (world.account(AccountKind::Asset, "EUR").await, world.account(AccountKind::Revenue, "EUR").await);
    // Batches share a mark; pages must cut inside of them.
    for batch in 0..3 {
        let journals = (0..3).map(|n| world.transfer(&cash, &sales, batch * 3 + n + 1)).collect();
        world.post_all(journals).await.unwrap();
    }
    let mut conn = world.conn().await;
    let mut cursor: Option<String> = None;
    let mut amounts = Vec::new();
    loop {
        let page = account_entries(&mut conn, world.tenant, cash.account_id, cursor.as_deref(), 2)
            .await
            .unwrap()
            .unwrap();
        amounts.extend(page.data.iter().map(|entry| entry.amount_minor));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    // Newest transaction first, each entry once.
    assert_eq!(amounts.iter().map(|minor| (minor - 1) / 3).collect::<Vec<_>>(), [2, 2, 2, 1, 1, 1, 0, 0, 0]);
    amounts.sort_unstable();
    assert_eq!(amounts, (1..=9).collect::<Vec<_>>());
    for bad in ["", "x.1", &format!("{}.1", Uuid::new_v4()), &format!("{}.99", Uuid::new_v4())] {
        let page = account_entries(&mut conn, world.tenant, cash.account_id, Some(bad), 2).await;
        assert!(matches!(page, Err(LedgerError::BadCursor)), "{bad}");
    }
    assert!(account_entries(&mut conn, Uuid::new_v4(), cash.account_id, None, 2).await.unwrap().is_none());
}
