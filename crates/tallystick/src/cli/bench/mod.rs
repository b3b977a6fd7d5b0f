//! `tallystick bench`: how fast this program is on this machine, and what it costs.
//!
//! A bench brings up an environment of its own as `dev` does: PostgreSQL with everything that makes commits durable,
//! the sandbox as the bank, the server. Load and the reading of the feed happen in this process, so that processor time
//! is known apart for the server, the database, the bank and the load. After every run four witnesses are asked whether
//! anything is missing, and at the end everything is verified: figures of a run that lost something are not figures.

mod accounts;
mod bank;
mod baselines;
mod complete;
mod cpu;
mod environment;
mod feed;
mod load;
mod machine;
mod measure;
mod meter;
mod payouts;
mod report;
mod scrape;
mod stats;
mod wire;

use clap::Subcommand;

use super::{CliError, Exit};

/// Measure how fast this program is on this machine, and what it costs.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    Payouts(Box<payouts::Args>),
}

/// Runs it.
///
/// # Errors
/// [`CliError`] says what is missing or wrong.
pub async fn run(args: &Args) -> Result<Exit, CliError> {
    match &args.bench {
        Bench::Payouts(args) => payouts::run(args).await,
    }
}
