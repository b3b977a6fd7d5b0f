//! Where SQL may stand: in files called `repo.rs` of the crates that own a schema, each about its own schema only.

use super::Findings;
use super::lexer::{Lexed, identifier, is_identifier, words};
use super::tree::{File, Tree};
use crate::workspace::SQL_CRATES;

/// Words that make a text SQL.
const KEYWORDS: [&str; 12] = [
    "SELECT", "INSERT", "UPDATE", "DELETE", "FROM", "INTO", "JOIN", "TRUNCATE", "CREATE", "ALTER", "GRANT",
    "LOCK",
];

/// Macros of sqlx that hold a statement.
const MACROS: [&str; 12] = [
    "query",
    "query_as",
    "query_scalar",
    "query_file",
    "query_file_as",
    "query_file_scalar",
    "query_unchecked",
    "query_as_unchecked",
    "query_scalar_unchecked",
    "query_file_unchecked",
    "query_file_as_unchecked",
    "query_file_scalar_unchecked",
];

/// Methods of sqlx that take a statement as text.
const METHODS: [&str; 6] =
    [".execute(", ".fetch(", ".fetch_one(", ".fetch_all(", ".fetch_optional(", ".execute_many("];

/// Statements stand in `repo.rs`; tests may have their own.
pub fn only_in_repo(tree: &Tree, findings: &mut Findings<'_>) {
    for (file, rust) in tree.rust().filter(|(file, _)| !file.is_test()) {
        let at_home = file.name() == "repo.rs" && SQL_CRATES.contains(&file.crate_dir());
        if at_home {
            continue;
        }
        for at in statements(file, rust).into_iter().filter(|at| !rust.in_tests(*at)) {
            let message = "SQL stands in repo.rs of runner, outbox, ledger or payments";
            findings.add(&file.path, file.line_of(at), message);
        }
    }
}

/// Places at which a statement is given to sqlx.
pub fn statements(file: &File, rust: &Lexed) -> Vec<usize> {
    let code = rust.code();
    let mut found = Vec::new();
    for name in ["query", "raw_sql", "QueryBuilder"] {
        found.extend(code.match_indices(&format!("sqlx::{name}")).map(|(at, _)| at));
    }
    for name in MACROS {
        found.extend(words(code, name).filter(|at| code[at + name.len()..].starts_with('!')));
    }
    // use sqlx::{…, query_as, …};
    for (start, _) in code.match_indices("use sqlx::") {
        let end = code[start..].find(';').map_or(code.len(), |end| start + end);
        let part = &code[start..end];
        let named = MACROS.iter().chain(["raw_sql", "QueryBuilder"].iter());
        found.extend(named.filter_map(|name| words(part, name).next()).map(|at| start + at));
    }
    for method in METHODS {
        for (at, _) in code.match_indices(method) {
            let inside = file.text[at + method.len()..].trim_start();
            if inside.starts_with('"') || inside.starts_with("r\"") || inside.starts_with("r#\"") {
                found.push(at);
            }
        }
    }
    found
}

/// A crate's SQL names tables of its own schema only. Functions of `runner` are for all.
pub fn own_schema(tree: &Tree, findings: &mut Findings<'_>) {
    for (file, rust) in tree.rust().filter(|(file, _)| !file.is_test() && file.path.starts_with("crates/")) {
        for range in rust.strings().iter().filter(|range| !rust.in_tests(range.start)) {
            foreign(file, range.start, &file.text[range.clone()], findings);
        }
    }
    for file in tree.ending(".sql").filter(|file| file.path.contains("/migrations/")) {
        foreign(file, 0, &file.text, findings);
    }
}

fn foreign(file: &File, start: usize, text: &str, findings: &mut Findings<'_>) {
    if !KEYWORDS.iter().any(|keyword| words(text, keyword).next().is_some()) {
        return;
    }
    let text = without_comments(text);
    for schema in SQL_CRATES.into_iter().filter(|schema| *schema != file.crate_dir()) {
        let prefix = format!("{schema}.");
        for (at, _) in text.match_indices(&prefix) {
            let before = text.as_bytes()[..at].last();
            let name = identifier(&text, at + prefix.len());
            if name.is_empty() || before.is_some_and(|byte| is_identifier(*byte) || *byte == b'.') {
                continue;
            }
            let is_call = text[at + prefix.len() + name.len()..].trim_start().starts_with('(');
            // The migrations' own bookkeeping is read by the one who runs them all.
            if !(schema == "runner" && is_call) && name != "_sqlx_migrations" {
                let message = format!("{schema}.{name} belongs to crates/{schema}: call that crate instead");
                findings.add(&file.path, file.line_of(start + at), message);
            }
        }
    }
}

/// SQL whose `--` comments are blank; offsets stay.
fn without_comments(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len());
    for line in sql.split_inclusive('\n') {
        let cut = line.find("--").unwrap_or(line.len());
        out.push_str(&line[..cut]);
        out.extend(line[cut..].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    const STATEMENT: &str = "fn a() {\n    sqlx::query!(\"SELECT 1\");\n}\n";

    #[test]
    fn a_statement_outside_of_repo_is_found() {
        for path in ["crates/payments/src/payment/mod.rs", "crates/tallystick/src/repo.rs"] {
            assert_eq!(found("sql-in-repo", &[(path, STATEMENT)]), [format!("{path}:2")]);
        }
        for path in ["crates/payments/src/payment/repo.rs", "crates/payments/src/payment/tests.rs"] {
            assert_eq!(found("sql-in-repo", &[(path, STATEMENT)]), [""; 0]);
        }
    }

    #[test]
    fn every_way_to_give_a_statement_is_seen() {
        for text in [
            "use sqlx::{Row, query_as};",
            "let x = query_scalar!(\"SELECT 1\");",
            "sqlx::raw_sql(\"SELECT 1\");",
            "conn.execute(\"SELECT 1\").await;",
            "conn.fetch_one(\n  r#\"SELECT 1\"#);",
            "let q = sqlx::query_as::<_, (i32,)>(text);",
        ] {
            assert_eq!(found("sql-in-repo", &[("crates/ledger/src/a.rs", text)]).len(), 1, "{text}");
        }
        for text in [
            "// sqlx::query!\n",
            "gateway.query(key).await;",
            "runner.execute(job);",
            "use sqlx::PgConnection;",
        ] {
            assert_eq!(found("sql-in-repo", &[("crates/ledger/src/a.rs", text)]), [""; 0], "{text}");
        }
    }

    #[test]
    fn tests_beside_the_code_may_have_their_own() {
        let text = format!("fn b() {{}}\n#[cfg(test)]\nmod tests {{\n{STATEMENT}}}\n");
        assert_eq!(found("sql-in-repo", &[("crates/ledger/src/a.rs", &text)]), [""; 0]);
    }

    #[test]
    fn tables_of_another_schema_are_found() {
        let text = "fn a() {\n    q(\"-- payments.a\n      SELECT 1 FROM payments.payment\n      JOIN ledger.entry e ON true\");\n}\n";
        let path = "crates/payments/src/repo.rs";
        assert_eq!(found("sql-own-schema", &[(path, text)]), [format!("{path}:4")]);
        let path = "crates/tallystick/src/cli/verify.rs";
        assert_eq!(found("sql-own-schema", &[(path, text)]), [format!("{path}:3"), format!("{path}:4")]);
    }

    #[test]
    fn functions_of_runner_are_for_all_and_its_tables_are_not() {
        let path = "crates/ledger/migrations/0001_ledger.sql";
        let text = "CREATE TABLE ledger.a (m bigint DEFAULT runner.mark());\n-- see payments.payment\nSELECT base FROM runner.cluster;\n";
        assert_eq!(found("sql-own-schema", &[(path, text)]), [format!("{path}:3")]);
    }

    #[test]
    fn names_that_only_look_like_tables_are_let_through() {
        let text = "fn a() { log(\"ledger.checkpoint took long\"); q(\"SELECT 1 FROM payments.a WHERE x.ledger.y\"); }\n\
                    const M: &str = \"SELECT version FROM ledger._sqlx_migrations\";";
        assert_eq!(found("sql-own-schema", &[("crates/payments/src/repo.rs", text)]), [""; 0]);
    }
}
