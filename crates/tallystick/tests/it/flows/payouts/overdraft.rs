//! Two server processes on one database spend one account's money: together they never spend more than there is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::{holds, verified, wanted};
use crate::dev::Dev;
use crate::flows::QUICK;
use crate::serve::stopping::Second;
use crate::support::client::Client;
use crate::support::until;

/// What a payout takes.
const AMOUNT: i64 = 700;
/// Payouts of a round.
const PAYOUTS: usize = 100;
/// As many as there are funds for, and the funds.
const PAID: usize = 50;
const FUNDS: i64 = 50 * AMOUNT;
/// Rounds, unless the environment names another number.
const ROUNDS: usize = 3;
/// For a longer run by hand.
const ROUNDS_VARIABLE: &str = "OVERDRAFT_ROUNDS";

/// Looks at an account all the time, in snapshots of the database and at both servers.
struct Watch {
    stop: Arc<AtomicBool>,
    looks: tokio::task::JoinHandle<usize>,
}

impl Watch {
    async fn start(dev: &Dev, clients: [Client; 2], account: &str) -> Self {
        let mut admin = dev.database().await;
        let (account, stop) = (account.to_owned(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let looks = tokio::spawn(async move {
            let mut looks = 0;
            while !stopped.load(Ordering::Relaxed) {
                let now = sum(&mut admin, &account).await;
                assert!((0..=FUNDS).contains(&now), "the account was at {now}");
                let told = clients[looks % 2].balance(&account).await;
                assert!(told["balance_minor"].as_i64() >= Some(0), "{told}");
                looks += 1;
            }
            looks
        });
        Self { stop, looks }
    }

    async fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.looks.await.expect("no look saw a debt")
    }
}

/// The entries of an account.
fn entries(account: &str) -> String {
    format!(
        "SELECT e.journal_id, CASE e.direction WHEN 'C' THEN e.amount_minor ELSE -e.amount_minor END AS minor
           FROM ledger.entry e JOIN ledger.account a ON a.id = e.account_id WHERE a.account_id = '{account}'"
    )
}

/// Their sum, in one snapshot.
async fn sum(admin: &mut PgConnection, account: &str) -> i64 {
    let sql = format!("SELECT coalesce(sum(minor), 0)::bigint FROM ({}) e", entries(account));
    sqlx::query(AssertSqlSafe(sql)).fetch_one(admin).await.expect("entries can be read").get(0)
}

/// The lowest sum over the entries in the order in which they were written. Debits of an account are written under its
/// lock, one transaction after the other.
async fn lowest(admin: &mut PgConnection, account: &str) -> i64 {
    let sql = format!(
        "SELECT min(so_far)::bigint FROM (SELECT sum(minor) OVER (ORDER BY journal_id) AS so_far FROM ({}) e) s",
        entries(account)
    );
    sqlx::query(AssertSqlSafe(sql)).fetch_one(admin).await.expect("entries can be read").get(0)
}

/// Locks the account as a debit does, so that the claims of both servers meet at it.
async fn held(dev: &Dev, account: &str) -> PgConnection {
    let mut admin = dev.database().await;
    let lock =
        format!("BEGIN; SELECT 1 FROM ledger.account WHERE account_id = '{account}' FOR NO KEY UPDATE");
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut admin).await.expect("the account can be locked");
    admin
}

async fn release(mut admin: PgConnection) {
    sqlx::raw_sql("COMMIT").execute(&mut admin).await.expect("it can be released");
}

/// Creates payouts of one account at the same time, in turn at each of the servers; gives their ids.
async fn at_once(clients: &[Client; 2], account: &str, count: usize) -> BTreeSet<String> {
    let body = wanted(account, "acct_ok", AMOUNT);
    let calls = (0..count).map(|number| clients[number % 2].pay_out(&body));
    let running: Vec<_> = calls.map(|call| tokio::spawn(async move { call.send().await })).collect();
    let mut ids = BTreeSet::new();
    for call in running {
        ids.insert(call.await.expect("a request does not die").is(202).text("payout_id"));
    }
    ids
}

/// All payouts once none of them is open.
async fn all_final(client: &Client, ids: &BTreeSet<String>) -> Vec<Value> {
    let mut payouts = Vec::new();
    for id in ids {
        payouts.push(
            until(&format!("payout {id} at rest"), async || {
                let payout = client.get(&format!("/api/v1/payouts/{id}")).send().await.is(200).json();
                ["succeeded", "failed"].map(Value::from).contains(&payout["status"]).then_some(payout)
            })
            .await,
        );
    }
    payouts
}

async fn round(dev: &Dev, clients: &[Client; 2], number: usize) {
    let account = clients[0].funded("EUR", FUNDS).await;
    let watch = Watch::start(dev, clients.clone(), &account).await;
    let hold = held(dev, &account).await;
    let ids = at_once(clients, &account, PAYOUTS).await;
    release(hold).await;
    let payouts = all_final(&clients[number % 2], &ids).await;
    let looks = watch.end().await;
    let (paid, refused): (Vec<_>, Vec<_>) =
        payouts.iter().partition(|payout| payout["status"] == "succeeded");
    assert_eq!((paid.len(), refused.len()), (PAID, PAYOUTS - PAID), "round {number}");
    for payout in refused {
        assert_eq!(payout["failure"]["code"], "insufficient_funds", "round {number}: {payout}");
        let asked = dev.requests(payout["payout_id"].as_str().expect("an id")).await;
        assert!(asked.is_empty(), "round {number}: refused, and the bank was asked: {asked:?}");
    }
    for payout in paid {
        let effects = dev.effects(payout["payout_id"].as_str().expect("an id")).await;
        assert_eq!(effects.len(), 1, "round {number}: {effects:?}");
    }
    holds(&clients[0].balance(&account).await, 0, 0, &format!("round {number}"));
    assert_eq!(
        lowest(&mut dev.database().await, &account).await,
        0,
        "round {number}: never below the minimum"
    );
    assert!(looks > 0, "round {number}: the account was looked at meanwhile");
}

#[tokio::test]
async fn two_servers_never_spend_more_than_an_account_has() {
    let rounds =
        std::env::var(ROUNDS_VARIABLE).ok().map_or(ROUNDS, |text| text.parse().expect("a number of rounds"));
    let dev = Dev::start(&QUICK);
    let second = Second::start(&dev, &[], &[]).await;
    let clients = [dev.api(), second.client.clone()];
    for number in 0..rounds {
        round(&dev, &clients, number).await;
    }
    verified(&dev);
}

/// C088: what is on its way counts against the balance, so a slow bank does not let the sixth of five through.
#[tokio::test]
async fn c088_what_is_on_its_way_counts_against_the_balance() {
    let dev = Dev::start(&[("TALLYSTICK_GATEWAY_TIMEOUT", "8s"), ("TALLYSTICK_LEASE", "20s")]);
    let second = Second::start(&dev, &[], &[]).await;
    let clients = [dev.api(), second.client.clone()];
    dev.tell_sandbox("PUT", "/_settings", &json!({"latency": "2s", "spread": 0})).await;
    let account = clients[0].funded("EUR", 5 * AMOUNT).await;
    let ids = at_once(&clients, &account, 6).await;
    // While the bank thinks, everything is spoken for.
    let refused = until("one is refused", async || {
        let mut refused = None;
        for id in &ids {
            let payout = clients[0].payout(id).await;
            refused = refused.or((payout["status"] == "failed").then_some(payout));
        }
        refused
    })
    .await;
    assert_eq!(refused["failure"]["code"], "insufficient_funds", "{refused}");
    let payouts = all_final(&clients[0], &ids).await;
    assert_eq!(payouts.iter().filter(|payout| payout["status"] == "succeeded").count(), 5);
    holds(&clients[0].balance(&account).await, 0, 0, "five went out");
    assert_eq!(lowest(&mut dev.database().await, &account).await, 0);
}
