//! Reads what the product and the sandbox say in the end.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::accounts::{self, Account, Balance};
use super::dev::Info;
use super::http::Http;
use super::load::{self, Accepted};
use super::wanted::What;

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

/// A payout with its history, journals and events.
#[derive(Clone, Debug, Deserialize)]
pub struct Payout {
    /// Its id, which is also its key at the gateway.
    pub payout_id: String,
    /// Where it stands.
    pub status: String,
    /// The account that pays.
    pub account_id: String,
    /// Where the money goes.
    pub destination: String,
    /// What was asked for.
    pub amount_minor: i64,
    /// ISO 4217 code.
    pub currency: String,
    /// The bank's id.
    pub gateway_reference: Option<String>,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// A person is needed.
    pub attention: Option<serde_json::Value>,
    /// Moves of the status.
    pub version: u64,
    /// Each move.
    pub history: Vec<Move>,
    /// What was booked.
    pub journals: Vec<Journal>,
    /// What was told.
    pub events: Vec<Told>,
}

/// Why something failed.
#[derive(Clone, Debug, Deserialize)]
pub struct Failure {
    /// In one word.
    pub code: String,
}

/// An event.
#[derive(Clone, Debug, Deserialize)]
pub struct Told {
    /// `payout.` and a status.
    pub r#type: String,
    /// The version that it tells of.
    pub sequence: u64,
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
    /// `pending`, `settled` or `failed`.
    pub status: String,
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
    /// Id of the account.
    pub account_id: String,
    /// Its name.
    pub account_name: String,
}

/// A line of an account's statement.
#[derive(Clone, Debug, Deserialize)]
pub struct Line {
    /// `D` or `C`.
    pub direction: String,
    /// Minor units.
    pub amount_minor: i64,
}

impl Line {
    /// What it adds to an account that is owed to somebody, in minor units.
    pub fn credit_minor(&self) -> i64 {
        if self.direction == "C" { self.amount_minor } else { -self.amount_minor }
    }
}

/// An account from which payouts were made.
#[derive(Clone, Debug, Default)]
pub struct Statement {
    /// What it was given.
    pub funds_minor: i64,
    /// Its balance.
    pub balance: Balance,
    /// Its lines.
    pub lines: Vec<Line>,
}

/// A line of the sandbox's own book.
#[derive(Clone, Debug, Default, Deserialize)]
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
    /// Payouts that clients were told of, as far as they can be read.
    pub payouts: BTreeMap<String, Payout>,
    /// Ids of all payments and payouts in the lists.
    pub listed: BTreeSet<String>,
    /// Ids that clients are told when they repeat their request now, by key.
    pub replayed: BTreeMap<String, String>,
    /// The sandbox's book.
    pub effects: Vec<Effect>,
    /// What the sandbox was asked.
    pub requests: Vec<Request>,
    /// Trial balances by currency.
    pub trials: BTreeMap<String, Trial>,
    /// The accounts of payouts, by id.
    pub accounts: BTreeMap<String, Statement>,
    /// What the sandbox says is left with it, by currency.
    pub left_at_bank: BTreeMap<String, i64>,
}

/// Reads it all. Nothing may be under way.
///
/// # Errors
/// When something does not answer or answers something else.
pub async fn all(http: &Http, info: &Info, accounts: &[Account], accepted: &[Accepted]) -> Result<Books> {
    let currencies: BTreeSet<&str> = accepted.iter().map(|a| a.wanted.currency).collect();
    let mut books = Books::default();
    books.listed.extend(listed(http, info, "payments", "payment_id").await?);
    if !accounts.is_empty() {
        books.listed.extend(listed(http, info, "payouts", "payout_id").await?);
    }
    let (payments, payouts): (Vec<_>, Vec<_>) = accepted.iter().partition(|a| a.wanted.what == What::Payment);
    let found = objects::<Payment>(http, info, "payments", "history,journals", &payments).await?;
    books.payments.extend(found.into_iter().map(|payment| (payment.payment_id.clone(), payment)));
    let found = objects::<Payout>(http, info, "payouts", "history,journals,events", &payouts).await?;
    books.payouts.extend(found.into_iter().map(|payout| (payout.payout_id.clone(), payout)));
    let replay = async |a: &Accepted| Ok((a.key.clone(), load::repeat(http, info, accounts, a).await?));
    let mut replays = stream::iter(accepted).map(replay).buffer_unordered(AT_ONCE);
    while let Some((key, id)) = replays.try_next().await.map_err(|error: anyhow::Error| error)? {
        books.replayed.insert(key, id);
    }
    for account in accounts {
        let balance = accounts::balance(http, info, account).await?;
        let lines = list(http, info, &format!("accounts/{}/entries", account.id)).await?;
        books
            .accounts
            .insert(account.id.clone(), Statement { funds_minor: account.funds_minor, balance, lines });
    }
    // After the payments: should anything still be under way, what they say of money is in the book by now.
    let sandbox = &info.sandbox_url;
    books.effects = effects(http, sandbox).await?;
    books.requests =
        pages(http, sandbox, "_requests", |page: Requests| page.requests, |r: &Request| r.seq).await?;
    for currency in currencies {
        let url = format!("{}/api/v1/trial-balance?currency={currency}", info.api_url);
        books.trials.insert(currency.to_owned(), http.value(&url, &info.api_key).await?);
        let url = format!("{}/_balance?currency={currency}", info.sandbox_url);
        books.left_at_bank.insert(currency.to_owned(), http.value::<Left>(&url, "").await?.balance_minor);
    }
    Ok(books)
}

#[derive(Deserialize)]
struct Left {
    balance_minor: i64,
}

/// Objects with what `expand` names; those that the product does not know are left out.
async fn objects<T: DeserializeOwned>(
    http: &Http,
    info: &Info,
    route: &str,
    expand: &str,
    accepted: &[&Accepted],
) -> Result<Vec<T>> {
    let read = async |a: &&Accepted| -> Result<Option<T>> {
        let url = format!("{}/api/v1/{route}/{}?expand={expand}", info.api_url, a.id);
        let answer = http.get(&url, &info.api_key).await?;
        if answer.status == 404 {
            return Ok(None);
        }
        ensure!(answer.status == 200, "GET {url}: {answer}");
        answer.json().map(Some)
    };
    let mut reads = stream::iter(accepted).map(read).buffer_unordered(AT_ONCE);
    let mut found = Vec::new();
    while let Some(object) = reads.try_next().await? {
        found.extend(object);
    }
    Ok(found)
}

#[derive(Deserialize)]
struct Listed<T> {
    data: Vec<T>,
    next_cursor: Option<String>,
}

/// All items of one of the product's lists.
async fn list<T: DeserializeOwned>(http: &Http, info: &Info, route: &str) -> Result<Vec<T>> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let url = format!("{}/api/v1/{route}?limit=200{cursor}", info.api_url);
        let page: Listed<T> = http.value(&url, &info.api_key).await?;
        found.extend(page.data);
        match page.next_cursor {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(found),
        }
    }
}

async fn listed(http: &Http, info: &Info, route: &str, member: &str) -> Result<Vec<String>> {
    let items: Vec<serde_json::Value> = list(http, info, route).await?;
    let id = |item: &serde_json::Value| item[member].as_str().map(str::to_owned);
    items.iter().map(|item| id(item).with_context(|| format!("{route}: an item without {member}"))).collect()
}

#[derive(Deserialize)]
struct Effects {
    effects: Vec<Effect>,
}

#[derive(Deserialize)]
struct Requests {
    requests: Vec<Request>,
}

/// The sandbox's whole book.
///
/// # Errors
/// When the sandbox does not answer as it should.
pub async fn effects(http: &Http, sandbox: &str) -> Result<Vec<Effect>> {
    pages(http, sandbox, "_book", |page: Effects| page.effects, |effect: &Effect| effect.seq).await
}

/// All items of one of the sandbox's lists.
///
/// # Errors
/// When the sandbox does not answer as it should.
pub async fn pages<P: DeserializeOwned, T>(
    http: &Http,
    sandbox: &str,
    path: &str,
    items: impl Fn(P) -> Vec<T>,
    seq: impl Fn(&T) -> u64,
) -> Result<Vec<T>> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let url = format!("{sandbox}/{path}?after={after}&limit=1000");
        let page = items(http.value::<P>(&url, "").await?);
        let Some(last) = page.last().map(&seq) else { return Ok(all) };
        ensure!(last > after, "{path}: a page that leads back to {last}");
        after = last;
        all.extend(page);
    }
}
