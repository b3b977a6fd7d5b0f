//! `tallystick verify`: holds the database against its rules and against the sandbox's book.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Client, Url};
use serde::Deserialize;
use tallystick_gateway::http::{self, NoAnswer};
use tallystick_gateway::{LostCause, NotSentCause};
use tallystick_ledger::LedgerError;
use tallystick_outbox::OutboxError;
use tallystick_payments::verify::{
    self, Book, BookAway, Check, Effect, EffectKind, Options, Progress, Report, Status, VerifyError,
};
use tallystick_runner::Db;
use tallystick_runner::looper::chain;
use tokio::time::Instant;

use super::target::TargetArgs;
use super::{CliError, Exit, table};

/// Hold everything against the rules that must never break.
///
/// Reads the whole database in one snapshot, and the gateway's book where there is one (the sandbox's), while
/// everything goes on: work in flight is no violation. `held` means that a rule holds everywhere, `explained` that
/// each exception has an open break, `skipped` that there was no book to compare with, `violated` that it does not
/// hold; the ids are listed.
///
/// Ends with 0 when nothing is violated, with 1 when something is, and with 3 when the database or the book that was
/// named is away.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: TargetArgs,
    /// Where the sandbox listens, whose book is compared [default: what dev.json says]
    #[arg(long, value_name = "URL")]
    sandbox_url: Option<String>,
}

impl Args {
    /// Those of `verify --data-dir FOLDER`.
    #[must_use]
    pub fn of_folder(folder: &Path) -> Self {
        let database = TargetArgs { data_dir: Some(PathBuf::from(folder)), ..TargetArgs::default() };
        Self { database, ..Self::default() }
    }

    /// The same, printing JSON or not.
    #[must_use]
    pub fn json(self, json: bool) -> Self {
        Self { json, ..self }
    }
}

/// Runs it.
///
/// # Errors
/// [`CliError`] says what is missing or wrong.
pub async fn run(args: &Args) -> Result<Exit, CliError> {
    let target = args.database.target()?;
    let sandbox = args.sandbox_url.clone().or(target.sandbox_url);
    // A wrong address is told before anything is connected to.
    let book = sandbox.as_deref().map(SandboxBook::new).transpose()?;
    let db = args.database.connect().await?;
    let report = against(&db, book.as_ref()).await?;
    if args.json {
        println!("{}", serde_json::to_string(&report).expect("strings, numbers and ids only"));
    } else {
        print!("{}", text(&report));
    }
    Ok(exit(&report, book.is_some()))
}

/// Holds a database against its rules, and against the book of the sandbox that listens there.
///
/// # Errors
/// [`CliError`] says what is missing or wrong.
pub(super) async fn report(db: &Db, sandbox_url: Option<&str>) -> Result<Report, CliError> {
    let book = sandbox_url.map(SandboxBook::new).transpose()?;
    against(db, book.as_ref()).await
}

async fn against(db: &Db, book: Option<&SandboxBook>) -> Result<Report, CliError> {
    let options = Options {
        no_book: "no book to compare with: --sandbox-url names none".into(),
        progress: Some(progress()),
        ..Options::default()
    };
    let book = book.map(|book| book as &dyn Book);
    verify::run_with(db, book, &options).await.map_err(refusal)
}

/// A book that was named and could not be read leaves promises unproved: that is not "all holds".
pub(super) fn exit(report: &Report, has_book: bool) -> Exit {
    let skipped = report.checks.iter().any(|check| check.status == Status::Skipped);
    match (report.ok, has_book && skipped) {
        (false, _) => Exit::Broken,
        (true, true) => {
            eprintln!("tallystick: the gateway's book could not be read. Is the sandbox running?");
            Exit::Away
        }
        (true, false) => Exit::Done,
    }
}

fn refusal(error: VerifyError) -> CliError {
    match error {
        VerifyError::Db(e)
        | VerifyError::Ledger(LedgerError::Db(e))
        | VerifyError::Outbox(OutboxError::Db(e)) => e.into(),
        other => CliError::Broken(chain(&other)),
    }
}

/// A line on stderr now and then, once it takes long.
fn progress() -> Progress {
    const QUIET: Duration = Duration::from_secs(2);
    let next = Mutex::new(Instant::now() + QUIET);
    Arc::new(move |what, things| {
        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
        if Instant::now() >= *next {
            *next = Instant::now() + QUIET;
            match things {
                0 => eprintln!("tallystick verify: {what} …"),
                things => eprintln!("tallystick verify: {what}: {things} …"),
            }
        }
    })
}

fn text(report: &Report) -> String {
    let row = |c: &Check| vec![c.id.into(), c.status.as_str().into(), c.checked.to_string(), c.name.into()];
    let rows: Vec<Vec<String>> = report.checks.iter().map(row).collect();
    let mut out = table::render(&["CHECK", "STATUS", "LOOKED AT", "RULE"], &rows);
    for check in report.checks.iter().filter(|check| check.status != Status::Held) {
        out.push_str(&format!("\n{} {}: {}\n", check.id, check.status.as_str(), check.name));
        if let Some(reason) = &check.reason {
            out.push_str(&format!("  {reason}\n"));
        }
        for id in &check.violations {
            out.push_str(&format!("  {id}\n"));
        }
        let listed = check.violations.len() as u64;
        if check.violation_count > listed {
            out.push_str(&format!("  … and {} more\n", check.violation_count - listed));
        }
        for id in &check.breaks {
            out.push_str(&format!("  explained by break {id}\n"));
        }
    }
    let count = |status| report.checks.iter().filter(|check| check.status == status).count();
    out.push_str(&format!(
        "\n{} held, {} explained, {} skipped, {} violated\n",
        count(Status::Held),
        count(Status::Explained),
        count(Status::Skipped),
        count(Status::Violated)
    ));
    out
}

/// The sandbox's book, over HTTP.
struct SandboxBook {
    client: Client,
    base: Url,
}

/// Effects of one page; its JSON stays well below the longest answer that is read.
const PAGE: u64 = 500;
/// Deadline of one page.
const DEADLINE: Duration = Duration::from_secs(10);
/// A sandbox that is just being started again is asked once more after this long, so often.
const PAUSE: Duration = Duration::from_millis(500);
const TRIES: u32 = 4;

#[derive(Deserialize)]
struct Page {
    effects: Vec<Line>,
}

/// Members that the sandbox adds do no harm.
#[derive(Deserialize)]
struct Line {
    seq: u64,
    kind: String,
    key: String,
    reference: String,
    amount_minor: i64,
    currency: String,
    state: String,
    gateway: Option<String>,
}

impl From<Line> for Effect {
    fn from(line: Line) -> Self {
        let kind = match line.kind.as_str() {
            "charge" => EffectKind::Charge,
            "authorize" => EffectKind::Authorize,
            "capture" => EffectKind::Capture,
            "void" => EffectKind::Void,
            "refund" => EffectKind::Refund,
            "payout" => EffectKind::Payout,
            "payout_return" => EffectKind::PayoutReturn,
            _ => EffectKind::Other,
        };
        Self {
            seq: line.seq,
            gateway: line.gateway,
            kind,
            key: line.key,
            reference: line.reference,
            amount_minor: line.amount_minor,
            currency: line.currency,
            standing: line.state == "done",
        }
    }
}

impl SandboxBook {
    fn new(url: &str) -> Result<Self, CliError> {
        let base = Url::parse(url)
            .ok()
            .filter(|url| url.has_host() && matches!(url.scheme(), "http" | "https"))
            .ok_or_else(|| {
                CliError::Usage(format!("--sandbox-url {url:?} is no address such as http://127.0.0.1:8090"))
            })?;
        let client = http::client(Duration::from_secs(2)).map_err(|e| {
            CliError::Away(format!("no HTTP client: {e}. Check the TLS set-up of this machine"))
        })?;
        Ok(Self { client, base })
    }

    async fn page(&self, after: u64, key: Option<&str>) -> Result<Vec<Effect>, BookAway> {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("_book");
        }
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("after", &after.to_string()).append_pair("limit", &PAGE.to_string());
            if let Some(key) = key {
                query.append_pair("key", key);
            }
        }
        let mut tries = 1;
        loop {
            match self.once(url.clone()).await {
                Err(away) if tries == TRIES => return Err(away),
                Err(_) => {
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(effects) => return Ok(effects),
            }
        }
    }

    async fn once(&self, url: Url) -> Result<Vec<Effect>, BookAway> {
        let away = |why: &str| BookAway(format!("the book at {} could not be read: {why}", self.base));
        let received = http::exchange(self.client.get(url), DEADLINE).await.map_err(|error| match error {
            NoAnswer::NotSent(NotSentCause::Connect(why))
            | NoAnswer::Lost(LostCause::Connection(why) | LostCause::Unreadable(why)) => away(&why),
            NoAnswer::NotSent(NotSentCause::RateLimited { .. }) => away("rate limited"),
            NoAnswer::Lost(cause) => away(cause.name()),
        })?;
        if received.status != reqwest::StatusCode::OK {
            return Err(away(&format!("status {}", received.status)));
        }
        let page: Page = serde_json::from_slice(&received.body).map_err(|e| away(&e.to_string()))?;
        Ok(page.effects.into_iter().map(Effect::from).collect())
    }
}

#[async_trait]
impl Book for SandboxBook {
    async fn effects_after(&self, after: u64) -> Result<Vec<Effect>, BookAway> {
        self.page(after, None).await
    }

    async fn effects_of(&self, key: &str) -> Result<Vec<Effect>, BookAway> {
        let mut all: Vec<Effect> = Vec::new();
        loop {
            let after = all.last().map_or(0, |effect| effect.seq);
            let page = self.page(after, Some(key)).await?;
            let more = page.len() as u64 == PAGE;
            all.extend(page);
            if !more {
                return Ok(all);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: Status, violations: &[&str], count: u64) -> Check {
        Check {
            id: "I8",
            name: "a rule",
            status,
            checked: 12,
            violations: violations.iter().map(|&id| id.to_owned()).collect(),
            violation_count: count,
            breaks: Vec::new(),
            reason: (status == Status::Skipped).then(|| "no book".to_owned()),
        }
    }

    #[test]
    fn the_table_names_what_is_wrong_and_how_much_more_there_is() {
        let checks = vec![
            check(Status::Held, &[], 0),
            check(Status::Violated, &["a", "b"], 5),
            check(Status::Skipped, &[], 0),
        ];
        let shown = text(&Report { ok: false, checks });
        let expected = "\
CHECK  STATUS    LOOKED AT  RULE
I8     held      12         a rule
I8     violated  12         a rule
I8     skipped   12         a rule

I8 violated: a rule
  a
  b
  … and 3 more

I8 skipped: a rule
  no book

1 held, 0 explained, 1 skipped, 1 violated
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_named_book_that_is_away_is_not_all_holds() {
        let report = |ok, status| Report { ok, checks: vec![check(status, &[], 0)] };
        assert_eq!(exit(&report(true, Status::Held), true), Exit::Done);
        assert_eq!(exit(&report(true, Status::Explained), true), Exit::Done);
        assert_eq!(exit(&report(true, Status::Skipped), false), Exit::Done);
        assert_eq!(exit(&report(true, Status::Skipped), true), Exit::Away);
        assert_eq!(exit(&report(false, Status::Skipped), true), Exit::Broken);
    }

    #[test]
    fn a_wrong_address_is_wrong_use() {
        for url in ["", "127.0.0.1:8090", "file:///book", "http://"] {
            assert!(matches!(SandboxBook::new(url), Err(CliError::Usage(_))), "{url}");
        }
        assert!(SandboxBook::new("http://127.0.0.1:8090").is_ok());
    }
}
