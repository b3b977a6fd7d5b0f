//! Compares what clients were told, the payments and payouts, the ledger and the sandbox's book. Pure; decides alone.

mod payments;
mod payouts;

use std::collections::{BTreeMap, BTreeSet};

use super::load::Accepted;
use super::read::{Books, Effect, Move};
use super::wanted::What;

/// Violations that are told one by one; the rest is counted.
const MOST_TOLD: usize = 50;
/// An outcome that took so many questions shows that asking again works.
const MANY_QUESTIONS: u64 = 3;

/// What the comparison found.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Payments per final status.
    pub payments: BTreeMap<String, u64>,
    /// Payouts per final status.
    pub payouts: BTreeMap<String, u64>,
    /// Payouts that failed because their account had too little.
    pub insufficient_funds: u64,
    /// Accepted requests that are gone, or whose money is not where it must be.
    pub lost: u64,
    /// Gateway keys with more effects than one, or than out and back.
    pub double_effects: u64,
    /// Payments and payouts that are not final.
    pub unknown_left: u64,
    /// Those that were unknown for a while.
    pub unknowns: u64,
    /// Those of them whose status was asked for at least three times.
    pub unknowns_with_many_questions: u64,
    /// What did not hold.
    pub violations: Vec<String>,
    /// Violations that are not told.
    pub untold: u64,
}

impl Verdict {
    /// Notes, before all others, a violation that explains many of them.
    pub fn require_above_all(&mut self, holds: bool, violation: impl FnOnce() -> String) {
        if !holds {
            self.violations.insert(0, violation());
        }
    }

    /// Notes a violation unless something holds.
    pub fn require(&mut self, holds: bool, violation: impl FnOnce() -> String) {
        if holds {
        } else if self.violations.len() < MOST_TOLD {
            self.violations.push(violation());
        } else {
            self.untold += 1;
        }
    }
}

/// Judges a run that has come to rest.
pub fn judge(accepted: &[Accepted], books: &Books) -> Verdict {
    let mut verdict = Verdict::default();
    let mut book: BTreeMap<&str, Vec<&Effect>> = BTreeMap::new();
    for effect in &books.effects {
        book.entry(&effect.key).or_default().push(effect);
    }
    let mut questions: BTreeMap<&str, u64> = BTreeMap::new();
    for request in books.requests.iter().filter(|request| request.operation == "status") {
        *questions.entry(&request.key).or_default() += 1;
    }
    for one in accepted {
        let effects = book.get(one.id.as_str()).map(Vec::as_slice).unwrap_or_default();
        let replayed = books.replayed.get(&one.key);
        verdict.require(replayed == Some(&one.id), || {
            format!(
                "{}: its key {} now answers {}",
                one.id,
                one.key,
                replayed.map_or("nothing", String::as_str)
            )
        });
        let history = match one.wanted.what {
            What::Payment => payments::judge(one, books, effects, &mut verdict),
            What::Payout { .. } => payouts::judge(one, books, effects, &mut verdict),
        };
        let Some(history) = history else {
            verdict.lost += 1;
            verdict.require(false, || format!("{}: accepted and gone", one.id));
            continue;
        };
        if history.iter().any(|row| row.status == "unknown") {
            verdict.unknowns += 1;
            let asked = questions.get(one.id.as_str()).copied().unwrap_or_default();
            verdict.unknowns_with_many_questions += u64::from(asked >= MANY_QUESTIONS);
        }
    }
    payouts::judge_accounts(books, &mut verdict);
    judge_strangers(accepted, books, &mut verdict);
    judge_sums(books, &mut verdict);
    verdict
}

/// The history has every version once and leads to the status.
fn judge_history(id: &str, status: &str, version: u64, history: &[Move], verdict: &mut Verdict) {
    let versions = history.iter().map(|row| row.version).eq(1..=version);
    let last = history.last().map(|row| row.status.as_str());
    verdict.require(versions && last == Some(status), || {
        format!("{id}: its history does not lead to {status} (version {version})")
    });
}

/// Nobody knows more than the clients asked for.
fn judge_strangers(accepted: &[Accepted], books: &Books, verdict: &mut Verdict) {
    let known: BTreeSet<&str> = accepted.iter().map(|one| one.id.as_str()).collect();
    verdict.require(known.len() == accepted.len(), || {
        "two requests were answered with one payment or payout".to_owned()
    });
    for id in books.listed.iter().filter(|id| !known.contains(id.as_str())) {
        verdict.require(false, || format!("{id}: a payment or payout that no client was told of"));
    }
    for id in known.iter().filter(|id| !books.listed.contains(**id)) {
        verdict.require(false, || format!("{id}: accepted and not in the list"));
    }
    for effect in books.effects.iter().filter(|effect| !known.contains(effect.key.as_str())) {
        verdict.require(false, || format!("{}: an effect under a key that nobody knows", effect.key));
    }
    for request in books.requests.iter().filter(|request| !known.contains(request.key.as_str())) {
        verdict.require(false, || format!("{}: a request under a key that nobody knows", request.key));
    }
}

/// The ledger as a whole against the book as a whole.
fn judge_sums(books: &Books, verdict: &mut Verdict) {
    for (currency, trial) in &books.trials {
        let book = |kind: &str| -> i64 {
            let of = |effect: &&Effect| {
                effect.currency == *currency && effect.state == "done" && effect.kind == kind
            };
            books.effects.iter().filter(of).map(|effect| effect.amount_minor).sum()
        };
        let (taken, paid) = (book("charge"), book("payout") - book("payout_return"));
        let account = |name: &str| {
            trial.accounts.iter().filter(|account| account.name == name).map(|a| a.balance_minor).sum::<i64>()
        };
        verdict.require(trial.debits_minor == trial.credits_minor, || {
            format!("{currency}: debits {} are not credits {}", trial.debits_minor, trial.credits_minor)
        });
        let income = [account("gateway_receivable"), account("sales")];
        verdict.require(income.iter().all(|sum| *sum == taken), || {
            format!("{currency}: the book has charges of {taken}; receivable and sales are {income:?}")
        });
        // An asset: what left it makes it negative.
        let bank = account("payout_bank");
        verdict.require(bank == -paid, || {
            format!("{currency}: the book has payouts of {paid}; our account at the bank is {bank}")
        });
        let left = books.left_at_bank.get(currency).copied();
        verdict.require(left == Some(income[0] + bank), || {
            format!("{currency}: the bank says that {left:?} is left; we say {}", income[0] + bank)
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::read::Payment;
    use super::super::wanted::Wanted;
    use super::*;

    /// Two payments: one succeeded after it was unknown, one failed.
    fn run() -> (Vec<Accepted>, Books) {
        let wanted = Wanted { what: What::Payment, amount_minor: 700, currency: "EUR", twin: false };
        let accepted =
            ["a", "b"].map(|id| Accepted { number: 0, key: format!("key-{id}"), id: id.to_owned(), wanted });
        let mut books = Books::default();
        let lines = json!([
            {"direction": "D", "amount_minor": 700, "account_id": "1", "account_name": "gateway_receivable"},
            {"direction": "C", "amount_minor": 700, "account_id": "2", "account_name": "sales"},
        ]);
        for (id, status, captured, reference) in
            [("a", "succeeded", 700, json!("ch_a")), ("b", "failed", 0, json!(null))]
        {
            let journals = if captured > 0 {
                json!([{"kind": "payment_captured", "status": "settled", "entries": lines}])
            } else {
                json!([])
            };
            let payment = json!({
                "payment_id": id, "status": status, "amount_minor": 700, "captured_minor": captured, "currency": "EUR",
                "gateway_reference": reference, "attention": null, "version": 3, "journals": journals,
                "history": [{"version": 1, "status": "pending"}, {"version": 2, "status": "unknown"}, {"version": 3, "status": status}],
            });
            books.payments.insert(id.to_owned(), serde_json::from_value(payment).unwrap());
            books.listed.insert(id.to_owned());
            books.replayed.insert(format!("key-{id}"), id.to_owned());
        }
        let effect = json!({"seq": 1, "kind": "charge", "key": "a", "reference": "ch_a", "amount_minor": 700, "currency": "EUR", "state": "done"});
        books.effects.push(serde_json::from_value(effect).unwrap());
        for seq in 1..=4 {
            let operation = if seq == 1 { "charge" } else { "status" };
            let request = json!({"seq": seq, "operation": operation, "key": "a", "answer": null});
            books.requests.push(serde_json::from_value(request).unwrap());
        }
        let accounts = json!([{"name": "gateway_receivable", "balance_minor": 700}, {"name": "sales", "balance_minor": 700}]);
        let trial = json!({"debits_minor": 700, "credits_minor": 700, "accounts": accounts});
        books.trials.insert("EUR".to_owned(), serde_json::from_value(trial).unwrap());
        books.left_at_bank.insert("EUR".to_owned(), 700);
        (accepted.to_vec(), books)
    }

    /// Plants something and gives what is found.
    fn planted(plant: impl FnOnce(&mut Vec<Accepted>, &mut Books)) -> Verdict {
        let (mut accepted, mut books) = run();
        plant(&mut accepted, &mut books);
        judge(&accepted, &books)
    }

    fn payment<'a>(books: &'a mut Books, id: &str) -> &'a mut Payment {
        books.payments.get_mut(id).unwrap()
    }

    #[test]
    fn books_that_agree_are_left_in_peace() {
        let verdict = planted(|_, _| {});
        assert_eq!(verdict.violations, [""; 0]);
        assert_eq!((verdict.lost, verdict.double_effects, verdict.unknown_left), (0, 0, 0));
        assert_eq!((verdict.unknowns, verdict.unknowns_with_many_questions), (2, 1));
        assert_eq!(verdict.payments, BTreeMap::from([("failed".to_owned(), 1), ("succeeded".to_owned(), 1)]));
    }

    #[test]
    fn a_second_effect_is_found() {
        let verdict = planted(|_, books| books.effects.push(books.effects[0].clone()));
        assert_eq!(verdict.double_effects, 1);
        assert!(!verdict.violations.is_empty());
    }

    #[test]
    fn a_payment_that_is_gone_is_found() {
        let verdict = planted(|_, books| drop(books.payments.remove("b")));
        assert_eq!((verdict.lost, verdict.violations.len()), (1, 1));
        let verdict = planted(|_, books| assert!(books.listed.remove("b")));
        assert_eq!(verdict.violations.len(), 1);
        let verdict = planted(|_, books| drop(books.replayed.insert("key-b".to_owned(), "c".to_owned())));
        assert_eq!(verdict.violations.len(), 1);
    }

    #[test]
    fn money_that_only_one_side_knows_is_found() {
        for plant in [
            (|_, books| books.effects.clear()) as fn(&mut Vec<Accepted>, &mut Books),
            |_, books| books.effects[0].state = "undone".to_owned(),
            |_, books| books.effects[0].amount_minor = 701,
            |_, books| payment(books, "a").journals.clear(),
            |_, books| payment(books, "a").journals[0].entries[0].amount_minor = 699,
            |_, books| payment(books, "a").captured_minor = 699,
            |_, books| payment(books, "a").status = "failed".to_owned(),
            |_, books| {
                let journal = payment(books, "a").journals[0].clone();
                payment(books, "b").journals.push(journal);
            },
            |_, books| {
                let journal = payment(books, "a").journals[0].clone();
                payment(books, "a").journals.push(journal);
            },
            |_, books| books.effects.push(Effect { key: "b".to_owned(), ..books.effects[0].clone() }),
        ] {
            let verdict = planted(plant);
            assert!(verdict.lost >= 1 && !verdict.violations.is_empty(), "{verdict:?}");
        }
    }

    #[test]
    fn other_differences_are_found() {
        for plant in [
            (|_, books| books.effects[0].reference = "ch_x".to_owned()) as fn(&mut Vec<Accepted>, &mut Books),
            |_, books| payment(books, "a").attention = Some(json!({"code": "amount_mismatch"})),
            |_, books| payment(books, "a").history[1].version = 3,
            |_, books| payment(books, "a").version = 4,
            |_, books| payment(books, "b").amount_minor = 1,
            |_, books| assert!(books.listed.insert("c".to_owned())),
            |_, books| books.requests[0].key = "c".to_owned(),
            |_, books| books.trials.get_mut("EUR").unwrap().credits_minor = 701,
            |_, books| books.trials.get_mut("EUR").unwrap().accounts[1].balance_minor = 699,
            |_, books| *books.left_at_bank.get_mut("EUR").unwrap() = 699,
            |accepted, _| accepted[1].id = accepted[0].id.clone(),
        ] {
            assert!(!planted(plant).violations.is_empty());
        }
        let verdict = planted(|_, books| payment(books, "a").status = "unknown".to_owned());
        assert_eq!(verdict.unknown_left, 1);
    }

    #[test]
    fn what_is_not_told_is_counted() {
        let mut verdict = Verdict::default();
        for _ in 0..60 {
            verdict.require(false, String::new);
        }
        assert_eq!((verdict.violations.len(), verdict.untold), (MOST_TOLD, 10));
    }
}
