//! The house rules that the compiler cannot hold. One file per rule; [`RULES`] is the list.
//!
//! A rule sees the whole tree of tracked (and not ignored) files as text and gives findings. It does not parse
//! Rust: [`lexer`] tells code, comments and strings apart and knows what is compiled for tests only.

mod docs;
mod edges;
mod env_sample;
mod guarantees;
mod leftovers;
mod lexer;
mod lists;
mod machine;
mod magic;
mod markdown;
mod pure;
mod size;
mod sql;
mod tree;

use std::process::ExitCode;

use anyhow::Result;

use tree::Tree;

/// Settings of `tidy`: there are none; a rule holds or it does not.
#[derive(clap::Args)]
pub struct Args {}

/// A rule's name in findings, and what holds it.
type Rule = (&'static str, fn(&Tree, &mut Findings<'_>));

/// Every rule. A new one is a file beside this and a line here.
const RULES: &[Rule] = &[
    ("dependency-edge", edges::check),
    ("sql-in-repo", sql::only_in_repo),
    ("sql-own-schema", sql::own_schema),
    ("pure-file", pure::check),
    ("file-size", size::check),
    ("magic-value", magic::check),
    ("left-open", leftovers::check),
    ("machine-path", machine::check),
    ("doc-link", docs::links),
    ("doc-path", docs::paths),
    ("guarantee-test", guarantees::check),
    ("extension-list", lists::check),
    ("env-sample", env_sample::check),
];

/// One place where a rule does not hold.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    file: String,
    line: usize,
    rule: &'static str,
    message: String,
}

/// Collects the findings of one rule.
struct Findings<'a> {
    rule: &'static str,
    all: &'a mut Vec<Finding>,
}

impl Findings<'_> {
    /// Adds a finding; lines count from 1.
    fn add(&mut self, file: &str, line: usize, message: impl Into<String>) {
        self.all.push(Finding { file: file.to_owned(), line, rule: self.rule, message: message.into() });
    }
}

/// Checks every rule on the working tree.
///
/// # Errors
/// When the tree cannot be read.
pub fn run(_: &Args) -> Result<ExitCode> {
    let tree = Tree::of_workspace()?;
    let findings = check(&tree);
    for Finding { file, line, rule, message } in &findings {
        println!("{file}:{line}: {rule}: {message}");
    }
    if findings.is_empty() {
        eprintln!("tidy: {} rules hold in {} files", RULES.len(), tree.files().count());
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("tidy: {} findings", findings.len());
    Ok(ExitCode::FAILURE)
}

fn check(tree: &Tree) -> Vec<Finding> {
    let mut all = Vec::new();
    for (rule, holds) in RULES {
        holds(tree, &mut Findings { rule, all: &mut all });
    }
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod testing {
    use super::{RULES, Tree, check};

    /// What one rule finds in a made-up tree, as `file:line`.
    pub fn found(rule: &str, files: &[(&str, &str)]) -> Vec<String> {
        assert!(RULES.iter().any(|(name, _)| *name == rule), "no rule {rule}");
        let findings = check(&Tree::of(files));
        findings.iter().filter(|f| f.rule == rule).map(|f| format!("{}:{}", f.file, f.line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::found;
    use super::*;

    #[test]
    fn findings_are_sorted_and_told_once() {
        let files = [("b.rs", "// FIXME\n// FIXME FIXME\n"), ("a.rs", "// FIXME\n")];
        assert_eq!(found("left-open", &files), ["a.rs:1", "b.rs:1", "b.rs:2"]);
    }

    #[test]
    fn an_empty_tree_is_tidy() {
        assert_eq!(check(&Tree::of(&[])), []);
    }

    #[test]
    fn rules_have_different_names() {
        let names: std::collections::BTreeSet<_> = RULES.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), RULES.len());
    }
}
