//! `cargo xtask`: the project's own tools, so that a build needs nothing but cargo and PostgreSQL.
//!
//! - `pg run -- CMD` lends a private PostgreSQL to a command.
//! - `sqlx-prepare` writes (or compares) the committed cache of checked statements in `.sqlx`.
//! - `tidy` holds the house rules that the compiler cannot hold.
//! - `chaos` kills the server under load and asks the gateway's own book what happened.

mod chaos;
mod pg;
mod sqlx_prepare;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own tools.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A private, throw-away PostgreSQL for builds and tests
    Pg {
        #[command(subcommand)]
        command: pg::Command,
    },
    /// Write the cache of checked SQL statements (.sqlx), so that a build needs no database
    SqlxPrepare(sqlx_prepare::Args),
    /// Check the house rules; prints file:line: rule: message
    Tidy(tidy::Args),
    /// Kill the server again and again under load and a misbehaving gateway; then compare all books
    Chaos(chaos::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Pg { command } => pg::command(command).await,
        Command::SqlxPrepare(args) => sqlx_prepare::run(&args).await,
        Command::Tidy(args) => tidy::run(&args),
        Command::Chaos(args) => chaos::run(&args).await,
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        // As in the product: 2 wrong use, 3 something needed is away, 1 all else.
        ExitCode::from(match error {
            error if error.is::<pg::Missing>() => 3,
            error if error.is::<chaos::WrongUse>() => 2,
            _ => 1,
        })
    })
}
