//! Webhooks of gateways: stored once, applied once, in any order.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use sqlx::PgPool;
use tallystick_gateway::{Replay, WebhookMessage};
use tallystick_payments::InboundError;
use tallystick_payments::payment::PaymentStatus::{Failed, Processing, Succeeded};

use crate::common::{World, captured, deliver, deliver_to, quick, until};
use crate::gateway::Scripted;

async fn world(pool: PgPool) -> World {
    World::new(pool, Scripted::new("cards", Replay::SameResult)).await
}

const OPEN: &str = "SELECT count(*) FROM payments.inbound_event WHERE ended_at IS NULL";

/// C034: the webhook overtakes the reply; one journal, and the reply changes nothing.
#[sqlx::test(migrations = false)]
async fn c034_webhook_overtakes_the_reply(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let id = world.pay(&process, "gated").await;
    until("the call is under way", async || world.gateway.waiting.load(Ordering::SeqCst) == 1).await;
    deliver(&process, "evt", &captured(id, 10_000)).await.unwrap();
    world.becomes(&process, id, &[Succeeded]).await;
    world.gateway.gate.add_permits(1);
    process.stop().await;
    let reader = world.process().await;
    world.charged_once(&reader, id).await;
    reader.stop().await;
}

/// C035: an event for a payment that is stored later is kept and applied once.
#[sqlx::test(migrations = false)]
async fn c035_event_before_its_payment_is_parked_and_applied(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let id = tallystick_payments::ids::PaymentId::new();
    deliver(&process, "early", &captured(id, 10_000)).await.unwrap();
    world.until_number("SELECT count(*) FROM payments.inbound_event WHERE state = 'parked'", 1).await;
    // The payment appears with the id that the event names, acknowledged and without work of its own.
    world
        .sql(&format!(
            "INSERT INTO payments.payment (payment_id, tenant_id, status, currency, amount_minor, capture, payment_method, gateway, created_at, updated_at)
             VALUES ('{id}', '{}', 'processing', 'EUR', 10000, 'automatic', 'ok', 'cards', now(), now());
             INSERT INTO payments.history VALUES ('{id}', 1, 'processing', now(), 'request')",
            world.tenant
        ))
        .await;
    world.succeeds(&process, id).await;
    world.until_number(OPEN, 0).await;
    let journals = process.engine.journals_of(world.tenant, id.0).await.unwrap();
    assert_eq!(journals.len(), 1);
    process.stop().await;
}

/// An event that names only the gateway's id waits until a reply stores that id, then is applied at once.
#[sqlx::test(migrations = false)]
async fn event_by_reference_is_applied_when_the_reference_becomes_known(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let body =
        json!({"type": "captured", "reference": "somewhere-else", "amount_minor": 1, "currency": "EUR"});
    deliver(&process, "stranger", &body).await.unwrap();
    world.until_number("SELECT count(*) FROM payments.inbound_event WHERE state = 'parked'", 1).await;
    let paid = world.pay(&process, "accept").await;
    world.becomes(&process, paid, &[Processing]).await;
    let reference = format!("ref-{paid}-0");
    let body = json!({"type": "captured", "reference": reference, "amount_minor": 10_000, "currency": "EUR"});
    deliver(&process, "by-reference", &body).await.unwrap();
    world.succeeds(&process, paid).await;
    assert_eq!(world.number(OPEN).await, 1, "the stranger's event still waits");
    process.stop().await;
}

/// C036: events for others are acknowledged and kept, bounded, and change nothing.
#[sqlx::test(migrations = false)]
async fn c036_events_for_others_are_kept_and_change_nothing(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let mine = world.pay(&process, "accept").await;
    world.becomes(&process, mine, &[Processing]).await;
    for n in 0..200 {
        deliver(&process, &format!("other-{n}"), &captured(tallystick_payments::ids::PaymentId::new(), 5))
            .await
            .unwrap();
    }
    world.until_number("SELECT count(*) FROM payments.inbound_event WHERE state = 'parked'", 200).await;
    assert_eq!(process.engine.gauges().await.unwrap().inbound_open, 200);
    assert_eq!(world.number("SELECT count(*) FROM ledger.journal").await, 0);
    process.stop().await;
}

/// C037: a failure that is told late never beats money that was taken.
#[sqlx::test(migrations = false)]
async fn c037_late_failure_after_success_is_no_change(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let id = world.pay(&process, "ok").await;
    world.succeeds(&process, id).await;
    deliver(&process, "late-no", &json!({"type": "declined", "key": id})).await.unwrap();
    world.until_number(OPEN, 0).await;
    world.charged_once(&process, id).await;
    process.stop().await;
}

/// C038 (the part without refunds): all orders of authorized, captured and declined end the same.
#[sqlx::test(migrations = false)]
async fn c038_events_in_any_order_end_the_same(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let kinds = ["authorized", "captured", "pending"];
    for (n, order) in
        [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].into_iter().enumerate()
    {
        let id = world.pay(&process, "accept").await;
        world.gateway.charge_late(&id.to_string(), 10_000, "EUR");
        for kind in order {
            let mut body = captured(id, 10_000);
            body["type"] = kinds[kind].into();
            deliver(&process, &format!("{n}-{kind}"), &body).await.unwrap();
        }
        world.succeeds(&process, id).await;
        world.charged_once(&process, id).await;
    }
    process.stop().await;
}

/// C039: the same event twenty times at once, over two processes: one journal, one event.
#[sqlx::test(migrations = false)]
async fn c039_same_event_twenty_times_at_once(pool: PgPool) {
    let world = Arc::new(world(pool).await);
    let (one, two) = (Arc::new(world.process().await), Arc::new(world.process().await));
    let id = world.pay(&one, "accept").await;
    world.becomes(&one, id, &[Processing]).await;
    world.gateway.charge_late(&id.to_string(), 10_000, "EUR");
    let deliveries = (0..20).map(|n| {
        let process = if n % 2 == 0 { one.clone() } else { two.clone() };
        tokio::spawn(async move { deliver(&process, "same", &captured(id, 10_000)).await })
    });
    for delivery in deliveries.collect::<Vec<_>>() {
        delivery.await.unwrap().expect("2xx for each");
    }
    world.succeeds(&one, id).await;
    world.charged_once(&one, id).await;
    assert_eq!(world.number("SELECT count(*) FROM payments.inbound_event").await, 1);
}

/// C040, C044: one fact under two ids, and again after a restart: one journal, one event.
#[sqlx::test(migrations = false)]
async fn c040_one_fact_under_two_ids(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let id = world.pay(&process, "ok").await;
    world.succeeds(&process, id).await;
    for event in ["a", "b", "a"] {
        deliver(&process, event, &captured(id, 10_000)).await.unwrap();
    }
    process.stop().await;
    let again = world.process().await;
    deliver(&again, "a", &captured(id, 10_000)).await.unwrap();
    world.until_number(OPEN, 0).await;
    world.charged_once(&again, id).await;
    again.stop().await;
}

/// C042: handling fails after the event was stored; it is applied later, once.
#[sqlx::test(migrations = false)]
async fn c042_event_whose_handling_failed_is_tried_again(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let id = world.pay(&process, "accept").await;
    world.becomes(&process, id, &[Processing]).await;
    world.sql("REVOKE INSERT ON ledger.journal FROM tallystick_app").await;
    world.sql("REVOKE INSERT ON payments.history FROM tallystick_app").await;
    deliver(&process, "evt", &captured(id, 10_000)).await.expect("stored and acknowledged");
    world.until_number("SELECT count(*) FROM payments.inbound_event WHERE note IS NOT NULL", 1).await;
    assert_eq!(world.get(&process, id).await.status, Processing);
    world.sql("GRANT INSERT ON payments.history TO tallystick_app").await;
    world.sql("GRANT INSERT (journal_id, entry_count, tenant_id, kind, source, source_text, ordinal, entries_hash, description, metadata, effective_at, corrects) ON ledger.journal TO tallystick_app").await;
    world.succeeds(&process, id).await;
    world.until_number(OPEN, 0).await;
    process.stop().await;
}

/// C045: signatures are over the raw bytes; one flipped byte and nothing is stored. C048: stale ones neither.
#[sqlx::test(migrations = false)]
async fn c045_unverified_events_leave_nothing(pool: PgPool) {
    let world = world(pool).await;
    let process = world.api_only(quick()).await;
    let id = tallystick_payments::ids::PaymentId::new();
    let body = captured(id, 1).to_string();
    let now = jiff::Timestamp::now().as_second();
    let secret = crate::gateway::SECRET.parse::<tallystick_gateway::signature::WebhookSecret>().unwrap();
    let good = secret.sign("evt", now, body.as_bytes());
    let cases = [
        (now, body.replace("captured", "Captured"), good.clone()),
        (now, format!("{body} "), good.clone()),
        (now, body.clone(), String::new()),
        (now, body.clone(), "v1,AAAA".to_owned()),
        (now - 301, body.clone(), secret.sign("evt", now - 301, body.as_bytes())),
        (now + 302, body.clone(), secret.sign("evt", now + 302, body.as_bytes())),
    ];
    for (at, body, signature) in cases {
        let at = at.to_string();
        let message = WebhookMessage {
            id: Some("evt"),
            timestamp: Some(&at),
            signature: Some(&signature),
            body: body.as_bytes(),
        };
        let refused = process.engine.receive_webhook("cards", message).await;
        assert!(matches!(refused, Err(InboundError::Unverified)), "{refused:?}");
    }
    assert!(matches!(deliver_to(&process, "nobody", "e", b"{}").await, Err(InboundError::UnknownGateway)));
    assert!(matches!(deliver_to(&process, "cards", "e", b"not json").await, Err(InboundError::Malformed(_))));
    assert_eq!(world.number("SELECT count(*) FROM payments.inbound_event").await, 0);
}

/// C051: acknowledged at once while a row of the payment is locked; applied later.
#[sqlx::test(migrations = false)]
async fn c051_acknowledged_fast_applied_later(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let id = world.pay(&process, "accept").await;
    world.becomes(&process, id, &[Processing]).await;
    let mut held = world.superuser.acquire().await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT 1 FROM payments.payment FOR UPDATE").execute(&mut *held).await.unwrap();
    let begun = std::time::Instant::now();
    deliver(&process, "evt", &captured(id, 10_000)).await.unwrap();
    assert!(begun.elapsed() < std::time::Duration::from_secs(3), "acknowledged after {:?}", begun.elapsed());
    sqlx::raw_sql("COMMIT").execute(&mut *held).await.unwrap();
    world.succeeds(&process, id).await;
    world.until_number(OPEN, 0).await;
    process.stop().await;
}

/// C052: kinds that are not known are stored and change nothing.
#[sqlx::test(migrations = false)]
async fn c052_unknown_kinds_are_stored_and_ignored(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let id = world.pay(&process, "accept").await;
    world.becomes(&process, id, &[Processing]).await;
    deliver(&process, "odd", &json!({"type": "customer.updated", "key": id})).await.unwrap();
    deliver(&process, "mid", &json!({"type": "pending", "key": id})).await.unwrap();
    world.until_number(OPEN, 0).await;
    assert_eq!(world.number("SELECT count(*) FROM payments.inbound_event WHERE state = 'ignored'").await, 1);
    assert_eq!(world.get(&process, id).await.status, Processing);
    process.stop().await;
}

/// C053: validly signed, but another amount or currency: nothing is captured, a person is called.
#[sqlx::test(migrations = false)]
async fn c053_signed_event_with_the_wrong_amount(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    for (n, (minor, currency)) in [(100, "EUR"), (10_000, "USD")].into_iter().enumerate() {
        let id = world.pay(&process, "accept").await;
        world.becomes(&process, id, &[Processing]).await;
        let mut body = captured(id, minor);
        body["currency"] = currency.into();
        deliver(&process, &format!("evt-{n}"), &body).await.unwrap();
        until("attention", async || world.get(&process, id).await.attention.is_some()).await;
        let payment = world.get(&process, id).await;
        assert_eq!((payment.status, payment.captured_minor), (Processing, 0));
        assert!(process.engine.journals_of(world.tenant, id.0).await.unwrap().is_empty());
    }
    process.stop().await;
}

/// A charge that the gateway declined and captured after all: loud, and nothing moves.
#[sqlx::test(migrations = false)]
async fn capture_after_a_decline_opens_one_break_and_moves_nothing(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let id = world.pay(&process, "decline").await;
    world.becomes(&process, id, &[Failed]).await;
    for event in ["a", "b"] {
        deliver(&process, event, &captured(id, 10_000)).await.unwrap();
    }
    until("attention", async || world.get(&process, id).await.attention.is_some()).await;
    world.until_number(OPEN, 0).await;
    let payment = world.get(&process, id).await;
    assert_eq!((payment.status, payment.captured_minor), (Failed, 0));
    let breaks = process.engine.breaks(world.tenant, None, None, 10).await.unwrap();
    assert_eq!(breaks.iter().map(|b| b.kind.as_str()).collect::<Vec<_>>(), ["late_capture"]);
    assert_eq!(world.number("SELECT count(*) FROM ledger.journal").await, 0);
    world.told_every_move(&process, id).await;
    assert_eq!(world.number("SELECT count(*) FROM outbox.event WHERE type = 'break.created'").await, 1);
    process.stop().await;
}

/// C055: question, reply and webhook at the same moment: one journal each.
#[sqlx::test(migrations = false)]
async fn c055_poll_and_webhook_at_the_same_moment(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let mut ids = Vec::new();
    for n in 0..60 {
        let id = world.pay(&process, ["ok", "lost", "accept"][n % 3]).await;
        if n % 3 == 2 {
            world.gateway.charge_late(&id.to_string(), 10_000, "EUR");
        }
        deliver(&process, &format!("evt-{n}"), &captured(id, 10_000)).await.unwrap();
        ids.push(id);
    }
    for id in ids {
        world.succeeds(&process, id).await;
        let journals = process.engine.journals_of(world.tenant, id.0).await.unwrap();
        assert_eq!(journals.len(), 1);
        world.told_every_move(&process, id).await;
    }
    process.stop().await;
}

/// Events of one gateway account say nothing about payments of another.
#[sqlx::test(migrations = false)]
async fn event_of_another_gateway_account_is_not_ours(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let id = world.pay(&process, "accept").await;
    world.becomes(&process, id, &[Processing]).await;
    world.sql("UPDATE payments.payment SET gateway = 'elsewhere'").await;
    deliver(&process, "evt", &captured(id, 10_000)).await.unwrap();
    world.until_number("SELECT count(*) FROM payments.inbound_event WHERE state = 'parked'", 1).await;
    assert_eq!(world.get(&process, id).await.status, Processing);
    process.stop().await;
}

/// Money of another amount may have moved: a late "no" must not free the order, and a late "yes" books nothing.
#[sqlx::test(migrations = false)]
async fn nothing_moves_after_a_wrong_amount_until_a_person_decides(pool: PgPool) {
    let world = world(pool).await;
    let process = world.process().await;
    let first = world.create(&process, world.order("other_amount", 10_000, Some("WA-1"))).await.unwrap();
    let id = tallystick_payments::ids::PaymentId(first.id);
    until("attention", async || world.get(&process, id).await.attention.is_some()).await;
    deliver(&process, "no", &json!({"type": "declined", "key": id})).await.unwrap();
    deliver(&process, "yes", &captured(id, 10_000)).await.unwrap();
    world.until_number(OPEN, 0).await;
    assert_eq!(world.statuses(&process, id).await, ["pending", "unknown"]);
    let again = world.create(&process, world.order("ok", 10_000, Some("WA-1"))).await.unwrap();
    assert_eq!((again.existing, again.id), (true, first.id));
    assert_eq!(world.number("SELECT count(*) FROM ledger.journal").await, 0);
    process.stop().await;
}

/// An event that cannot be stored does not take those down that came with it.
#[sqlx::test(migrations = false)]
async fn event_that_cannot_be_stored_is_set_apart(pool: PgPool) {
    let world = Arc::new(world(pool).await);
    let settings =
        tallystick_payments::Settings { create_linger: std::time::Duration::from_millis(50), ..quick() };
    let process = Arc::new(world.process_with(settings).await);
    let events = (0..20).map(|n| {
        let process = process.clone();
        let reference = if n == 7 { "a\u{0}b".to_owned() } else { format!("r{n}") };
        let body = json!({"type": "captured", "reference": reference, "amount_minor": 1, "currency": "EUR"});
        tokio::spawn(async move { deliver(&process, &format!("e{n}"), &body).await })
    });
    for (n, event) in events.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(event.await.unwrap().is_ok(), n != 7, "event {n}");
    }
    world.until_number("SELECT count(*) FROM payments.inbound_event WHERE state = 'parked'", 19).await;
}
