//! What a run has shown, for people and for programs.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::killer::Kills;
use super::mix;
use super::oracle::Verdict;
use super::read::Books;
use super::wanted::Plan;

/// In a run of at least so many requests, …
const LARGE: u32 = 1000;
/// … at least this share of the unknown outcomes should have taken three or more questions.
const EXPECTED_PERCENT: u64 = 20;

/// The result of a run.
pub struct Report {
    /// What did not hold.
    pub violations: Vec<String>,
    json: Value,
    hints: Vec<String>,
}

/// What the run was.
pub struct Run<'a> {
    /// What was asked for.
    pub plan: &'a Plan,
    /// Servers on the one database.
    pub servers: u32,
    /// What was killed.
    pub kills: &'a Kills,
    /// How often a balance was looked at meanwhile.
    pub looks: u32,
    /// Every invariant held.
    pub verified: bool,
    /// How long it took.
    pub took: Duration,
}

impl Report {
    /// Puts a result together.
    pub fn new(run: &Run<'_>, books: &Books, verdict: Verdict) -> Self {
        let (plan, kills) = (run.plan, run.kills);
        let percent = (verdict.unknowns_with_many_questions * 100).checked_div(verdict.unknowns).unwrap_or(0);
        let mut hints = Vec::new();
        if plan.total() >= LARGE && percent < EXPECTED_PERCENT {
            hints.push(format!("only {percent} % of the unknown outcomes took three or more questions; {EXPECTED_PERCENT} % are expected"));
        }
        if plan.payouts >= LARGE && verdict.insufficient_funds == 0 {
            hints.push("no account ever had too little, although half of what was asked is there".to_owned());
        }
        let mut all = verdict.payments.clone();
        for (status, count) in &verdict.payouts {
            *all.entry(status.clone()).or_default() += count;
        }
        let json = json!({
            "seed": plan.seed,
            "payments": plan.payments,
            "payouts": plan.payouts,
            "servers": run.servers,
            "kills": kills.kills,
            "kills_with_calls_in_flight": kills.in_flight,
            "most_calls_in_flight_at_a_kill": kills.most_in_flight,
            "slowest_return_ms": millis(kills.slowest_return),
            "faults": faults(books),
            "final": all,
            "final_by_kind": {"payments": verdict.payments, "payouts": verdict.payouts},
            "insufficient_funds": verdict.insufficient_funds,
            "balances_looked_at": run.looks,
            "lost": verdict.lost,
            "double_effects": verdict.double_effects,
            "unknown_left": verdict.unknown_left,
            "unknowns": verdict.unknowns,
            "unknowns_with_three_questions": verdict.unknowns_with_many_questions,
            "unknowns_with_three_questions_percent": percent,
            "verify": if run.verified { "ok" } else { "violated" },
            "seconds": run.took.as_secs(),
            "violations": verdict.violations,
            "violations_untold": verdict.untold,
        });
        Self { violations: verdict.violations, json, hints }
    }

    /// Prints it: JSON or a table on stdout, violations on stderr.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn print(&self, as_json: bool) -> Result<()> {
        if as_json {
            println!("{}", serde_json::to_string(&self.json).context("the result cannot be written")?);
        } else {
            for (name, value) in self.json.as_object().into_iter().flatten() {
                line(name, value);
            }
        }
        for violation in &self.violations {
            eprintln!("violated: {violation}");
        }
        for hint in &self.hints {
            eprintln!("chaos: {hint}");
        }
        Ok(())
    }
}

/// A line of the table; the members of an object are lines of their own.
fn line(name: &str, value: &Value) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(member, value)| line(&format!("{name} {member}"), value))
        }
        // Told on stderr, one by one.
        Value::Array(_) => {}
        value => println!("{:<40} {}", name.replace('_', " "), value.to_string().trim_matches('"')),
    }
}

/// What the sandbox was asked and how it answered, beside the shares that were set.
fn faults(books: &Books) -> Value {
    let count =
        |holds: &dyn Fn(&super::read::Request) -> bool| books.requests.iter().filter(|r| holds(r)).count();
    json!({
        "rates": mix::rates(),
        "requests": books.requests.len(),
        "submits": count(&|r| r.operation != "status"),
        "questions": count(&|r| r.operation == "status"),
        "unanswered": count(&|r| r.answer.is_none()),
        "answered_5xx": count(&|r| r.answer.is_some_and(|status| status >= 500)),
        "answered_429": count(&|r| r.answer == Some(429)),
        "answered_404": count(&|r| r.answer == Some(404)),
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_has_the_agreed_names() {
        let kills = Kills { kills: 5, in_flight: 4, ..Kills::default() };
        let mut verdict = Verdict { unknowns: 10, unknowns_with_many_questions: 1, ..Verdict::default() };
        verdict.payments.extend([("succeeded".to_owned(), 900), ("failed".to_owned(), 100)]);
        verdict.payouts.extend([("failed".to_owned(), 4), ("returned".to_owned(), 6)]);
        let plan = Plan { payments: 1000, payouts: 10, seed: 7 };
        let took = Duration::from_secs(9);
        let run = Run { plan: &plan, servers: 2, kills: &kills, looks: 3, verified: true, took };
        let report = Report::new(&run, &Books::default(), verdict);
        for name in [
            "seed",
            "payments",
            "payouts",
            "kills",
            "kills_with_calls_in_flight",
            "faults",
            "final",
            "lost",
            "double_effects",
            "unknown_left",
            "verify",
        ] {
            assert!(report.json.get(name).is_some(), "{name}");
        }
        assert_eq!(report.json["verify"], "ok");
        assert_eq!(report.json["unknowns_with_three_questions_percent"], 10);
        assert_eq!(report.json["final"], json!({"succeeded": 900, "failed": 104, "returned": 6}));
        assert_eq!(report.json["final_by_kind"]["payouts"], json!({"failed": 4, "returned": 6}));
        assert!(matches!(report.hints.as_slice(), [hint] if hint.contains("10 %")));
    }
}
