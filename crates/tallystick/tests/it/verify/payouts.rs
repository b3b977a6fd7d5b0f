//! The rules of payouts: journals, versions, open work, references, events, breaks.

use std::collections::BTreeMap;

use super::fixture::{Fixture, exceptions, verified};
use super::plant::{expect, known, moved, plant, reposted, retold, told, unguarded};

/// An id of a journal that is planted.
const NEW: &str = "00000000-0000-7000-8000-000000000001";

/// The number of a journal of a payout, in SQL.
fn journal(name: &str, kind: &str) -> String {
    format!("(SELECT id FROM ledger.journal WHERE source = '{{{name}}}' AND kind = '{kind}')")
}

/// SQL that removes a journal and all that was said about it.
fn unposted(name: &str, kind: &str) -> String {
    let id = journal(name, kind);
    unguarded("journal_status", &format!("DELETE FROM ledger.journal_status WHERE journal_id = {id}"))
        + &format!("DELETE FROM ledger.pending_journal WHERE journal_id = {id};")
        + &unguarded("entry", &format!("DELETE FROM ledger.entry WHERE journal_id = {id}"))
        + &unguarded("journal", &format!("DELETE FROM ledger.journal WHERE id = {id}"))
}

/// SQL that posts a journal once more as `id`, about another source. Nothing is said about it, so it counts as settled.
fn copied(name: &str, kind: &str, id: &str, source: &str) -> String {
    let from = journal(name, kind);
    format!(
        "INSERT INTO ledger.journal (journal_id, tenant_id, kind, source, entry_count, entries_hash, description)
         SELECT '{id}', tenant_id, kind, {source}, entry_count, entries_hash, description
           FROM ledger.journal WHERE id = {from};
         INSERT INTO ledger.entry (journal_id, line_no, line_count, account_id, currency, direction, amount_minor)
         SELECT (SELECT id FROM ledger.journal WHERE journal_id = '{id}'), line_no, line_count, account_id, currency,
                direction, amount_minor
           FROM ledger.entry WHERE journal_id = {from};"
    )
}

/// SQL that changes what was said last about a journal.
fn said(name: &str, kind: &str, from: &str, to: &str) -> String {
    let id = journal(name, kind);
    unguarded(
        "journal_status",
        &format!(
            "UPDATE ledger.journal_status SET status = '{to}' WHERE journal_id = {id} AND status = '{from}'"
        ),
    )
}

#[tokio::test]
async fn the_fixture_has_payouts_of_every_status_and_all_of_them_hold() {
    let fixture = Fixture::new().await;
    let copy = fixture.copy().await;
    let statuses = "SELECT status::text, count(*) FROM payments.payout GROUP BY 1";
    let found: BTreeMap<String, i64> =
        sqlx::query_as(statuses).fetch_all(&mut copy.admin().await).await.unwrap().into_iter().collect();
    let wanted = [
        ("requires_approval", 1),
        ("pending", 2),
        ("processing", 2),
        ("unknown", 1),
        ("succeeded", 5),
        ("failed", 3),
        ("canceled", 2),
        ("returned", 1),
    ];
    assert_eq!(found, wanted.map(|(status, count)| (status.to_owned(), count)).into());
    // What else the rules allow, and the engine does not leave behind here: a bank's own word for no funds, a row of
    // something that is over or waits for a person, none of something that calls for one.
    let sql = "UPDATE payments.payout SET failure_code = 'insufficient_funds' WHERE payout_id = '{refused}';
        INSERT INTO payments.dispatch (operation_id, kind, gateway, due_at)
        SELECT id, 2, 'test', now() FROM unnest('{{sent},{short},{asked}}'::uuid[]) AS t (id);
        DELETE FROM payments.dispatch WHERE operation_id = '{odd payout}'";
    plant(&copy, &fixture.sql(sql)).await;
    let report = verified(&copy, Some(&fixture.book())).await;
    assert_eq!(exceptions(&report), known(&fixture));
}

#[tokio::test]
async fn debits_that_are_missing_or_of_another_id_account_or_amount() {
    let fixture = Fixture::new().await;
    let missing = ["sent", "banked", "gone"].map(|name| unposted(name, "payout_debited")).concat();
    expect(&fixture, &missing, &[("I7", &["{sent}", "{banked}", "{gone}"])]).await;
    let sent: &[(&'static str, &[&str])] = &[("I7", &["{sent}"])];
    let debit = journal("sent", "payout_debited");
    let id =
        unguarded("journal", &format!("UPDATE ledger.journal SET journal_id = '{NEW}' WHERE id = {debit}"));
    expect(&fixture, &id, sent).await;
    let amount =
        format!("UPDATE ledger.entry SET amount_minor = amount_minor + 1 WHERE journal_id = {debit}");
    expect(&fixture, &reposted("'{sent}'", &amount), sent).await;
    let elsewhere = |side: char, account: &str| {
        let account = format!("(SELECT id FROM ledger.account WHERE account_id = '{{{account}}}')");
        let sql = format!(
            "UPDATE ledger.entry SET account_id = {account} WHERE journal_id = {debit} AND direction = '{side}'"
        );
        reposted("'{sent}'", &sql)
    };
    expect(&fixture, &elsewhere('D', "customer"), sent).await;
    expect(&fixture, &elsewhere('C', "cash"), sent).await;
}

#[tokio::test]
async fn debits_that_do_not_stand_where_the_status_is() {
    let fixture = Fixture::new().await;
    // Paid, but the debit may still be undone; and the other way round.
    let debit = journal("sent", "payout_debited");
    let unsaid =
        format!("DELETE FROM ledger.journal_status WHERE journal_id = {debit} AND status = 'settled'");
    let open = unguarded("journal_status", &unsaid)
        + &format!(
            "INSERT INTO ledger.pending_journal
             SELECT account_id, journal_id, coalesce(sum(amount_minor) FILTER (WHERE direction = 'D'), 0),
                    coalesce(sum(amount_minor) FILTER (WHERE direction = 'C'), 0)
               FROM ledger.entry WHERE journal_id = {debit} GROUP BY 1, 2;"
        );
    expect(&fixture, &open, &[("I7", &["{sent}"])]).await;
    let settled = ["banked", "gone", "waiting"].map(|name| {
        let id = journal(name, "payout_debited");
        format!(
            "INSERT INTO ledger.journal_status (journal_id, status, evidence) VALUES ({id}, 'settled', 'planted');
             DELETE FROM ledger.pending_journal WHERE journal_id = {id};"
        )
    });
    expect(&fixture, &settled.concat(), &[("I7", &["{banked}", "{gone}", "{waiting}"])]).await;
    // Undone, but as if both were for good.
    let settled = ["refused", "stopped"].map(|name| {
        said(name, "payout_debited", "failed", "settled")
            + &said(name, "payout_reversed", "failed", "settled")
    });
    expect(&fixture, &settled.concat(), &[("I7", &["{refused}", "{stopped}"])]).await;
    // A debit that failed without its reversal leaves a sum behind as well.
    let alone = unposted("refused", "payout_reversed");
    expect(&fixture, &alone, &[("I7", &["{refused}"]), ("failed-sums", &["{wages}", "{bank}"])]).await;
}

#[tokio::test]
async fn failures_without_their_two_journals_and_returns_without_theirs() {
    let fixture = Fixture::new().await;
    let refused = unposted("refused", "payout_reversed") + &unposted("refused", "payout_debited");
    expect(&fixture, &refused, &[("I7", &["{refused}"])]).await;
    // Only a lack of funds fails a payout before its debit.
    let short = "UPDATE payments.payout SET failure_code = 'account_closed' WHERE payout_id = '{short}'";
    expect(&fixture, short, &[("I7", &["{short}"])]).await;
    expect(&fixture, &unposted("back", "payout_returned"), &[("I7", &["{back}"])]).await;
    let twice = copied("back", "payout_returned", NEW, "'{sent}'");
    expect(&fixture, &twice, &[("I7", &["{sent}"])]).await;
}

#[tokio::test]
async fn journals_that_nothing_asks_for() {
    let fixture = Fixture::new().await;
    let debit = |id: &str, source: &str| copied("sent", "payout_debited", id, source);
    let early = ["{asked}", "{fresh}", "{dropped}", "{short}"];
    let debits = early.map(|name| debit(name, &format!("'{name}'"))).concat();
    expect(&fixture, &debits, &[("I7", &early)]).await;
    expect(&fixture, &debit(NEW, "gen_random_uuid()"), &[("I7", &[NEW])]).await;
    // A journal of the other kind of operation.
    expect(&fixture, &debit("{declined}", "'{declined}'"), &[("I7", &["{declined}"])]).await;
    let captured = copied("paid", "payment_captured", NEW, "'{fresh}'");
    expect(&fixture, &captured, &[("I7", &["{fresh}"])]).await;
}

#[tokio::test]
async fn versions_of_payouts_with_gaps_forbidden_moves_and_another_end() {
    let fixture = Fixture::new().await;
    let banked: &[(&'static str, &[&str])] = &[("I15", &["{banked}"])];
    let status =
        "UPDATE payments.payout SET status = 'unknown', unknown_since = now() WHERE payout_id = '{banked}'";
    expect(&fixture, status, banked).await;
    expect(&fixture, "UPDATE payments.payout SET version = 3 WHERE payout_id = '{banked}'", banked).await;
    let gap = "UPDATE payments.history SET version = 3 WHERE object_id = '{banked}' AND version = 2;
               UPDATE payments.payout SET version = 3 WHERE payout_id = '{banked}';
               UPDATE outbox.event SET version = 3 WHERE aggregate_id = '{banked}' AND version = 2;"
        .to_owned()
        + &retold("banked", 3, "\"sequence\":2", "\"sequence\":3");
    expect(&fixture, &gap, banked).await;
    let back = moved("payout", "banked", 3, "unknown")
        + "UPDATE payments.payout SET status = 'unknown', unknown_since = now(), version = 3 WHERE payout_id = '{banked}'";
    expect(&fixture, &back, banked).await;
    let beginning =
        "UPDATE payments.history SET status = 'unknown' WHERE object_id = '{banked}' AND version = 1;"
            .to_owned()
            + &retold("banked", 1, "\"status\":\"pending\"", "\"status\":\"unknown\"");
    expect(&fixture, &beginning, banked).await;
    let none = "DELETE FROM payments.history WHERE object_id = '{banked}';
                DELETE FROM outbox.event WHERE aggregate_id = '{banked}'";
    expect(&fixture, none, banked).await;
}

#[tokio::test]
async fn moves_that_only_the_other_kind_may_make() {
    let fixture = Fixture::new().await;
    // Between its two versions another one is put.
    let between = |object: &str, name: &str, end: &str, status: &str| {
        format!(
            "UPDATE payments.history SET version = 3 WHERE object_id = '{{{name}}}' AND version = 2;
             UPDATE payments.{object} SET version = 3 WHERE {object}_id = '{{{name}}}';
             DELETE FROM outbox.event WHERE aggregate_id = '{{{name}}}' AND version = 2;"
        ) + &moved(object, name, 2, status)
            + &told(object, name, 3, end)
    };
    let authorized = between("payout", "sent", "succeeded", "authorized");
    expect(&fixture, &authorized, &[("I15", &["{sent}"])]).await;
    let consent = between("payment", "paid", "succeeded", "pending")
        + "UPDATE payments.history SET status = 'requires_approval' WHERE object_id = '{paid}' AND version = 1;"
        + &retold("paid", 1, "\"status\":\"pending\"", "\"status\":\"requires_approval\"");
    expect(&fixture, &consent, &[("I15", &["{paid}"])]).await;
}

#[tokio::test]
async fn open_payouts_without_work_of_their_kind() {
    let fixture = Fixture::new().await;
    let open = ["{banked}", "{gone}", "{waiting}", "{fresh}"];
    let lost = "DELETE FROM payments.dispatch WHERE kind = 2";
    expect(&fixture, lost, &[("I17", &open)]).await;
    let never = "UPDATE payments.dispatch SET due_at = 'infinity' WHERE operation_id = '{banked}'";
    expect(&fixture, never, &[("I17", &["{banked}"])]).await;
    let charge = "UPDATE payments.dispatch SET kind = 1 WHERE operation_id = '{banked}'";
    expect(&fixture, charge, &[("I17", &["{banked}"])]).await;
    let nothing = format!(
        "INSERT INTO payments.dispatch (operation_id, kind, gateway, due_at) VALUES ('{NEW}', 2, 'test', now())"
    );
    expect(&fixture, &nothing, &[("I17", &[NEW])]).await;
}

#[tokio::test]
async fn two_active_payouts_of_one_reference() {
    let fixture = Fixture::new().await;
    let free = "DROP INDEX payments.payout_active_reference;";
    let again = |name: &str, reference: &str| {
        format!(
            "{free} UPDATE payments.payout SET reference = '{reference}', active_reference = '{reference}' WHERE payout_id = '{{{name}}}'"
        )
    };
    expect(&fixture, &again("banked", "first"), &[("I19", &["{sent}", "{banked}"])]).await;
    // It came back once and was sent again; a third time is once too often, consent or not.
    expect(&fixture, &again("asked", "may"), &[("I19", &["{after back}", "{asked}"])]).await;
}

#[tokio::test]
async fn events_of_payouts_that_are_missing_doubled_strange_or_say_something_else() {
    let fixture = Fixture::new().await;
    let back: &[(&'static str, &[&str])] = &[("I24", &["{back}"])];
    for version in [1, 2, 3] {
        let sql = format!("DELETE FROM outbox.event WHERE aggregate_id = '{{back}}' AND version = {version}");
        expect(&fixture, &sql, back).await;
    }
    let twice =
        "INSERT INTO outbox.event (event_id, tenant_id, aggregate, aggregate_id, version, type, payload)
                 SELECT event_id, tenant_id, aggregate, aggregate_id, version, type, payload
                   FROM outbox.event WHERE aggregate_id = '{back}' AND version = 2";
    expect(&fixture, twice, back).await;
    expect(&fixture, &told("payout", "back", 4, "failed"), back).await;
    for (from, to) in [
        ("\"amount_minor\":1234", "\"amount_minor\":1235"),
        ("\"currency\":\"EUR\"", "\"currency\":\"USD\""),
        ("\"sequence\":3", "\"sequence\":2"),
        ("\"status\":\"returned\"", "\"status\":\"failed\""),
        ("\"type\":\"payout.returned\"", "\"type\":\"payment.returned\""),
        ("\"payout_id\"", "\"payment_id\""),
    ] {
        expect(&fixture, &retold("back", 3, from, to), back).await;
    }
    let tenant =
        "UPDATE outbox.event SET tenant_id = '{other tenant}' WHERE aggregate_id = '{back}' AND version = 3";
    expect(&fixture, tenant, back).await;
    // Told as if it were a payment's, in every word.
    let as_payment = "DELETE FROM outbox.event WHERE aggregate_id = '{back}' AND version = 3;".to_owned()
        + &told("payment", "back", 3, "returned");
    expect(&fixture, &as_payment, back).await;
    let of_break =
        "DELETE FROM outbox.event WHERE aggregate = 'break' AND aggregate_id = '{odd payout break}'";
    expect(&fixture, of_break, &[("I24", &["{odd payout break}"])]).await;
    let about = retold("odd payout break", 1, "\"payout_id\":\"{odd payout}\"", "\"payout_id\":\"{sent}\"");
    expect(&fixture, &about, &[("I24", &["{odd payout break}"])]).await;
}

#[tokio::test]
async fn payouts_that_call_for_a_person_without_a_break_and_breaks_about_none_or_two() {
    let fixture = Fixture::new().await;
    let odd: &[(&'static str, &[&str])] = &[("breaks", &["{odd payout}"])];
    for other in ["'{late payout break}'", "'{late break}'", "gen_random_uuid()"] {
        let sql = format!(
            "UPDATE payments.payout SET attention_break = {other} WHERE payout_id = '{{odd payout}}'"
        );
        expect(&fixture, &sql, odd).await;
    }
    let resolved = "UPDATE payments.break SET status = 'resolved', resolved_at = now() WHERE break_id = '{odd payout break}'";
    expect(&fixture, resolved, &[("breaks", &["{odd payout}"]), ("I24", &["{odd payout break}"])]).await;
    // What a break is about, told as it stands.
    let about = |payment: &str, payout: &str| {
        let text = |id: &str| if id == "NULL" { "null".into() } else { id.replace('\'', "\"") };
        let told = format!("\"payment_id\":{},\"payout_id\":{}", text(payment), text(payout));
        let before = "\"payment_id\":null,\"payout_id\":\"{odd payout}\"";
        format!(
            "UPDATE payments.break SET payment_id = {payment}, payout_id = {payout} WHERE break_id = '{{odd payout break}}';"
        ) + &retold("odd payout break", 1, before, &told)
    };
    let both: &[&str] = &["{odd payout}", "{odd payout break}"];
    let cases: [(String, &[&str]); 5] = [
        (about("'{paid}'", "'{odd payout}'"), &["{odd payout break}"]),
        (about("NULL", "NULL"), both),
        (about("NULL", &format!("'{NEW}'")), both),
        (about("NULL", "'{their payout}'"), both),
        // The id is right, but as a payment's.
        (about("'{odd payout}'", "NULL"), both),
    ];
    for (sql, violated) in cases {
        expect(&fixture, &sql, &[("breaks", violated)]).await;
    }
}
