//! Settings: defaults, then a TOML file, then `TALLYSTICK_*` variables; the later one wins.
//!
//! The environment is flat (`TALLYSTICK_GATEWAY_TIMEOUT`), the file has one table per section
//! (`[gateways] timeout = "5s"`); [`settings::ALL`] maps one to the other and is what the reference in
//! `docs/settings.md` is made from. A name that is not in it is refused with the nearest one that is: a mistyped
//! timeout that silently keeps its default is found in the middle of an incident, a refused one at once.
//!
//! Relations between settings are checked by the engine's own settings, before anything connects.

mod error;
mod load;
pub mod settings;
mod values;

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use ipnet::IpNet;
use secrecy::SecretString;
use serde::Deserialize;
use tallystick_gateway::adapters::Account;
use tallystick_payments as payments;

pub use error::ConfigError;
pub use load::{PREFIX, load};
pub use values::{LogFormat, Role};

use crate::http::HttpSettings;

/// All settings of a server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// PostgreSQL.
    pub database: Database,
    /// The HTTP side.
    pub http: Http,
    /// Gateway accounts and calls to them.
    pub gateways: Gateways,
    /// Claiming and recording of work.
    pub dispatch: Dispatch,
    /// Asking about outcomes that are not known.
    pub sweep: Sweep,
    /// Webhooks, in and out.
    pub webhooks: Webhooks,
    /// Where events are published.
    pub events: Events,
    /// The process itself.
    pub process: Process,
    /// Logs.
    pub log: Log,
}

/// PostgreSQL.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Database {
    /// Address with user, as the application role.
    pub url: Option<SecretString>,
    /// Most connections of this process.
    pub connections: u32,
}

/// The HTTP side.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Requests at once.
    pub max_requests: usize,
    /// Longest time of one request, in seconds and parts of it.
    #[serde(deserialize_with = "values::duration")]
    pub request_timeout: Duration,
    /// Requests per second of one API key; 0 is no limit.
    pub requests_per_second: u32,
}

/// Gateway accounts and calls to them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gateways {
    /// Deadline of one call.
    #[serde(deserialize_with = "values::duration")]
    pub timeout: Duration,
    /// Calls at once.
    pub max_in_flight: usize,
    /// Account of a payment that names none.
    pub default: String,
    /// `payment_method` of a payment that names none.
    pub default_payment_method: Option<String>,
    /// Submits stop this long before the gateway forgets a key.
    #[serde(deserialize_with = "values::duration")]
    pub key_retention_margin: Duration,
    /// A file with the accounts, instead of `accounts`.
    pub file: Option<std::path::PathBuf>,
    /// The accounts as given; checked and moved to `built` by [`load()`].
    #[serde(rename = "accounts")]
    raw: values::RawAccounts,
    /// The accounts.
    #[serde(skip)]
    pub accounts: Vec<Account>,
}

/// Claiming and recording of work.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dispatch {
    /// How long a claim holds.
    #[serde(deserialize_with = "values::duration")]
    pub lease: Duration,
    /// Pause between two looks for due work when there is none.
    #[serde(deserialize_with = "values::duration")]
    pub poll: Duration,
    /// Operations of one claim or record transaction.
    pub batch: usize,
    /// How long the writer of creations waits for company.
    #[serde(deserialize_with = "values::duration")]
    pub create_linger: Duration,
    /// How long the writer of results waits for company.
    #[serde(deserialize_with = "values::duration")]
    pub record_linger: Duration,
    /// Requests waiting to be written at once.
    pub max_queued: usize,
}

/// Asking about outcomes that are not known.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sweep {
    /// First question after an outcome became unknown, and base of the back-off.
    #[serde(deserialize_with = "values::duration")]
    pub after: Duration,
    /// Longest pause between two questions.
    #[serde(deserialize_with = "values::duration")]
    pub max_backoff: Duration,
    /// When an acknowledged operation without news is asked about.
    #[serde(deserialize_with = "values::duration")]
    pub status_check_after: Duration,
}

/// Webhooks, in and out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Webhooks {
    /// How old or early the timestamp of a gateway's webhook may be.
    #[serde(deserialize_with = "values::duration")]
    pub tolerance: Duration,
    /// Private networks that merchants' webhooks may go to.
    #[serde(deserialize_with = "values::list")]
    pub allow_cidrs: Vec<IpNet>,
}

/// Where events are published.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Events {
    /// Names of the sinks that are on.
    #[serde(deserialize_with = "values::list")]
    pub sinks: Vec<String>,
}

/// The process itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Process {
    /// What this process does.
    #[serde(deserialize_with = "values::list")]
    pub roles: Vec<Role>,
    /// How long work in flight may take after the first signal.
    #[serde(deserialize_with = "values::duration")]
    pub shutdown_timeout: Duration,
}

/// Logs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Which lines, in the syntax of `tracing`'s environment filter.
    pub filter: String,
    /// How they look.
    pub format: LogFormat,
}

impl Default for Database {
    fn default() -> Self {
        Self { url: None, connections: 16 }
    }
}

impl Default for Http {
    fn default() -> Self {
        let http = HttpSettings::default();
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            max_requests: http.max_requests,
            request_timeout: http.request_timeout,
            requests_per_second: http.requests_per_second.map_or(0, NonZeroU32::get),
        }
    }
}

impl Default for Gateways {
    fn default() -> Self {
        let engine = payments::Settings::default();
        Self {
            timeout: engine.gateway_timeout,
            max_in_flight: engine.max_in_flight,
            default: engine.default_gateway,
            default_payment_method: None,
            key_retention_margin: engine.key_retention_margin,
            file: None,
            raw: values::RawAccounts::default(),
            accounts: Vec::new(),
        }
    }
}

impl Default for Dispatch {
    fn default() -> Self {
        let engine = payments::Settings::default();
        Self {
            lease: engine.lease,
            poll: engine.poll,
            batch: engine.batch,
            create_linger: engine.create_linger,
            record_linger: engine.record_linger,
            max_queued: engine.max_queued,
        }
    }
}

impl Default for Sweep {
    fn default() -> Self {
        let engine = payments::Settings::default();
        Self {
            after: engine.sweep_after,
            max_backoff: engine.sweep_max_backoff,
            status_check_after: engine.status_check_after,
        }
    }
}

impl Default for Webhooks {
    fn default() -> Self {
        Self { tolerance: Duration::from_secs(300), allow_cidrs: Vec::new() }
    }
}

impl Default for Process {
    fn default() -> Self {
        Self { roles: Role::ALL.to_vec(), shutdown_timeout: Duration::from_secs(40) }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "info".into(), format: LogFormat::Json }
    }
}

impl Config {
    /// What the engine is told.
    #[must_use]
    pub fn engine(&self) -> payments::Settings {
        payments::Settings {
            gateway_timeout: self.gateways.timeout,
            lease: self.dispatch.lease,
            sweep_after: self.sweep.after,
            sweep_max_backoff: self.sweep.max_backoff,
            status_check_after: self.sweep.status_check_after,
            key_retention_margin: self.gateways.key_retention_margin,
            max_in_flight: self.gateways.max_in_flight,
            max_queued: self.dispatch.max_queued,
            default_payment_method: self.gateways.default_payment_method.clone(),
            default_gateway: self.gateways.default.clone(),
            batch: self.dispatch.batch,
            create_linger: self.dispatch.create_linger,
            record_linger: self.dispatch.record_linger,
            poll: self.dispatch.poll,
        }
    }

    /// What the HTTP side is told.
    #[must_use]
    pub fn http(&self) -> HttpSettings {
        let rate = NonZeroU32::new(self.http.requests_per_second);
        HttpSettings {
            max_requests: self.http.max_requests,
            request_timeout: self.http.request_timeout,
            requests_per_second: rate,
            burst: rate.unwrap_or(NonZeroU32::MIN),
        }
    }
}
