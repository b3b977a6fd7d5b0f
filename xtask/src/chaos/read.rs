//! Reads what the product and the sandbox say in the end.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::dev::Info;
use super::http::Http;
use super::load::{self, Accepted};

/// Requests at the same time.
const AT_ONCE: usize = 16;

/// A payment with its history and journals.
#[derive(Clone, Debug, Deserialize)]
pub struct Payment {
    /// Its id, which is also its key at the gateway.
    pub payment_id: String,
    /// Where it stands.
    pub status: String,
    /// What was asked for.
    pub amount_minor: i64,
    /// What was taken.
    pub captured_minor: i64,
    /// ISO 4217 code.
    pub currency: String,
    /// The gateway's id.
    pub gateway_reference: Option<String>,
    /// A person is needed.
    pub attention: Option<serde_json::Value>,
    /// Moves of the status.
    pub version: u64,
    /// Each move.
    pub history: Vec<Move>,
    /// What was booked.
    pub journals: Vec<Journal>,
}

/// A row of the history.
#[derive(Clone, Debug, Deserialize)]
pub struct Move {
    /// Counts from 1.
    pub version: u64,
    /// The status moved to.
    pub status: String,
}

/// A journal.
#[derive(Clone, Debug, Deserialize)]
pub struct Journal {
    /// The money event.
    pub kind: String,
    /// Its lines.
    pub entries: Vec<Entry>,
}

/// A line of a journal.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    /// `D` or `C`.
    pub direction: String,
    /// Minor units.
    pub amount_minor: i64,
    /// Name of the account.
    pub account_name: String,
}

/// A line of the sandbox's own book.
#[derive(Clone, Debug, Deserialize)]
pub struct Effect {
    /// Position in the book.
    pub seq: u64,
    /// What kind of effect.
    pub kind: String,
    /// The gateway key.
    pub key: String,
    /// The gateway's id.
    pub reference: String,
    /// Minor units.
    pub amount_minor: i64,
    /// ISO 4217 code.
    pub currency: String,
    /// `done` or `undone`.
    pub state: String,
}

/// A request as the sandbox received it.
#[derive(Clone, Debug, Deserialize)]
pub struct Request {
    /// Position in the list.
    pub seq: u64,
    /// What was asked for.
    pub operation: String,
    /// The gateway key.
    pub key: String,
    /// The status it was answered with; nothing when it was not.
    pub answer: Option<u16>,
}

/// The trial balance of one currency.
#[derive(Clone, Debug, Deserialize)]
pub struct Trial {
    /// Sum of all debits.
    pub debits_minor: i64,
    /// Sum of all credits.
    pub credits_minor: i64,
    /// Per account.
    pub accounts: Vec<TrialAccount>,
}

/// A line of a trial balance.
#[derive(Clone, Debug, Deserialize)]
pub struct TrialAccount {
    /// The account's name.
    pub name: String,
    /// Its balance, the natural side positive.
    pub balance_minor: i64,
}

/// Everything that is compared.
#[derive(Debug, Default)]
pub struct Books {
    /// Payments that clients were told of, as far as they can be read.
    pub payments: BTreeMap<String, Payment>,
    /// Ids of all payments in the list.
    pub listed: BTreeSet<String>,
    /// Ids that clients are told when they repeat their request now, by key.
    pub replayed: BTreeMap<String, String>,
    /// The sandbox's book.
    pub effects: Vec<Effect>,
    /// What the sandbox was asked.
    pub requests: Vec<Request>,
    /// Trial balances by currency.
    pub trials: BTreeMap<String, Trial>,
}

/// Reads it all. Nothing may be under way.
///
/// # Errors
/// When something does not answer or answers something else.
pub async fn all(http: &Http, info: &Info, accepted: &[Accepted]) -> Result<Books> {
    let currencies: BTreeSet<&str> = accepted.iter().map(|a| a.currency).collect();
    let mut books = Books { listed: listed(http, info).await?, ..Books::default() };
    let mut payments = stream::iter(accepted).map(|a| payment(http, info, &a.id)).buffer_unordered(AT_ONCE);
    while let Some(payment) = payments.try_next().await? {
        books.payments.extend(payment.map(|payment| (payment.payment_id.clone(), payment)));
    }
    let mut replays = stream::iter(accepted).map(|a| replay(http, info, a)).buffer_unordered(AT_ONCE);
    while let Some((key, id)) = replays.try_next().await? {
        books.replayed.insert(key, id);
    }
    // After the payments: should anything still be under way, what they say of money is in the book by now.
    books.effects = pages(http, info, "_book", |page: Effects| page.effects, |e: &Effect| e.seq).await?;
    books.requests =
        pages(http, info, "_requests", |page: Requests| page.requests, |r: &Request| r.seq).await?;
    for currency in currencies {
        let url = format!("{}/api/v1/trial-balance?currency={currency}", info.api_url);
        books.trials.insert(currency.to_owned(), http.value(&url, &info.api_key).await?);
    }
    Ok(books)
}

/// One payment; nothing when the product does not know it.
async fn payment(http: &Http, info: &Info, id: &str) -> Result<Option<Payment>> {
    let url = format!("{}/api/v1/payments/{id}?expand=history,journals", info.api_url);
    let answer = http.get(&url, &info.api_key).await?;
    if answer.status == 404 {
        return Ok(None);
    }
    ensure!(answer.status == 200, "GET {url}: {answer}");
    answer.json().map(Some)
}

/// The id that a client is told when it repeats its request now.
async fn replay(http: &Http, info: &Info, of: &Accepted) -> Result<(String, String)> {
    let number = of.key.rsplit('-').next().unwrap_or_default();
    let body = load::body(of.amount_minor, of.currency, number);
    let answer = load::send(http, info, &of.key, &body).await?;
    let told = answer.json::<serde_json::Value>()?;
    let id = told["payment_id"].as_str().unwrap_or_default().to_owned();
    Ok((of.key.clone(), if answer.status == 200 { id } else { answer.to_string() }))
}

#[derive(Deserialize)]
struct Listed {
    data: Vec<Id>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Id {
    payment_id: String,
}

async fn listed(http: &Http, info: &Info) -> Result<BTreeSet<String>> {
    let (mut found, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let url = format!("{}/api/v1/payments?limit=200{cursor}", info.api_url);
        let page: Listed = http.value(&url, &info.api_key).await?;
        found.extend(page.data.into_iter().map(|one| one.payment_id));
        match page.next_cursor {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(found),
        }
    }
}

#[derive(Deserialize)]
struct Effects {
    effects: Vec<Effect>,
}

#[derive(Deserialize)]
struct Requests {
    requests: Vec<Request>,
}

async fn pages<P: DeserializeOwned, T>(
    http: &Http,
    info: &Info,
    path: &str,
    items: impl Fn(P) -> Vec<T>,
    seq: impl Fn(&T) -> u64,
) -> Result<Vec<T>> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let url = format!("{}/{path}?after={after}&limit=1000", info.sandbox_url);
        let page = items(http.value::<P>(&url, "").await?);
        let Some(last) = page.last().map(&seq) else { return Ok(all) };
        ensure!(last > after, "{path}: a page that leads back to {last}");
        after = last;
        all.extend(page);
    }
}
