//! An extension is one file and one line in a list. A file that no list names is dead.

use super::Findings;
use super::lexer::words;
use super::tree::Tree;

/// Folders of extensions; the list is in their `mod.rs`.
const FOLDERS: [&str; 4] = [
    "crates/gateway/src/adapters/",
    "crates/gateway/src/settlement/",
    "crates/outbox/src/sinks/",
    "crates/payments/src/journals/",
];

/// Looks for each file's name in its folder's list.
pub fn check(tree: &Tree, findings: &mut Findings<'_>) {
    for folder in FOLDERS {
        let Some(list) = tree.get(&format!("{folder}mod.rs")) else { continue };
        let code = list.rust.as_ref().map_or("", |rust| rust.code());
        for path in tree.paths().filter(|path| path.starts_with(folder)) {
            let inner = &path[folder.len()..];
            let name = inner.strip_suffix(".rs").filter(|name| !name.contains('/'));
            let name = name.or_else(|| inner.strip_suffix("/mod.rs").filter(|name| !name.contains('/')));
            let Some(name) = name.filter(|name| !["mod", "tests"].contains(name)) else { continue };
            // `mod name;` alone compiles it and does not list it; `pub mod name;` offers it to others.
            let offered = code.contains(&format!("pub mod {name};"));
            if !offered && words(code, name).count() < 2 {
                findings.add(path, 1, format!("{}mod.rs does not list {name}", folder));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    #[test]
    fn a_file_that_no_list_names_is_found() {
        let folder = "crates/gateway/src/adapters";
        let list = "mod sandbox;\nmod acme;\npub const ALL: &[Adapter] = &[sandbox::ADAPTER]; // acme\n";
        let files = [
            (format!("{folder}/mod.rs"), list),
            (format!("{folder}/sandbox.rs"), ""),
            (format!("{folder}/acme.rs"), ""),
            (format!("{folder}/bank/mod.rs"), ""),
            (format!("{folder}/bank/parse.rs"), ""),
        ];
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let expected = [format!("{folder}/acme.rs:1"), format!("{folder}/bank/mod.rs:1")];
        assert_eq!(found("extension-list", &files), expected);
    }

    #[test]
    fn a_file_that_is_offered_to_others_is_listed() {
        let files = [
            ("crates/outbox/src/sinks/mod.rs", "pub mod memory;"),
            ("crates/outbox/src/sinks/memory.rs", ""),
        ];
        assert_eq!(found("extension-list", &files), [""; 0]);
    }
}
