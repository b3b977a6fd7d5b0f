//! A guarantee that a document gives names the test that pins it, and that test exists.

use std::collections::BTreeSet;

use super::Findings;
use super::lexer::{identifier, words};
use super::markdown;
use super::tree::Tree;

/// Tables with a column about tests, in the README and the documents.
pub fn check(tree: &Tree, findings: &mut Findings<'_>) {
    let tests = tests(tree);
    let documents = tree.ending(".md").filter(|file| {
        let folder = file.path.strip_prefix("docs/");
        file.path == "README.md" || folder.is_some_and(|rest| !rest.contains('/'))
    });
    for file in documents {
        for cell in markdown::cells(&file.text, is_about_tests) {
            for name in cell.text.split('`').skip(1).step_by(2) {
                // `module::name` or `folder/name`: the last part is the function.
                let name = name.rsplit([':', '/']).next().unwrap_or_default();
                if is_test_name(name) && !tests.contains(name) {
                    findings.add(&file.path, cell.line, format!("there is no test {name}"));
                }
            }
        }
    }
}

/// "test", "tests", "the test that pins it".
fn is_about_tests(heading: &str) -> bool {
    heading.to_lowercase().split(|c: char| !c.is_alphanumeric()).any(|word| ["test", "tests"].contains(&word))
}

fn is_test_name(text: &str) -> bool {
    let plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    plain && text.contains('_') && text.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Names of all functions that are compiled for tests.
fn tests(tree: &Tree) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for (file, rust) in tree.rust() {
        let code = rust.code();
        for at in words(code, "fn").filter(|at| file.is_test() || rust.in_tests(*at)) {
            names.insert(identifier(code, at + "fn ".len()));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    const README: &str = "| guarantee | mechanism | test that pins it |\n|---|---|---|\n\
        | one charge | `gateway_key` | `charges_once` and `flows::c_001_twice` |\n\
        | none lost | `not_a_test` | `gone_test` |\n\n| test | what |\n|---|---|\n| `make` | `no_test` |\n";

    #[test]
    fn a_test_that_does_not_exist_is_found() {
        let files = [
            ("README.md", README),
            ("crates/a/tests/it/flows.rs", "#[tokio::test]\nasync fn c_001_twice() {}\n"),
            (
                "crates/a/src/a.rs",
                "fn gone_test() {}\n#[cfg(test)]\nmod tests {\n    fn charges_once() {}\n}\n",
            ),
        ];
        assert_eq!(found("guarantee-test", &files), ["README.md:4"]);
    }

    #[test]
    fn only_the_readme_and_the_documents_guarantee_something() {
        let files = [("docs/a.md", README), ("docs/decisions/1.md", README), ("crates/a/README.md", README)];
        // Two tests are missing in line 3.
        assert_eq!(found("guarantee-test", &files), ["docs/a.md:3", "docs/a.md:3", "docs/a.md:4"]);
    }
}
