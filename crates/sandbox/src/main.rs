//! The program `tallystick-sandbox`.

use std::process::ExitCode;

use clap::Parser;
use tallystick_sandbox::ServeError;
use tallystick_sandbox::config::{Cli, Command, Config};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let Command::Serve(args) = Cli::parse().command;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    let config = match Config::new(args, |name| std::env::var(name).ok()) {
        Ok(config) => config,
        Err(error) => return failed(&error, 2),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error, 3),
    };
    let ended = runtime.block_on(tallystick_sandbox::serve(config));
    // Requests that are held without an answer must not hold the program.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ ServeError::Webhook(_)) => failed(&error, 2),
        Err(error) => failed(&error, 3),
    }
}

fn failed(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    eprintln!("tallystick-sandbox: {error}");
    ExitCode::from(code)
}
