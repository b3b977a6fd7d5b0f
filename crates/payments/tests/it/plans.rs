//! Hot statements keep to their indexes, whatever the tables have grown to.

use sqlx::{AssertSqlSafe, PgPool};
use tallystick_gateway::Replay;

use crate::common::{World, quick};
use crate::gateway::Scripted;

/// Every checked statement of this crate by its name, as it stands in `repo.rs`.
fn statement(file: &str, name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let Some(from) = text.find(&format!("-- {name}\n")) else {
        return put_together(&text, name).unwrap_or_else(|| panic!("no statement {name} in {file}"));
    };
    let (rest, raw) = (&text[from..], text[..from].trim_end().ends_with("r#\""));
    let end = match raw {
        true => rest.find("\"#"),
        false => rest.find("\",\n").into_iter().chain(rest.find("\"\n")).min(),
    };
    rest[..end.expect("a string ends")].to_owned()
}

/// A statement whose select stands in the file's macro, and only its end under its name.
fn put_together(text: &str, name: &str) -> Option<String> {
    let (_, select) = text.split_once("$name + r#\"")?;
    let (_, tail) = text.split_once(&format!("\"-- {name}\","))?;
    let (_, tail) = tail.split_once('"')?;
    Some(format!("{}{}", select.split_once("\"# + $tail")?.0, tail.split_once("\",")?.0))
}

#[sqlx::test(migrations = false)]
async fn hot_statements_use_their_indexes(pool: PgPool) {
    let world = World::new(pool, Scripted::new("cards", Replay::SameResult)).await;
    let tenant = world.tenant;
    world
        .sql(&format!(
            "INSERT INTO payments.payment (payment_id, tenant_id, status, currency, amount_minor, captured_minor, authorized_minor, capture, payment_method, gateway, gateway_reference, order_id, active_order, created_at, updated_at, processed_at)
             SELECT gen_random_uuid(), '{tenant}', 'succeeded', 'EUR', 1, 1, 1, 'automatic', 'ok', 'cards', 'r' || n, 'o' || n, 'o' || n, now(), now(), now() FROM generate_series(1, 100000) n;
             INSERT INTO payments.payout (payout_id, tenant_id, status, account_id, destination, currency, amount_minor, gateway, gateway_reference, reference, active_reference, created_at, updated_at, processed_at)
             SELECT gen_random_uuid(), '{tenant}', 'succeeded', '{tenant}', 'ok', 'EUR', 1, 'cards', 'p' || n, 'o' || n, 'o' || n, now(), now(), now() FROM generate_series(1, 100000) n;
             INSERT INTO payments.history SELECT operation_id, version, status, now(), 'request' FROM payments.operation;
             INSERT INTO payments.dispatch (operation_id, kind, gateway, due_at)
             SELECT payout_id, 2, 'cards', now() + random() * interval '1 h' FROM payments.payout LIMIT 50000;
             INSERT INTO payments.dispatch (operation_id, kind, gateway, due_at)
             SELECT payment_id, 1, 'cards', now() + random() * interval '1 h' FROM payments.payment LIMIT 50000;
             INSERT INTO payments.inbound_event (gateway, event_id, raw, state, ended_at)
             SELECT 'cards', 'e' || n, '', 'applied', now() FROM generate_series(1, 50000) n;
             INSERT INTO payments.idempotency SELECT '{tenant}', 'POST /api/v1/payments', 'k' || n, '', '', 202, '', NULL, now() FROM generate_series(1, 50000) n"
        ))
        .await;
    for table in ["payment", "payout", "history", "dispatch", "inbound_event", "idempotency"] {
        world.sql(&format!("ANALYZE payments.{table}")).await;
    }
    let hot = [
        ("dispatch/repo.rs", "dispatch.claim"),
        ("dispatch/repo.rs", "dispatch.lock"),
        ("dispatch/repo.rs", "dispatch.postpone"),
        ("dispatch/repo.rs", "dispatch.delete"),
        ("dispatch/repo.rs", "dispatch.put_off_first"),
        ("dispatch/repo.rs", "dispatch.restore"),
        ("payment/repo.rs", "payment.update"),
        ("payout/repo.rs", "payout.update"),
        ("gauges/repo.rs", "gauges.read"),
        ("idle/repo.rs", "idle.is_idle"),
        ("inbound/repo.rs", "inbound.find"),
        ("inbound/repo.rs", "inbound.lock_named"),
        ("inbound/repo.rs", "inbound.lock_due"),
        ("inbound/repo.rs", "inbound.make_due"),
        ("inbound/repo.rs", "inbound.end"),
        ("idempotency/repo.rs", "idempotency.stored"),
        ("idempotency/repo.rs", "idempotency.answer"),
        ("requeue/repo.rs", "requeue.lost"),
        ("requeue/repo.rs", "requeue.make_again"),
        ("requeue/repo.rs", "requeue.make_due"),
        ("requeue/repo.rs", "requeue.page_end"),
        ("tenants/repo.rs", "tenant.payout_approval"),
        ("verify/repo.rs", "verify.operations"),
        ("verify/repo.rs", "verify.operations_by_id"),
        ("verify/repo.rs", "verify.moves"),
    ];
    let engine = world.engine(quick()).await;
    let mut conn = engine.db().conn().await.unwrap();
    for (file, name) in hot {
        let text = statement(file, name);
        sqlx::raw_sql(AssertSqlSafe(format!("PREPARE hot AS {text}"))).execute(&mut *conn).await.expect(name);
        let parameters: i32 = sqlx::query_scalar(
            "SELECT coalesce(array_length(parameter_types, 1), 0) FROM pg_prepared_statements WHERE name = 'hot'",
        )
        .fetch_one(&mut *conn)
        .await
        .unwrap();
        let nulls = vec!["NULL"; usize::try_from(parameters).unwrap()].join(", ");
        let explain = if nulls.is_empty() {
            "EXPLAIN EXECUTE hot".into()
        } else {
            format!("EXPLAIN EXECUTE hot ({nulls})")
        };
        let plan: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(explain)).fetch_all(&mut *conn).await.expect(name);
        let plan = plan.join("\n");
        // These ask about all open work; what is behind it is never read whole.
        let of_all = ["gauges.read", "idle.is_idle"].contains(&name);
        let scans = plan.lines().filter(|line| line.contains("Seq Scan on"));
        let wrong = scans.filter(|line| !of_all || line.contains("Seq Scan on pay")).count();
        assert_eq!(wrong, 0, "{name} scans a table:\n{plan}");
        // What is read page by page comes in the order of an index: else each page would sort all that is left.
        let paged = ["verify.operations", "verify.moves"].contains(&name);
        assert!(!paged || !plan.contains("Sort  ("), "{name} sorts a table:\n{plan}");
        sqlx::raw_sql("DEALLOCATE hot").execute(&mut *conn).await.unwrap();
    }
}
