//! Documents that are made from the code: the test of each compares the file with what is made here.

use std::fmt::Write as _;

use tallystick_gateway::{Approval, Decline, LostCause, Stage};
use tallystick_ledger::Direction;
use tallystick_money::Money;

use crate::journals;
use crate::payment::Capture;
use crate::payment::state::{Mismatch, PaymentFact, PaymentState, PaymentStatus, Transition};

/// Every fact that can be learnt about a payment, with the words that the table uses.
fn facts() -> Vec<(&'static str, PaymentFact)> {
    let approval = |stage, amount_minor, currency: &str| {
        PaymentFact::Approved(Approval {
            reference: "ref".into(),
            stage,
            amount_minor,
            currency: currency.into(),
        })
    };
    vec![
        ("reply lost", PaymentFact::ReplyLost(LostCause::Timeout)),
        ("acknowledged", PaymentFact::Acknowledged { reference: None }),
        ("authorized", approval(Stage::Authorized, 100, "EUR")),
        ("captured", approval(Stage::Captured, 100, "EUR")),
        ("other amount", approval(Stage::Captured, 101, "EUR")),
        ("other currency", approval(Stage::Captured, 100, "USD")),
        ("declined", PaymentFact::Declined(Decline { code: "declined".into(), message: String::new() })),
    ]
}

fn state(status: PaymentStatus, capture: Capture) -> PaymentState {
    let amount = Money { minor: 100, currency: "EUR".parse().expect("a currency of ISO 4217") };
    PaymentState { status, amount, capture, reference: None, attention: false }
}

fn cell(transition: &Transition) -> String {
    let call = |m: &Mismatch| match m {
        Mismatch::Amount => "break: wrong_amount",
        Mismatch::Currency => "break: currency_mismatch",
        Mismatch::LateCapture => "break: late_capture",
    };
    match transition {
        Transition::NoChange => "–".to_owned(),
        Transition::Attention(mismatch) => call(mismatch).to_owned(),
        Transition::Moved { to, money, attention } => {
            let mut text = format!("**{}**", to.as_str());
            if money.is_some() {
                text.push_str(" + journal");
            }
            if let Some(mismatch) = attention {
                let _ = write!(text, " + {}", call(mismatch));
            }
            text
        }
    }
}

fn table(out: &mut String, capture: Capture) {
    let facts = facts();
    let _ = write!(out, "\n## Payment, capture {}\n\n| status |", capture.as_str());
    facts.iter().for_each(|(name, _)| {
        let _ = write!(out, " {name} |");
    });
    let _ = write!(out, "\n|---|{}\n", "---|".repeat(facts.len()));
    for status in PaymentStatus::ALL {
        let _ = write!(out, "| {} |", status.as_str());
        for (_, fact) in &facts {
            let _ = write!(out, " {} |", cell(&state(status, capture).learn(fact)));
        }
        out.push('\n');
    }
}

fn diagram(out: &mut String) {
    out.push_str("\n## Picture\n\nBoth kinds of capture together.\n\n```mermaid\nstateDiagram-v2\n    [*] --> pending\n");
    for from in PaymentStatus::ALL {
        let mut edges: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
        for (name, fact) in facts() {
            for capture in [Capture::Automatic, Capture::Manual] {
                if let Transition::Moved { to, .. } = state(from, capture).learn(&fact) {
                    match edges.iter_mut().find(|(t, _)| *t == to.as_str()) {
                        Some((_, names)) if names.contains(&name) => {}
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
        "# State machines\n\nGenerated from `crates/payments/src/payment/state.rs`; a test compares. A row is where a \
         payment stands, a column what is learnt about it, whoever brings the fact: the reply, the answer to a \
         question, a signed webhook, an expired lease. `–` changes nothing. A break calls a person and moves no money.\n",
    );
    table(&mut out, Capture::Automatic);
    table(&mut out, Capture::Manual);
    diagram(&mut out);
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
            let _ = writeln!(out, "| {} | {} | {side} |", line.account.name, line.account.kind.as_str());
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
