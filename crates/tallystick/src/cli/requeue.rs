//! `tallystick requeue`: gives payments and payouts their work again. Safe whoever runs it, and how often.

use std::time::Duration;

use serde_json::json;
use tallystick_payments::requeue::{self, Outcome, Requeued};
use tallystick_runner::Db;
use tokio::time::Instant;
use uuid::Uuid;

use super::target::TargetArgs;
use super::{CliError, Exit, table};

/// Between two words about how far it is.
const QUIET: Duration = Duration::from_secs(2);

/// Give payments and payouts their work again.
///
/// It is always safe, whoever runs it and how often. A dispatch row that was lost is made again and counts as possibly
/// sent, so the gateway is asked before anything is sent; a payout that was not debited is known to be unsent. A row
/// that waits is made due now. What a server works on right now is left alone, and what is final needs nothing.
///
/// Ends with 0, or with 1 when there is no payment and no payout of one of the ids.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(false).args(["ids", "without_work"])))]
pub struct Args {
    /// Which payments and payouts
    #[arg(value_name = "ID")]
    ids: Vec<Uuid>,
    /// All that need work and have none
    #[arg(long)]
    without_work: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: TargetArgs,
}

/// Runs it.
///
/// # Errors
/// [`CliError`] says what is missing or wrong. What was done before stays done; all of it may be done again.
pub async fn run(args: &Args) -> Result<Exit, CliError> {
    let db = args.database.connect().await?;
    let done = if args.without_work { all(&db).await? } else { requeue::by_ids(&db, &args.ids).await? };
    if args.json {
        println!("{}", json!({"requeued": done}));
    } else {
        print!("{}", text(&done));
    }
    let unknown: Vec<&Requeued> = done.iter().filter(|one| one.outcome == Outcome::UnknownId).collect();
    for one in &unknown {
        eprintln!("tallystick: there is no payment and no payout {}: check the id", one.id);
    }
    Ok(if unknown.is_empty() { Exit::Done } else { Exit::Broken })
}

/// Everything that has lost its work, in bounded steps.
async fn all(db: &Db) -> Result<Vec<Requeued>, CliError> {
    let (mut done, mut seen, mut after) = (Vec::new(), 0, Some(Uuid::nil()));
    let mut next_word = Instant::now() + QUIET;
    while let Some(from) = after {
        let look = requeue::without_work(db, from).await?;
        seen += look.seen;
        done.extend(look.requeued);
        after = look.next;
        if after.is_none() || Instant::now() >= next_word {
            next_word = Instant::now() + QUIET;
            let lost = done.len();
            eprintln!(
                "tallystick requeue: {seen} payments and payouts looked at, {lost} had lost their work"
            );
        }
    }
    Ok(done)
}

fn text(done: &[Requeued]) -> String {
    let row = |one: &Requeued| {
        vec![
            one.id.to_string(),
            one.kind.unwrap_or("-").to_owned(),
            one.status.unwrap_or("-").to_owned(),
            said(one.outcome).to_owned(),
        ]
    };
    table::render(&["ID", "KIND", "STATUS", "DONE"], &done.iter().map(row).collect::<Vec<_>>())
}

fn said(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::MadeAgain => "made again",
        Outcome::MadeDue => "due now",
        Outcome::InWork => "in work",
        Outcome::NothingToDo => "nothing to do",
        Outcome::UnknownId => "unknown id",
    }
}
