//! Magic values of the sandbox are for the sandbox, tests and the commands that show something. If the product knew
//! one, a test could pass for the wrong reason.

use super::Findings;
use super::lexer::is_identifier;
use super::tree::{File, Tree};

/// How magic values begin.
const PREFIXES: [&str; 2] = ["tok_", "acct_"];
/// Where they may stand: the witness, the tools, what explains the product.
const FOLDERS: [&str; 3] = ["crates/sandbox/", "xtask/", "docs/"];
/// Commands that show something, in `crates/tallystick/src/cli/`.
const COMMANDS: [&str; 3] = ["dev", "demo", "bench"];

/// Looks through all texts.
pub fn check(tree: &Tree, findings: &mut Findings<'_>) {
    for file in tree.files().filter(|file| !is_allowed(file)) {
        for prefix in PREFIXES {
            for (at, _) in file.text.match_indices(prefix) {
                let bytes = file.text.as_bytes();
                let inside_a_word = at > 0 && is_identifier(bytes[at - 1]);
                let in_tests = file.rust.as_ref().is_some_and(|rust| rust.in_tests(at));
                if !inside_a_word && !in_tests {
                    let message =
                        "a magic value outside of sandbox, tests and the commands dev, demo and bench";
                    findings.add(&file.path, file.line_of(at), message);
                }
            }
        }
    }
}

fn is_allowed(file: &File) -> bool {
    let of_command = file.path.strip_prefix("crates/tallystick/src/cli/").is_some_and(|rest| {
        COMMANDS
            .iter()
            .any(|name| rest.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', '/', '_'])))
    });
    of_command
        || file.is_test()
        || file.path.split('/').any(|part| part == "tests")
        || file.path.ends_with(".md")
        || FOLDERS.iter().any(|folder| file.path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    const TEXT: &str = "// a\nconst A: &str = \"tok_ok\";\n";

    #[test]
    fn a_magic_value_in_the_product_is_found() {
        for path in [
            "crates/payments/src/settings.rs",
            "crates/tallystick/src/cli/serve.rs",
            "crates/tallystick/src/cli/developer.rs",
            "crates/tallystick/src/http/openapi.rs",
        ] {
            assert_eq!(found("magic-value", &[(path, TEXT)]), [format!("{path}:2")]);
        }
        let comment = "// acct_ok is special\n";
        assert_eq!(found("magic-value", &[("crates/payments/src/a.rs", comment)]).len(), 1);
        assert_eq!(
            found("magic-value", &[("crates/payments/migrations/1_a.sql", "DEFAULT 'tok_ok'")]).len(),
            1
        );
    }

    #[test]
    fn those_who_show_something_may_name_it() {
        for path in [
            "crates/sandbox/src/faults.rs",
            "xtask/src/chaos/mod.rs",
            "crates/payments/tests/a.rs",
            "crates/tallystick/tests/it/crash/mod.rs",
            "crates/tallystick/src/cli/dev/mod.rs",
            "crates/tallystick/src/cli/demo.rs",
            "crates/tallystick/src/cli/bench_creates.rs",
            "docs/openapi.json",
            "README.md",
        ] {
            assert_eq!(found("magic-value", &[(path, TEXT)]), [""; 0], "{path}");
        }
        let tests = "fn a() {}\n#[cfg(test)]\nmod tests {\n    const A: &str = \"tok_ok\";\n}\n";
        assert_eq!(found("magic-value", &[("crates/payments/src/a.rs", tests)]), [""; 0]);
        assert_eq!(found("magic-value", &[("crates/payments/src/a.rs", "let bucket_tok_ = 1;")]), [""; 0]);
    }
}
