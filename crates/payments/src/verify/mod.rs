//! The proof: the ledger against itself, payments and payouts against journals, history and events, and all of it
//! against the gateway's own book. Reads only.
//!
//! ```text
//!   book to its end → one snapshot: all checks in SQL, operations beside the book → rest of the book → doubts again
//! ```
//! Everything that is ours is read in one snapshot, so work in flight is seen before or after a transaction and
//! never in the middle of one. The book cannot be part of a snapshot; `outside` says why its two readings are
//! enough. What does not agree is a violation, unless an open break names the same operation: then a person knows.
//!
//! Whole tables are read, in a fixed number of statements or in pages by key, never by a query per operation. The
//! book is kept in memory meanwhile, about 100 bytes an effect.

mod book;
mod edges;
mod facts;
mod inside;
mod journals;
mod outside;
mod repo;
mod report;
mod told;

use std::sync::Arc;
use std::time::Duration;

use tallystick_ledger::LedgerError;
use tallystick_outbox::OutboxError;
use tallystick_runner::{Db, DbError, Fault};
use tokio::time::Instant;

pub use book::{Book, BookAway, Effect, EffectKind};
pub use report::{Check, LISTED, RULES, Report, Rule, Status};

use book::Shelf;
use outside::{Breaks, Judged};

/// Pause before doubts are looked at again.
const AGAIN: Duration = Duration::from_millis(200);
/// More doubts than this are not looked at again: they are no work in flight.
const MOST_DOUBTS: usize = 200;

/// Why nothing could be proved.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The ledger.
    #[error("the ledger could not be read")]
    Ledger(#[from] LedgerError),
    /// The outbox.
    #[error("the outbox could not be read")]
    Outbox(#[from] OutboxError),
}

impl Fault for VerifyError {
    fn db(&self) -> Option<&DbError> {
        match self {
            Self::Db(error) => Some(error),
            Self::Ledger(error) => error.db(),
            Self::Outbox(error) => error.db(),
        }
    }
}

/// Hears how far it is: what is being done, and how many things of it.
pub type Progress = Arc<dyn Fn(&str, u64) + Send + Sync>;

/// How to go about it.
#[derive(Clone)]
pub struct Options {
    /// How long a disagreement with the book may last before it is one: the time that a webhook takes to arrive.
    pub patience: Duration,
    /// Rows of one page.
    pub page: i64,
    /// Why there is no book, when there is none.
    pub no_book: String,
    /// Who hears how far it is.
    pub progress: Option<Progress>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
            page: 10_000,
            no_book: "no book was given".into(),
            progress: None,
        }
    }
}

/// Tells how far it is.
#[derive(Clone)]
struct Tell {
    what: &'static str,
    progress: Option<Progress>,
}

impl Tell {
    fn about(&self, what: &'static str) -> Self {
        let tell = Self { what, progress: self.progress.clone() };
        tell.at(0);
        tell
    }

    fn at(&self, things: u64) {
        if let Some(progress) = &self.progress {
            progress(self.what, things);
        }
    }
}

/// Checks everything, with patience for what is in flight.
///
/// # Errors
/// [`VerifyError`] when the database could not be read. A book that cannot be read is no error: what needs it is
/// skipped and says why.
pub async fn run(db: &Db, book: Option<&dyn Book>) -> Result<Report, VerifyError> {
    run_with(db, book, &Options::default()).await
}

/// As [`run`], with other options.
///
/// # Errors
/// As [`run`].
pub async fn run_with(db: &Db, book: Option<&dyn Book>, options: &Options) -> Result<Report, VerifyError> {
    let tell = Tell { what: "", progress: options.progress.clone() };
    let first = match book {
        Some(book) => read_on(book, Shelf::default(), &tell.about("effects in the gateway's book")).await,
        None => Err(BookAway(options.no_book.clone())),
    };
    let (shelf, away) = match first {
        Ok(shelf) => (Some(shelf), None),
        Err(away) => (None, Some(away)),
    };
    let (page, inner) = (options.page.max(1), tell.clone());
    let seen = db
        .snapshot("verify", move |conn| Box::pin(async move { inside::all(conn, shelf, page, &inner).await }))
        .await?;
    let mut checks = seen.checks;
    match (book, seen.outside) {
        (Some(book), Some((shelf, inside))) => {
            let foreign = inside.foreign_keys(&shelf);
            let outside = match read_on(book, shelf, &tell.about("effects in the gateway's book")).await {
                Ok(shelf) => settle(db, book, inside.judge(&shelf), shelf, options, &tell).await?,
                Err(away) => Err(away),
            };
            match outside {
                Ok(judged) => checks.extend(judged.into_iter().chain([foreign])),
                Err(away) => checks.extend(outside::all_skipped(&away.0)),
            }
        }
        _ => checks.extend(outside::all_skipped(&away.map(|away| away.0).unwrap_or_default())),
    }
    Ok(Report::of(checks))
}

async fn read_on(book: &dyn Book, mut shelf: Shelf, tell: &Tell) -> Result<Shelf, BookAway> {
    shelf.read_on(book, &|effects| tell.at(effects as u64)).await?;
    Ok(shelf)
}

/// Looks again at what is in doubt, operation first and book after it, until all agree or patience ends.
async fn settle(
    db: &Db,
    book: &dyn Book,
    mut judged: Judged,
    mut shelf: Shelf,
    options: &Options,
    tell: &Tell,
) -> Result<Result<Vec<Check>, BookAway>, VerifyError> {
    let until = Instant::now() + options.patience;
    let tell = tell.about("payments and payouts that do not agree with the gateway's book yet");
    loop {
        let ids = judged.in_doubt();
        if ids.is_empty() || ids.len() > MOST_DOUBTS {
            break;
        }
        tell.at(ids.len() as u64);
        let mut conn = db.conn().await?;
        let now = repo::operations_by_id(&mut conn, &ids).await?;
        let breaks = Breaks::of_rows(repo::open_breaks(&mut conn, Some(&ids)).await?);
        drop(conn);
        let mut effects = Vec::new();
        for id in &ids {
            match book.effects_of(&id.to_string()).await {
                Ok(found) => effects.extend(found),
                Err(away) => return Ok(Err(away)),
            }
        }
        shelf = match Shelf::of_effects(&effects) {
            Ok(shelf) => shelf,
            Err(away) => return Ok(Err(away)),
        };
        judged.again(now, &breaks, &shelf);
        if judged.in_doubt().is_empty() || Instant::now() + AGAIN > until {
            break;
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(Ok(judged.finish(&shelf)))
}
