//! What documents name exists: links within the tree, and paths in code spans.

use super::Findings;
use super::markdown;
use super::tree::{File, Tree};

/// Ends of names that are paths of this tree when a document gives them.
const ENDS: [&str; 9] = [".rs", ".sql", ".md", ".toml", ".sh", ".json", ".html", ".yml", ".csv"];
/// Ends of names that are looked for also when they have no folder.
const SOURCES: [&str; 3] = [".rs", ".sql", ".md"];
/// Folders that are made by building and running.
const MADE: [&str; 3] = ["target", ".tallystick", "data"];

/// Links to files and headings of this tree.
pub fn links(tree: &Tree, findings: &mut Findings<'_>) {
    for file in tree.ending(".md") {
        for (line, target) in markdown::links(&file.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if path.is_empty() { Some(file.path.clone()) } else { beside(file, path) };
            let Some(path) = path.filter(|path| tree.exists(path)) else {
                findings.add(&file.path, line, format!("the link leads nowhere: {target}"));
                continue;
            };
            let other = tree.get(&path).filter(|other| other.path.ends_with(".md"));
            let known = other.is_none_or(|other| markdown::anchors(&other.text).iter().any(|a| a == anchor));
            if !anchor.is_empty() && !known {
                findings.add(&file.path, line, format!("no such heading: {target}"));
            }
        }
    }
}

/// Paths in code spans. A path may begin at the root, beside the document, or anywhere in the tree.
pub fn paths(tree: &Tree, findings: &mut Findings<'_>) {
    let roots: std::collections::BTreeSet<&str> =
        tree.paths().filter_map(|path| path.split_once('/')).map(|(first, _)| first).collect();
    for file in tree.ending(".md") {
        for span in markdown::spans(&file.text) {
            // `file.rs:12` and `file.rs::name` name a place inside.
            let path = span.text.split(':').next().unwrap_or_default();
            if looks_like_a_path(path, &roots) && !is_known(tree, file, path) {
                findings.add(&file.path, span.line, format!("no such file: {}", span.text));
            }
        }
    }
}

fn looks_like_a_path(text: &str, roots: &std::collections::BTreeSet<&str>) -> bool {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let first = text.split('/').next().unwrap_or_default();
    if !plain || text.starts_with(['/', '-']) || text.contains("..") || MADE.contains(&first) {
        return false;
    }
    let stem = text.rsplit('/').next().unwrap_or_default();
    let ends = |list: &[&str]| list.iter().any(|end| stem.len() > end.len() && stem.ends_with(end));
    match text.contains('/') {
        true => roots.contains(first) || ends(&ENDS),
        false => ends(&SOURCES),
    }
}

fn is_known(tree: &Tree, file: &File, path: &str) -> bool {
    let inner = format!("/{}", path.trim_end_matches('/'));
    let folder = format!("{inner}/");
    tree.exists(path)
        || beside(file, path).is_some_and(|path| tree.exists(&path))
        || tree.paths().any(|known| known.ends_with(&inner) || known.contains(&folder))
}

/// A path as seen from a document's folder; nothing when it leaves the tree.
fn beside(file: &File, path: &str) -> Option<String> {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text = "[a](../README.md) [b](other.md#two-words) [c](https://x.org/y)\n[d](gone.md)\n[e](other.md#gone)\n[f](../../out.md)\n[g](#here)\n# Here\n";
        let files = [("docs/a.md", text), ("docs/other.md", "# Two words\n"), ("README.md", "")];
        assert_eq!(found("doc-link", &files), ["docs/a.md:2", "docs/a.md:3", "docs/a.md:4"]);
    }

    #[test]
    fn paths_that_do_not_exist_are_found() {
        let text = "`crates/ledger/src/lib.rs` `ledger/src/lib.rs:12` `src/lib.rs` `lib.rs` `crates/ledger/`\n\
                    `crates/ledger/src/gone.rs`\n`gone.rs`\n`crates/gone`\n`ledger/src/gone.rs`\n";
        let files = [("ARCHITECTURE.md", text), ("crates/ledger/src/lib.rs", "")];
        let lines = [2, 3, 4, 5].map(|line| format!("ARCHITECTURE.md:{line}"));
        assert_eq!(found("doc-path", &files), lines);
    }

    #[test]
    fn other_code_is_no_path() {
        let text = "`/api/v1/payments/{id}` `application/json` `target/release/tallystick` `a/b` `--data-dir x/y.rs`\n\
                    `dev.json` `POST /webhooks/x.rs` `1/2` `docs/*.md`\n```\n`gone.rs`\n```\n";
        assert_eq!(found("doc-path", &[("README.md", text), ("docs/a.md", "")]), [""; 0]);
    }
}
