//! What the writer needs of a row, whatever kind of operation it is about.

use tallystick_gateway::Stage;
use tallystick_ledger::JournalStatus;

use super::booking::{Booked, Bookings};
use crate::history::Evidence;
use crate::journals::{payment_captured, payout_debited, payout_returned, payout_reversed};
use crate::operation::{Fact, Life, Status, Transition};
use crate::payment::PaymentStatus;
use crate::payment::repo::PaymentRow;
use crate::payment::state::MoneyEvent as PaymentEvent;
use crate::payout::PayoutStatus;
use crate::payout::repo::PayoutRow;
use crate::payout::state::MoneyEvent as PayoutEvent;

pub(super) trait Subject {
    type Status: Status;

    fn life(&self) -> &Life<Self::Status>;
    fn life_mut(&mut self) -> &mut Life<Self::Status>;
    /// What follows from a fact, as the pure state says.
    fn learn(&self, fact: &Fact) -> Transition<Self::Status>;
    /// The status has moved by a fact: what else of the row does.
    fn moved(&mut self, fact: &Fact);
    /// What a move means for the row's amounts and the ledger.
    fn book(&mut self, money: <Self::Status as Status>::Money, evidence: Evidence, out: &mut Bookings);
}

impl Subject for PaymentRow {
    type Status = PaymentStatus;

    fn life(&self) -> &Life<PaymentStatus> {
        &self.life
    }

    fn life_mut(&mut self) -> &mut Life<PaymentStatus> {
        &mut self.life
    }

    fn learn(&self, fact: &Fact) -> Transition<PaymentStatus> {
        self.state().learn(fact)
    }

    fn moved(&mut self, fact: &Fact) {
        if let Fact::Approved(approval) = fact
            && approval.stage == Stage::Authorized
            && self.life.status == PaymentStatus::Authorized
        {
            self.authorized_minor = approval.amount_minor;
        }
    }

    fn book(&mut self, money: PaymentEvent, _: Evidence, out: &mut Bookings) {
        let PaymentEvent::Captured { amount_minor } = money;
        self.authorized_minor = self.authorized_minor.max(amount_minor);
        self.captured_minor = amount_minor;
        out.journals.push(Booked::of(
            &self.life,
            payment_captured::journal(self.life.id, amount_minor),
            None,
        ));
    }
}

impl Subject for PayoutRow {
    type Status = PayoutStatus;

    fn life(&self) -> &Life<PayoutStatus> {
        &self.life
    }

    fn life_mut(&mut self) -> &mut Life<PayoutStatus> {
        &mut self.life
    }

    fn learn(&self, fact: &Fact) -> Transition<PayoutStatus> {
        self.state().learn(fact)
    }

    fn moved(&mut self, _: &Fact) {}

    fn book(&mut self, money: PayoutEvent, evidence: Evidence, out: &mut Bookings) {
        let (id, amount) = (self.life.id, self.life.amount_minor);
        let debit = payout_debited::journal_id(id);
        match money {
            PayoutEvent::Settled => out.status(debit, JournalStatus::Settled, evidence),
            PayoutEvent::Reversed => {
                let journal = payout_reversed::journal(id, self.account_id, amount);
                out.journals.push(Booked::of(&self.life, journal, Some((JournalStatus::Failed, evidence))));
                out.status(debit, JournalStatus::Failed, evidence);
            }
            PayoutEvent::Returned => {
                let journal = payout_returned::journal(id, self.account_id, amount);
                out.journals.push(Booked::of(&self.life, journal, None));
            }
        }
    }
}
