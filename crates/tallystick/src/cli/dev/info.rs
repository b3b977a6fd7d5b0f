//! `dev.json`: where everything is. Written when all is ready, by rename; removed at a clean stop.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::folder::write_whole;
use crate::cli::CliError;

/// The file's name.
pub const FILE: &str = "dev.json";

/// What stands in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DevInfo {
    /// Version of this form.
    pub schema: u32,
    /// The API.
    pub api_url: String,
    /// A key of scope client of the tenant `default`.
    pub api_key: String,
    /// A key of scope operator of the same tenant.
    pub operator_key: String,
    /// A second tenant, to see that tenants are apart.
    pub other_tenant: OtherTenant,
    /// The sandbox: gateways and their controls.
    pub sandbox_url: String,
    /// Takes merchants' webhooks.
    pub receiver_url: String,
    /// The database as the application role.
    pub database_url: String,
    /// The database as superuser.
    pub admin_database_url: String,
    /// The server's metrics.
    pub metrics_url: String,
    /// The processes.
    pub pids: Pids,
    /// The environment with which `tallystick serve` is a second server beside it.
    pub serve_env: BTreeMap<String, String>,
}

/// A second tenant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OtherTenant {
    /// Its name.
    pub tenant: String,
    /// A key of scope client.
    pub api_key: String,
}

/// Process ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pids {
    /// This program.
    pub dev: u32,
    /// `tallystick serve`.
    pub server: u32,
    /// `tallystick-sandbox`.
    pub sandbox: u32,
    /// PostgreSQL's main process.
    pub postgres: u32,
}

impl DevInfo {
    /// Reads the file of a running `dev`.
    ///
    /// # Errors
    /// [`CliError::Away`] when there is none.
    pub fn read(dir: &Path) -> Result<Self, CliError> {
        let path = dir.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(|e| {
            CliError::Away(format!(
                "{}: {e}. Is `tallystick dev --data-dir {}` running?",
                path.display(),
                dir.display()
            ))
        })?;
        serde_json::from_str(&text).map_err(|e| {
            CliError::Away(format!("{} cannot be read: {e}. Start `tallystick dev` again", path.display()))
        })
    }

    /// Writes the file.
    ///
    /// # Errors
    /// [`CliError::Usage`] when it cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), CliError> {
        write_whole(&dir.join(FILE), &format!("{}\n", self.json()))
    }

    /// Its text.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings and numbers only")
    }

    /// Removes the file, if it is there.
    pub fn remove(dir: &Path) {
        let path = dir.join(FILE);
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            eprintln!("tallystick dev: {} cannot be removed: {error}", path.display());
        }
    }
}
