//! `tallystick payouts`: the payouts of all tenants, and those that have lost their work.

use std::time::Duration;

use clap::Subcommand;
use serde_json::json;
use tallystick_money::{Currency, Money};
use tallystick_payments::payout::PayoutStatus;
use tallystick_payments::requeue::{self, ListFilter, ListedPayout, Work};
use tallystick_payments::tenants;

use super::target::TargetArgs;
use super::{CliError, Exit, table};

/// Most payouts of one list.
const MAX_LIMIT: u32 = 10_000;

/// Look at payouts.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List payouts of all tenants, oldest first, with their age
    ///
    /// With --without-work only those that still need work (pending, processing, unknown) and have none: their
    /// dispatch row is gone, lost by a repair by hand, say. Servers find those of the last hour within a minute and all
    /// others within a day; `tallystick requeue` does it now.
    List(ListArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only those that need work and have none
    #[arg(long)]
    without_work: bool,
    /// Only those in this status
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<PayoutStatus>,
    /// Only those of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LIMIT)))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: TargetArgs,
}

fn status(text: &str) -> Result<PayoutStatus, String> {
    PayoutStatus::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
        format!("a payout's status is one of {}", PayoutStatus::ALL.map(PayoutStatus::as_str).join(", "))
    })
}

/// Runs it.
///
/// # Errors
/// [`CliError`] says what is missing or wrong.
pub async fn run(args: &Args) -> Result<Exit, CliError> {
    match &args.command {
        Command::List(args) => list(args).await,
    }
}

async fn list(args: &ListArgs) -> Result<Exit, CliError> {
    let db = args.database.connect().await?;
    let tenant = match &args.tenant {
        Some(name) => Some(tenants::find(&db, name).await.map_err(super::tenants::refusal)?),
        None => None,
    };
    let filter = ListFilter { tenant, status: args.status, without_work: args.without_work };
    let limit = args.limit as usize;
    // One more than is shown, to know whether there are more.
    let mut found = requeue::list_payouts(&db, &filter, limit + 1).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    if args.json {
        println!("{}", json!({"payouts": found, "more": more}));
        return Ok(Exit::Done);
    }
    print!("{}", text(&found));
    if more {
        eprintln!("tallystick: there are more; --limit shows up to {MAX_LIMIT}");
    }
    Ok(Exit::Done)
}

fn text(payouts: &[ListedPayout]) -> String {
    let rows: Vec<Vec<String>> = payouts.iter().map(row).collect();
    table::render(&["ID", "STATUS", "AGE", "WORK", "AMOUNT", "TENANT", "REFERENCE"], &rows)
}

fn row(payout: &ListedPayout) -> Vec<String> {
    // Of a currency that this version does not know, the minor units are shown.
    let amount = match payout.currency.parse::<Currency>() {
        Ok(currency) => Money { minor: payout.amount_minor, currency }.major(),
        Err(_) => format!("{} minor", payout.amount_minor),
    };
    let age = Duration::from_secs(u64::try_from(payout.age_seconds).unwrap_or(0));
    vec![
        payout.payout_id.to_string(),
        payout.status.as_str().to_owned(),
        humantime::format_duration(age).to_string(),
        work(payout).to_owned(),
        format!("{amount} {}", payout.currency),
        payout.tenant.clone(),
        // The client's text: line breaks and control characters must not draw on the terminal.
        payout.reference.as_deref().map_or_else(|| "-".to_owned(), |text| text.escape_debug().to_string()),
    ]
}

fn work(payout: &ListedPayout) -> &'static str {
    match (payout.work, payout.status.needs_work()) {
        (Some(Work::Leased), _) => "leased",
        (Some(Work::Due), _) => "due",
        (Some(Work::Waits), _) => "waits",
        (None, true) => "NONE",
        (None, false) => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystick_payments::ids::PayoutId;

    #[test]
    fn a_row_tells_age_amount_and_missing_work_and_draws_nothing() {
        let payout = ListedPayout {
            payout_id: PayoutId(uuid::Uuid::nil()),
            tenant: "default".into(),
            status: PayoutStatus::Pending,
            amount_minor: 123_456,
            currency: "EUR".into(),
            reference: Some("a\u{1b}[2J\nb".into()),
            gateway: "bank".into(),
            attention: None,
            work: None,
            created_at: jiff::Timestamp::UNIX_EPOCH,
            age_seconds: 3_723,
        };
        let expected = ["pending", "1h 2m 3s", "NONE", "1234.56 EUR", "default", r"a\u{1b}[2J\nb"];
        assert_eq!(row(&payout)[1..], expected);
        let over = ListedPayout { status: PayoutStatus::RequiresApproval, ..payout };
        assert_eq!(work(&over), "-", "it needs none");
    }
}
