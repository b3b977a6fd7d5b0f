//! The files that rules look at.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result};

use super::lexer::Lexed;

/// A text file of the workspace.
pub struct File {
    /// Relative to the root, with `/`.
    pub path: String,
    /// Its content.
    pub text: String,
    /// Code, comments and strings of a Rust file.
    pub rust: Option<Lexed>,
}

impl File {
    fn new(path: &str, text: String) -> Self {
        let rust = path.ends_with(".rs").then(|| Lexed::new(&text));
        Self { path: path.to_owned(), text, rust }
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The folder under `crates/`, or the folder at the root.
    pub fn crate_dir(&self) -> &str {
        let inner = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        inner.split('/').next().unwrap_or_default()
    }

    /// Whether all of it is compiled for tests only.
    pub fn is_test(&self) -> bool {
        let parts: Vec<&str> = self.path.split('/').collect();
        let folders = &parts[..parts.len() - 1];
        folders.iter().any(|part| ["tests", "benches"].contains(part)) || self.name() == "tests.rs"
    }

    /// Line of a byte of the text; counts from 1.
    pub fn line_of(&self, offset: usize) -> usize {
        line_of(&self.text, offset)
    }
}

/// Line of a byte of a text; counts from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// All files by path; those that are no text have none.
pub struct Tree {
    files: BTreeMap<String, Option<File>>,
}

impl Tree {
    /// What git tracks and what it would track: everything that is not ignored.
    ///
    /// # Errors
    /// When git cannot list the files or one cannot be read.
    pub fn of_workspace() -> Result<Self> {
        let root = crate::workspace::root();
        let mut git = Command::new("git");
        git.current_dir(&root);
        // A checkout that another user made, as in CI, is as good for listing files.
        git.arg("-c").arg(format!("safe.directory={}", root.display()));
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = crate::workspace::output(&mut git).context("the files of the tree cannot be listed")?;
        let mut files = BTreeMap::new();
        for path in listed.split('\0').filter(|path| !path.is_empty()) {
            let full = root.join(path);
            // Deleted and not yet committed, or a submodule.
            if !full.is_file() {
                continue;
            }
            let bytes = std::fs::read(&full).with_context(|| format!("{path} cannot be read"))?;
            files.insert(path.to_owned(), String::from_utf8(bytes).ok().map(|text| File::new(path, text)));
        }
        Ok(Self { files })
    }

    /// A made-up tree.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let file =
            |(path, text): &(&str, &str)| ((*path).to_owned(), Some(File::new(path, (*text).to_owned())));
        Self { files: files.iter().map(file).collect() }
    }

    /// Every text file.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.values().flatten()
    }

    /// Every Rust file.
    pub fn rust(&self) -> impl Iterator<Item = (&File, &Lexed)> {
        self.files().filter_map(|file| Some((file, file.rust.as_ref()?)))
    }

    /// Every text file whose path ends so.
    pub fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = &'a File> {
        self.files().filter(move |file| file.path.ends_with(end))
    }

    /// A text file by its path.
    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.get(path)?.as_ref()
    }

    /// Every path, also of files that are no text.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Whether a file or folder has this path.
    pub fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty() || self.files.contains_key(path) || self.paths().any(|p| p.starts_with(&folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_by_folder_or_name() {
        let is_test = |path| File::new(path, String::new()).is_test();
        assert!(is_test("crates/ledger/tests/post.rs") && is_test("crates/ledger/src/tests.rs"));
        assert!(is_test("crates/payments/src/payment/tests/states.rs"));
        assert!(!is_test("crates/ledger/src/post.rs") && !is_test("crates/ledger/src/latest.rs"));
    }

    #[test]
    fn folders_exist_through_their_files() {
        let tree = Tree::of(&[("crates/ledger/src/lib.rs", "")]);
        assert!(tree.exists("crates/ledger/") && tree.exists("crates/ledger") && tree.exists(""));
        assert!(tree.exists("crates/ledger/src/lib.rs"));
        assert!(!tree.exists("crates/led") && !tree.exists("crates/ledger/src/lib"));
    }

    #[test]
    fn the_crate_of_a_file() {
        let dir = |path| File::new(path, String::new()).crate_dir().to_owned();
        assert_eq!(dir("crates/ledger/src/lib.rs"), "ledger");
        assert_eq!(dir("xtask/src/main.rs"), "xtask");
    }
}
