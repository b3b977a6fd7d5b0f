//! The command line: one file or folder per command.
//!
//! Every command is `run(args) -> Result<Exit, CliError>`. Results go to stdout, as a table for people or as
//! JSON (`--json`) for programs; everything else, errors included, goes to stderr.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

pub mod bench;
pub mod demo;
pub mod dev;
mod error;
pub mod keys;
pub mod migrate;
pub mod payouts;
pub mod requeue;
pub mod serve;
pub mod table;
pub mod target;
pub mod tenants;
pub mod verify;
pub mod wait;

pub use error::{CliError, Exit};

const AFTER_HELP: &str = "\
Exit codes: 0 done or all holds; 1 a promise or check did not hold; 2 wrong use or settings;
3 something needed is away; 4 time ran out.

First steps: `tallystick demo` shows what it does, `tallystick dev` gives an environment to try things in.";

/// A payment engine that never guesses: money in and out exactly once in effect, on PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "tallystick", version, after_help = AFTER_HELP, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Dev(Box<dev::Args>),
    Demo(demo::Args),
    Bench(bench::Args),
    Serve(serve::Args),
    Migrate(migrate::Args),
    Tenants(tenants::Args),
    Keys(keys::Args),
    Payouts(payouts::Args),
    Requeue(requeue::Args),
    Verify(verify::Args),
    Wait(wait::Args),
}

/// The whole program: reads the arguments, runs the command, gives its exit code.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::try_parse_from(std::env::args_os()) {
        Ok(cli) => run(cli),
        Err(error) => {
            // Nobody to tell if stdout and stderr are closed.
            let _ = error.print();
            if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() }
        }
    }
}

fn run(cli: Cli) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!(
                "tallystick: no threads to work with: {error}. Raise the limit of processes (ulimit -u)"
            );
            return Exit::Away.into();
        }
    };
    let result = runtime.block_on(Box::pin(dispatch(cli.command)));
    // A task that hangs (a second signal, a lost call) must not hold the process back.
    runtime.shutdown_background();
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("tallystick: {error}");
            error.exit().into()
        }
    }
}

async fn dispatch(command: Command) -> Result<Exit, CliError> {
    match command {
        Command::Dev(args) => dev::run(&args).await,
        Command::Demo(args) => demo::run(&args).await,
        Command::Bench(args) => bench::run(&args).await,
        Command::Serve(args) => serve::run(&args).await,
        Command::Migrate(args) => migrate::run(&args).await,
        Command::Tenants(args) => tenants::run(&args).await,
        Command::Keys(args) => keys::run(&args).await,
        Command::Payouts(args) => payouts::run(&args).await,
        Command::Requeue(args) => requeue::run(&args).await,
        Command::Verify(args) => verify::run(&args).await,
        Command::Wait(args) => wait::run(&args).await,
    }
}

/// The long help of every command, by its name, for the reference in the documentation.
#[must_use]
pub fn help_of_all() -> Vec<(String, String)> {
    fn walk(command: &mut clap::Command, path: &str, out: &mut Vec<(String, String)>) {
        let path = if path.is_empty() {
            command.get_name().to_owned()
        } else {
            format!("{path} {}", command.get_name())
        };
        let mut shown = command.clone().bin_name(path.clone()).term_width(100);
        out.push((path.clone(), shown.render_long_help().to_string()));
        for sub in command.get_subcommands_mut() {
            if sub.get_name() != "help" && !sub.is_hide_set() {
                walk(sub, &path, out);
            }
        }
    }
    let mut out = Vec::new();
    walk(&mut Cli::command(), "", &mut out);
    out
}

/// Parses arguments as the program does, without running anything.
///
/// # Errors
/// What would be told to the user.
pub fn parse<I, T>(args: I) -> Result<Cli, clap::Error>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    Cli::try_parse_from(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
