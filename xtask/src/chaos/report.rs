//! What a run has shown, for people and for programs.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::killer::Kills;
use super::mix;
use super::oracle::Verdict;
use super::read::Books;

/// In a run of at least so many payments, …
const LARGE: u32 = 1000;
/// … at least this share of the unknown outcomes should have taken three or more questions.
const EXPECTED_PERCENT: u64 = 20;

/// The result of a run.
pub struct Report {
    /// What did not hold.
    pub violations: Vec<String>,
    json: Value,
    hint: Option<String>,
}

impl Report {
    /// Puts a result together.
    pub fn new(
        seed: u64,
        payments: u32,
        kills: &Kills,
        books: &Books,
        verdict: Verdict,
        verified: bool,
        took: Duration,
    ) -> Self {
        let percent = (verdict.unknowns_with_many_questions * 100).checked_div(verdict.unknowns).unwrap_or(0);
        let hint = (payments >= LARGE && percent < EXPECTED_PERCENT).then(|| {
            format!("only {percent} % of the unknown outcomes took three or more questions; {EXPECTED_PERCENT} % are expected")
        });
        let json = json!({
            "seed": seed,
            "payments": payments,
            "payouts": 0,
            "kills": kills.kills,
            "kills_with_calls_in_flight": kills.in_flight,
            "most_calls_in_flight_at_a_kill": kills.most_in_flight,
            "slowest_return_ms": millis(kills.slowest_return),
            "faults": faults(books),
            "final": verdict.finals,
            "lost": verdict.lost,
            "double_effects": verdict.double_effects,
            "unknown_left": verdict.unknown_left,
            "unknowns": verdict.unknowns,
            "unknowns_with_three_questions": verdict.unknowns_with_many_questions,
            "unknowns_with_three_questions_percent": percent,
            "verify": if verified { "ok" } else { "violated" },
            "seconds": took.as_secs(),
            "violations": verdict.violations,
            "violations_untold": verdict.untold,
        });
        Self { violations: verdict.violations, json, hint }
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
        if let Some(hint) = &self.hint {
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
        let verdict = Verdict { unknowns: 10, unknowns_with_many_questions: 1, ..Verdict::default() };
        let report = Report::new(7, 1000, &kills, &Books::default(), verdict, true, Duration::from_secs(9));
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
        assert!(report.hint.is_some_and(|hint| hint.contains("10 %")));
    }
}
