//! Planting: SQL as superuser with the guards switched off, then the whole report compared.

use std::collections::BTreeMap;

use sqlx::AssertSqlSafe;
use tallystick_payments::verify::Status;

use super::fixture::{AMOUNT, Fixture, exceptions, verified};
use crate::support::db::TestDb;

/// Writes something that the product never would.
pub async fn plant(db: &TestDb, sql: &str) {
    let sql = format!("SET session_replication_role = replica; {sql}");
    let mut admin = db.admin().await;
    sqlx::raw_sql(AssertSqlSafe(sql.clone()))
        .execute(&mut admin)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
}

/// SQL that runs while a table of the ledger takes changes, and leaves its guards as they were.
pub fn unguarded(table: &str, sql: &str) -> String {
    format!(
        "ALTER TABLE ledger.{table} DISABLE TRIGGER append_only; {sql};
         ALTER TABLE ledger.{table} ENABLE ALWAYS TRIGGER append_only;"
    )
}

/// SQL that changes entries of a journal and makes its hash fit again.
pub fn reposted(journal: &str, sql: &str) -> String {
    let hash = format!(
        "UPDATE ledger.journal j SET entries_hash = (
            SELECT sha256(convert_to('v1' || chr(10) || string_agg(
                e.account_id || '|' || e.currency || '|' || e.direction || '|' || e.amount_minor || chr(10), ''
                ORDER BY e.account_id, e.direction COLLATE \"C\", e.amount_minor), 'UTF8'))
              FROM ledger.entry e WHERE e.journal_id = j.id)
          WHERE j.journal_id = {journal}"
    );
    unguarded("entry", sql) + &unguarded("journal", &hash)
}

/// SQL for one more move of a `payment` or `payout`, told as the product tells it.
pub fn moved(object: &str, name: &str, version: i32, status: &str) -> String {
    format!("INSERT INTO payments.history VALUES ('{{{name}}}', {version}, '{status}', now(), 'operator');")
        + &told(object, name, version, status)
}

/// SQL for the event of a move of a `payment` or `payout`, as the product tells it.
pub fn told(object: &str, name: &str, version: i32, status: &str) -> String {
    format!(
        r#"INSERT INTO outbox.event (event_id, tenant_id, aggregate, aggregate_id, version, type, payload)
           SELECT e.id, '{{tenant}}', '{object}', '{{{name}}}', {version}, '{object}.{status}', convert_to(format(
                  '{{"type":"{object}.{status}","event_id":"%s","{object}_id":"{{{name}}}","status":"{status}","amount":"12.34","amount_minor":{AMOUNT},"currency":"EUR","sequence":{version}}}',
                  e.id), 'UTF8')
             FROM gen_random_uuid() AS e(id);"#
    )
}

/// SQL that changes the text of an object's event.
pub fn retold(name: &str, version: i32, from: &str, to: &str) -> String {
    format!(
        "UPDATE outbox.event SET payload = convert_to(replace(convert_from(payload, 'UTF8'), '{from}', '{to}'), 'UTF8')
          WHERE aggregate_id = '{{{name}}}' AND version = {version};"
    )
}

/// The explained exceptions that the fixture always has: failed here, taken or paid out there, and a person knows.
pub fn known(fixture: &Fixture) -> BTreeMap<&'static str, (Status, Vec<String>)> {
    let mut late = ["late", "late payout"].map(|name| fixture.id(name).to_string());
    late.sort_unstable();
    BTreeMap::from([("I11", (Status::Explained, late.to_vec()))])
}

/// Plants and compares: these checks are violated by these ids, and everything else is as before.
/// `{name}` stands for the fixture's id of that name, in SQL and in ids.
pub async fn expect(fixture: &Fixture, sql: &str, violated: &[(&'static str, &[&str])]) {
    let copy = fixture.copy().await;
    let sql = fixture.sql(sql);
    plant(&copy, &sql).await;
    let report = verified(&copy, Some(&fixture.book())).await;
    let mut wanted = known(fixture);
    for (check, ids) in violated {
        let mut ids: Vec<String> = ids.iter().map(|id| fixture.sql(id)).collect();
        ids.sort_unstable();
        wanted.insert(check, (Status::Violated, ids));
    }
    assert_eq!(exceptions(&report), wanted, "{sql}");
    assert!(!report.ok, "{sql}");
}
