//! Nothing is left open: no stubs, no debugging aids, no notes to oneself, no test that does not run.

use super::Findings;
use super::lexer::words;
use super::tree::{File, Tree};

/// Macros that do not belong into committed code.
const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];
/// Words of notes to oneself.
const NOTES: [&str; 2] = ["FIXME", "XXX"];

/// Looks at code for macros and at comments for notes; other files are looked at as they are.
pub fn check(tree: &Tree, findings: &mut Findings<'_>) {
    for file in tree.files() {
        let Some(rust) = &file.rust else {
            notes(file, &file.text, findings);
            continue;
        };
        let code = rust.code();
        for name in MACROS {
            for at in words(code, name).filter(|at| code[at + name.len()..].starts_with('!')) {
                findings.add(&file.path, file.line_of(at), format!("{name}! is left in the code"));
            }
        }
        for (at, _) in code.match_indices("#[ignore") {
            findings.add(&file.path, file.line_of(at), "a test that does not run: make it run or remove it");
        }
        notes(file, rust.comments(), findings);
    }
}

fn notes(file: &File, text: &str, findings: &mut Findings<'_>) {
    // Rules about these words have to name them.
    if file.name() == "Cargo.lock" || file.path.ends_with(".md") {
        return;
    }
    for note in NOTES {
        // In backticks it is the name of something, like the currency code.
        let quoted = format!("`{note}`");
        for at in words(text, note).filter(|at| *at == 0 || !text[at - 1..].starts_with(&quoted)) {
            findings.add(
                &file.path,
                file.line_of(at),
                format!("{note}: finish it or write down why it stays"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    #[test]
    fn stubs_notes_and_silent_tests_are_found() {
        let text = "fn a() { todo!() }\n// FIXME later\nfn b() { dbg!(1); unimplemented!(\"x\") }\n/* XXX */\n#[ignore = \"slow\"]\nfn t() {}\n";
        let lines = [1, 2, 3, 4, 5].map(|line| format!("crates/a/src/a.rs:{line}"));
        let all = found("left-open", &[("crates/a/src/a.rs", text)]);
        assert_eq!(all.len(), 6, "two in line 3");
        assert!(lines.iter().all(|line| all.contains(line)), "{all:?}");
        assert_eq!(found("left-open", &[("scripts/setup.sh", "# FIXME\n")]), ["scripts/setup.sh:1"]);
    }

    #[test]
    fn strings_and_other_words_are_fine() {
        let text = "const NONE: &str = \"XXX\";\n// mktemp x.XXXXXX, a todo list, code `XXX`\nfn a(todo: u8) { todo != 1; }\n";
        assert_eq!(found("left-open", &[("crates/a/src/a.rs", text)]), [""; 0]);
    }
}
