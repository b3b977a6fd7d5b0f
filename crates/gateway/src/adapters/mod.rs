//! One file per gateway; [`ALL`] is the list that settings choose from.

use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::Gateway;
use crate::signature::WebhookSecret;

mod sandbox;

/// An adapter's name in settings, and how an account of it is made.
pub struct Adapter {
    /// As in the setting `adapter`.
    pub name: &'static str,
    /// Makes an account.
    pub build: fn(&Account) -> Result<Arc<dyn Gateway>, AdapterError>,
}

/// Every adapter. A new one is a file beside this and a line here.
pub const ALL: &[Adapter] = &[Adapter { name: "sandbox", build: sandbox::build }];

/// Settings of one gateway account.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// The account's name: `gateway` of a payment, and the last part of its webhook address.
    pub name: String,
    /// Which adapter speaks to it.
    pub adapter: String,
    /// Where it listens; the adapter adds its own paths.
    pub base_url: String,
    /// The secret that we show to it.
    pub secret: SecretString,
    /// Secrets that its webhooks may be signed with; several while one is being replaced.
    #[serde(default)]
    pub webhook_secrets: Vec<SecretString>,
    /// How long it recognises a key, in seconds.
    #[serde(default = "day")]
    pub key_retention_seconds: u64,
    /// It may run a key twice: submit once, then only ask.
    #[serde(default)]
    pub re_executes: bool,
    /// How old or early a webhook's timestamp may be, in seconds.
    #[serde(default = "five_minutes")]
    pub webhook_tolerance_seconds: i64,
}

const fn day() -> u64 {
    86_400
}

const fn five_minutes() -> i64 {
    300
}

/// Why an account cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// No such adapter.
    #[error("gateway account {account}: there is no adapter {adapter:?}; known are {known}")]
    Unknown {
        /// The account.
        account: String,
        /// What it asked for.
        adapter: String,
        /// The adapters that exist.
        known: String,
    },
    /// A setting cannot be used.
    #[error("gateway account {account}: {reason}")]
    Setting {
        /// The account.
        account: String,
        /// What is wrong with it, without the value of a secret.
        reason: String,
    },
}

/// Makes the account that the settings describe.
///
/// # Errors
/// [`AdapterError`] names the account and the setting.
pub fn build(account: &Account) -> Result<Arc<dyn Gateway>, AdapterError> {
    let adapter = ALL.iter().find(|a| a.name == account.adapter).ok_or_else(|| AdapterError::Unknown {
        account: account.name.clone(),
        adapter: account.adapter.clone(),
        known: ALL.iter().map(|a| a.name).collect::<Vec<_>>().join(", "),
    })?;
    (adapter.build)(account)
}

impl Account {
    fn refuse(&self, reason: impl std::fmt::Display) -> AdapterError {
        AdapterError::Setting { account: self.name.clone(), reason: reason.to_string() }
    }

    fn parsed_webhook_secrets(&self) -> Result<Vec<WebhookSecret>, AdapterError> {
        self.webhook_secrets.iter().map(|s| s.expose_secret().parse().map_err(|e| self.refuse(e))).collect()
    }

    fn key_retention(&self) -> Duration {
        Duration::from_secs(self.key_retention_seconds)
    }
}
