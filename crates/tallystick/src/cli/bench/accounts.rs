//! Source accounts, opened and funded over the API as a client would.

use hyper::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::wire::Wire;
use crate::cli::CliError;

/// Currency of everything that is measured.
pub const CURRENCY: &str = "EUR";
/// Entries of one funding journal; the API takes up to a thousand.
const AT_ONCE: usize = 500;

/// Opens so many accounts of customers that may not go below zero, and puts `each_minor` into every one.
///
/// # Errors
/// [`CliError`] when the API does not answer or refuses.
pub async fn funded(
    api: &mut Wire,
    name: &str,
    count: usize,
    each_minor: i64,
) -> Result<Vec<Uuid>, CliError> {
    let ours = open(api, &format!("{name}: money that came in"), "asset", None).await?;
    let mut accounts = Vec::with_capacity(count);
    for number in 1..=count {
        accounts.push(open(api, &format!("{name}: customer {number}"), "liability", Some(0)).await?);
    }
    for part in accounts.chunks(AT_ONCE) {
        let sum = i64::try_from(part.len()).ok().and_then(|len| each_minor.checked_mul(len));
        let sum = sum.ok_or_else(|| CliError::Usage("so much money is no amount: fewer payouts".into()))?;
        let mut entries = vec![json!({"account_id": ours, "direction": "D", "amount_minor": sum})];
        entries.extend(
            part.iter().map(|id| json!({"account_id": id, "direction": "C", "amount_minor": each_minor})),
        );
        let journal = json!({"description": "customers paid in", "entries": entries});
        let key = Uuid::now_v7().to_string();
        api.send(Method::POST, "/api/v1/journals", Some(&key), &journal, 201).await?;
    }
    Ok(accounts)
}

async fn open(api: &mut Wire, name: &str, kind: &str, minimum_minor: Option<i64>) -> Result<Uuid, CliError> {
    let body = json!({"name": name, "kind": kind, "currency": CURRENCY, "minimum_minor": minimum_minor});
    let key = Uuid::now_v7().to_string();
    let opened = api.send(Method::POST, "/api/v1/accounts", Some(&key), &body, 201).await?;
    let id = opened.get("account_id").and_then(Value::as_str).and_then(|id| id.parse().ok());
    id.ok_or_else(|| CliError::Broken(format!("an account was opened without an id: {opened}")))
}
