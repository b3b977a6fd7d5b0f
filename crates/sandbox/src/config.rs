//! Command line and environment. Secrets never stand on the command line, where other users could see them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};

/// Environment variable with the secret of the gateway API.
pub const SECRET: &str = "TALLYSTICK_SANDBOX_SECRET";
/// Environment variable with the secret of the webhooks.
pub const WEBHOOK_SECRET: &str = "TALLYSTICK_SANDBOX_WEBHOOK_SECRET";

/// A card gateway and a bank with a durable book of their own, which misbehave on request.
#[derive(Debug, Parser)]
#[command(
    name = "tallystick-sandbox",
    version,
    after_help = "\
Secrets come from files or from the environment:
  TALLYSTICK_SANDBOX_SECRET          secret of the gateway API (Authorization: Bearer …)
  TALLYSTICK_SANDBOX_WEBHOOK_SECRET  secret of the webhooks (whsec_ and base64)
Exit codes: 0 stopped as asked, 2 wrong use or settings, 3 something needed is away (folder in use, port taken).
GET / of the running program lists its routes; crates/sandbox/README.md describes them."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve until SIGTERM or SIGINT.
    Serve(ServeArgs),
}

/// Settings of `serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Loopback address to listen on; port 0 takes any free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Folder of the book; made when it does not exist
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Where webhooks go: the event of account A is sent to URL/A
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080/webhooks")]
    pub webhook_url: String,
    /// File with the secret of the gateway API, instead of TALLYSTICK_SANDBOX_SECRET
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// File with the secret of the webhooks, instead of TALLYSTICK_SANDBOX_WEBHOOK_SECRET
    #[arg(long, value_name = "FILE")]
    pub webhook_secret_file: Option<PathBuf>,
    /// File that is written, by rename, once the program listens: {"url", "pid"}
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

/// What is wrong with the settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A secret is missing.
    #[error("no {what}: set {variable} or give {option}")]
    Missing {
        /// Which secret.
        what: &'static str,
        /// Its environment variable.
        variable: &'static str,
        /// Its option.
        option: &'static str,
    },
    /// A secret's file cannot be read.
    #[error("cannot read {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The address is not a loopback address.
    #[error("{0} is not a loopback address; the sandbox listens on nothing else")]
    NotLoopback(SocketAddr),
}

/// What `serve` needs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Arguments.
    pub args: ServeArgs,
    /// Secret of the gateway API.
    pub secret: String,
    /// Secret of the webhooks.
    pub webhook_secret: String,
}

impl Config {
    /// The settings from arguments, files and environment.
    ///
    /// # Errors
    /// When a secret is missing or the address is not on loopback.
    pub fn new(args: ServeArgs, environment: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        if !args.listen.ip().is_loopback() {
            return Err(ConfigError::NotLoopback(args.listen));
        }
        let find =
            |file: Option<&Path>, variable, what, option| match file {
                Some(path) => std::fs::read_to_string(path)
                    .map(|text| text.trim().to_owned())
                    .map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error }),
                None => environment(variable)
                    .filter(|secret| !secret.is_empty())
                    .ok_or(ConfigError::Missing { what, variable, option }),
            };
        let secret = find(args.secret_file.as_deref(), SECRET, "secret of the gateway API", "--secret-file")?;
        let file = args.webhook_secret_file.as_deref();
        let webhook_secret = find(file, WEBHOOK_SECRET, "secret of the webhooks", "--webhook-secret-file")?;
        Ok(Self { args, secret, webhook_secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(more: &[&str]) -> ServeArgs {
        let words = ["tallystick-sandbox", "serve", "--data-dir", "x"].iter().chain(more);
        let Command::Serve(args) = Cli::try_parse_from(words).expect("good arguments").command;
        args
    }

    #[test]
    fn secrets_come_from_the_environment_or_a_file() {
        let both = |name: &str| Some(format!("value of {name}"));
        let config = Config::new(args(&[]), both).unwrap();
        assert_eq!(config.secret, format!("value of {SECRET}"));
        let missing = Config::new(args(&[]), |_| None).unwrap_err();
        assert!(missing.to_string().contains(SECRET) && missing.to_string().contains("--secret-file"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), " from a file\n").unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!(Config::new(args(&["--secret-file", path]), both).unwrap().secret, "from a file");
        assert!(matches!(
            Config::new(args(&["--secret-file", "/no/such/file"]), both),
            Err(ConfigError::Unreadable { .. })
        ));
    }

    #[test]
    fn only_loopback() {
        let far = Config::new(args(&["--listen", "0.0.0.0:0"]), |_| Some("x".to_owned()));
        assert!(matches!(far, Err(ConfigError::NotLoopback(_))));
    }
}
