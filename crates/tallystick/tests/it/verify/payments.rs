//! The rules of payments: amounts, journals, versions, open work, orders, events, webhooks, breaks.

use super::fixture::{Fixture, exceptions, verified};
use super::plant::{expect, known, moved, reposted, retold, told, unguarded};
use tallystick_payments::verify::{RULES, Status};

#[tokio::test]
async fn untouched_data_holds_and_what_a_person_knows_is_explained() {
    let fixture = Fixture::new().await;
    let copy = fixture.copy().await;
    let report = verified(&copy, Some(&fixture.book())).await;
    assert_eq!(exceptions(&report), known(&fixture));
    assert!(report.ok);
    let ids: Vec<&str> = report.checks.iter().map(|check| check.id).collect();
    assert_eq!(ids, RULES.iter().map(|rule| rule.id).collect::<Vec<_>>());
    let late = report.checks.iter().find(|check| check.id == "I11").unwrap();
    let mut breaks = ["late break", "late payout break"].map(|name| fixture.id(name));
    breaks.sort_unstable();
    assert_eq!(late.breaks.iter().map(|id| id.0).collect::<Vec<_>>(), breaks);
    // Every check had something to look at, but for what the fixture has none of.
    let idle: Vec<&str> =
        report.checks.iter().filter(|check| check.checked == 0).map(|check| check.id).collect();
    assert_eq!(idle, ["checkpoints"]);
}

#[tokio::test]
async fn amounts_that_exceed_each_other() {
    let fixture = Fixture::new().await;
    let refunded = "UPDATE payments.payment SET refunded_minor = 1 WHERE payment_id = '{declined}'";
    expect(&fixture, refunded, &[("I6", &["{declined}"])]).await;
    let authorized =
        "UPDATE payments.payment SET authorized_minor = amount_minor + 1 WHERE payment_id = '{declined}'";
    expect(&fixture, authorized, &[("I6", &["{declined}"])]).await;
}

#[tokio::test]
async fn journals_that_are_missing_doubled_strange_or_of_another_amount() {
    let fixture = Fixture::new().await;
    let of = |name: &str| format!("(SELECT id FROM ledger.journal WHERE source = '{{{name}}}')");
    let paid = of("paid");
    let missing = unguarded("entry", &format!("DELETE FROM ledger.entry WHERE journal_id = {paid}"))
        + &unguarded("journal", "DELETE FROM ledger.journal WHERE source = '{paid}'");
    expect(&fixture, &missing, &[("I7", &["{paid}"])]).await;
    let amount = reposted(
        "(SELECT journal_id FROM ledger.journal WHERE source = '{paid}')",
        &format!("UPDATE ledger.entry SET amount_minor = amount_minor + 1 WHERE journal_id = {paid}"),
    );
    expect(&fixture, &amount, &[("I7", &["{paid}"])]).await;
    // The journal of one payment, once more under another source or ordinal.
    let copied = |id: &str, source: &str, ordinal: i32| {
        format!(
            "INSERT INTO ledger.journal (journal_id, tenant_id, kind, source, ordinal, entry_count, entries_hash, description)
             SELECT '{id}', tenant_id, kind, {source}, {ordinal}, entry_count, entries_hash, description
               FROM ledger.journal WHERE source = '{{paid}}';
             INSERT INTO ledger.entry (journal_id, line_no, line_count, account_id, currency, direction, amount_minor)
             SELECT (SELECT id FROM ledger.journal WHERE journal_id = '{id}'), line_no, line_count, account_id, currency, direction, amount_minor
               FROM ledger.entry WHERE journal_id = (SELECT id FROM ledger.journal WHERE source = '{{paid}}' AND ordinal = 0 AND journal_id <> '{id}')"
        )
    };
    let id = "00000000-0000-7000-8000-000000000001";
    expect(&fixture, &copied(id, "source", 1), &[("I7", &["{paid}"])]).await;
    expect(&fixture, &copied(id, "'{declined}'", 0), &[("I7", &["{declined}"])]).await;
    expect(&fixture, &copied(id, "gen_random_uuid()", 0), &[("I7", &[id])]).await;
    let last = "'ffffffff-ffff-ffff-ffff-ffffffffffff'";
    expect(&fixture, &copied(id, last, 0), &[("I7", &[id])]).await;
    let pending = format!(
        "INSERT INTO ledger.journal_status (journal_id, status, evidence) VALUES ({paid}, 'pending', 'planted');
         INSERT INTO ledger.pending_journal SELECT account_id, journal_id, sum(amount_minor) FILTER (WHERE direction = 'D'), 0
           FROM ledger.entry WHERE journal_id = {paid} AND direction = 'D' GROUP BY 1, 2;
         INSERT INTO ledger.pending_journal SELECT account_id, journal_id, 0, sum(amount_minor)
           FROM ledger.entry WHERE journal_id = {paid} AND direction = 'C' GROUP BY 1, 2"
    );
    expect(&fixture, &pending, &[("I7", &["{paid}"])]).await;
}

#[tokio::test]
async fn versions_with_gaps_forbidden_moves_and_another_end() {
    let fixture = Fixture::new().await;
    let status =
        "UPDATE payments.payment SET status = 'unknown', unknown_since = now() WHERE payment_id = '{open}'";
    expect(&fixture, status, &[("I15", &["{open}"])]).await;
    let version = "UPDATE payments.payment SET version = 3 WHERE payment_id = '{open}'";
    expect(&fixture, version, &[("I15", &["{open}"])]).await;
    let gap = "UPDATE payments.history SET version = 3 WHERE object_id = '{open}' AND version = 2;
               UPDATE payments.payment SET version = 3 WHERE payment_id = '{open}';
               UPDATE outbox.event SET version = 3 WHERE aggregate_id = '{open}' AND version = 2;"
        .to_owned()
        + &retold("open", 3, "\"sequence\":2", "\"sequence\":3");
    expect(&fixture, &gap, &[("I15", &["{open}"])]).await;
    let back = moved("payment", "held", 3, "processing")
        + "UPDATE payments.payment SET status = 'processing', version = 3 WHERE payment_id = '{held}';
           INSERT INTO payments.dispatch (operation_id, kind, gateway, due_at) VALUES ('{held}', 1, 'test', now())";
    expect(&fixture, &back, &[("I15", &["{held}"])]).await;
    let beginning =
        "UPDATE payments.history SET status = 'unknown' WHERE object_id = '{open}' AND version = 1;"
            .to_owned()
            + &retold("open", 1, "\"status\":\"pending\"", "\"status\":\"unknown\"");
    expect(&fixture, &beginning, &[("I15", &["{open}"])]).await;
    let nobody = "INSERT INTO payments.history VALUES ('00000000-0000-7000-8000-000000000001', 1, 'pending', now(), 'request')";
    let id = "00000000-0000-7000-8000-000000000001";
    expect(&fixture, nobody, &[("I15", &[id]), ("I24", &[id])]).await;
}

#[tokio::test]
async fn open_payments_without_work_and_work_about_nothing() {
    let fixture = Fixture::new().await;
    let lost = "DELETE FROM payments.dispatch WHERE operation_id = '{open}'";
    expect(&fixture, lost, &[("I17", &["{open}"])]).await;
    let never = "UPDATE payments.dispatch SET due_at = 'infinity' WHERE operation_id = '{open}'";
    expect(&fixture, never, &[("I17", &["{open}"])]).await;
    let id = "00000000-0000-7000-8000-000000000001";
    let nothing = format!(
        "INSERT INTO payments.dispatch (operation_id, kind, gateway, due_at) VALUES ('{id}', 1, 'test', now())"
    );
    expect(&fixture, &nothing, &[("I17", &[id])]).await;
}

#[tokio::test]
async fn work_that_waits_for_a_person_or_is_over_needs_no_row() {
    let fixture = Fixture::new().await;
    let copy = fixture.copy().await;
    let sql = fixture.sql(
        "DELETE FROM payments.dispatch WHERE operation_id = '{amount}';
         INSERT INTO payments.dispatch (operation_id, kind, gateway, due_at) VALUES ('{paid}', 1, 'test', now())",
    );
    super::plant::plant(&copy, &sql).await;
    assert_eq!(exceptions(&verified(&copy, Some(&fixture.book())).await), known(&fixture));
}

#[tokio::test]
async fn two_active_payments_of_one_order() {
    let fixture = Fixture::new().await;
    let sql = "ALTER TABLE payments.payment DROP CONSTRAINT payment_tenant_id_active_order_key;
               UPDATE payments.payment SET order_id = 'first', active_order = 'first' WHERE payment_id = '{open}'";
    expect(&fixture, sql, &[("I19", &["{open}", "{paid}"])]).await;
}

#[tokio::test]
async fn events_that_are_missing_doubled_strange_or_say_something_else() {
    let fixture = Fixture::new().await;
    let paid: &[(&'static str, &[&str])] = &[("I24", &["{paid}"])];
    for version in [1, 2] {
        let sql = format!("DELETE FROM outbox.event WHERE aggregate_id = '{{paid}}' AND version = {version}");
        expect(&fixture, &sql, paid).await;
    }
    let twice =
        "INSERT INTO outbox.event (event_id, tenant_id, aggregate, aggregate_id, version, type, payload)
                 SELECT event_id, tenant_id, aggregate, aggregate_id, version, type, payload
                   FROM outbox.event WHERE aggregate_id = '{paid}' AND version = 2";
    expect(&fixture, twice, paid).await;
    expect(&fixture, &told("payment", "paid", 3, "failed"), paid).await;
    for (from, to) in [
        ("\"amount_minor\":1234", "\"amount_minor\":1235"),
        ("\"amount\":\"12.34\"", "\"amount\":\"12.3\""),
        ("\"currency\":\"EUR\"", "\"currency\":\"USD\""),
        ("\"sequence\":2", "\"sequence\":1"),
        ("\"status\":\"succeeded\"", "\"status\":\"failed\""),
        ("\"type\":\"payment.succeeded\"", "\"type\":\"payment.failed\""),
        ("}", ""),
    ] {
        expect(&fixture, &retold("paid", 2, from, to), paid).await;
    }
    let tenant =
        "UPDATE outbox.event SET tenant_id = '{other tenant}' WHERE aggregate_id = '{paid}' AND version = 2";
    expect(&fixture, tenant, paid).await;
    let kind =
        "UPDATE outbox.event SET type = 'payment.failed' WHERE aggregate_id = '{paid}' AND version = 2";
    expect(&fixture, kind, paid).await;
    let of_break = "DELETE FROM outbox.event WHERE aggregate = 'break' AND aggregate_id = '{late break}'";
    expect(&fixture, of_break, &[("I24", &["{late break}"])]).await;
}

#[tokio::test]
async fn events_that_retention_dropped_are_not_missed() {
    let fixture = Fixture::new().await;
    let copy = fixture.copy().await;
    // What the first windows held is gone with them; the payments were made an hour before the windows that are left.
    let sql = "UPDATE payments.history SET at = at - interval '1 hour' WHERE object_id = '{paid}';
               DELETE FROM outbox.event WHERE aggregate_id = '{paid}';
               DELETE FROM outbox.window WHERE no = 1";
    super::plant::plant(&copy, &fixture.sql(sql)).await;
    assert_eq!(exceptions(&verified(&copy, Some(&fixture.book())).await), known(&fixture));
    // What is younger than they are is.
    super::plant::plant(
        &copy,
        &fixture.sql("UPDATE payments.history SET at = now() + interval '1 hour' WHERE object_id = '{paid}'"),
    )
    .await;
    let found = verified(&copy, Some(&fixture.book())).await;
    let mut wanted = known(&fixture);
    wanted.insert("I24", (Status::Violated, vec![fixture.id("paid").to_string()]));
    assert_eq!(exceptions(&found), wanted);
}

#[tokio::test]
async fn inbound_events_that_ended_without_an_end_or_are_stored_twice() {
    let fixture = Fixture::new().await;
    let checks = "DO $$ DECLARE c text; BEGIN
                     FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = 'payments.inbound_event'::regclass AND contype IN ('c', 'u') LOOP
                         EXECUTE format('ALTER TABLE payments.inbound_event DROP CONSTRAINT %I', c);
                     END LOOP; END $$;";
    for change in [
        "UPDATE payments.inbound_event SET ended_at = NULL WHERE event_id = 'late'",
        "UPDATE payments.inbound_event SET state = 'new' WHERE event_id = 'late'",
        "UPDATE payments.inbound_event SET state = 'odd' WHERE event_id = 'late'",
        "INSERT INTO payments.inbound_event (gateway, event_id, raw, state, ended_at)
         SELECT gateway, event_id, raw, state, ended_at FROM payments.inbound_event WHERE event_id = 'late'",
    ] {
        expect(&fixture, &format!("{checks} {change}"), &[("I26", &["test/late"])]).await;
    }
}

#[tokio::test]
async fn calls_for_a_person_without_a_break_and_breaks_about_nothing() {
    let fixture = Fixture::new().await;
    let other = "UPDATE payments.payment SET attention_break = '{late break}' WHERE payment_id = '{amount}'";
    expect(&fixture, other, &[("breaks", &["{amount}"])]).await;
    let none =
        "UPDATE payments.payment SET attention_break = gen_random_uuid() WHERE payment_id = '{amount}'";
    expect(&fixture, none, &[("breaks", &["{amount}"])]).await;
    // Resolved without a word about it, while the payment still calls: the event is missed, too.
    let resolved = "UPDATE payments.break SET status = 'resolved', resolved_at = now() WHERE break_id = '{amount break}'";
    expect(&fixture, resolved, &[("breaks", &["{amount}"]), ("I24", &["{amount break}"])]).await;
    let id = "00000000-0000-7000-8000-000000000001";
    let nothing = format!(
        "UPDATE payments.break SET payment_id = '{id}' WHERE break_id = '{{amount break}}'"
    ) + ";UPDATE outbox.event SET payload = convert_to(replace(convert_from(payload, 'UTF8'), '{amount}', '"
        + id
        + "'), 'UTF8') WHERE aggregate_id = '{amount break}'";
    expect(&fixture, &nothing, &[("breaks", &["{amount}", "{amount break}"])]).await;
}

#[tokio::test]
async fn many_violations_are_counted_and_the_first_are_listed() {
    let fixture = Fixture::new().await;
    let copy = fixture.copy().await;
    let sql = "INSERT INTO payments.dispatch (operation_id, kind, gateway, due_at)
               SELECT gen_random_uuid(), 1, 'test', now() FROM generate_series(1, 250)";
    super::plant::plant(&copy, sql).await;
    let report = verified(&copy, None).await;
    let found = report.checks.iter().find(|check| check.id == "I17").unwrap();
    assert_eq!((found.status, found.violations.len(), found.violation_count), (Status::Violated, 100, 250));
}
