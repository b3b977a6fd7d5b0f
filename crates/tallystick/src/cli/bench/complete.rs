//! Whether anything is missing. A fast run in which something got lost is no run.
//!
//! Four witnesses are asked about every payout that was accepted: the API for its status, the feed for its events, the
//! ledger for its journal, the bank for its effect and for the settlement that it told.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tallystick_ledger::{self as ledger, JournalStatus};
use tallystick_runner::Db;
use uuid::Uuid;

use super::bank::{Account, Bank, Place};
use super::feed::Lives;
use super::wire::Wire;
use crate::cli::CliError;

/// Ids that are shown of each kind of gap.
const SHOWN: usize = 3;
/// Payouts whose journals are read by one statement.
const JOURNALS: usize = 500;
/// How long the bank may take to note that its last webhooks were taken.
const NOTING: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Something that is missing or more than it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// What.
    pub what: &'static str,
    /// Of how many payouts.
    pub count: usize,
    /// Some of them.
    pub payouts: Vec<Uuid>,
}

impl std::fmt::Display for Gap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<String> = self.payouts.iter().map(Uuid::to_string).collect();
        let more = if self.count > ids.len() { " …" } else { "" };
        write!(f, "{} payouts: {} ({}{more})", self.count, self.what, ids.join(", "))
    }
}

/// What the witnesses say.
#[derive(Debug, Default)]
pub struct Evidence {
    /// Payouts that were accepted.
    pub accepted: Vec<Uuid>,
    /// From the API.
    pub statuses: HashMap<Uuid, String>,
    /// From the feed.
    pub lives: Lives,
    /// From the ledger: journals, and how many of them are settled.
    pub journals: HashMap<Uuid, (u32, u32)>,
    /// From the bank.
    pub bank: Account,
}

impl Evidence {
    /// Everything that does not hold.
    pub fn gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut look = |what: &'static str, holds: &dyn Fn(&Uuid) -> bool| {
            let found: Vec<Uuid> = self.accepted.iter().copied().filter(|id| !holds(id)).collect();
            if !found.is_empty() {
                let payouts = found.iter().copied().take(SHOWN).collect();
                gaps.push(Gap { what, count: found.len(), payouts });
            }
        };
        let paid = |id: &Uuid| self.bank.paid.get(id).copied().unwrap_or(0);
        let journals = |id: &Uuid| self.journals.get(id).copied().unwrap_or((0, 0));
        look("the status is not succeeded", &|id| {
            self.statuses.get(id).is_some_and(|status| status == "succeeded")
        });
        look("an event is missing from the feed, or too much in it", &|id| {
            self.lives.get(id).is_some_and(super::feed::Life::is_whole)
        });
        look("there is no journal", &|id| journals(id).0 > 0);
        look("there is more than one journal", &|id| journals(id).0 < 2);
        look("a journal is not settled", &|id| journals(id).0 == journals(id).1);
        look("the bank's book has no effect", &|id| paid(id) > 0);
        look("the bank's book has more than one effect", &|id| paid(id) < 2);
        look("the bank's webhook about it was not taken", &|id| self.bank.told.contains_key(id));
        let strangers: Vec<Uuid> = {
            let known: std::collections::HashSet<&Uuid> = self.accepted.iter().collect();
            self.bank.paid.keys().filter(|id| !known.contains(id)).copied().collect()
        };
        if !strangers.is_empty() {
            let payouts = strangers.iter().copied().take(SHOWN).collect();
            gaps.push(Gap { what: "the bank paid what nobody asked for", count: strangers.len(), payouts });
        }
        gaps
    }
}

#[derive(Deserialize)]
struct Payout {
    payout_id: Uuid,
    status: String,
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Payout>,
    next_cursor: Option<String>,
}

/// Asks all witnesses. `place` is where the bank's book was before; it is moved on.
///
/// # Errors
/// [`CliError`] when one of them does not answer.
pub async fn gather(
    accepted: Vec<Uuid>,
    lives: Lives,
    api: &mut Wire,
    (db, tenant): (&Db, Uuid),
    (bank, place): (&mut Bank, &mut Place),
) -> Result<Evidence, CliError> {
    let statuses = statuses(api, &accepted).await?;
    let journals = journals(db, tenant, &accepted).await?;
    let deadline = Instant::now() + NOTING;
    let (said, behind) = loop {
        let (said, behind) = bank.account(*place).await?;
        // The settlement is known here before the bank has noted that its webhook was taken.
        if Instant::now() >= deadline || accepted.iter().all(|id| said.told.contains_key(id)) {
            break (said, behind);
        }
        tokio::time::sleep(ASK_EVERY).await;
    };
    *place = behind;
    Ok(Evidence { accepted, statuses, lives, journals, bank: said })
}

/// The newest payouts, until all that are looked for were found or there are no more.
async fn statuses(api: &mut Wire, wanted: &[Uuid]) -> Result<HashMap<Uuid, String>, CliError> {
    let mut missing: std::collections::HashSet<Uuid> = wanted.iter().copied().collect();
    let (mut found, mut cursor) = (HashMap::with_capacity(wanted.len()), None::<String>);
    while !missing.is_empty() {
        let from = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let page: Page = api.get(&format!("/api/v1/payouts?limit=200{from}")).await?;
        for payout in page.data {
            if missing.remove(&payout.payout_id) {
                found.insert(payout.payout_id, payout.status);
            }
        }
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    Ok(found)
}

async fn journals(db: &Db, tenant: Uuid, wanted: &[Uuid]) -> Result<HashMap<Uuid, (u32, u32)>, CliError> {
    let mut found: HashMap<Uuid, (u32, u32)> = HashMap::with_capacity(wanted.len());
    for part in wanted.chunks(JOURNALS) {
        let mut conn = db.conn().await?;
        let journals = ledger::journals_of(&mut conn, tenant, part).await.map_err(|e| match e {
            ledger::LedgerError::Db(e) => CliError::from(e),
            other => CliError::Broken(other.to_string()),
        })?;
        for journal in journals {
            let Ok(source) = journal.source.parse() else { continue };
            let (all, settled) = found.entry(source).or_default();
            *all += 1;
            *settled += u32::from(journal.status == JournalStatus::Settled);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::feed::Life;
    use super::*;

    fn whole() -> Life {
        let mut life = Life::default();
        for (kind, sequence) in [("payout.created", 1), ("payout.processing", 2), ("payout.succeeded", 3)] {
            life.saw(kind, sequence, Instant::now());
        }
        life
    }

    fn complete(payouts: u128) -> Evidence {
        let ids: Vec<Uuid> = (1..=payouts).map(Uuid::from_u128).collect();
        Evidence {
            statuses: ids.iter().map(|id| (*id, "succeeded".to_owned())).collect(),
            lives: ids.iter().map(|id| (*id, whole())).collect(),
            journals: ids.iter().map(|id| (*id, (1, 1))).collect(),
            bank: Account {
                paid: ids.iter().map(|id| (*id, 1)).collect(),
                told: ids.iter().map(|id| (*id, 1)).collect(),
            },
            accepted: ids,
        }
    }

    /// What is found after `plant` has spoilt one payout of five.
    fn found(plant: impl FnOnce(&mut Evidence, Uuid)) -> Vec<(&'static str, usize)> {
        let mut evidence = complete(5);
        plant(&mut evidence, Uuid::from_u128(3));
        evidence.gaps().iter().map(|gap| (gap.what, gap.count)).collect()
    }

    #[test]
    fn nothing_is_missing_when_all_witnesses_agree() {
        assert_eq!(complete(5).gaps(), []);
        let told_twice = found(|evidence, id| {
            evidence.bank.told.insert(id, 2);
        });
        assert_eq!(told_twice, [], "a webhook that was delivered twice does no harm");
    }

    /// Spoils the evidence about one payout.
    type Plant = fn(&mut Evidence, Uuid) -> bool;

    #[test]
    fn every_planted_gap_is_found() {
        let planted: [(&str, Plant); 11] = [
            ("the status is not succeeded", |e, id| e.statuses.insert(id, "processing".into()).is_some()),
            ("the status is not succeeded", |e, id| e.statuses.remove(&id).is_some()),
            ("an event is missing from the feed, or too much in it", |e, id| e.lives.remove(&id).is_some()),
            ("an event is missing from the feed, or too much in it", |e, id| {
                e.lives.get_mut(&id).map(|life| life.saw("payout.processing", 2, Instant::now())).is_some()
            }),
            ("there is no journal", |e, id| e.journals.remove(&id).is_some()),
            ("there is more than one journal", |e, id| e.journals.insert(id, (2, 2)).is_some()),
            ("a journal is not settled", |e, id| e.journals.insert(id, (1, 0)).is_some()),
            ("the bank's book has no effect", |e, id| e.bank.paid.remove(&id).is_some()),
            ("the bank's book has more than one effect", |e, id| e.bank.paid.insert(id, 2).is_some()),
            ("the bank's webhook about it was not taken", |e, id| e.bank.told.remove(&id).is_some()),
            ("the bank paid what nobody asked for", |e, _| e.bank.paid.insert(Uuid::max(), 1).is_none()),
        ];
        for (what, plant) in planted {
            let gaps = found(|evidence, id| assert!(plant(evidence, id), "{what}"));
            assert_eq!(gaps, [(what, 1)]);
        }
    }

    #[test]
    fn a_gap_is_told_with_its_number_and_some_ids() {
        let mut evidence = complete(5);
        evidence.statuses.clear();
        let [gap] = &evidence.gaps()[..] else { panic!("one gap") };
        assert_eq!((gap.count, gap.payouts.len()), (5, SHOWN));
        assert!(gap.to_string().starts_with("5 payouts: the status is not succeeded (00000000-"), "{gap}");
    }
}
