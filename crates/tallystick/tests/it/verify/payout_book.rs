//! The rules about the gateway's book and payouts, with books that were falsified.

use std::collections::BTreeMap;
use std::time::Duration;

use tallystick_payments::payout::PayoutStatus;
use tallystick_payments::tenants;
use tallystick_payments::verify::{self, Effect, EffectKind, Options, Status};

use super::book::{PlainBook, expect, of, sorted};
use super::fixture::{AMOUNT, Fixture, Running, exceptions, verified};
use super::payout_fixture::{funded, told, wanted};
use super::plant::plant;
use crate::support::until;

#[tokio::test]
async fn a_second_payout_or_return_of_a_key_and_of_a_reference() {
    let fixture = Fixture::new().await;
    let again = fixture.effect("sent");
    expect(&fixture, |book| book.push(again), &[("I8", &["{sent}"])]).await;
    let home = Effect { kind: EffectKind::PayoutReturn, ..fixture.effect("back") };
    expect(&fixture, |book| book.push(home), &[("I8", &["{back}"])]).await;
    // The bank refused the first payout of the reference, and paid it after the second.
    let first = Effect { key: fixture.id("refused").to_string(), ..fixture.effect("resent") };
    let violated: &[(&'static str, &[&str])] =
        &[("I8", &["{refused}", "{resent}"]), ("I11", &["{refused}", "{late}", "{late payout}"])];
    expect(&fixture, |book| book.push(first), violated).await;
    // One came back and the reference was used again: without its return, two stand.
    let violated: &[(&'static str, &[&str])] = &[("I8", &["{back}", "{after back}"]), ("I10", &["{back}"])];
    expect(&fixture, |book| book.retain(|e| e.kind != EffectKind::PayoutReturn), violated).await;
}

#[tokio::test]
async fn effects_of_another_kind_than_their_keys() {
    let fixture = Fixture::new().await;
    let under = |kind, name: &str| Effect {
        kind,
        key: fixture.id(name).to_string(),
        reference: "odd".into(),
        ..fixture.effect("sent")
    };
    for kind in [EffectKind::Charge, EffectKind::Authorize, EffectKind::Refund] {
        expect(&fixture, |book| book.push(under(kind, "fresh")), &[("I9", &["{fresh}"])]).await;
    }
    expect(&fixture, |book| book.push(under(EffectKind::Payout, "open")), &[("I9", &["{open}"])]).await;
    let foreign = Effect { key: "somebody-elses".into(), ..fixture.effect("sent") };
    expect(&fixture, |book| book.push(foreign), &[("I9", &["somebody-elses"])]).await;
    let elsewhere = Effect { gateway: Some("elsewhere".into()), ..under(EffectKind::Payout, "gone") };
    expect(&fixture, |book| book.push(elsewhere), &[("I9", &["{gone}"])]).await;
    // Sent, and we do not know yet or have not asked: all of these may be in the book.
    let flying = ["gone", "banked", "waiting"].map(|name| under(EffectKind::Payout, name));
    expect(&fixture, |book| book.extend(flying), &[]).await;
}

#[tokio::test]
async fn payouts_that_the_book_does_not_have_or_has_otherwise() {
    let fixture = Fixture::new().await;
    let all = ["sent", "lost payout", "their payout", "back"];
    let ids = all.map(|name| fixture.id(name));
    let wrong = ["{sent}", "{lost payout}", "{their payout}", "{back}"];
    let none =
        |book: &mut Vec<Effect>| book.retain(|effect| !ids.iter().any(|id| effect.key == id.to_string()));
    expect(&fixture, none, &[("I10", &wrong)]).await;
    let changes: [fn(&mut Effect); 2] = [|e| e.currency = "USD".into(), |e| e.reference = "another".into()];
    for change in changes {
        expect(&fixture, |book| ids.iter().for_each(|id| change(of(book, *id))), &[("I10", &wrong)]).await;
    }
    // Where none has a return, what is sent must stand whole.
    let changes: [fn(&mut Effect); 2] = [|e| e.amount_minor = AMOUNT - 1, |e| e.standing = false];
    for change in changes {
        let some = |book: &mut Vec<Effect>| ids[..3].iter().for_each(|id| change(of(book, *id)));
        expect(&fixture, some, &[("I10", &wrong[..3])]).await;
    }
    // A return that is smaller leaves something out, and the reference was used again.
    let home = |book: &mut Vec<Effect>| {
        let home = book.iter_mut().find(|effect| effect.kind == EffectKind::PayoutReturn);
        home.expect("one came back").amount_minor = AMOUNT - 1;
    };
    let violated: &[(&'static str, &[&str])] = &[("I8", &["{back}", "{after back}"]), ("I10", &["{back}"])];
    expect(&fixture, home, violated).await;
    // A bank may give the return a name of its own.
    let named = |book: &mut Vec<Effect>| {
        let home = book.iter_mut().find(|effect| effect.kind == EffectKind::PayoutReturn);
        home.expect("one came back").reference = "its own".into();
    };
    expect(&fixture, named, &[]).await;
    // Back in the book, and nobody ever told us.
    let untold = Effect { kind: EffectKind::PayoutReturn, ..fixture.effect("sent") };
    expect(&fixture, |book| book.push(untold), &[("I10", &["{sent}"])]).await;
}

#[tokio::test]
async fn money_that_left_for_a_payout_that_must_not_be_sent() {
    let fixture = Fixture::new().await;
    let left = ["short", "dropped", "stopped", "asked"]
        .map(|name| Effect { key: fixture.id(name).to_string(), ..fixture.effect("sent") });
    let violated: &[(&'static str, &[&str])] =
        &[("I11", &["{short}", "{dropped}", "{stopped}", "{asked}", "{late}", "{late payout}"])];
    expect(&fixture, |book| book.extend(left), violated).await;
}

#[tokio::test]
async fn a_payout_after_a_no_is_a_violation_unless_an_open_break_names_it_or_it_came_back() {
    let fixture = Fixture::new().await;
    let copy = fixture.copy().await;
    let resolved =
        "UPDATE payments.payout SET attention_code = NULL, attention_break = NULL WHERE payout_id = '{late payout}';
         UPDATE payments.break SET status = 'resolved', resolved_at = now() WHERE break_id = '{late payout break}';
         INSERT INTO outbox.event (event_id, tenant_id, aggregate, aggregate_id, version, type, payload)
         SELECT event_id, tenant_id, aggregate, aggregate_id, 2, 'break.resolved',
                convert_to(replace(replace(replace(convert_from(payload, 'UTF8'), '\"sequence\":1', '\"sequence\":2'),
                'break.created', 'break.resolved'), '\"status\":\"open\"', '\"status\":\"resolved\"'), 'UTF8')
           FROM outbox.event WHERE aggregate_id = '{late payout break}'";
    plant(&copy, &fixture.sql(resolved)).await;
    let found = verified(&copy, Some(&fixture.book())).await;
    let both = sorted(&[fixture.id("late"), fixture.id("late payout")]);
    assert_eq!(exceptions(&found), BTreeMap::from([("I11", (Status::Violated, both))]));
    let mut effects = fixture.effects.clone();
    let seq = effects.len() as u64 + 1;
    effects.push(Effect { kind: EffectKind::PayoutReturn, seq, ..fixture.effect("late payout") });
    let found = verified(&copy, Some(&PlainBook::new(effects))).await;
    let wanted = BTreeMap::from([("I11", (Status::Explained, sorted(&[fixture.id("late")])))]);
    assert_eq!(exceptions(&found), wanted);
}

#[tokio::test]
async fn a_return_whose_webhook_is_on_its_way_is_work_in_flight() {
    let running = Running::start().await;
    let tenant = tenants::find(&running.pool, "default").await.unwrap();
    let wages = funded(&running, tenant, "wages").await;
    let id = running.send(tenant, wanted(wages, "approve"), PayoutStatus::Succeeded).await;
    running.gateway.returns(id);
    let hasty = Options { patience: Duration::ZERO, ..Options::default() };
    let report = verify::run_with(&running.pool, Some(&*running.gateway), &hasty).await.unwrap();
    let wrong = BTreeMap::from([("I10", (Status::Violated, vec![id.to_string()]))]);
    assert_eq!(exceptions(&report), wrong);
    // Asked about again and again, until the bank's word arrives.
    let before = running.gateway.questions();
    let proving = tokio::spawn({
        let (pool, gateway) = (running.pool.clone(), running.gateway.clone());
        let patient = Options { patience: Duration::from_secs(30), ..Options::default() };
        async move { verify::run_with(&pool, Some(&*gateway), &patient).await.unwrap() }
    });
    until("it is in doubt", async || (running.gateway.questions() > before + 1).then_some(())).await;
    running.webhook("back", &told("returned", id, AMOUNT)).await;
    assert_eq!(exceptions(&proving.await.unwrap()), BTreeMap::new());
    assert_eq!(running.payout(tenant, id).await.status, PayoutStatus::Returned);
    running.stop().await;
}
