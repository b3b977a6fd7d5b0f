//! Builds the parts from the settings: the one place that knows both.

use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret;
use tallystick_gateway::{Gateway, adapters};
use tallystick_outbox::sinks::{self, EventSink};
use tallystick_payments::engine::Engine;
use tallystick_runner::{Db, DbOptions};

use crate::cli::CliError;
use crate::config::Config;

/// How long a caller waits for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to the database of the settings.
///
/// # Errors
/// [`CliError::Usage`] without an address or with a wrong one, [`CliError::Away`] when nobody answers there.
pub async fn database(config: &Config, application_name: &str) -> Result<Db, CliError> {
    let Some(url) = &config.database.url else {
        return Err(CliError::Usage(
            "no database: set TALLYSTICK_DATABASE_URL, or try `tallystick dev`, which brings its own".into(),
        ));
    };
    connect(url.expose_secret(), application_name, config.database.connections).await
}

/// Connects to a database.
///
/// # Errors
/// As [`database`].
pub async fn connect(url: &str, application_name: &str, connections: u32) -> Result<Db, CliError> {
    // The driver takes any scheme and then waits for a server that is none.
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(CliError::Usage(
            "the database's address must begin with postgres:// (user@host:port/database); correct it".into(),
        ));
    }
    let options = DbOptions {
        application_name: application_name.into(),
        max_connections: connections.max(1),
        acquire_timeout: ACQUIRE_TIMEOUT,
        ..DbOptions::default()
    };
    Ok(Db::connect(url, &options).await?)
}

/// The gateway accounts of the settings.
///
/// # Errors
/// [`CliError::Usage`] names the account and the setting.
pub fn gateways(config: &Config) -> Result<Vec<Arc<dyn Gateway>>, CliError> {
    let built: Result<Vec<_>, _> = config.gateways.accounts.iter().map(adapters::build).collect();
    built.map_err(|e| CliError::Usage(e.to_string()))
}

/// The engine over a database.
///
/// # Errors
/// [`CliError::Usage`] when settings do not fit together.
pub fn engine(config: &Config, db: Db) -> Result<Engine, CliError> {
    Engine::new(db, gateways(config)?, config.engine()).map_err(|e| CliError::Usage(e.to_string()))
}

/// The sinks of the settings.
///
/// # Errors
/// [`CliError::Usage`] for a name that is none.
pub fn sinks(config: &Config) -> Result<Vec<Arc<dyn EventSink>>, CliError> {
    let one = |name: &String| {
        sinks::build(name).ok_or_else(|| CliError::Usage(format!("there is no sink {name:?}")))
    };
    config.events.sinks.iter().map(one).collect()
}
