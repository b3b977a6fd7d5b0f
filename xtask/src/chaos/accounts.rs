//! The accounts from which payouts are made: opened and funded over the API, and looked at all the time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::http::Http;
use super::load::Load;
use super::servers::Doors;
use super::wanted::{Plan, SOURCES};

/// The time between two looks at the balances.
const LOOK_EACH: Duration = Duration::from_millis(50);

/// An account of this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its id.
    pub id: String,
    /// What it was given.
    pub funds_minor: i64,
}

/// A balance as the API tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Balance {
    /// Sum of all entries.
    pub balance_minor: i64,
    /// The part whose journals may still be undone.
    pub pending_minor: i64,
    /// The rest.
    pub settled_minor: i64,
    /// What may be spent.
    pub available_minor: i64,
}

/// Opens the accounts, each with a minimum of 0, and gives them their funds.
///
/// # Errors
/// When the server refuses.
pub async fn open(http: &Http, doors: &Doors, plan: &Plan) -> Result<Vec<Account>> {
    if plan.payouts == 0 {
        return Ok(Vec::new());
    }
    let post = async |path: &str, key: &str, member: &str, body: Value| -> Result<String> {
        let door = doors.first()?;
        let request = http
            .request(Method::POST, &format!("{}{path}", door.api_url))
            .header("X-API-Key", &door.api_key)
            .header("Idempotency-Key", format!("chaos-{}-{key}", plan.seed))
            .json(&body);
        let answer = http.send(request).await.with_context(|| format!("POST {path}"))?;
        ensure!(answer.status == 201, "POST {path}: {answer}");
        let id = answer.json::<Value>()?[member].as_str().map(str::to_owned);
        id.with_context(|| format!("POST {path}: an answer without {member}"))
    };
    let mut accounts = Vec::new();
    for (number, (source, funds_minor)) in SOURCES.into_iter().zip(plan.funds()).enumerate() {
        let open = async |side: &str, kind: &str, minimum: Value| {
            let name = format!("chaos {side} {number}");
            let body =
                json!({"name": name, "kind": kind, "currency": source.currency, "minimum_minor": minimum});
            post("/api/v1/accounts", &format!("{side}-{number}"), "account_id", body).await
        };
        let id = open("customer", "liability", json!(0)).await?;
        if funds_minor > 0 {
            let bank = open("bank", "asset", Value::Null).await?;
            let entry = |account: &str, direction: &str| json!({"account_id": account, "direction": direction, "amount_minor": funds_minor});
            let body = json!({"description": "chaos funds", "entries": [entry(&bank, "D"), entry(&id, "C")]});
            post("/api/v1/journals", &format!("funds-{number}"), "journal_id", body).await?;
        }
        accounts.push(Account { id, funds_minor });
    }
    Ok(accounts)
}

/// Asks for a balance.
///
/// # Errors
/// When the server does not answer with one.
pub async fn balance(http: &Http, door: &super::dev::Info, account: &Account) -> Result<Balance> {
    let url = format!("{}/api/v1/accounts/{}/balance", door.api_url, account.id);
    http.value(&url, &door.api_key).await
}

/// Looks at all balances again and again, at one server and the other; a balance outside of its limits is a problem
/// of the run. Never ends by itself.
pub async fn watch(http: Http, doors: Doors, accounts: Vec<Account>, load: Arc<Load>) -> Infallible {
    let mut turn = 0_u32;
    loop {
        for account in &accounts {
            // Servers are killed all the time.
            let Ok(door) = doors.at(turn) else { continue };
            let Ok(balance) = balance(&http, &door, account).await else { continue };
            load.looked();
            if !plausible(&balance, account.funds_minor) {
                load.problem(format!("account {} with {}: {balance:?}", account.id, account.funds_minor));
            }
        }
        turn = turn.wrapping_add(1);
        tokio::time::sleep(LOOK_EACH).await;
    }
}

/// At no moment more than it was given, less than nothing, or sums that do not fit.
fn plausible(balance: &Balance, funds_minor: i64) -> bool {
    (0..=funds_minor).contains(&balance.balance_minor)
        && balance.settled_minor + balance.pending_minor == balance.balance_minor
        && balance.available_minor <= balance.balance_minor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balances_outside_of_the_limits_are_found() {
        let of = |balance_minor, pending_minor, settled_minor, available_minor| {
            plausible(&Balance { balance_minor, pending_minor, settled_minor, available_minor }, 100)
        };
        assert!(of(100, 0, 100, 100) && of(0, -100, 100, 0) && of(40, -10, 50, 40));
        assert!(!of(-1, 0, -1, -1), "below the minimum");
        assert!(!of(101, 0, 101, 101), "more than it was given");
        assert!(!of(50, -10, 50, 50), "sums that do not fit");
        assert!(!of(50, 0, 50, 51), "more to spend than there is");
    }
}
