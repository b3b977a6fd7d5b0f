//! Why settings are refused. No text here holds the value of a secret.

use std::path::PathBuf;

use tallystick_payments::SettingsError;

/// Why settings are refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Names that nobody knows.
    #[error("{}", unknown(.0))]
    Unknown(Vec<UnknownName>),
    /// A file cannot be read.
    #[error("the file {} cannot be read: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file or value has the wrong form.
    #[error("{0}")]
    Value(String),
    /// Settings that do not fit together.
    #[error("settings do not fit together: {0}")]
    Relation(#[from] SettingsError),
}

/// A name that nobody knows.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// As given.
    pub name: String,
    /// Where: the environment, or a file.
    pub place: String,
    /// The nearest name that exists.
    pub nearest: Option<String>,
}

fn unknown(names: &[UnknownName]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for UnknownName { name, place, nearest } in names {
        let hint = nearest.as_ref().map(|nearest| format!(": did you mean {nearest}?")).unwrap_or_default();
        lines.push(format!("there is no setting {name} ({place}){hint}"));
    }
    lines.push("All settings are in docs/settings.md; remove what is not one of them".into());
    lines.join("\n")
}
