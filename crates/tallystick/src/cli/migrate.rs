//! `tallystick migrate`: brings a database to this program's schema.

use std::path::PathBuf;

use tallystick_payments::migrate::{self, MigrateError, MigrateReport};
use tallystick_runner::looper::chain;

use super::dev::info::DevInfo;
use super::tenants::refusal;
use super::{CliError, Exit};

/// Bring a database to this program's schema.
///
/// Makes what is missing: the roles tallystick_owner and tallystick_app, the schemas, their tables, partitions for a
/// week and the tenant `default`. Running it again changes nothing. The address must be that of a user who may create
/// roles, directly and not through a transaction pooler; the server itself runs as tallystick_app.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub struct Args {
    /// Address of the database, as a user who may create roles [default: TALLYSTICK_DATABASE_URL]
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// The database of the `dev` that runs in this folder
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Print the SQL instead of running it
    #[arg(long)]
    sql: bool,
}

/// Runs it.
///
/// # Errors
/// [`CliError`] says what is missing or wrong.
pub async fn run(args: &Args) -> Result<Exit, CliError> {
    if args.sql {
        print!("{}", migrate::sql());
        return Ok(Exit::Done);
    }
    let url = match (&args.database_url, &args.data_dir) {
        (Some(url), _) => url.clone(),
        (None, Some(dir)) => DevInfo::read(dir)?.admin_database_url,
        (None, None) => std::env::var("TALLYSTICK_DATABASE_URL").map_err(|_| {
            CliError::Usage(
                "which database? Give --database-url, --data-dir or TALLYSTICK_DATABASE_URL".into(),
            )
        })?,
    };
    let report = bring(&url).await?;
    for migration in &report.applied {
        println!("applied  {migration}");
    }
    if report.applied.is_empty() {
        println!("the schema is this program's already");
    }
    if let Some(key) = &report.api_key {
        println!("tenant   {}\napi key  {key}", migrate::DEFAULT_TENANT);
        eprintln!("Keep the key: it is not stored and cannot be shown again.");
    }
    Ok(Exit::Done)
}

/// Migrates the database at `url`.
///
/// # Errors
/// [`CliError`] says what is missing or wrong.
pub(super) async fn bring(url: &str) -> Result<MigrateReport, CliError> {
    migrate::run(url).await.map_err(|e| match e {
        MigrateError::Db(e) => e.into(),
        MigrateError::Tenant(e) => refusal(e),
        other => CliError::Usage(chain(&other)),
    })
}
