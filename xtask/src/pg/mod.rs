//! A private PostgreSQL for builds and tests.
//!
//! The cluster lives in a folder of its own that is removed at the end, listens on loopback and in a socket folder
//! that only its user may enter, and trusts whoever connects: nothing of value is ever in it. As root it runs as an
//! unprivileged user, because PostgreSQL refuses root. The folder is locked while its owner lives, so that what a
//! killed owner left behind is found and removed by the next start.

mod cluster;
mod locate;
mod place;
mod run;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

pub use cluster::{Cluster, Durability};
pub use locate::Missing;

/// What can be done with a private PostgreSQL.
#[derive(Subcommand)]
pub enum Command {
    /// Start one, run a command with DATABASE_URL and TALLYSTICK_TEST_DATABASE_URL set, stop it; exit as the
    /// command did
    Run(run::Args),
}

/// Runs the command.
///
/// # Errors
/// When the cluster cannot be started or the command not be run.
pub async fn command(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(&args).await,
    }
}
