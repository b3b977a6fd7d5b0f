//! `tallystick tenants`: whose rows are whose.

use clap::Subcommand;
use serde_json::json;
use tallystick_payments::tenants::{self, TenantError};

use super::target::TargetArgs;
use super::{CliError, Exit, table};

/// Make, list and set up tenants.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a tenant and its first API key, of scope client
    ///
    /// The key is shown once and not kept anywhere.
    Create {
        /// Name: 1 to 63 of a-z, 0-9, '-' and '_'
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        database: TargetArgs,
    },
    /// List the tenants with their settings
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        database: TargetArgs,
    },
    /// Switch settings of a tenant on or off
    ///
    /// payout_approval: payouts wait for an approval. two_people: resolving, correcting and approving need a second
    /// key. strict_order: operations of one account run one after the other.
    Set {
        /// Which tenant
        name: String,
        /// What to switch: payout_approval, two_people, strict_order
        #[arg(required = true, value_name = "SETTING=on|off", value_parser = switch)]
        settings: Vec<(String, bool)>,
        #[command(flatten)]
        database: TargetArgs,
    },
}

fn switch(text: &str) -> Result<(String, bool), String> {
    match text.split_once('=') {
        Some((name, "on")) => Ok((name.to_owned(), true)),
        Some((name, "off")) => Ok((name.to_owned(), false)),
        _ => Err("write SETTING=on or SETTING=off".into()),
    }
}

/// Why a command on tenants or keys was not carried out, with its exit code.
pub(super) fn refusal(error: TenantError) -> CliError {
    match error {
        TenantError::Db(e) => e.into(),
        other => CliError::Usage(other.to_string()),
    }
}

/// Runs it.
///
/// # Errors
/// [`CliError`] says what is missing or wrong.
pub async fn run(args: &Args) -> Result<Exit, CliError> {
    match &args.command {
        Command::Create { name, json, database } => create(name, *json, database).await,
        Command::List { json, database } => list(*json, database).await,
        Command::Set { name, settings, database } => {
            let db = database.connect().await?;
            for (setting, on) in settings {
                tenants::set(&db, name, setting, *on).await.map_err(refusal)?;
            }
            Ok(Exit::Done)
        }
    }
}

async fn create(name: &str, as_json: bool, database: &TargetArgs) -> Result<Exit, CliError> {
    let db = database.connect().await?;
    let (_, key) = tenants::create(&db, name).await.map_err(refusal)?;
    if as_json {
        println!("{}", json!({"tenant": name, "api_key": key}));
    } else {
        println!("tenant   {name}\napi key  {key}");
        eprintln!("Keep the key: it is not stored and cannot be shown again.");
    }
    Ok(Exit::Done)
}

async fn list(as_json: bool, database: &TargetArgs) -> Result<Exit, CliError> {
    let db = database.connect().await?;
    let all = tenants::list(&db).await.map_err(refusal)?;
    if as_json {
        println!("{}", json!({"tenants": all}));
        return Ok(Exit::Done);
    }
    let word = |on: bool| if on { "on" } else { "off" }.to_owned();
    let row = |t: &tenants::Tenant| {
        vec![
            t.name.clone(),
            word(t.payout_approval),
            word(t.two_people),
            word(t.strict_order),
            t.tenant_id.to_string(),
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    print!("{}", table::render(&["TENANT", "PAYOUT_APPROVAL", "TWO_PEOPLE", "STRICT_ORDER", "ID"], &rows));
    Ok(Exit::Done)
}
