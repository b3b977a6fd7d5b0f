//! What is measured: a private cluster, the bank and the server, as processes of their own, brought up as `dev` does.

use std::collections::BTreeMap;
use std::time::Duration;

use tallystick_payments::tenants;
use tallystick_runner::Db;
use tallystick_runner::figures::{self, Durability};
use uuid::Uuid;

use super::bank::{Bank, Manner, Place};
use super::feed::Feed;
use super::meter::{Meter, Processes};
use super::wire::{Side, Wire};
use crate::cli::CliError;
use crate::cli::dev::Dev;
use crate::cli::dev::info::{DevInfo, Pids};
use crate::cli::tenants::refusal;
use crate::wiring;

/// The tenant that everything is done for.
const TENANT: &str = "default";
/// Connections of this process: for the meter and for reading journals.
const CONNECTIONS: u32 = 2;

/// A running environment, and where we are in its feed and in the bank's book.
pub struct Environment<'a> {
    dev: &'a mut Dev,
    /// Addresses, keys, processes.
    pub info: DevInfo,
    /// The product's database.
    pub db: Db,
    /// Id of the tenant.
    pub tenant: Uuid,
    /// Our API, with a key.
    pub api: Side,
    /// A connection to it, for what is not measured.
    pub wire: Wire,
    /// The bank.
    pub bank: Bank,
    /// How far its book was looked at.
    pub place: Place,
    /// The feed.
    pub feed: Feed,
    /// How commits are made durable.
    pub durability: Durability,
}

impl<'a> Environment<'a> {
    /// Starts everything, checks that commits are durable and sets the bank.
    ///
    /// # Errors
    /// [`CliError`] says what did not start, or which setting would make the figures worth nothing.
    pub async fn bring_up(dev: &'a mut Dev, manner: &Manner) -> Result<Self, CliError> {
        let info = dev.bring_up().await?;
        let db = wiring::connect(&info.database_url, "tallystick bench", CONNECTIONS).await?;
        let durability = figures::durability(&db).await?;
        if let Some((setting, value)) = durability.weak() {
            return Err(CliError::Usage(format!(
                "PostgreSQL runs with {setting} = {value}, so its commits are worth less than those of real use: \
                 nothing is measured"
            )));
        }
        let all = tenants::list(&db).await.map_err(refusal)?;
        let tenant = all.iter().find(|tenant| tenant.name == TENANT).map(|tenant| tenant.tenant_id.0);
        let tenant = tenant.ok_or_else(|| CliError::Broken(format!("there is no tenant {TENANT}")))?;
        let api = Side::at(&info.api_url)?.with_api_key(&info.api_key)?;
        let mut bank = Bank::at(&info.sandbox_url)?;
        bank.set(manner).await?;
        let (wire, feed) = (api.wire(), Feed::of(&api));
        Ok(Self { dev, info, db, tenant, api, wire, bank, place: Place::default(), feed, durability })
    }

    /// A meter of the server, the database and the bank.
    pub fn meter(&self) -> Meter {
        let Pids { server, postgres, sandbox, .. } = self.info.pids;
        let processes = Processes { server: Some(server), database: postgres, bank: sandbox };
        Meter::new(self.db.clone(), Some(self.api.wire()), processes)
    }

    /// A process that was started again in the middle makes every figure wrong.
    ///
    /// # Errors
    /// [`CliError::Broken`] when one was.
    pub fn nothing_ended(&self) -> Result<(), CliError> {
        if self.dev.pids() == Some(self.info.pids) {
            return Ok(());
        }
        Err(CliError::Broken(
            "the server, the bank or the database ended in the middle. Measure again with --data-dir and read its logs"
                .into(),
        ))
    }

    /// Stops the server, so that it takes no part in what follows. Its restart starts it again.
    pub async fn stop_server(&mut self) {
        self.dev.stop_server().await;
    }

    /// Starts the server again with other settings; with none, as it was first.
    ///
    /// # Errors
    /// [`CliError`] says what did not start.
    pub async fn restart_server(&mut self, settings: &BTreeMap<String, String>) -> Result<(), CliError> {
        self.info = self.dev.restart_server(settings).await?;
        self.wire = self.api.wire();
        Ok(())
    }

    /// A second bank with a book of its own, and a second database with the same schema in the same cluster, for a
    /// design that is not ours: their address, and the address of the database.
    ///
    /// # Errors
    /// [`CliError`] says what could not be made.
    pub async fn another(&mut self, name: &str) -> Result<Another, CliError> {
        let (bank_url, bank) = self.dev.start_bank(name).await?;
        let database_url = self.dev.make_database(name).await?;
        Ok(Another { bank_url, bank, secret: self.dev.gateway_secret().to_owned(), database_url })
    }
}

/// A second bank and a second database.
pub struct Another {
    /// Where the bank listens.
    pub bank_url: String,
    /// Its process.
    pub bank: u32,
    /// What it wants to be shown.
    pub secret: String,
    /// The database, for the application role.
    pub database_url: String,
}

/// How long without news means that no more will come: longer than the server waits before it asks by itself.
pub fn patience(latency: Duration) -> Duration {
    Duration::from_secs(60) + latency * 4
}
