//! The sample of settings names settings that exist.

use std::collections::BTreeSet;

use super::Findings;
use super::tree::Tree;

/// The sample.
const SAMPLE: &str = ".env.sample";
/// Where every setting is listed, by its name without prefix.
const SETTINGS: &str = "crates/tallystick/src/config/settings.rs";
/// Prefix of the variables.
const PREFIX: &str = "TALLYSTICK_";

/// Compares the sample with the list.
pub fn check(tree: &Tree, findings: &mut Findings<'_>) {
    let (Some(sample), Some(settings)) = (tree.get(SAMPLE), tree.get(SETTINGS)) else { return };
    let strings = settings.rust.as_ref().map(|rust| rust.strings()).unwrap_or_default();
    let known: BTreeSet<&str> = strings.iter().map(|range| &settings.text[range.clone()]).collect();
    for (index, line) in sample.text.lines().enumerate() {
        let Some((name, _)) = line.trim_start_matches('#').split_once('=') else { continue };
        if let Some(short) = name.strip_prefix(PREFIX)
            && !known.contains(short)
        {
            findings.add(SAMPLE, index + 1, format!("there is no setting {name}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    #[test]
    fn a_setting_that_does_not_exist_is_found() {
        let files = [
            (".env.sample", "# Text: a = b\nTALLYSTICK_LEASE=5s\n#TALLYSTICK_GONE=1\n"),
            (super::SETTINGS, "const ALL: &[Setting] = &[Setting { name: \"LEASE\" }];"),
        ];
        assert_eq!(found("env-sample", &files), [".env.sample:3"]);
    }
}
