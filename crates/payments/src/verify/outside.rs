//! Our payments against the gateway's book.
//!
//! ```text
//!   the book is read to its end          B1
//!   our payments, in one snapshot        S     after B1: each key of B1 was committed here before its first byte
//!   the book is read on                  B2    after S: each capture of S was an effect before
//! ```
//! So a key of B1 that S does not know, and a capture of S that is in neither B1 nor B2, cannot be work in flight.
//! The rest can: an effect is taken back, or a webhook about one is on its way while we look. Such cases are asked
//! about again, payment first and book after it, until they agree or patience ends.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::book::{EffectKind, Key, Shelf, Slip, Standing};
use super::repo::Facts;
use super::report::{Check, Draft, I8, I9, I10, I11, skipped};
use crate::payment::state::PaymentStatus;

/// The rules that need the book.
pub(super) const RULES: [super::Rule; 4] = [I8, I9, I10, I11];

pub(super) fn all_skipped(reason: &str) -> Vec<Check> {
    RULES.map(|rule| skipped(rule, reason)).into()
}

/// What the snapshot leaves to be held against the rest of the book.
#[derive(Debug, Default)]
pub(super) struct Inside {
    /// For the place of each key's first effect in B1: it is the key of a payment of that gateway account.
    known: Vec<bool>,
    here: u64,
    there: u64,
    /// Taken or held here and not so in B1.
    missing: Vec<Facts>,
    /// Failed or canceled here and not so in B1.
    unwanted: Vec<Facts>,
    /// The payments of each order that has more than one.
    pub orders: Vec<Vec<Uuid>>,
    /// Open breaks by payment.
    pub breaks: Breaks,
}

/// Open breaks by payment.
#[derive(Debug, Default)]
pub(super) struct Breaks(HashMap<Uuid, Vec<Uuid>>);

impl Breaks {
    pub(super) fn of_rows(rows: Vec<(Uuid, Uuid)>) -> Self {
        let mut all: HashMap<Uuid, Vec<Uuid>> = HashMap::new();
        for (payment, id) in rows {
            all.entry(payment).or_default().push(id);
        }
        Self(all)
    }

    fn of(&self, payment: Uuid) -> &[Uuid] {
        self.0.get(&payment).map_or(&[], Vec::as_slice)
    }
}

impl Inside {
    pub(super) fn new(shelf: &Shelf) -> Self {
        Self { known: vec![false; shelf.len()], ..Self::default() }
    }

    /// Takes in one page of payments.
    pub(super) fn look(&mut self, page: Vec<Facts>, shelf: &Shelf) {
        for facts in page {
            let (place, slips) = shelf.find(&Key::Id(facts.payment_id));
            if !slips.is_empty() && slips.iter().all(|slip| shelf.is_of(slip, &facts.gateway)) {
                self.known[place] = true;
            }
            if claims_money(&facts) {
                self.here += 1;
                if !is_in_book(&facts, shelf) {
                    self.missing.push(facts);
                }
            } else if ended_without_money(&facts) {
                self.there += 1;
                if Standing::of(slips).has_effect() {
                    self.unwanted.push(facts);
                }
            }
        }
    }

    /// Keys of B1 that are nobody's. To be called before the book is read on.
    pub(super) fn foreign_keys(&self, shelf: &Shelf) -> Check {
        let mut draft = Draft::default();
        for (place, slips) in shelf.by_key() {
            draft.checked += 1;
            if !self.known[place] {
                let breaks = match slips[0].key {
                    Key::Id(id) => self.breaks.of(id),
                    Key::Text(_) => &[],
                };
                draft.wrong(&slips[0].key, breaks);
            }
        }
        draft.finish(I9)
    }

    /// What does not agree once the whole book is there.
    pub(super) fn judge(self, shelf: &Shelf) -> Judged {
        let mut repeats = Draft::of(self.orders.len() as u64);
        for (_, slips) in shelf.by_key() {
            repeats.checked += 1;
            if is_repeated(slips) {
                let breaks = match slips[0].key {
                    Key::Id(id) => self.breaks.of(id),
                    Key::Text(_) => &[],
                };
                repeats.wrong(&slips[0].key, breaks);
            }
        }
        let mut open = Vec::new();
        open.extend(self.missing.into_iter().map(Doubt::Missing));
        open.extend(self.unwanted.into_iter().map(Doubt::Unwanted));
        open.extend(self.orders.into_iter().map(Doubt::Order));
        open.retain(|doubt| doubt.stands(shelf));
        let missing = Draft::of(self.here);
        let unwanted = Draft::of(self.there);
        let mut judged = Judged { open, repeats, missing, unwanted };
        judged.explain(&self.breaks);
        judged
    }
}

/// Something that does not agree, as far as we have looked.
#[derive(Debug)]
pub(super) enum Doubt {
    /// Taken or held here, and not so in the book.
    Missing(Facts),
    /// Failed or canceled here, and an effect in the book.
    Unwanted(Facts),
    /// The payments of one order: several have effects that stand.
    Order(Vec<Uuid>),
}

impl Doubt {
    fn payments(&self) -> &[Uuid] {
        match self {
            Self::Missing(facts) | Self::Unwanted(facts) => std::slice::from_ref(&facts.payment_id),
            Self::Order(ids) => ids,
        }
    }

    fn stands(&self, shelf: &Shelf) -> bool {
        match self {
            Self::Missing(facts) => claims_money(facts) && !is_in_book(facts, shelf),
            Self::Unwanted(facts) => {
                ended_without_money(facts) && Standing::of(shelf.of(facts.payment_id)).has_effect()
            }
            Self::Order(ids) => with_effect(ids, shelf).len() > 1,
        }
    }
}

fn with_effect(ids: &[Uuid], shelf: &Shelf) -> Vec<Uuid> {
    ids.iter().copied().filter(|id| Standing::of(shelf.of(*id)).has_effect()).collect()
}

/// The rules about the book, while there is still something to ask again.
#[derive(Debug)]
pub(super) struct Judged {
    open: Vec<Doubt>,
    repeats: Draft,
    missing: Draft,
    unwanted: Draft,
}

impl Judged {
    /// Doubts that an open break explains are settled by it.
    fn explain(&mut self, breaks: &Breaks) {
        let mut open = Vec::new();
        for doubt in std::mem::take(&mut self.open) {
            let explained = match &doubt {
                Doubt::Missing(_) | Doubt::Unwanted(_) => !breaks.of(doubt.payments()[0]).is_empty(),
                // All but one of them are a known trouble, or it is only one anyway.
                Doubt::Order(ids) => ids.iter().filter(|id| breaks.of(**id).is_empty()).count() <= 1,
            };
            if explained {
                self.put_down(&doubt, |id| breaks.of(id));
            } else {
                open.push(doubt);
            }
        }
        self.open = open;
    }

    fn put_down<'a>(&mut self, doubt: &Doubt, breaks: impl Fn(Uuid) -> &'a [Uuid]) {
        let draft = match doubt {
            Doubt::Missing(_) => &mut self.missing,
            Doubt::Unwanted(_) => &mut self.unwanted,
            Doubt::Order(_) => &mut self.repeats,
        };
        let why: Vec<Uuid> = doubt.payments().iter().flat_map(|id| breaks(*id)).copied().collect();
        for id in doubt.payments() {
            draft.wrong(id, &why);
        }
    }

    /// The payments that are still in doubt.
    pub(super) fn in_doubt(&self) -> Vec<Uuid> {
        let ids: HashSet<Uuid> = self.open.iter().flat_map(Doubt::payments).copied().collect();
        ids.into_iter().collect()
    }

    /// Judges the open doubts again: `now` was read first, then `shelf`, the effects of all of these payments.
    pub(super) fn again(&mut self, now: Vec<Facts>, breaks: &Breaks, shelf: &Shelf) {
        let mut now: HashMap<Uuid, Facts> = now.into_iter().map(|facts| (facts.payment_id, facts)).collect();
        self.open = std::mem::take(&mut self.open)
            .into_iter()
            .map(|doubt| match doubt {
                Doubt::Missing(old) => Doubt::Missing(now.remove(&old.payment_id).unwrap_or(old)),
                Doubt::Unwanted(old) => Doubt::Unwanted(now.remove(&old.payment_id).unwrap_or(old)),
                Doubt::Order(ids) => Doubt::Order(ids),
            })
            .filter(|doubt| doubt.stands(shelf))
            .collect();
        self.explain(breaks);
    }

    /// The end: what is still in doubt is wrong.
    pub(super) fn finish(mut self, shelf: &Shelf) -> Vec<Check> {
        for doubt in std::mem::take(&mut self.open) {
            let doubt = match doubt {
                Doubt::Order(ids) => Doubt::Order(with_effect(&ids, shelf)),
                other => other,
            };
            self.put_down(&doubt, |_| &[]);
        }
        vec![self.repeats.finish(I8), self.missing.finish(I10), self.unwanted.finish(I11)]
    }
}

fn claims_money(facts: &Facts) -> bool {
    facts.captured_minor > 0 || facts.status == PaymentStatus::Authorized
}

fn ended_without_money(facts: &Facts) -> bool {
    matches!(facts.status, PaymentStatus::Failed | PaymentStatus::Canceled)
}

/// The book has the same: amount, currency, account and the gateway's id.
fn is_in_book(facts: &Facts, shelf: &Shelf) -> bool {
    let slips = shelf.of(facts.payment_id);
    let same = |slip: &Slip| shelf.is_of(slip, &facts.gateway) && shelf.is_in(slip, &facts.currency);
    let named = |slip: &Slip| same(slip) && slip.is_named(facts.gateway_reference.as_deref());
    if facts.captured_minor == 0 {
        // A hold that has been let go meanwhile was one.
        return slips.iter().any(|s| {
            s.kind == EffectKind::Authorize && s.amount_minor == facts.authorized_minor && named(s)
        });
    }
    let at_once = |s: &Slip| {
        s.kind == EffectKind::Charge && s.standing && s.amount_minor == facts.captured_minor && named(s)
    };
    let captured = || {
        let captures = slips.iter().filter(|s| s.kind == EffectKind::Capture && s.standing && same(s));
        slips.iter().any(|s| s.kind == EffectKind::Authorize && named(s))
            && captures.map(|s| i128::from(s.amount_minor)).sum::<i128>() == i128::from(facts.captured_minor)
    };
    slips.iter().any(at_once) || captured()
}

/// More than one effect where a key may have one. Captures and refunds that the gateway makes by itself under a
/// charge's key may be several; under a key of their own each is one.
fn is_repeated(slips: &[Slip]) -> bool {
    match slips[0].key {
        Key::Id(_) => {
            let returns = slips.iter().filter(|slip| slip.kind == EffectKind::PayoutReturn).count();
            Standing::of(slips).firsts > 1 || returns > 1
        }
        Key::Text(_) => slips.len() > 1,
    }
}

#[cfg(test)]
#[path = "outside_tests.rs"]
mod tests;
