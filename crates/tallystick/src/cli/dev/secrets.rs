//! Keys and secrets of one data folder: made once, kept in a file that only its user may read, so that they are the
//! same after a restart.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::folder::write_whole;
use crate::cli::CliError;

/// Known to everybody who read the documentation, and therefore only ever put into a private cluster.
pub const WELL_KNOWN_KEY: &str = "changeme";
const FILE: &str = "secrets.json";

/// The secrets.
#[derive(Serialize, Deserialize)]
pub struct Secrets {
    /// Key of tenant `default`, scope client.
    pub client_key: String,
    /// Key of tenant `default`, scope operator.
    pub operator_key: String,
    /// Key of tenant `other`, scope client.
    pub other_key: String,
    /// What the server shows to the sandbox.
    pub gateway_secret: String,
    /// What the sandbox signs its webhooks with.
    pub webhook_secret: String,
}

impl Secrets {
    /// Reads the folder's secrets; makes them when there are none.
    ///
    /// # Errors
    /// [`CliError::Usage`] when the file cannot be read or written.
    pub fn of(folder: &Path) -> Result<Self, CliError> {
        let path = folder.join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|_| {
                CliError::Usage(format!("{} cannot be understood: begin anew with --fresh", path.display()))
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let made = Self::make();
                let text = serde_json::to_string_pretty(&made).expect("strings only");
                write_whole(&path, &text)?;
                Ok(made)
            }
            Err(error) => Err(CliError::Usage(format!("{} cannot be read: {error}", path.display()))),
        }
    }

    fn make() -> Self {
        let random = || hex::encode(rand::random::<[u8; 32]>());
        Self {
            client_key: format!("tsk_{}", random()),
            operator_key: format!("tsk_{}", random()),
            other_key: format!("tsk_{}", random()),
            gateway_secret: random(),
            webhook_secret: format!("whsec_{}", STANDARD.encode(rand::random::<[u8; 32]>())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_stay_the_same_in_a_folder_and_differ_between_folders() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = Secrets::of(one.path()).unwrap();
        assert_eq!(Secrets::of(one.path()).unwrap().client_key, first.client_key);
        assert_ne!(Secrets::of(two.path()).unwrap().client_key, first.client_key);
        assert_ne!(first.client_key, first.operator_key);
    }
}
