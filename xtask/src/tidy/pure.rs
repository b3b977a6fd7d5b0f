//! Files that decide do no I/O: states, decisions, matchers and journals are pure, so that they can be tested as
//! tables and read without knowing what a database does.

use super::Findings;
use super::lexer::words;
use super::sql::statements;
use super::tree::Tree;

/// Names of files that decide.
const NAMES: [&str; 3] = ["state.rs", "decide.rs", "matcher.rs"];
/// Folder whose files decide.
const FOLDER: &str = "crates/payments/src/journals/";
/// What only I/O needs.
const IMPURE: [&str; 8] =
    ["tokio", "reqwest", "hyper", "PgConnection", "PgPool", "PgExecutor", "async", "await"];

/// Looks for signs of I/O.
pub fn check(tree: &Tree, findings: &mut Findings<'_>) {
    for (file, rust) in tree.rust() {
        let decides = NAMES.contains(&file.name()) || file.path.starts_with(FOLDER);
        if !decides || !file.path.starts_with("crates/") || file.is_test() {
            continue;
        }
        for word in IMPURE {
            for at in words(rust.code(), word).filter(|at| !rust.in_tests(*at)) {
                findings.add(
                    &file.path,
                    file.line_of(at),
                    format!("this file decides and does no I/O: {word}"),
                );
            }
        }
        for at in statements(file, rust).into_iter().filter(|at| !rust.in_tests(*at)) {
            findings.add(&file.path, file.line_of(at), "this file decides and does no I/O: SQL");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    #[test]
    fn io_in_a_file_that_decides_is_found() {
        let text = "use tokio::time;\nasync fn a() {\n    b().await;\n}\n";
        for path in
            ["crates/payments/src/payment/state.rs", "crates/payments/src/journals/payment_captured.rs"]
        {
            let lines = [format!("{path}:1"), format!("{path}:2"), format!("{path}:3")];
            assert_eq!(found("pure-file", &[(path, text)]), lines);
        }
        for path in ["crates/payments/src/payment/mod.rs", "crates/tallystick/src/http/v1/journals/get.rs"] {
            assert_eq!(found("pure-file", &[(path, text)]), [""; 0]);
        }
    }

    #[test]
    fn types_of_sqlx_and_tests_are_fine() {
        let text = "#[derive(sqlx::Type)]\nenum A { B }\n#[cfg(test)]\nmod tests {\n    async fn t() {}\n}\n";
        assert_eq!(found("pure-file", &[("crates/payments/src/payment/state.rs", text)]), [""; 0]);
        let text = "fn a() { sqlx::query!(\"SELECT 1\"); }";
        assert_eq!(found("pure-file", &[("crates/payments/src/payment/state.rs", text)]).len(), 1);
    }
}
