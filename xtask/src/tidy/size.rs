//! A file is read in one sitting: at most 600 lines besides its tests.

use super::Findings;
use super::tree::Tree;

/// Most lines of a Rust file, tests inside it not counted.
const MOST: usize = 600;

/// Counts lines.
pub fn check(tree: &Tree, findings: &mut Findings<'_>) {
    for (file, rust) in tree.rust().filter(|(file, _)| !file.is_test()) {
        let lines = |text: &str| text.lines().count();
        let tests: usize = rust.tests().iter().map(|range| lines(&file.text[range.clone()])).sum();
        let count = lines(&file.text).saturating_sub(tests);
        if count > MOST {
            findings.add(
                &file.path,
                MOST + 1,
                format!("{count} lines besides tests, at most {MOST}: split it"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    #[test]
    fn a_long_file_is_found_and_its_tests_do_not_count() {
        let code = "fn a() {}\n".repeat(600);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    fn t() {}\n".repeat(500));
        let path = "crates/ledger/src/post.rs";
        assert_eq!(found("file-size", &[(path, &format!("{code}{tests}"))]), [""; 0]);
        assert_eq!(
            found("file-size", &[(path, &format!("{code}fn b() {{}}\n{tests}"))]),
            [format!("{path}:601")]
        );
    }

    #[test]
    fn a_line_about_tests_at_the_top_hides_nothing() {
        let text = format!("#[cfg(test)]\nmod tests;\n{}", "fn a() {}\n".repeat(601));
        assert_eq!(found("file-size", &[("crates/ledger/src/post.rs", &text)]).len(), 1);
    }
}
