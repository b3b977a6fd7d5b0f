//! Payouts against the book and the ledger, and the accounts from which they were made.

use std::collections::BTreeMap;

use super::{Verdict, judge_history};
use crate::chaos::load::Accepted;
use crate::chaos::read::{Books, Effect, Journal, Line, Move, Payout};
use crate::chaos::wanted::{Ending, SOURCES, What};

/// The failure of a payout whose account had too little.
const INSUFFICIENT: &str = "insufficient_funds";

/// What must be at the bank and in the ledger for a final status.
struct Expected {
    effects: &'static [&'static str],
    journals: &'static [(&'static str, &'static str)],
}

/// Nothing for a status that is not final.
fn expected(status: &str, insufficient: bool) -> Option<Expected> {
    let of = |effects, journals| Some(Expected { effects, journals });
    match status {
        "succeeded" => of(&["payout"], &[("payout_debited", "settled")]),
        // Refused before it was debited: the bank was never asked.
        "failed" if insufficient => of(&[], &[]),
        "failed" => of(&[], &[("payout_debited", "failed"), ("payout_reversed", "failed")]),
        "returned" => {
            of(&["payout", "payout_return"], &[("payout_debited", "settled"), ("payout_returned", "settled")])
        }
        _ => None,
    }
}

/// Judges one payout; gives its history, nothing when it is gone.
pub fn judge<'a>(
    one: &Accepted,
    books: &'a Books,
    effects: &[&Effect],
    verdict: &mut Verdict,
) -> Option<&'a [Move]> {
    let outs = effects.iter().filter(|effect| effect.kind == "payout").count();
    verdict.double_effects += u64::from(outs > 1 || effects.len() > 2);
    let payout = books.payouts.get(&one.id)?;
    *verdict.payouts.entry(payout.status.clone()).or_default() += 1;
    judge_words(one, payout, verdict);
    let insufficient = payout.failure.as_ref().is_some_and(|failure| failure.code == INSUFFICIENT);
    verdict.insufficient_funds += u64::from(insufficient);
    let Some(expected) = expected(&payout.status, insufficient) else {
        verdict.unknown_left += 1;
        verdict.require(false, || format!("{}: still {}", one.id, payout.status));
        return Some(&payout.history);
    };
    judge_ending(one, payout, insufficient, verdict);
    judge_money(one, payout, effects, &expected, verdict);
    let asked = insufficient && books.requests.iter().any(|request| request.key == one.id);
    verdict.require(!asked, || format!("{}: refused here and asked of the bank", one.id));
    Some(&payout.history)
}

/// It is what was asked for, and its history and events lead to its status.
fn judge_words(one: &Accepted, payout: &Payout, verdict: &mut Verdict) {
    let (id, wanted) = (&one.id, &one.wanted);
    let What::Payout { destination, .. } = wanted.what else { return };
    let same = payout.amount_minor == wanted.amount_minor
        && payout.currency == wanted.currency
        && payout.destination == destination;
    verdict.require(same, || format!("{id}: another payout than was asked for"));
    verdict
        .require(payout.attention.is_none(), || format!("{id}: a person is needed, {:?}", payout.attention));
    judge_history(id, &payout.status, payout.version, &payout.history, verdict);
    let told = payout.events.iter().map(|event| (event.sequence, event.r#type.clone()));
    let moved = payout.history.iter().map(|row| {
        let word = if row.version == 1 { "created" } else { &row.status };
        (row.version, format!("payout.{word}"))
    });
    verdict.require(told.eq(moved), || {
        format!("{id}: its events {:?} do not tell its history {:?}", payout.events, payout.history)
    });
}

/// It ended as its destination makes it end; only a scarce account may have had too little.
fn judge_ending(one: &Accepted, payout: &Payout, insufficient: bool, verdict: &mut Verdict) {
    let What::Payout { source, destination, ending, .. } = one.wanted.what else { return };
    if insufficient {
        let scarce = SOURCES.get(source).is_some_and(|source| source.is_scarce());
        return verdict.require(scarce, || {
            format!("{}: insufficient funds on an account with funds for everything", one.id)
        });
    }
    let fits = match ending {
        Ending::Any => payout.status != "returned",
        Ending::Succeeded => payout.status == "succeeded",
        Ending::Failed => payout.status == "failed",
        Ending::Returned => payout.status == "returned",
    };
    verdict.require(fits, || format!("{}: to {destination}, and {}", one.id, payout.status));
}

/// Book and ledger have what the status says, to the cent.
fn judge_money(
    one: &Accepted,
    payout: &Payout,
    effects: &[&Effect],
    expected: &Expected,
    verdict: &mut Verdict,
) {
    let wanted = &one.wanted;
    let whole = |effect: &Effect| {
        effect.state == "done"
            && effect.amount_minor == wanted.amount_minor
            && effect.currency == wanted.currency
    };
    let kinds: Vec<&str> = effects.iter().map(|effect| effect.kind.as_str()).collect();
    let in_book = kinds == expected.effects && effects.iter().all(|effect| whole(effect));
    let mut journals: Vec<(&str, &str)> =
        payout.journals.iter().map(|journal| (journal.kind.as_str(), journal.status.as_str())).collect();
    journals.sort_unstable();
    let lines =
        payout.journals.iter().all(|journal| has_lines(journal, &payout.account_id, wanted.amount_minor));
    let in_ledger = journals == expected.journals && lines;
    verdict.lost += u64::from(!(in_book && in_ledger));
    verdict.require(in_book, || format!("{}: {}, and the book has {effects:?}", one.id, payout.status));
    verdict.require(in_ledger, || {
        format!("{}: {}, and its journals are {:?}", one.id, payout.status, payout.journals)
    });
    if let Some(effect) = effects.first() {
        let known = payout.gateway_reference.as_deref() == Some(&effect.reference);
        verdict.require(known, || {
            format!("{}: the bank's id differs from the book's {}", one.id, effect.reference)
        });
    }
}

/// Two lines of the whole amount: from the customer's account, or back to it.
fn has_lines(journal: &Journal, account_id: &str, amount_minor: i64) -> bool {
    let bank = if journal.kind == "payout_debited" { "C" } else { "D" };
    let [one, other] = journal.entries.as_slice() else { return false };
    let bank_first = one.account_name == "payout_bank";
    let (at_bank, customer) = if bank_first { (one, other) } else { (other, one) };
    at_bank.account_name == "payout_bank"
        && customer.account_id == account_id
        && at_bank.direction == bank
        && customer.direction != bank
        && [one, other].iter().all(|entry| entry.amount_minor == amount_minor)
}

/// Each account has what it was given without what was paid, and nothing of it is open. That it was never below its
/// minimum meanwhile is for those who looked at it meanwhile.
pub fn judge_accounts(books: &Books, verdict: &mut Verdict) {
    let mut paid: BTreeMap<&str, i64> = BTreeMap::new();
    for payout in books.payouts.values().filter(|payout| payout.status == "succeeded") {
        *paid.entry(&payout.account_id).or_default() += payout.amount_minor;
    }
    for (id, statement) in &books.accounts {
        let left = statement.funds_minor - paid.get(id.as_str()).copied().unwrap_or_default();
        let balance = statement.balance;
        let all = [balance.balance_minor, balance.settled_minor, balance.available_minor];
        verdict.require(all.iter().all(|sum| *sum == left) && balance.pending_minor == 0, || {
            format!("account {id}: {left} must be left and nothing pending; it says {balance:?}")
        });
        let lines: i64 = statement.lines.iter().map(Line::credit_minor).sum();
        verdict.require(lines == balance.balance_minor, || {
            format!("account {id}: its lines make {lines}, its balance is {}", balance.balance_minor)
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{Verdict, judge};
    use crate::chaos::accounts::Balance;
    use crate::chaos::load::Accepted;
    use crate::chaos::read::{Books, Effect, Line, Payout, Statement};
    use crate::chaos::wanted::{Ending, Wanted, What};

    const AMOUNT: i64 = 300;
    /// Name, destination, its ending, status, effects, journals, scarce.
    type Row = (
        &'static str,
        Ending,
        &'static str,
        &'static [&'static str],
        &'static [(&'static str, &'static str)],
    );
    const ROWS: [Row; 4] = [
        ("paid", Ending::Succeeded, "succeeded", &["payout"], &[("payout_debited", "settled")]),
        (
            "closed",
            Ending::Failed,
            "failed",
            &[],
            &[("payout_debited", "failed"), ("payout_reversed", "failed")],
        ),
        (
            "back",
            Ending::Returned,
            "returned",
            &["payout", "payout_return"],
            &[("payout_debited", "settled"), ("payout_returned", "settled")],
        ),
        ("short", Ending::Succeeded, "failed", &[], &[]),
    ];
    const FUNDS: i64 = 500;

    fn payout((name, _, status, _, journals): &Row) -> Payout {
        let line = |account_id: &str, account: &str, direction: &str| json!({"account_id": account_id, "account_name": account, "direction": direction, "amount_minor": AMOUNT});
        let journal = |(kind, status): &(&str, &str)| {
            let (out, back) = if *kind == "payout_debited" { ("D", "C") } else { ("C", "D") };
            json!({"kind": kind, "status": status, "entries": [line("acc", "customer", out), line("bank", "payout_bank", back)]})
        };
        let journals: Vec<Value> = journals.iter().map(journal).collect();
        let failure = match *name {
            "short" => json!({"code": "insufficient_funds"}),
            "closed" => json!({"code": "account_closed"}),
            _ => Value::Null,
        };
        let reference = if journals.is_empty() || *status == "failed" { Value::Null } else { json!("po") };
        let payout = json!({
            "payout_id": name, "status": status, "account_id": "acc", "destination": "to", "amount_minor": AMOUNT, "currency": "EUR",
            "gateway_reference": reference, "failure": failure, "attention": null, "version": 2, "journals": journals,
            "history": [{"version": 1, "status": "pending"}, {"version": 2, "status": status}],
            "events": [{"type": "payout.created", "sequence": 1}, {"type": format!("payout.{status}"), "sequence": 2}],
        });
        serde_json::from_value(payout).unwrap()
    }

    /// A run in which each ending was met once.
    fn run() -> (Vec<Accepted>, Books) {
        let (mut accepted, mut books) = (Vec::new(), Books::default());
        for (number, row) in (0..).zip(&ROWS) {
            let (name, ending, _, effects, _) = row;
            // The second account is a scarce one.
            let what = What::Payout { source: 1, destination: "to", ending: *ending, referenced: false };
            let wanted = Wanted { what, amount_minor: AMOUNT, currency: "EUR", twin: false };
            accepted.push(Accepted { number, key: format!("key-{name}"), id: (*name).to_owned(), wanted });
            books.payouts.insert((*name).to_owned(), payout(row));
            books.listed.insert((*name).to_owned());
            books.replayed.insert(format!("key-{name}"), (*name).to_owned());
            for kind in *effects {
                let seq = books.effects.len();
                let effect = json!({"seq": seq, "kind": kind, "key": name, "reference": "po", "amount_minor": AMOUNT, "currency": "EUR", "state": "done"});
                books.effects.push(serde_json::from_value(effect).unwrap());
            }
            if *name != "short" {
                let request = json!({"seq": number, "operation": "payout", "key": name, "answer": 202});
                books.requests.push(serde_json::from_value(request).unwrap());
            }
        }
        let line = |direction: &str, amount_minor| Line { direction: direction.to_owned(), amount_minor };
        let left = FUNDS - AMOUNT;
        let balance =
            Balance { balance_minor: left, pending_minor: 0, settled_minor: left, available_minor: left };
        let lines = vec![
            line("C", FUNDS),
            line("D", AMOUNT),
            line("C", AMOUNT),
            line("D", AMOUNT),
            line("C", AMOUNT),
            line("D", AMOUNT),
        ];
        books.accounts.insert("acc".to_owned(), Statement { funds_minor: FUNDS, balance, lines });
        let accounts = json!([{"name": "payout_bank", "balance_minor": -AMOUNT}, {"name": "customer", "balance_minor": left}]);
        let trial = json!({"debits_minor": 9, "credits_minor": 9, "accounts": accounts});
        books.trials.insert("EUR".to_owned(), serde_json::from_value(trial).unwrap());
        books.left_at_bank.insert("EUR".to_owned(), -AMOUNT);
        (accepted, books)
    }

    /// Plants something and gives what is found.
    fn planted(plant: impl FnOnce(&mut Vec<Accepted>, &mut Books)) -> Verdict {
        let (mut accepted, mut books) = run();
        plant(&mut accepted, &mut books);
        judge(&accepted, &books)
    }

    fn of<'a>(books: &'a mut Books, id: &str) -> &'a mut Payout {
        books.payouts.get_mut(id).unwrap()
    }

    fn account(books: &mut Books) -> &mut Statement {
        books.accounts.get_mut("acc").unwrap()
    }

    type Plant = fn(&mut Vec<Accepted>, &mut Books);

    #[test]
    fn books_that_agree_are_left_in_peace() {
        let verdict = planted(|_, _| {});
        assert_eq!(verdict.violations, [""; 0]);
        assert_eq!((verdict.lost, verdict.double_effects, verdict.unknown_left), (0, 0, 0));
        let finals: Vec<_> =
            verdict.payouts.iter().map(|(status, count)| (status.as_str(), *count)).collect();
        assert_eq!(finals, [("failed", 2), ("returned", 1), ("succeeded", 1)]);
        assert_eq!(verdict.insufficient_funds, 1);
    }

    #[test]
    fn the_order_of_a_journals_lines_does_not_matter() {
        let verdict = planted(|_, books| of(books, "back").journals[1].entries.swap(0, 1));
        assert_eq!(verdict.violations, [""; 0]);
    }

    #[test]
    fn a_second_transfer_is_found() {
        let verdict = planted(|_, books| books.effects.push(books.effects[0].clone()));
        assert_eq!(verdict.double_effects, 1);
        assert!(!verdict.violations.is_empty());
        let verdict = planted(|_, books| {
            let back = books.effects.iter().find(|effect| effect.kind == "payout_return").unwrap().clone();
            books.effects.push(back);
        });
        assert_eq!(verdict.double_effects, 1);
    }

    #[test]
    fn money_that_only_one_side_knows_is_found() {
        let plants: [Plant; 12] = [
            |_, books| books.effects.retain(|effect| effect.key != "paid"),
            |_, books| books.effects.retain(|effect| effect.kind != "payout_return"),
            |_, books| books.effects[0].amount_minor = 301,
            |_, books| books.effects[0].state = "undone".to_owned(),
            |_, books| books.effects.push(Effect { key: "short".to_owned(), ..books.effects[0].clone() }),
            |_, books| books.effects.push(Effect { key: "closed".to_owned(), ..books.effects[0].clone() }),
            |_, books| of(books, "paid").journals.clear(),
            |_, books| of(books, "paid").journals[0].status = "pending".to_owned(),
            |_, books| of(books, "paid").journals[0].entries[0].amount_minor = 299,
            |_, books| of(books, "closed").journals.truncate(1),
            |_, books| of(books, "back").journals[1].entries[0].direction = "D".to_owned(),
            |_, books| of(books, "paid").journals[0].entries[0].account_id = "other".to_owned(),
        ];
        for (number, plant) in plants.into_iter().enumerate() {
            let verdict = planted(plant);
            assert!(verdict.lost >= 1 && !verdict.violations.is_empty(), "{number}: {verdict:?}");
        }
    }

    #[test]
    fn an_account_that_does_not_add_up_is_found() {
        let plants: [Plant; 7] = [
            |_, books| account(books).balance.balance_minor += 1,
            |_, books| account(books).balance.pending_minor = -1,
            |_, books| account(books).balance.available_minor -= 1,
            |_, books| account(books).lines[1].amount_minor -= 1,
            |_, books| drop(account(books).lines.pop()),
            |_, books| *books.left_at_bank.get_mut("EUR").unwrap() += 1,
            |_, books| books.trials.get_mut("EUR").unwrap().accounts[0].balance_minor = 0,
        ];
        for (number, plant) in plants.into_iter().enumerate() {
            assert!(!planted(plant).violations.is_empty(), "{number}");
        }
    }

    #[test]
    fn other_differences_are_found() {
        let plants: [Plant; 12] = [
            |_, books| of(books, "paid").attention = Some(json!({"code": "x"})),
            |_, books| of(books, "paid").destination = "elsewhere".to_owned(),
            |_, books| of(books, "paid").history[1].version = 3,
            |_, books| drop(of(books, "paid").events.pop()),
            |_, books| of(books, "paid").events[1].sequence = 3,
            |_, books| of(books, "paid").gateway_reference = None,
            |_, books| drop(books.payouts.remove("closed")),
            |_, books| assert!(books.listed.insert("stranger".to_owned())),
            |_, books| books.requests[0].key = "short".to_owned(),
            |_, books| drop(books.replayed.remove("key-paid")),
            // What cannot come back came back, and the other way round.
            |accepted, _| {
                let What::Payout { ending, .. } = &mut accepted[2].wanted.what else { unreachable!() };
                *ending = Ending::Succeeded;
            },
            // An account with funds for everything.
            |accepted, _| {
                let What::Payout { source, .. } = &mut accepted[3].wanted.what else { unreachable!() };
                *source = 0;
            },
        ];
        for (number, plant) in plants.into_iter().enumerate() {
            assert!(!planted(plant).violations.is_empty(), "{number}");
        }
        for status in ["pending", "processing", "unknown", "requires_approval", "canceled"] {
            let verdict = planted(|_, books| of(books, "paid").status = status.to_owned());
            assert_eq!(verdict.unknown_left, 1, "{status}");
        }
    }
}
