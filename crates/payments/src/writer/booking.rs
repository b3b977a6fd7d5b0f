//! Journals and statuses of a batch, written to the ledger in a handful of statements.

use std::collections::HashMap;

use sqlx::PgConnection;
use tallystick_ledger::{
    self as ledger, AccountCache, AccountRef, JournalStatus, LedgerError, NewEntry, NewJournal,
    SystemAccount, SystemAccounts,
};
use tallystick_money::Currency;
use uuid::Uuid;

use super::WriteError;
use crate::history::Evidence;
use crate::journals::{Account, MoneyJournal, SystemAccountName};
use crate::operation::{Life, Status};

/// A journal to be posted.
#[derive(Debug)]
pub(crate) struct Booked {
    pub tenant: Uuid,
    pub gateway: String,
    pub currency: Currency,
    /// Its id, if it is not posted already.
    pub id: Uuid,
    pub journal: MoneyJournal,
    /// Its first status, and how it is known.
    pub status: Option<(JournalStatus, Evidence)>,
}

impl Booked {
    /// A journal about an operation.
    pub(crate) fn of<S: Status>(
        life: &Life<S>,
        journal: MoneyJournal,
        status: Option<(JournalStatus, Evidence)>,
    ) -> Self {
        Self {
            tenant: life.tenant_id,
            gateway: life.gateway.clone(),
            currency: life.money().currency,
            id: Uuid::now_v7(),
            journal,
            status,
        }
    }
}

/// What a batch tells the ledger.
#[derive(Debug, Default)]
pub(crate) struct Bookings {
    pub journals: Vec<Booked>,
    pub statuses: Vec<(Uuid, JournalStatus, Evidence)>,
}

impl Bookings {
    /// Says a status of a journal that stands.
    pub(crate) fn status(&mut self, journal: Uuid, status: JournalStatus, evidence: Evidence) {
        self.statuses.push((journal, status, evidence));
    }
}

/// Posts the journals, then says the statuses.
pub(crate) async fn write(
    conn: &mut PgConnection,
    cache: &AccountCache,
    bookings: &Bookings,
) -> Result<(), WriteError> {
    if !bookings.journals.is_empty() {
        let new = with_accounts(conn, cache, &bookings.journals).await.map_err(WriteError::Ledger)?;
        ledger::post_in_tx(conn, &new).await.map_err(WriteError::Ledger)?;
    }
    let statuses: Vec<(Uuid, JournalStatus, String)> = (bookings.statuses.iter())
        .map(|(journal, status, evidence)| (*journal, *status, evidence.as_str().to_owned()))
        .collect();
    ledger::set_status_in_tx(conn, &statuses).await.map_err(WriteError::Ledger)
}

/// The name in the ledger of an account that the product keeps for a gateway account.
fn key(gateway: &str, account: &SystemAccountName) -> String {
    format!("{gateway}/{}", account.name)
}

async fn with_accounts(
    conn: &mut PgConnection,
    cache: &AccountCache,
    booked: &[Booked],
) -> Result<Vec<NewJournal>, LedgerError> {
    let mut wanted = HashMap::new();
    let mut customers = Vec::new();
    for one in booked {
        for line in &one.journal.lines {
            match line.account {
                Account::Customer(id) => customers.push(id),
                Account::System(name) => {
                    wanted.entry((one.tenant, key(&one.gateway, name), one.currency)).or_insert(name);
                }
            }
        }
    }
    let wanted: Vec<SystemAccount> = wanted
        .into_iter()
        .map(|((tenant_id, key, currency), account)| SystemAccount {
            tenant_id,
            key,
            name: account.name,
            kind: account.kind,
            currency,
        })
        .collect();
    let system = ledger::system_accounts_in_tx(conn, cache, &wanted).await?;
    let customers = ledger::known_accounts_in_tx(conn, cache, &customers).await?;
    booked
        .iter()
        .map(|one| {
            let account = |account| match account {
                Account::System(name) => Ok(of_system(&system, one, name)),
                Account::Customer(id) => {
                    customers.get(&id).map(|known| known.account).ok_or(LedgerError::UnknownAccount(id))
                }
            };
            new_journal(one, account)
        })
        .collect()
}

fn of_system(accounts: &SystemAccounts, one: &Booked, name: &SystemAccountName) -> AccountRef {
    accounts[&(one.tenant, key(&one.gateway, name), one.currency)]
}

fn new_journal(
    one: &Booked,
    account: impl Fn(Account) -> Result<AccountRef, LedgerError>,
) -> Result<NewJournal, LedgerError> {
    let entries = (one.journal.lines.iter())
        .map(|line| {
            Ok(NewEntry {
                account: account(line.account)?,
                direction: line.direction,
                amount_minor: line.amount_minor,
            })
        })
        .collect::<Result<Vec<_>, LedgerError>>()?;
    Ok(NewJournal {
        journal_id: one.id,
        tenant_id: one.tenant,
        kind: one.journal.kind,
        source: one.journal.source,
        source_text: None,
        ordinal: 0,
        description: one.journal.description.into(),
        metadata: None,
        effective_at: None,
        corrects: None,
        entries,
        status: one.status.map(|(status, evidence)| (status, evidence.as_str().to_owned())),
    })
}
