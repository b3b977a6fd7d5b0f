//! What is checked, and what was found.

use std::collections::BTreeMap;

use serde::Serialize;
use tallystick_ledger::verify::Finding;
use uuid::Uuid;

use crate::ids::BreakId;

/// Most ids that a check lists; the counts are of all.
pub const LISTED: usize = 100;

/// A check by its id and the rule that it holds the data against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Short and stable.
    pub id: &'static str,
    /// The rule, for people.
    pub name: &'static str,
}

macro_rules! rules {
    ($($constant:ident = $id:literal, $name:literal;)+) => {
        $(pub(super) const $constant: Rule = Rule { id: $id, name: $name };)+

        /// Every check, in the order of the report.
        pub const RULES: &[Rule] = &[$($constant),+];
    };
}

rules! {
    I1 = "I1", "every journal has all of its entries and balances in each currency";
    I2 = "I2", "the trial balance of each tenant and currency is zero";
    I3 = "I3", "what is append-only is guarded by triggers, keys and privileges";
    I4 = "I4", "every amount is positive and in the currency of its account";
    I5 = "I5", "no limited account is below its minimum";
    I6 = "I6", "refunded <= captured <= authorized <= asked for";
    I7 = "I7", "each capture and payout has exactly its journals, as far as its status says, and nothing else has any";
    I8 = "I8", "one gateway key had one effect at most, and one order or reference has one at most that stands";
    I9 = "I9", "the gateway knows no key that we do not";
    I10 = "I10", "what is taken, held, sent or come back here is so in the gateway's book";
    I11 = "I11", "what failed, was canceled or waits for consent here has no effect in the gateway's book";
    I15 = "I15", "versions run without a gap over allowed moves to the status that is held";
    I17 = "I17", "what is not final has work that is due, or waits for a person";
    I19 = "I19", "one order has one active payment at most, and one reference one active payout";
    I24 = "I24", "each move was told by exactly one event that says what happened";
    I26 = "I26", "inbound events are stored once and end once";
    FAILED = "failed-sums", "failed journals add to zero on each account";
    PENDING = "pending-table", "the table of pending journals is what the statuses say";
    CHECKPOINTS = "checkpoints", "every checkpoint is the sum of what it stands for";
    HASHES = "hashes", "every journal's hash is that of its entries";
    BREAKS = "breaks", "whatever needs a person has its break, and each break is about one payment or payout";
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The rule holds everywhere.
    Held,
    /// It does not, and nothing explains that.
    Violated,
    /// It does not, and an open break says why in each case.
    Explained,
    /// It could not be checked.
    Skipped,
}

impl Status {
    /// The word in JSON and in tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Violated => "violated",
            Self::Explained => "explained",
            Self::Skipped => "skipped",
        }
    }
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Short and stable.
    pub id: &'static str,
    /// The rule, for people.
    pub name: &'static str,
    /// How it ended.
    pub status: Status,
    /// Things looked at.
    pub checked: u64,
    /// Ids of what breaks the rule, at most [`LISTED`]; those that nothing explains come first.
    pub violations: Vec<String>,
    /// How many break the rule in all.
    pub violation_count: u64,
    /// Open breaks that explain some of them or all, at most [`LISTED`].
    pub breaks: Vec<BreakId>,
    /// Why it was skipped.
    pub reason: Option<String>,
}

/// All checks together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Nothing is violated.
    pub ok: bool,
    /// One per rule, in the order of [`RULES`].
    pub checks: Vec<Check>,
}

impl Report {
    pub(super) fn of(mut checks: Vec<Check>) -> Self {
        checks.sort_by_key(|check| RULES.iter().position(|rule| rule.id == check.id));
        Self { ok: checks.iter().all(|check| check.status != Status::Violated), checks }
    }
}

/// A check under way.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub checked: u64,
    /// Broken rules that only their number is known of.
    unlisted: u64,
    wrong: BTreeMap<String, Vec<Uuid>>,
}

impl Draft {
    /// So many things are looked at.
    pub(super) fn of(checked: u64) -> Self {
        Self { checked, ..Self::default() }
    }

    /// The rule does not hold for this id; `breaks` are open and say why.
    pub(super) fn wrong(&mut self, id: impl ToString, breaks: &[Uuid]) {
        self.wrong.entry(id.to_string()).or_default().extend(breaks);
    }

    /// What a statement counted: all of them, and the first ids.
    pub(super) fn count(&mut self, counted: Counted) {
        self.checked += counted.checked.unsigned_abs();
        let listed = counted.ids.len() as u64;
        self.unlisted += counted.wrong.unsigned_abs().saturating_sub(listed);
        for id in counted.ids {
            self.wrong(id, &[]);
        }
    }

    pub(super) fn finish(self, rule: Rule) -> Check {
        let count = self.wrong.len() as u64 + self.unlisted;
        let (explained, open): (Vec<_>, Vec<_>) =
            self.wrong.into_iter().partition(|(_, breaks)| !breaks.is_empty());
        let status = match (count, open.is_empty() && self.unlisted == 0) {
            (0, _) => Status::Held,
            (_, true) => Status::Explained,
            (_, false) => Status::Violated,
        };
        let mut breaks: Vec<BreakId> =
            explained.iter().flat_map(|(_, breaks)| breaks).copied().map(BreakId).collect();
        breaks.sort_unstable();
        breaks.dedup();
        breaks.truncate(LISTED);
        Check {
            id: rule.id,
            name: rule.name,
            status,
            checked: self.checked,
            violations: open.into_iter().chain(explained).map(|(id, _)| id).take(LISTED).collect(),
            violation_count: count,
            breaks,
            reason: None,
        }
    }
}

impl From<Finding> for Draft {
    fn from(finding: Finding) -> Self {
        let mut draft = Self::of(finding.checked);
        for id in finding.violations {
            draft.wrong(id, &[]);
        }
        draft
    }
}

/// What a statement counted.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub checked: i64,
    pub wrong: i64,
    /// The first [`LISTED`] of them.
    pub ids: Vec<String>,
}

/// A check that could not be made.
pub(super) fn skipped(rule: Rule, reason: &str) -> Check {
    Check {
        id: rule.id,
        name: rule.name,
        status: Status::Skipped,
        checked: 0,
        violations: Vec::new(),
        violation_count: 0,
        breaks: Vec::new(),
        reason: Some(reason.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_break_explains_is_no_violation_and_what_it_does_not_is_one() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let check = |wrong: &[(&str, &[Uuid])]| {
            let mut draft = Draft::of(9);
            for (id, breaks) in wrong {
                draft.wrong(id, breaks);
            }
            draft.finish(I11)
        };
        let held = check(&[]);
        assert_eq!((held.status, held.checked, held.violation_count), (Status::Held, 9, 0));
        let explained = check(&[("p", &[b, a]), ("q", &[a])]);
        assert_eq!(
            (explained.status, explained.violations),
            (Status::Explained, vec!["p".to_owned(), "q".into()])
        );
        assert_eq!(explained.breaks, [BreakId(a), BreakId(b)]);
        let mixed = check(&[("p", &[a]), ("q", &[])]);
        assert_eq!((mixed.status, mixed.violations), (Status::Violated, vec!["q".to_owned(), "p".into()]));
        let many = Counted { checked: 500, wrong: 300, ids: (0..LISTED).map(|i| i.to_string()).collect() };
        let mut draft = Draft::default();
        draft.count(many);
        let many = draft.finish(I6);
        assert_eq!(
            (many.status, many.violations.len(), many.violation_count),
            (Status::Violated, LISTED, 300)
        );
    }

    #[test]
    fn the_form_of_the_report_is_the_promised_one() {
        let report = Report::of(vec![skipped(I9, "no book"), Draft::default().finish(I1)]);
        let expected = serde_json::json!({"ok": true, "checks": [
            {"id": "I1", "name": I1.name, "status": "held", "checked": 0, "violations": [], "violation_count": 0,
             "breaks": [], "reason": null},
            {"id": "I9", "name": I9.name, "status": "skipped", "checked": 0, "violations": [], "violation_count": 0,
             "breaks": [], "reason": "no book"}]});
        assert_eq!(serde_json::to_value(&report).unwrap(), expected);
    }
}
