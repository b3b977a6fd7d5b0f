use super::*;
use crate::ids::BreakId;
use crate::payment::PaymentStatus;
use crate::verify::book::Effect;
use crate::verify::report::Status;

fn of(id: u128, of: Of) -> Facts {
    Facts {
        tenant_id: Uuid::from_u128(9),
        id: Uuid::from_u128(id),
        currency: "EUR".into(),
        gateway: "bank".into(),
        gateway_reference: Some(format!("ref{id}")),
        of,
    }
}

fn facts(id: u128, status: PaymentStatus, captured_minor: i64) -> Facts {
    let authorized_minor = if captured_minor > 0 || status == PaymentStatus::Authorized { 100 } else { 0 };
    of(id, Of::Payment { status, authorized_minor, captured_minor })
}

fn payout(id: u128, status: PayoutStatus) -> Facts {
    let (account_id, amount_minor, failure_code) = (Uuid::from_u128(8), 100, None);
    of(id, Of::Payout { status, account_id, amount_minor, failure_code })
}

fn effect(seq: u64, id: u128, kind: EffectKind) -> Effect {
    Effect {
        seq,
        gateway: Some("bank".into()),
        kind,
        key: Uuid::from_u128(id).to_string(),
        reference: format!("ref{id}"),
        amount_minor: 100,
        currency: "EUR".into(),
        standing: true,
    }
}

fn shelf(effects: &[Effect]) -> Shelf {
    Shelf::of_effects(effects).unwrap()
}

use EffectKind::{Authorize, Capture, Charge, Other, Payout, PayoutReturn, Refund, Void};
use PaymentStatus::{Authorized, Canceled, Failed, Pending, Succeeded};

#[test]
fn a_capture_is_in_the_book_only_with_the_same_amount_currency_account_and_reference() {
    let paid = facts(1, Succeeded, 100);
    assert!(is_in_book(&paid, &shelf(&[effect(1, 1, Charge)])));
    assert!(is_in_book(&paid, &shelf(&[effect(1, 1, Charge), effect(2, 1, Refund)])), "given back later");
    let wrong: [fn(&mut Effect); 6] = [
        |e| e.amount_minor = 101,
        |e| e.currency = "USD".into(),
        |e| e.gateway = Some("other".into()),
        |e| e.reference = "ref2".into(),
        |e| e.standing = false,
        |e| e.kind = Authorize,
    ];
    for change in wrong {
        let mut other = effect(1, 1, Charge);
        change(&mut other);
        assert!(!is_in_book(&paid, &shelf(std::slice::from_ref(&other))), "{other:?}");
    }
    assert!(!is_in_book(&paid, &shelf(&[])));
    let part = |seq, amount_minor| Effect { amount_minor, ..effect(seq, 1, Capture) };
    assert!(is_in_book(&paid, &shelf(&[effect(1, 1, Authorize), part(2, 60), part(3, 40)])));
    assert!(!is_in_book(&paid, &shelf(&[effect(1, 1, Authorize), part(2, 60)])));
    let held = facts(1, Authorized, 0);
    assert!(is_in_book(&held, &shelf(&[Effect { standing: false, ..effect(1, 1, Authorize) }])));
    assert!(!is_in_book(&held, &shelf(&[Effect { amount_minor: 99, ..effect(1, 1, Authorize) }])));
}

#[test]
fn a_payout_is_in_the_book_only_as_it_was_sent_and_with_its_return_only_when_it_came_back() {
    let (sent, back) = (payout(1, PayoutStatus::Succeeded), payout(1, PayoutStatus::Returned));
    let out = || effect(1, 1, Payout);
    let home = || Effect { reference: "return1".into(), ..effect(2, 1, PayoutReturn) };
    assert!(is_in_book(&sent, &shelf(&[out()])) && !is_in_book(&back, &shelf(&[out()])));
    assert!(is_in_book(&back, &shelf(&[out(), home()])) && !is_in_book(&sent, &shelf(&[out(), home()])));
    let undone = Effect { standing: false, ..home() };
    assert!(is_in_book(&sent, &shelf(&[out(), undone.clone()])));
    assert!(!is_in_book(&back, &shelf(&[out(), undone])));
    for book in [vec![], vec![home()]] {
        assert!(!is_in_book(&sent, &shelf(&book)) && !is_in_book(&back, &shelf(&book)));
    }
    let wrong: [fn(&mut Effect); 4] = [
        |e| e.amount_minor = 101,
        |e| e.currency = "USD".into(),
        |e| e.gateway = Some("other".into()),
        |e| e.standing = false,
    ];
    for change in wrong {
        let (mut other_out, mut other_home) = (out(), home());
        change(&mut other_out);
        change(&mut other_home);
        assert!(!is_in_book(&sent, &shelf(std::slice::from_ref(&other_out))), "{other_out:?}");
        assert!(!is_in_book(&back, &shelf(&[out(), other_home.clone()])), "{other_home:?}");
    }
    let nameless = Effect { reference: "ref2".into(), ..out() };
    assert!(!is_in_book(&sent, &shelf(&[nameless])));
    for kind in [Charge, Authorize, Capture, Refund, Other] {
        assert!(!is_in_book(&sent, &shelf(&[effect(1, 1, kind)])), "{kind:?}");
    }
}

/// Runs the whole judgement over operations and a book that does not change; gives (status, violations) of I8 to I11.
fn judged(
    operations: &[Facts],
    orders: &[&[u128]],
    breaks: &[(u128, u128)],
    before: &[Effect],
    after: &[Effect],
) -> Vec<(Status, Vec<String>, Vec<BreakId>)> {
    let first = shelf(before);
    let mut inside = Inside::new(&first);
    inside.look(operations.to_vec(), &first);
    inside.orders = orders.iter().map(|ids| ids.iter().map(|id| Uuid::from_u128(*id)).collect()).collect();
    inside.breaks =
        Breaks::of_rows(breaks.iter().map(|(p, b)| (Uuid::from_u128(*p), Uuid::from_u128(*b))).collect());
    let foreign = inside.foreign_keys(&first);
    let whole = shelf(&[before, after].concat());
    let mut checks = inside.judge(&whole).finish(&whole);
    checks.insert(1, foreign);
    checks.into_iter().map(|check| (check.status, check.violations, check.breaks)).collect()
}

fn held() -> (Status, Vec<String>, Vec<BreakId>) {
    (Status::Held, vec![], vec![])
}

fn violated(ids: &[u128]) -> (Status, Vec<String>, Vec<BreakId>) {
    (Status::Violated, ids.iter().map(|id| Uuid::from_u128(*id).to_string()).collect(), vec![])
}

#[test]
fn books_that_agree_hold() {
    let payments =
        [facts(1, Succeeded, 100), facts(2, Failed, 0), facts(3, Authorized, 0), facts(4, Pending, 0)];
    let before = [effect(1, 1, Charge), effect(2, 3, Authorize)];
    assert_eq!(judged(&payments, &[&[1, 2]], &[], &before, &[]), vec![held(); 4]);
}

#[test]
fn what_happens_after_the_snapshot_is_work_in_flight() {
    // The effect of 1 came between the two readings; 5 was accepted after the snapshot and charged.
    let payments = [facts(1, Succeeded, 100), facts(2, Failed, 0)];
    assert_eq!(
        judged(&payments, &[], &[], &[], &[effect(1, 1, Charge), effect(2, 5, Charge)]),
        vec![held(); 4]
    );
}

#[test]
fn each_kind_of_disagreement_is_found_by_its_own_rule() {
    let payments = [facts(1, Succeeded, 100), facts(2, Failed, 0)];
    let fine = effect(1, 1, Charge);
    let twice = judged(&payments, &[], &[], &[fine.clone(), effect(2, 1, Charge)], &[]);
    assert_eq!(twice, [violated(&[1]), held(), held(), held()]);
    let foreign = judged(&payments, &[], &[], &[fine.clone(), effect(2, 7, Charge)], &[]);
    assert_eq!(foreign, [held(), violated(&[7]), held(), held()]);
    let missing = judged(&payments, &[], &[], &[], &[]);
    assert_eq!(missing, [held(), held(), violated(&[1]), held()]);
    let unwanted = judged(&payments, &[], &[], &[fine.clone(), effect(2, 2, Charge)], &[]);
    assert_eq!(unwanted, [held(), held(), held(), violated(&[2])]);
    let order = judged(&payments, &[&[1, 2]], &[], &[fine, effect(2, 2, Charge)], &[]);
    assert_eq!(order, [violated(&[1, 2]), held(), held(), violated(&[2])]);
}

#[test]
fn a_key_at_another_account_than_its_payments_is_foreign_there() {
    let stray = Effect { gateway: Some("other".into()), ..effect(1, 1, Charge) };
    let found = judged(&[facts(1, Succeeded, 100)], &[], &[], &[stray], &[]);
    assert_eq!(found, [held(), violated(&[1]), violated(&[1]), held()]);
}

#[test]
fn payouts_that_agree_with_the_book_hold_whatever_their_state() {
    let all = [
        payout(1, PayoutStatus::Succeeded),
        payout(2, PayoutStatus::Returned),
        payout(3, PayoutStatus::Failed),
        payout(4, PayoutStatus::Pending),
        payout(5, PayoutStatus::Unknown),
        payout(6, PayoutStatus::Processing),
        payout(7, PayoutStatus::RequiresApproval),
        payout(8, PayoutStatus::Canceled),
    ];
    // 5 and 6 had their effect, and we do not know yet; 2 came back, so its reference was used again by 1.
    let before =
        [effect(1, 2, Payout), effect(2, 2, PayoutReturn), effect(3, 1, Payout), effect(4, 5, Payout)];
    let after = [effect(5, 6, Payout), effect(6, 4, Payout)];
    assert_eq!(judged(&all, &[&[2, 1], &[3, 4]], &[], &before, &after), vec![held(); 4]);
    // The bank refused 3, paid it all the same, and has it back: nobody is out of money.
    let mended = [before.to_vec(), vec![effect(5, 3, Payout), effect(6, 3, PayoutReturn)]].concat();
    assert_eq!(judged(&all, &[], &[], &mended, &[]), vec![held(); 4]);
}

#[test]
fn each_kind_of_disagreement_about_a_payout_is_found_by_its_own_rule() {
    use PayoutStatus::{Failed, RequiresApproval, Returned, Succeeded};
    let (sent, back) = (payout(1, Succeeded), payout(2, Returned));
    let fine = [effect(1, 1, Payout), effect(2, 2, Payout), effect(3, 2, PayoutReturn)];
    let with = |operations: &[Facts], orders: &[&[u128]], more: &[Effect]| {
        let operations = [&[sent.clone(), back.clone()], operations].concat();
        judged(&operations, orders, &[], &[&fine, more].concat(), &[])
    };
    assert_eq!(with(&[], &[], &[]), vec![held(); 4]);
    assert_eq!(with(&[], &[], &[effect(4, 1, Payout)]), [violated(&[1]), held(), held(), held()]);
    assert_eq!(with(&[], &[], &[effect(4, 2, PayoutReturn)]), [violated(&[2]), held(), held(), held()]);
    assert_eq!(with(&[], &[], &[effect(4, 1, PayoutReturn)]), [held(), held(), violated(&[1]), held()]);
    for status in [Failed, PayoutStatus::Canceled, RequiresApproval] {
        let found = with(&[payout(3, status)], &[], &[effect(4, 3, Payout)]);
        assert_eq!(found, [held(), held(), held(), violated(&[3])], "{status:?}");
    }
    let found = with(&[payout(3, Succeeded)], &[&[1, 3]], &[effect(4, 3, Payout)]);
    assert_eq!(found, [violated(&[1, 3]), held(), held(), held()]);
    let missing = judged(&[sent.clone(), back.clone()], &[], &[], &[], &[]);
    assert_eq!(missing, [held(), held(), violated(&[1, 2]), held()]);
}

#[test]
fn an_effect_of_another_kind_than_its_operation_is_foreign() {
    for kind in [Charge, Authorize, Capture, Void, Refund] {
        let operations = [payout(1, PayoutStatus::Pending), facts(2, Pending, 0)];
        let book = [effect(1, 1, kind), effect(2, 2, kind)];
        assert_eq!(judged(&operations, &[], &[], &book, &[])[1], violated(&[1]), "{kind:?}");
    }
    for kind in [Payout, PayoutReturn] {
        let operations = [payout(1, PayoutStatus::Pending), facts(2, Pending, 0)];
        let book = [effect(1, 1, kind), effect(2, 2, kind)];
        assert_eq!(judged(&operations, &[], &[], &book, &[])[1], violated(&[2]), "{kind:?}");
    }
    let book = [effect(1, 1, Other), effect(2, 2, Other)];
    let operations = [payout(1, PayoutStatus::Pending), facts(2, Pending, 0)];
    assert_eq!(judged(&operations, &[], &[], &book, &[])[1], held());
}

#[test]
fn an_open_break_explains_and_names_itself() {
    let payments = [facts(1, Succeeded, 100), facts(2, Failed, 0)];
    let book = [effect(1, 1, Charge), effect(2, 2, Charge)];
    let found = judged(&payments, &[&[1, 2]], &[(2, 77)], &book, &[]);
    let ids = |ids: &[u128]| ids.iter().map(|id| Uuid::from_u128(*id).to_string()).collect::<Vec<_>>();
    let by = vec![BreakId(Uuid::from_u128(77))];
    assert_eq!(found[0], (Status::Explained, ids(&[1, 2]), by.clone()));
    assert_eq!(found[3], (Status::Explained, ids(&[2]), by));
}

#[test]
fn what_was_given_back_does_not_stand() {
    let payments = [facts(2, Failed, 0), facts(3, Canceled, 0)];
    let book =
        [effect(1, 2, Charge), effect(2, 2, Refund), Effect { standing: false, ..effect(3, 3, Authorize) }];
    assert_eq!(judged(&payments, &[], &[], &book, &[]), vec![held(); 4]);
}

#[test]
fn doubts_go_when_both_sides_agree_at_last() {
    let before = [effect(1, 2, Charge)];
    let first = shelf(&before);
    let mut inside = Inside::new(&first);
    inside.look(vec![facts(1, Succeeded, 100), facts(2, Failed, 0)], &first);
    let mut judged = inside.judge(&first);
    let mut ids = judged.in_doubt();
    ids.sort_unstable();
    assert_eq!(ids, [Uuid::from_u128(1), Uuid::from_u128(2)]);
    // The effect of 1 shows up; the webhook about 2 arrives and opens a break.
    let now = shelf(&[effect(1, 2, Charge), effect(2, 1, Charge)]);
    let breaks = Breaks::of_rows(vec![(Uuid::from_u128(2), Uuid::from_u128(77))]);
    judged.again(vec![facts(1, Succeeded, 100), facts(2, Failed, 0)], &breaks, &now);
    assert!(judged.in_doubt().is_empty());
    let statuses: Vec<Status> = judged.finish(&now).iter().map(|check| check.status).collect();
    assert_eq!(statuses, [Status::Held, Status::Held, Status::Explained]);
}

#[test]
fn a_return_whose_webhook_is_on_its_way_is_asked_about_again() {
    let book = shelf(&[effect(1, 1, Payout), effect(2, 1, PayoutReturn)]);
    let doubt = || {
        let mut inside = Inside::new(&book);
        inside.look(vec![payout(1, PayoutStatus::Succeeded)], &book);
        let judged = inside.judge(&book);
        assert_eq!(judged.in_doubt(), [Uuid::from_u128(1)]);
        judged
    };
    let mut judged = doubt();
    judged.again(vec![payout(1, PayoutStatus::Returned)], &Breaks::default(), &book);
    assert!(judged.in_doubt().is_empty());
    assert!(judged.finish(&book).iter().all(|check| check.status == Status::Held));
    let mut judged = doubt();
    judged.again(vec![payout(1, PayoutStatus::Succeeded)], &Breaks::default(), &book);
    let statuses: Vec<Status> = judged.finish(&book).iter().map(|check| check.status).collect();
    assert_eq!(statuses, [Status::Held, Status::Violated, Status::Held]);
}
