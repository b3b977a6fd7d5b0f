//! Journals against payments and payouts: both are read in the same order and put side by side.

use std::collections::VecDeque;

use sqlx::PgConnection;
use tallystick_ledger::JournalStatus::{self, Failed, Pending, Settled};
use tallystick_ledger::survey::{self, EntryDigest, JournalDigest, JournalPlace};
use uuid::Uuid;

use super::VerifyError;
use super::facts::{Facts, Of};
use super::report::Draft;
use crate::journals::{
    self, Account, Line, MoneyJournal, payment_captured, payout_debited, payout_returned, payout_reversed,
};
use crate::payout::PayoutStatus;

/// The ledger's journals of the kinds that operations cause, read on as far as they are needed.
pub(super) struct Journals {
    buffer: VecDeque<JournalDigest>,
    after: JournalPlace,
    page: i64,
    ended: bool,
}

impl Journals {
    pub(super) fn new(page: i64) -> Self {
        Self { buffer: VecDeque::new(), after: JournalPlace::start(), page, ended: false }
    }

    /// Whether the next journal, if there is one, is in the buffer now.
    async fn fill(&mut self, conn: &mut PgConnection) -> Result<(), VerifyError> {
        while self.buffer.is_empty() && !self.ended {
            let page = survey::journals(conn, &self.after, self.page).await?;
            self.ended = i64::try_from(page.len()).unwrap_or(self.page) < self.page;
            if let Some(last) = page.last() {
                self.after = last.place.clone();
            }
            // What people posted is theirs.
            let ours = |kind: &str| journals::ALL.iter().any(|k| k.name == kind);
            self.buffer.extend(page.into_iter().filter(|journal| ours(&journal.place.kind)));
        }
        Ok(())
    }

    /// The next journal, unless it is about something behind (tenant, source).
    async fn next_up_to(
        &mut self,
        conn: &mut PgConnection,
        key: Option<(Uuid, Uuid)>,
    ) -> Result<Option<JournalDigest>, VerifyError> {
        self.fill(conn).await?;
        let due = |journal: &JournalDigest| {
            key.is_none_or(|key| (journal.place.tenant_id, journal.place.source) <= key)
        };
        Ok(if self.buffer.front().is_some_and(due) { self.buffer.pop_front() } else { None })
    }

    /// Holds one page of operations against the journals up to it.
    pub(super) async fn compare(
        &mut self,
        conn: &mut PgConnection,
        page: &[Facts],
        draft: &mut Draft,
    ) -> Result<(), VerifyError> {
        for facts in page {
            draft.checked += 1;
            let mut own = Vec::new();
            while let Some(journal) = self.next_up_to(conn, Some((facts.tenant_id, facts.id))).await? {
                if (journal.place.tenant_id, journal.place.source) == (facts.tenant_id, facts.id) {
                    own.push(journal);
                } else {
                    draft.wrong(journal.journal_id, &[]);
                }
            }
            if !agree(facts, &own) {
                draft.wrong(facts.id, &[]);
            }
        }
        Ok(())
    }

    /// After the last operation: any journal that is left is about nothing.
    pub(super) async fn strays(
        &mut self,
        conn: &mut PgConnection,
        draft: &mut Draft,
    ) -> Result<(), VerifyError> {
        while let Some(journal) = self.next_up_to(conn, None).await? {
            draft.wrong(journal.journal_id, &[]);
        }
        Ok(())
    }
}

/// A journal that must be there, and where it must stand.
#[derive(Debug)]
struct Demanded {
    journal: MoneyJournal,
    status: JournalStatus,
    /// Its id, where that is given.
    id: Option<Uuid>,
}

/// The journals that an operation must have, no more and no less. Where a status does not say whether a payout was
/// claimed yet, there is a choice.
fn demanded(facts: &Facts) -> Vec<Vec<Demanded>> {
    match &facts.of {
        Of::Payment { captured_minor, .. } => {
            let journal = || payment_captured::journal(facts.id, *captured_minor);
            let captured =
                (*captured_minor > 0).then(|| Demanded { journal: journal(), status: Settled, id: None });
            vec![captured.into_iter().collect()]
        }
        Of::Payout { status, account_id, amount_minor, failure_code } => {
            let payout = Payout { id: facts.id, account: *account_id, amount_minor: *amount_minor };
            payout.demanded(*status, failure_code.as_deref())
        }
    }
}

struct Payout {
    id: Uuid,
    account: Uuid,
    amount_minor: i64,
}

impl Payout {
    fn demanded(&self, status: PayoutStatus, failure_code: Option<&str>) -> Vec<Vec<Demanded>> {
        let none = Vec::new;
        let undone = || vec![self.debit(Failed), self.reversal()];
        match status {
            PayoutStatus::RequiresApproval => vec![none()],
            PayoutStatus::Pending => vec![none(), vec![self.debit(Pending)]],
            PayoutStatus::Processing | PayoutStatus::Unknown => vec![vec![self.debit(Pending)]],
            PayoutStatus::Succeeded => vec![vec![self.debit(Settled)]],
            // The account had not enough, so nothing was debited; or the bank has a word of the same spelling.
            PayoutStatus::Failed if failure_code == Some("insufficient_funds") => vec![none(), undone()],
            PayoutStatus::Failed => vec![undone()],
            PayoutStatus::Canceled => vec![none(), undone()],
            PayoutStatus::Returned => vec![vec![self.debit(Settled), self.returned()]],
        }
    }

    fn debit(&self, status: JournalStatus) -> Demanded {
        let journal = payout_debited::journal(self.id, self.account, self.amount_minor);
        Demanded { journal, status, id: Some(payout_debited::journal_id(self.id)) }
    }

    fn reversal(&self) -> Demanded {
        let journal = payout_reversed::journal(self.id, self.account, self.amount_minor);
        Demanded { journal, status: Failed, id: None }
    }

    fn returned(&self) -> Demanded {
        let journal = payout_returned::journal(self.id, self.account, self.amount_minor);
        Demanded { journal, status: Settled, id: None }
    }
}

fn agree(facts: &Facts, found: &[JournalDigest]) -> bool {
    // No two of one choice are of one kind, so each that is found is one that is demanded.
    demanded(facts).iter().any(|choice| {
        choice.len() == found.len()
            && choice.iter().all(|wanted| found.iter().any(|journal| is(facts, wanted, journal)))
    })
}

fn is(facts: &Facts, wanted: &Demanded, found: &JournalDigest) -> bool {
    found.place.kind == wanted.journal.kind
        && found.status == Some(wanted.status)
        && wanted.id.is_none_or(|id| id == found.journal_id)
        && same_lines(facts, &wanted.journal.lines, &found.entries)
}

/// The same lines in any order.
fn same_lines(facts: &Facts, wanted: &[Line], found: &[EntryDigest]) -> bool {
    let mut left: Vec<&EntryDigest> = found.iter().collect();
    let mut takes = |line: &Line| {
        let place = left.iter().position(|entry| is_line(facts, line, entry))?;
        Some(left.swap_remove(place))
    };
    wanted.iter().all(|line| takes(line).is_some()) && left.is_empty()
}

fn is_line(facts: &Facts, line: &Line, entry: &EntryDigest) -> bool {
    let account = match line.account {
        Account::System(account) => {
            entry.system_key.as_ref().is_some_and(|key| *key == format!("{}/{}", facts.gateway, account.name))
        }
        Account::Customer(id) => entry.account_id == Some(id),
    };
    account
        && entry.direction == line.direction.as_str()
        && entry.amount_minor == line.amount_minor
        && entry.currency == facts.currency
}

#[cfg(test)]
#[path = "journals_tests.rs"]
mod tests;
