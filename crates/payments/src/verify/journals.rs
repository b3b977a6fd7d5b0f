//! Journals against payments: both are read in the same order and put side by side.

use std::collections::{HashMap, VecDeque};

use sqlx::PgConnection;
use tallystick_ledger::survey::{self, JournalDigest, JournalPlace};
use uuid::Uuid;

use super::VerifyError;
use super::repo::Facts;
use super::report::Draft;
use crate::journals::{self, MoneyJournal};

/// The ledger's journals of the kinds that payments cause, read on as far as they are needed.
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

    /// Holds one page of payments against the journals up to it.
    pub(super) async fn compare(
        &mut self,
        conn: &mut PgConnection,
        page: &[Facts],
        draft: &mut Draft,
    ) -> Result<(), VerifyError> {
        for facts in page {
            draft.checked += 1;
            let mut own = Vec::new();
            while let Some(journal) = self.next_up_to(conn, Some((facts.tenant_id, facts.payment_id))).await?
            {
                if (journal.place.tenant_id, journal.place.source) == (facts.tenant_id, facts.payment_id) {
                    own.push(journal);
                } else {
                    draft.wrong(journal.journal_id, &[]);
                }
            }
            if !agree(facts, &own) {
                draft.wrong(facts.payment_id, &[]);
            }
        }
        Ok(())
    }

    /// After the last payment: any journal that is left is about nothing.
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

/// The journals that a payment must have, no more and no less.
fn demanded(facts: &Facts) -> Vec<MoneyJournal> {
    let captured = (facts.captured_minor > 0)
        .then(|| journals::payment_captured::journal(facts.payment_id, facts.captured_minor));
    captured.into_iter().collect()
}

fn agree(facts: &Facts, found: &[JournalDigest]) -> bool {
    let demanded = demanded(facts);
    let mut by_kind: HashMap<&str, Vec<String>> = HashMap::new();
    for journal in &demanded {
        by_kind.insert(journal.kind, lines(facts, journal));
    }
    found.len() == demanded.len()
        && found.iter().all(|journal| {
            journal.settled && by_kind.remove(journal.place.kind.as_str()).as_ref() == Some(&journal.lines)
        })
}

/// The lines as the ledger's survey writes them.
fn lines(facts: &Facts, journal: &MoneyJournal) -> Vec<String> {
    let mut lines: Vec<String> = journal
        .lines
        .iter()
        .map(|line| {
            let account = match line.account {
                journals::Account::System(account) => format!("{}/{}", facts.gateway, account.name),
                journals::Account::Customer(id) => id.to_string(),
            };
            survey::line(&account, line.direction, line.amount_minor, &facts.currency)
        })
        .collect();
    lines.sort_unstable();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payment::state::PaymentStatus;

    fn facts(captured_minor: i64) -> Facts {
        Facts {
            tenant_id: Uuid::from_u128(1),
            payment_id: Uuid::from_u128(2),
            status: PaymentStatus::Succeeded,
            currency: "EUR".into(),
            authorized_minor: captured_minor,
            captured_minor,
            gateway: "bank".into(),
            gateway_reference: Some("ch".into()),
        }
    }

    fn found(lines: &[&str]) -> JournalDigest {
        JournalDigest {
            place: JournalPlace {
                tenant_id: Uuid::from_u128(1),
                source: Uuid::from_u128(2),
                kind: "payment_captured".into(),
                ordinal: 0,
            },
            journal_id: Uuid::from_u128(3),
            lines: lines.iter().map(|&line| line.to_owned()).collect(),
            settled: true,
        }
    }

    #[test]
    fn a_capture_demands_one_journal_with_its_amount_on_the_accounts_of_its_gateway() {
        let right = found(&["bank/gateway_receivable D 700 EUR", "bank/sales C 700 EUR"]);
        assert!(agree(&facts(700), std::slice::from_ref(&right)));
        assert!(agree(&facts(0), &[]));
        assert!(!agree(&facts(0), std::slice::from_ref(&right)), "nothing was captured");
        assert!(!agree(&facts(700), &[]), "no journal");
        assert!(!agree(&facts(700), &[right.clone(), right.clone()]), "twice");
        assert!(!agree(&facts(701), std::slice::from_ref(&right)), "another amount");
        assert!(!agree(&facts(700), &[JournalDigest { settled: false, ..right.clone() }]), "not settled");
        let other_account = found(&["bank/gateway_receivable D 700 EUR", "shop/sales C 700 EUR"]);
        assert!(!agree(&facts(700), &[other_account]));
        let other_kind = JournalPlace { kind: "payment_refunded".into(), ..right.place.clone() };
        assert!(!agree(&facts(700), &[JournalDigest { place: other_kind, ..right }]));
    }
}
