//! Which database a command works on: that of a running `dev`, or an address.

use std::path::PathBuf;

use tallystick_runner::Db;

use super::CliError;
use super::dev::info::DevInfo;
use crate::wiring;

/// The arguments that choose it. Without any, `TALLYSTICK_DATABASE_URL` is taken.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TargetArgs {
    /// The database of the `dev` that runs in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "database_url")]
    pub data_dir: Option<PathBuf>,
    /// Address of the database [default: TALLYSTICK_DATABASE_URL]
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
}

/// What they choose.
#[derive(Clone)]
pub struct Target {
    /// The database, as the application role.
    pub database_url: String,
    /// The sandbox beside it, when there is one.
    pub sandbox_url: Option<String>,
}

impl TargetArgs {
    /// Finds out.
    ///
    /// # Errors
    /// [`CliError::Usage`] when nothing is chosen, [`CliError::Away`] when no `dev` runs in the folder.
    pub fn target(&self) -> Result<Target, CliError> {
        if let Some(url) = &self.database_url {
            return Ok(Target { database_url: url.clone(), sandbox_url: None });
        }
        if let Some(dir) = &self.data_dir {
            let info = DevInfo::read(dir)?;
            return Ok(Target { database_url: info.database_url, sandbox_url: Some(info.sandbox_url) });
        }
        match std::env::var("TALLYSTICK_DATABASE_URL") {
            Ok(url) if !url.is_empty() => Ok(Target { database_url: url, sandbox_url: None }),
            _ => Err(CliError::Usage(
                "which database? Give --data-dir of a running `dev`, --database-url or TALLYSTICK_DATABASE_URL".into(),
            )),
        }
    }

    /// Connects to the database, for a few statements.
    ///
    /// # Errors
    /// As [`Self::target`], or [`CliError::Away`] when nobody answers there.
    pub async fn connect(&self) -> Result<Db, CliError> {
        wiring::connect(&self.target()?.database_url, "tallystick command", 2).await
    }
}
