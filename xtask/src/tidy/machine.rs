//! Nothing that is committed knows a path of one machine.

use super::Findings;
use super::tree::Tree;

/// Folders at the root that differ from machine to machine.
const FOLDERS: [&str; 3] = ["root", "work", "home"];

/// Looks through all texts.
pub fn check(tree: &Tree, findings: &mut Findings<'_>) {
    for file in tree.files().filter(|file| file.name() != "Cargo.lock") {
        for folder in FOLDERS {
            let path = format!("/{folder}/");
            for (at, _) in file.text.match_indices(&path) {
                // Behind a letter, a dot or a variable it is part of another path.
                let before = file.text[..at].chars().next_back();
                if !before.is_some_and(|c| c.is_alphanumeric() || "_.-}~*".contains(c)) {
                    findings.add(&file.path, file.line_of(at), format!("{path} is a path of one machine"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    #[test]
    fn a_path_of_one_machine_is_found() {
        for folder in super::FOLDERS {
            let text = format!("# a\ncd /{folder}/tally\n");
            assert_eq!(found("machine-path", &[("Makefile", &text)]), ["Makefile:2"]);
        }
    }

    #[test]
    fn parts_of_other_paths_are_fine() {
        let text = super::FOLDERS
            .map(|folder| format!("./{folder}/a ${{X}}/{folder}/b https://x.org/{folder}/c"))
            .join("\n");
        assert_eq!(found("machine-path", &[("README.md", &text)]), [""; 0]);
    }
}
