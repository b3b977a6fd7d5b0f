//! Documents that are made from the code: the test of each compares the file with what is made here.

use std::fmt::Write as _;

use tallystick_gateway::{Approval, Decline, LostCause, Stage};
use tallystick_ledger::{AccountKind, Direction};
use tallystick_money::Money;

use crate::journals::{self, Account};
use crate::operation::{Fact, Mismatch, Status, Transition};
use crate::payment::state::PaymentState;
use crate::payment::{Capture, PaymentStatus};
use crate::payout::PayoutStatus;
use crate::payout::state::PayoutState;

/// Most steps that one fact leads, and one more to see that it ends.
const STEPS: usize = 3;

/// A fact with the words that the tables use for it.
type Named = (&'static str, Fact);

fn approval(stage: Stage, amount_minor: i64, currency: &str) -> Fact {
    Fact::Approved(Approval { reference: "ref".into(), stage, amount_minor, currency: currency.into() })
}

fn declined() -> Fact {
    Fact::Declined(Decline { code: "declined".into(), message: String::new() })
}

/// Every fact that can be learnt about a payment.
fn facts_of_payments() -> Vec<Named> {
    vec![
        ("reply lost", Fact::ReplyLost(LostCause::Timeout)),
        ("acknowledged", Fact::Acknowledged { reference: None }),
        ("authorized", approval(Stage::Authorized, 100, "EUR")),
        ("captured", approval(Stage::Captured, 100, "EUR")),
        ("other amount", approval(Stage::Captured, 101, "EUR")),
        ("other currency", approval(Stage::Captured, 100, "USD")),
        ("declined", declined()),
    ]
}

/// Every fact that can be learnt about a payout.
fn facts_of_payouts() -> Vec<Named> {
    vec![
        ("no funds", Fact::InsufficientFunds),
        ("reply lost", Fact::ReplyLost(LostCause::Timeout)),
        ("acknowledged", Fact::Acknowledged { reference: None }),
        ("paid", approval(Stage::Paid, 100, "EUR")),
        ("rejected", declined()),
        ("returned", approval(Stage::Returned, 100, "EUR")),
        ("other amount", approval(Stage::Paid, 101, "EUR")),
        ("other currency", approval(Stage::Paid, 100, "USD")),
    ]
}

fn amount() -> Money {
    Money { minor: 100, currency: "EUR".parse().expect("a currency of ISO 4217") }
}

fn payment(status: PaymentStatus, capture: Capture, fact: &Fact) -> Transition<PaymentStatus> {
    PaymentState { status, amount: amount(), capture, attention: false }.learn(fact)
}

fn payout(status: PayoutStatus, fact: &Fact) -> Transition<PayoutStatus> {
    PayoutState { status, amount: amount(), attention: false }.learn(fact)
}

/// What a fact leads to, all steps of it.
fn cell<S: Status>(from: S, learn: impl Fn(S) -> Transition<S>) -> String {
    let call = |m: Mismatch| format!("break: {}", m.kind());
    let (mut at, mut steps) = (from, Vec::new());
    for _ in 0..STEPS {
        match learn(at) {
            Transition::NoChange => break,
            Transition::Attention(mismatch) => {
                steps.push(call(mismatch));
                break;
            }
            Transition::Moved { to, money, attention } => {
                let mut text = format!("**{}**", to.as_str());
                if let Some(money) = money {
                    let _ = write!(text, " + {}", booked(&format!("{money:?}")));
                }
                if let Some(mismatch) = attention {
                    let _ = write!(text, " + {}", call(mismatch));
                    steps.push(text);
                    break;
                }
                steps.push(text);
                at = to;
            }
        }
    }
    if steps.is_empty() { "–".to_owned() } else { steps.join(", then ") }
}

/// What a money event writes, in a word.
fn booked(event: &str) -> &'static str {
    match event.split(' ').next().unwrap_or_default() {
        "Captured" | "Returned" => "journal",
        "Settled" => "debit settled",
        "Reversed" => "reversal, both failed",
        other => unreachable!("a money event {other} that has no word here"),
    }
}

fn table<S: Status>(
    out: &mut String,
    title: &str,
    statuses: &[S],
    facts: &[Named],
    learn: impl Fn(S, &Fact) -> Transition<S>,
) {
    let _ = write!(out, "\n## {title}\n\n| status |");
    facts.iter().for_each(|(name, _)| {
        let _ = write!(out, " {name} |");
    });
    let _ = write!(out, "\n|---|{}\n", "---|".repeat(facts.len()));
    for status in statuses {
        let _ = write!(out, "| {} |", status.as_str());
        for (_, fact) in facts {
            let _ = write!(out, " {} |", cell(*status, |at| learn(at, fact)));
        }
        out.push('\n');
    }
}

/// A state's function, for a picture that puts several together.
type Learn<'a, S> = &'a dyn Fn(S, &Fact) -> Transition<S>;

fn diagram<S: Status>(
    out: &mut String,
    title: &str,
    statuses: &[S],
    facts: &[Named],
    learn: &[Learn<'_, S>],
) {
    let _ = write!(out, "\n## {title}\n\n```mermaid\nstateDiagram-v2\n    [*] --> pending\n");
    for from in statuses {
        let mut edges: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
        for (name, fact) in facts {
            for learn in learn {
                if let Transition::Moved { to, .. } = learn(*from, fact) {
                    match edges.iter_mut().find(|(t, _)| *t == to.as_str()) {
                        Some((_, names)) if names.contains(name) => {}
                        Some((_, names)) => names.push(name),
                        None => edges.push((to.as_str(), vec![name])),
                    }
                }
            }
        }
        for (to, names) in edges {
            let _ = writeln!(out, "    {} --> {to}: {}", from.as_str(), names.join(", "));
        }
        if from.is_final() {
            let _ = writeln!(out, "    {} --> [*]", from.as_str());
        }
    }
    out.push_str("```\n");
}

/// `docs/state-machines.md`.
#[must_use]
pub fn state_machines() -> String {
    let mut out = String::from(
        "# State machines\n\nGenerated from the `state.rs` of `crates/payments/src/payment` and `payout`; a test \
         compares. A row is where a payment or payout stands, a column what is learnt about it, whoever brings the \
         fact: the reply, the answer to a question, a signed webhook, an expired lease, the ledger. `–` changes \
         nothing. A break calls a person and moves no money; while one is open nothing moves.\n",
    );
    let (payments, payouts) = (facts_of_payments(), facts_of_payouts());
    let of = |capture| move |at, fact: &Fact| payment(at, capture, fact);
    table(&mut out, "Payment, capture automatic", &PaymentStatus::ALL, &payments, of(Capture::Automatic));
    table(&mut out, "Payment, capture manual", &PaymentStatus::ALL, &payments, of(Capture::Manual));
    let both: [&dyn Fn(_, &Fact) -> _; 2] = [&of(Capture::Automatic), &of(Capture::Manual)];
    diagram(&mut out, "Payment, both kinds of capture", &PaymentStatus::ALL, &payments, &both);
    table(&mut out, "Payout", &PayoutStatus::ALL, &payouts, payout);
    diagram(&mut out, "Payout, single steps", &PayoutStatus::ALL, &payouts, &[&payout]);
    out
}

/// `docs/money-events.md`.
#[must_use]
pub fn money_events() -> String {
    let mut out = String::from(
        "# Money events\n\nGenerated from `crates/payments/src/journals/mod.rs`; a test compares. Each kind of journal \
         that the product writes by itself, once per operation. Accounts are kept per tenant, gateway account and \
         currency, and made on first use.\n",
    );
    for kind in journals::ALL {
        let _ = write!(
            out,
            "\n## {}\n\nWhen: {}. Source: {}.\n\n| account | kind | side |\n|---|---|---|\n",
            kind.name, kind.when, kind.source
        );
        for line in (kind.example)().lines {
            let side = match line.direction {
                Direction::Debit => "debit",
                Direction::Credit => "credit",
            };
            let (name, kind) = match line.account {
                Account::System(account) => (account.name, account.kind),
                Account::Customer(_) => ("the customer's account", AccountKind::Liability),
            };
            let _ = writeln!(out, "| {name} | {} | {side} |", kind.as_str());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    fn compare(file: &str, made: &str) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, made).expect("docs/ can be written");
        }
        let held = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(held == made, "docs/{file} is old: run the tests once with UPDATE_DOCS=1");
    }

    #[test]
    fn state_machines_document_is_what_the_code_does() {
        compare("state-machines.md", &super::state_machines());
    }

    #[test]
    fn money_events_document_is_what_the_code_does() {
        compare("money-events.md", &super::money_events());
    }
}
