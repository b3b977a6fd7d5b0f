//! `tallystick wait`: until nothing moves by itself any more.

use std::time::Duration;

use serde_json::json;
use tallystick_payments::idle::{self, Open};
use tallystick_runner::Db;
use tokio::time::Instant;

use super::target::TargetArgs;
use super::{CliError, Exit};

/// Pause between two looks.
const POLL: Duration = Duration::from_millis(100);
/// Pause between two looks at everything, after one found what the quick look does not see.
const WHOLE: Duration = Duration::from_secs(1);

/// Wait until nothing moves by itself any more.
///
/// Open are payments that need a submit or a question, and stored webhooks that nobody has looked at. What waits for
/// a person is not: payments with `attention`, unknown outcomes whose key the gateway has forgotten. Nor are parked
/// webhooks, which wait for an operation that does not exist.
///
/// Ends with 0 when nothing is open, with 4 and the ids when the time is over, with 3 when the database is away.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Wait until nothing is open; there is nothing else to wait for yet
    #[arg(long)]
    idle: bool,
    /// At most so long
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// How long gateways recognise a key: an unknown outcome that is older waits for a person
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = humantime::parse_duration)]
    key_retention: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: TargetArgs,
}

/// Runs it.
///
/// # Errors
/// [`CliError`] says what is missing or wrong; a database that is away is waited for as long as everything else.
pub async fn run(args: &Args) -> Result<Exit, CliError> {
    if !args.idle {
        return Err(CliError::Usage("what is to be waited for? Give --idle".into()));
    }
    let until = Instant::now() + args.timeout;
    let mut watch = Watch { args, db: None, whole_from: Instant::now() };
    loop {
        let looked = watch.look().await;
        if matches!(&looked, Ok(true)) {
            if args.json {
                println!("{}", json!({"idle": true}));
            }
            return Ok(Exit::Done);
        }
        if let Err(error @ (CliError::Usage(_) | CliError::Broken(_))) = looked {
            return Err(error);
        }
        if Instant::now() + POLL > until {
            looked?;
            return watch.time_is_over().await;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Looks at one database again and again.
struct Watch<'a> {
    args: &'a Args,
    db: Option<Db>,
    /// When everything may be looked at again.
    whole_from: Instant,
}

impl Watch<'_> {
    async fn db(&mut self) -> Result<Db, CliError> {
        match &self.db {
            Some(db) => Ok(db.clone()),
            None => Ok(self.db.insert(self.args.database.connect().await?).clone()),
        }
    }

    /// Nothing is open. The quick look decides first; only when it sees nothing everything is looked at.
    async fn look(&mut self) -> Result<bool, CliError> {
        let db = self.db().await?;
        if !idle::is_idle(&db, self.args.key_retention).await? || Instant::now() < self.whole_from {
            return Ok(false);
        }
        let open = idle::open(&db, self.args.key_retention).await?;
        self.whole_from = Instant::now() + WHOLE;
        Ok(open.is_empty())
    }

    async fn time_is_over(&mut self) -> Result<Exit, CliError> {
        let db = self.db().await?;
        let open = idle::open(&db, self.args.key_retention).await?;
        if self.args.json {
            println!("{}", json!({"idle": false, "open": open}));
        }
        eprintln!("tallystick: not idle after {}", humantime::format_duration(self.args.timeout));
        eprint!("{}", text(&open));
        Ok(Exit::TimedOut)
    }
}

fn text(open: &Open) -> String {
    let mut out = String::new();
    let mut part = |what: &str, count: i64, ids: Vec<String>| {
        if count > 0 {
            out.push_str(&format!("{count} {what}:\n"));
            let more = count - i64::try_from(ids.len()).unwrap_or(count);
            for id in ids {
                out.push_str(&format!("  {id}\n"));
            }
            if more > 0 {
                out.push_str(&format!("  … and {more} more\n"));
            }
        }
    };
    part("open operations", open.operations, open.operation_ids.iter().map(ToString::to_string).collect());
    part("webhooks that were not looked at", open.inbound, open.inbound_ids.clone());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_named_and_the_rest_is_counted() {
        let open = Open {
            operations: 22,
            operation_ids: vec![uuid::Uuid::nil()],
            inbound: 1,
            inbound_ids: vec!["sandbox/evt".into()],
        };
        let expected = format!(
            "22 open operations:\n  {}\n  … and 21 more\n1 webhooks that were not looked at:\n  sandbox/evt\n",
            uuid::Uuid::nil()
        );
        assert_eq!(text(&open), expected);
    }
}
