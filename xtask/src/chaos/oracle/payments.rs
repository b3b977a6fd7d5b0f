//! Payments against the book and the ledger.

use super::{Verdict, judge_history};
use crate::chaos::load::Accepted;
use crate::chaos::read::{Books, Effect, Journal, Move, Payment};

/// Judges one payment; gives its history, nothing when it is gone.
pub fn judge<'a>(
    one: &Accepted,
    books: &'a Books,
    effects: &[&Effect],
    verdict: &mut Verdict,
) -> Option<&'a [Move]> {
    verdict.double_effects += u64::from(effects.len() > 1);
    verdict.require(effects.len() <= 1, || format!("{}: {} effects under one key", one.id, effects.len()));
    let payment = books.payments.get(&one.id)?;
    judge_payment(one, payment, effects, verdict);
    Some(&payment.history)
}

fn judge_payment(one: &Accepted, payment: &Payment, effects: &[&Effect], verdict: &mut Verdict) {
    let (id, wanted) = (&one.id, &one.wanted);
    *verdict.payments.entry(payment.status.clone()).or_default() += 1;
    let same = payment.amount_minor == wanted.amount_minor && payment.currency == wanted.currency;
    verdict.require(same, || format!("{id}: another amount than was asked for"));
    verdict.require(payment.attention.is_none(), || {
        format!("{id}: a person is needed, {:?}", payment.attention)
    });
    judge_history(id, &payment.status, payment.version, &payment.history, verdict);
    let succeeded = match payment.status.as_str() {
        "succeeded" => true,
        "failed" | "canceled" => false,
        status => {
            verdict.unknown_left += 1;
            return verdict.require(false, || format!("{id}: still {status}"));
        }
    };
    let expected = if succeeded { wanted.amount_minor } else { 0 };
    let in_book = effects.iter().filter(|effect| effect.state == "done" && effect.kind == "charge");
    let in_book: i64 = in_book.map(|effect| effect.amount_minor).sum();
    let in_ledger = journals_sum(&payment.journals);
    let agree = in_book == expected && in_ledger == Some(expected) && payment.captured_minor == expected;
    verdict.lost += u64::from(!agree);
    verdict.require(agree, || {
        format!(
            "{id}: {}, so {expected} must be everywhere: gateway {in_book}, ledger {in_ledger:?}, payment {}",
            payment.status, payment.captured_minor
        )
    });
    if let Some(effect) = effects.first() {
        let known = payment.gateway_reference.as_deref() == Some(&effect.reference);
        verdict.require(!succeeded || known && effect.currency == wanted.currency, || {
            format!("{id}: the gateway's id or currency differs from the book's {}", effect.reference)
        });
    }
}

/// What the ledger says was taken; nothing when the journals are not what they must be.
fn journals_sum(journals: &[Journal]) -> Option<i64> {
    let [journal] = journals else { return journals.is_empty().then_some(0) };
    let side = |direction: &str, account: &str| {
        let lines = journal.entries.iter().filter(|e| e.direction == direction && e.account_name == account);
        lines.map(|e| e.amount_minor).sum::<i64>()
    };
    let (taken, earned) = (side("D", "gateway_receivable"), side("C", "sales"));
    (journal.kind == "payment_captured" && journal.entries.len() == 2 && taken == earned).then_some(taken)
}
