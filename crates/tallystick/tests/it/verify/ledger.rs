//! The rules of the ledger.

use super::fixture::Fixture;
use super::plant::{expect, reposted, unguarded};

/// A database id of a journal or an account, from its public one.
fn journal(name: &str) -> String {
    format!("(SELECT id FROM ledger.journal WHERE journal_id = '{{{name}}}')")
}

fn account(name: &str) -> String {
    format!("(SELECT id FROM ledger.account WHERE account_id = '{{{name}}}')")
}

#[tokio::test]
async fn journals_that_do_not_balance_or_are_not_full() {
    let fixture = Fixture::new().await;
    // One has a debit too much, the other a credit: together nothing is missing.
    let more = |name: &str, direction: char| {
        let id = journal(name);
        reposted(
            &format!("'{{{name}}}'"),
            &format!(
                "UPDATE ledger.entry SET amount_minor = amount_minor + 7 WHERE journal_id = {id} AND direction = '{direction}'"
            ),
        )
    };
    expect(&fixture, &(more("funding", 'D') + &more("owed", 'C')), &[("I1", &["{funding}", "{owed}"])]).await;
    let short = unguarded("journal", "UPDATE ledger.journal SET entry_count = 3 WHERE journal_id = '{owed}'");
    expect(&fixture, &short, &[("I1", &["{owed}"])]).await;
}

#[tokio::test]
async fn a_trial_balance_that_is_not_zero() {
    let fixture = Fixture::new().await;
    // The journal balances, but one of its accounts is another tenant's.
    let moved = format!(
        "UPDATE ledger.entry SET account_id = {} WHERE journal_id = {} AND direction = 'D'",
        account("foreign"),
        journal("owed")
    );
    let sql = reposted("'{owed}'", &moved);
    expect(&fixture, &sql, &[("I2", &["{tenant}/EUR", "{other tenant}/EUR"])]).await;
}

#[tokio::test]
async fn guards_that_were_taken_down() {
    let fixture = Fixture::new().await;
    let cases = [
        ("ALTER TABLE ledger.entry DISABLE TRIGGER append_only", "trigger ledger.entry.append_only"),
        ("DROP TRIGGER no_truncate ON ledger.journal", "trigger ledger.journal.no_truncate"),
        (
            "ALTER TABLE payments.history DISABLE TRIGGER history_append_only",
            "trigger payments.history.history_append_only",
        ),
        ("ALTER TABLE outbox.event DISABLE TRIGGER append_only", "trigger outbox.event.append_only"),
        (
            "GRANT UPDATE (status) ON payments.history TO tallystick_app",
            "privilege UPDATE on payments.history",
        ),
        ("GRANT DELETE ON outbox.event TO tallystick_app", "privilege DELETE on outbox.event"),
        ("GRANT TRUNCATE ON payments.attempt TO tallystick_app", "privilege TRUNCATE on payments.attempt"),
        ("GRANT INSERT ON ledger.checkpoint TO tallystick_app", "privilege INSERT on ledger.checkpoint"),
    ];
    for (sql, id) in cases {
        expect(&fixture, sql, &[("I3", &[id])]).await;
    }
}

#[tokio::test]
async fn amounts_in_another_currency_than_their_accounts() {
    let fixture = Fixture::new().await;
    let dollars = format!("UPDATE ledger.entry SET currency = 'USD' WHERE journal_id = {}", journal("owed"));
    expect(&fixture, &reposted("'{owed}'", &dollars), &[("I4", &["{owed}/1", "{owed}/2"])]).await;
    let unknown = "UPDATE ledger.account SET currency = 'QQQ' WHERE account_id = '{idle}'";
    expect(&fixture, unknown, &[("I4", &["QQQ"])]).await;
}

#[tokio::test]
async fn an_account_below_its_minimum() {
    let fixture = Fixture::new().await;
    let sql = "UPDATE ledger.account SET minimum_minor = 0 WHERE account_id = '{equity}'";
    expect(&fixture, sql, &[("I5", &["{equity}"])]).await;
}

#[tokio::test]
async fn statuses_sums_checkpoints_and_hashes_that_do_not_fit() {
    let fixture = Fixture::new().await;
    let (owed, cash) = (journal("owed"), account("cash"));
    let failed = format!(
        "INSERT INTO ledger.journal_status (journal_id, status, evidence) VALUES ({owed}, 'failed', 'planted')"
    );
    expect(&fixture, &failed, &[("failed-sums", &["{equity}", "{cash}"])]).await;
    let pending = format!("INSERT INTO ledger.pending_journal VALUES ({cash}, {owed}, 0, 300)");
    expect(&fixture, &pending, &[("pending-table", &["{owed}"])]).await;
    let checkpoint = format!("INSERT INTO ledger.checkpoint VALUES ({cash}, 9, 1, 0, 1, now())");
    expect(&fixture, &checkpoint, &[("checkpoints", &["{cash}@9"])]).await;
    let hash = unguarded(
        "journal",
        "UPDATE ledger.journal SET entries_hash = sha256('') WHERE journal_id = '{owed}'",
    );
    expect(&fixture, &hash, &[("hashes", &["{owed}"])]).await;
}
