//! Hot statements use the indexes that were made for them.

use sqlx::{AssertSqlSafe, PgPool, Row as _};
use tallystick_ledger::{AccountKind, NewJournal};

use crate::support::{World, sql};

async fn plan(world: &World, prepared: &str, parameters: &str) -> String {
    let mut conn = world.conn().await;
    sql(&mut conn, &format!("PREPARE asked {prepared}")).await.unwrap();
    let rows = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN EXECUTE asked ({parameters})")))
        .fetch_all(&mut *conn)
        .await
        .unwrap();
    sql(&mut conn, "DEALLOCATE asked").await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

#[sqlx::test(migrations = false)]
async fn sums_and_look_ups_use_their_indexes(pool: PgPool) {
    let world = World::new(pool).await;
    let (cash, sales) =
        (world.account(AccountKind::Asset, "EUR").await, world.account(AccountKind::Revenue, "EUR").await);
    for _ in 0..5 {
        world
            .post_all((0..1000).map(|_| world.transfer(&cash, &sales, 1)).collect::<Vec<NewJournal>>())
            .await
            .unwrap();
    }
    let mut admin = world.admin.acquire().await.unwrap();
    sql(&mut admin, "VACUUM ANALYZE ledger.entry").await.unwrap();
    sql(&mut admin, "VACUUM ANALYZE ledger.journal").await.unwrap();
    sql(&mut admin, "VACUUM ANALYZE ledger.account").await.unwrap();

    let totals = plan(
        &world,
        "(bigint[]) AS SELECT id, debits, credits FROM ledger.account_total WHERE id = ANY($1)",
        "'{1,2}'",
    )
    .await;
    assert!(totals.contains("Index Only Scan using entry_account_mark"), "{totals}");
    assert!(!totals.contains("Seq Scan on entry"), "{totals}");

    let sources = plan(
        &world,
        "(uuid, uuid[]) AS SELECT id FROM ledger.journal WHERE tenant_id = $1 AND source = ANY($2)",
        "gen_random_uuid(), '{}'",
    )
    .await;
    assert!(sources.contains("journal_tenant_id_source_kind_ordinal_key"), "{sources}");

    let open =
        plan(&world, "(bigint) AS SELECT sum(debits) FROM ledger.pending_journal WHERE account_id = $1", "1")
            .await;
    assert!(open.contains("pending_journal_pkey"), "{open}");
}
