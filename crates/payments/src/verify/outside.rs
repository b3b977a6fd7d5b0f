//! Our payments and payouts against the gateway's book.
//!
//! ```text
//!   the book is read to its end          B1
//!   our operations, in one snapshot      S     after B1: each key of B1 was committed here before its first byte
//!   the book is read on                  B2    after S: each capture or payout of S was an effect before
//! ```
//! So a key of B1 that S does not know, and a capture or payout of S that is in neither B1 nor B2, cannot be work in
//! flight. The rest can: an effect is taken back, a payout comes back, or a webhook about one is on its way while we
//! look. Such cases are asked about again, operation first and book after it, until they agree or patience ends.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::book::{EffectKind, Key, Shelf, Slip, Standing};
use super::facts::{Facts, Of};
use super::report::{Check, Draft, I8, I9, I10, I11, skipped};
use crate::payout::PayoutStatus;

/// The rules that need the book.
pub(super) const RULES: [super::Rule; 4] = [I8, I9, I10, I11];

pub(super) fn all_skipped(reason: &str) -> Vec<Check> {
    RULES.map(|rule| skipped(rule, reason)).into()
}

/// What the snapshot leaves to be held against the rest of the book.
#[derive(Debug, Default)]
pub(super) struct Inside {
    /// For the place of each key's first effect in B1: it is the key of an operation of that gateway account, and its
    /// effects are such as that operation has.
    known: Vec<bool>,
    here: u64,
    there: u64,
    /// Taken, held or sent here and not so in B1.
    missing: Vec<Facts>,
    /// No money may have moved here, and some did in B1.
    unwanted: Vec<Facts>,
    /// The payments of each order that has more than one, and the payouts of each reference.
    pub orders: Vec<Vec<Uuid>>,
    /// Open breaks by operation.
    pub breaks: Breaks,
}

/// Open breaks by operation.
#[derive(Debug, Default)]
pub(super) struct Breaks(HashMap<Uuid, Vec<Uuid>>);

impl Breaks {
    pub(super) fn of_rows(rows: Vec<(Uuid, Uuid)>) -> Self {
        let mut all: HashMap<Uuid, Vec<Uuid>> = HashMap::new();
        for (operation, id) in rows {
            all.entry(operation).or_default().push(id);
        }
        Self(all)
    }

    fn of(&self, operation: Uuid) -> &[Uuid] {
        self.0.get(&operation).map_or(&[], Vec::as_slice)
    }
}

impl Inside {
    pub(super) fn new(shelf: &Shelf) -> Self {
        Self { known: vec![false; shelf.len()], ..Self::default() }
    }

    /// Takes in one page of operations.
    pub(super) fn look(&mut self, page: Vec<Facts>, shelf: &Shelf) {
        for facts in page {
            let (place, slips) = shelf.find(&Key::Id(facts.id));
            let kind = facts.kind();
            let is_its = |slip: &Slip| shelf.is_of(slip, &facts.gateway) && slip.kind.is_of(kind);
            if !slips.is_empty() && slips.iter().all(is_its) {
                self.known[place] = true;
            }
            if facts.claims_money() {
                self.here += 1;
                if !is_in_book(&facts, shelf) {
                    self.missing.push(facts);
                }
            } else if facts.excludes_money() {
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
    /// Taken, held or sent here, and not so in the book.
    Missing(Facts),
    /// No money may have moved here, and an effect in the book.
    Unwanted(Facts),
    /// The payments of one order or the payouts of one reference: several have effects that stand.
    Order(Vec<Uuid>),
}

impl Doubt {
    fn operations(&self) -> &[Uuid] {
        match self {
            Self::Missing(facts) | Self::Unwanted(facts) => std::slice::from_ref(&facts.id),
            Self::Order(ids) => ids,
        }
    }

    fn stands(&self, shelf: &Shelf) -> bool {
        match self {
            Self::Missing(facts) => facts.claims_money() && !is_in_book(facts, shelf),
            Self::Unwanted(facts) => facts.excludes_money() && Standing::of(shelf.of(facts.id)).has_effect(),
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
                Doubt::Missing(_) | Doubt::Unwanted(_) => !breaks.of(doubt.operations()[0]).is_empty(),
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
        let why: Vec<Uuid> = doubt.operations().iter().flat_map(|id| breaks(*id)).copied().collect();
        for id in doubt.operations() {
            draft.wrong(id, &why);
        }
    }

    /// The operations that are still in doubt.
    pub(super) fn in_doubt(&self) -> Vec<Uuid> {
        let ids: HashSet<Uuid> = self.open.iter().flat_map(Doubt::operations).copied().collect();
        ids.into_iter().collect()
    }

    /// Judges the open doubts again: `now` was read first, then `shelf`, the effects of all of these operations.
    pub(super) fn again(&mut self, now: Vec<Facts>, breaks: &Breaks, shelf: &Shelf) {
        let mut now: HashMap<Uuid, Facts> = now.into_iter().map(|facts| (facts.id, facts)).collect();
        self.open = std::mem::take(&mut self.open)
            .into_iter()
            .map(|doubt| match doubt {
                Doubt::Missing(old) => Doubt::Missing(now.remove(&old.id).unwrap_or(old)),
                Doubt::Unwanted(old) => Doubt::Unwanted(now.remove(&old.id).unwrap_or(old)),
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

/// The book has the same: amount, currency, account and the gateway's id.
fn is_in_book(facts: &Facts, shelf: &Shelf) -> bool {
    let slips = shelf.of(facts.id);
    let same = |slip: &Slip| shelf.is_of(slip, &facts.gateway) && shelf.is_in(slip, &facts.currency);
    let named = |slip: &Slip| same(slip) && slip.is_named(facts.gateway_reference.as_deref());
    match facts.of {
        // A hold that has been let go meanwhile was one.
        Of::Payment { authorized_minor, captured_minor: 0, .. } => slips
            .iter()
            .any(|s| s.kind == EffectKind::Authorize && s.amount_minor == authorized_minor && named(s)),
        Of::Payment { captured_minor, .. } => {
            let at_once = |s: &Slip| {
                s.kind == EffectKind::Charge && s.standing && s.amount_minor == captured_minor && named(s)
            };
            let captured = || {
                let captures =
                    slips.iter().filter(|s| s.kind == EffectKind::Capture && s.standing && same(s));
                slips.iter().any(|s| s.kind == EffectKind::Authorize && named(s))
                    && captures.map(|s| i128::from(s.amount_minor)).sum::<i128>()
                        == i128::from(captured_minor)
            };
            slips.iter().any(at_once) || captured()
        }
        Of::Payout { status, amount_minor, .. } => {
            let whole = |s: &Slip| s.standing && s.amount_minor == amount_minor;
            let sent = slips.iter().any(|s| s.kind == EffectKind::Payout && whole(s) && named(s));
            // A bank may name the return after itself.
            let mut returns = slips.iter().filter(|s| s.kind == EffectKind::PayoutReturn && s.standing);
            match status {
                PayoutStatus::Returned => sent && returns.any(|s| whole(s) && same(s)),
                _ => sent && returns.next().is_none(),
            }
        }
    }
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
