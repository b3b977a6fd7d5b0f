//! `tallystick keys`: API keys. A key is shown once, when it is made; only its hash is stored.

use clap::{Subcommand, ValueEnum};
use serde_json::json;
use tallystick_payments::ids::KeyId;
use tallystick_payments::tenants::{self, Scope};
use uuid::Uuid;

use super::target::TargetArgs;
use super::tenants::refusal;
use super::{CliError, Exit, table};

/// Make, list and revoke API keys.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

/// What a key may do, as the command line writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScopeArg {
    /// The API, but for work on breaks, resolving and approvals
    Client,
    /// Also works on breaks and resolves unknown outcomes
    Operator,
    /// Also approves
    Approver,
}

impl From<ScopeArg> for Scope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::Client => Self::Client,
            ScopeArg::Operator => Self::Operator,
            ScopeArg::Approver => Self::Approver,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a key; it is shown once and not kept anywhere
    Create {
        /// Whose key
        #[arg(long)]
        tenant: String,
        /// What it may do
        #[arg(long, value_enum)]
        scope: ScopeArg,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        database: TargetArgs,
    },
    /// List keys by their beginnings; the keys themselves are not stored
    List {
        /// Only keys of this tenant
        #[arg(long)]
        tenant: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        database: TargetArgs,
    },
    /// Revoke a key for good; servers refuse it within two seconds
    Revoke {
        /// Its id, as `keys list` shows it
        key_id: Uuid,
        #[command(flatten)]
        database: TargetArgs,
    },
}

/// Runs it.
///
/// # Errors
/// [`CliError`] says what is missing or wrong.
pub async fn run(args: &Args) -> Result<Exit, CliError> {
    match &args.command {
        Command::Create { tenant, scope, json, database } => {
            create(tenant, (*scope).into(), *json, database).await
        }
        Command::List { tenant, json, database } => list(tenant.as_deref(), *json, database).await,
        Command::Revoke { key_id, database } => {
            let db = database.connect().await?;
            tenants::key_revoke(&db, KeyId(*key_id)).await.map_err(refusal)?;
            Ok(Exit::Done)
        }
    }
}

async fn create(tenant: &str, scope: Scope, as_json: bool, database: &TargetArgs) -> Result<Exit, CliError> {
    let db = database.connect().await?;
    let (id, key) = tenants::key_create(&db, tenant, scope).await.map_err(refusal)?;
    if as_json {
        println!("{}", json!({"key_id": id, "api_key": key, "scope": scope.as_str()}));
    } else {
        println!("key id   {id}\nscope    {}\napi key  {key}", scope.as_str());
        eprintln!("Keep the key: it is not stored and cannot be shown again.");
    }
    Ok(Exit::Done)
}

async fn list(tenant: Option<&str>, as_json: bool, database: &TargetArgs) -> Result<Exit, CliError> {
    let db = database.connect().await?;
    if let Some(tenant) = tenant {
        tenants::find(&db, tenant).await.map_err(refusal)?;
    }
    let keys = tenants::keys(&db, tenant).await.map_err(refusal)?;
    if as_json {
        println!("{}", json!({"keys": keys}));
        return Ok(Exit::Done);
    }
    let row = |key: &tenants::ApiKey| {
        let state = key.revoked_at.map_or_else(|| "active".to_owned(), |at| format!("revoked {at}"));
        let (id, begins) = (key.key_id.to_string(), format!("{}…", key.prefix));
        vec![id, key.tenant.clone(), key.scope.clone(), begins, key.created_at.to_string(), state]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    print!("{}", table::render(&["KEY ID", "TENANT", "SCOPE", "BEGINS", "CREATED", "STATE"], &rows));
    Ok(Exit::Done)
}
