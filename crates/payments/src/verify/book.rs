//! The gateway's own book: what really happened to money, told by the other side.

use std::cmp::Ordering;
use std::collections::HashMap;

use async_trait::async_trait;
use uuid::Uuid;

use crate::operation::OperationKind;

/// Kind of an effect on money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectKind {
    /// Taken at once.
    Charge,
    /// Held.
    Authorize,
    /// Taken from what was held.
    Capture,
    /// A hold was let go.
    Void,
    /// Given back.
    Refund,
    /// Sent out.
    Payout,
    /// Sent out and come back.
    PayoutReturn,
    /// Something that this version does not know; it counts as an effect and as nothing else.
    Other,
}

impl EffectKind {
    /// Whether it may happen under the key of such an operation.
    pub(super) fn is_of(self, operation: OperationKind) -> bool {
        match self {
            Self::Charge | Self::Authorize | Self::Capture | Self::Void | Self::Refund => {
                operation == OperationKind::Charge
            }
            Self::Payout | Self::PayoutReturn => operation == OperationKind::Payout,
            Self::Other => true,
        }
    }
}

/// One effect as the book lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Its place in the book, rising.
    pub seq: u64,
    /// The gateway account, where the book names it.
    pub gateway: Option<String>,
    /// What happened.
    pub kind: EffectKind,
    /// The gateway key that caused it.
    pub key: String,
    /// The gateway's id for it.
    pub reference: String,
    /// Minor units.
    pub amount_minor: i64,
    /// As the gateway writes it.
    pub currency: String,
    /// It was not taken back.
    pub standing: bool,
}

/// The book could not be read; what has to be compared with it is skipped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BookAway(pub String);

/// Where a gateway's effects are read.
#[async_trait]
pub trait Book: Send + Sync {
    /// Effects with a number above `after`, in order; as many as one page holds. Empty at the end.
    ///
    /// # Errors
    /// [`BookAway`].
    async fn effects_after(&self, after: u64) -> Result<Vec<Effect>, BookAway>;

    /// All effects of one key, as they stand now.
    ///
    /// # Errors
    /// [`BookAway`].
    async fn effects_of(&self, key: &str) -> Result<Vec<Effect>, BookAway>;
}

/// A gateway key. Ours are ids; anything else is kept as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Id(Uuid),
    Text(Box<str>),
}

impl Key {
    /// Only the exact form that we send is an id: another spelling is another key to a gateway.
    pub(super) fn of(text: &str) -> Self {
        match Uuid::parse_str(text) {
            Ok(id) if id.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text => Self::Id(id),
            _ => Self::Text(text.into()),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// An effect, small: a book may hold millions.
#[derive(Clone, Debug)]
pub(super) struct Slip {
    pub seq: u64,
    pub key: Key,
    pub kind: EffectKind,
    pub standing: bool,
    pub amount_minor: i64,
    reference: Box<str>,
    gateway: Option<u16>,
    currency: u16,
}

/// What was read of the book, by key.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    slips: Vec<Slip>,
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u16>,
    /// Number of the last effect read.
    pub last: u64,
}

impl Shelf {
    /// The few names of accounts and currencies are kept once. A book with more of them than fit is no book.
    fn number(&mut self, name: &str) -> Result<u16, BookAway> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        let number = u16::try_from(self.names.len())
            .map_err(|_| BookAway("it names more accounts and currencies than there can be".into()))?;
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        Ok(number)
    }

    fn put(&mut self, effect: &Effect) -> Result<(), BookAway> {
        let gateway = effect.gateway.as_deref().map(|name| self.number(name)).transpose()?;
        let currency = self.number(&effect.currency)?;
        self.slips.push(Slip {
            seq: effect.seq,
            key: Key::of(&effect.key),
            kind: effect.kind,
            standing: effect.standing,
            amount_minor: effect.amount_minor,
            reference: effect.reference.as_str().into(),
            gateway,
            currency,
        });
        self.last = self.last.max(effect.seq);
        Ok(())
    }

    fn sort(&mut self) {
        self.slips.sort_unstable_by(|a, b| a.key.cmp(&b.key).then(a.seq.cmp(&b.seq)));
    }

    /// Reads on to the end of the book.
    pub(super) async fn read_on(
        &mut self,
        book: &dyn Book,
        told: &(dyn Fn(usize) + Sync),
    ) -> Result<(), BookAway> {
        loop {
            let page = book.effects_after(self.last).await?;
            if page.is_empty() {
                break;
            }
            let before = self.last;
            for effect in &page {
                self.put(effect)?;
            }
            if self.last <= before {
                return Err(BookAway("its numbers do not rise".into()));
            }
            told(self.slips.len());
        }
        self.sort();
        Ok(())
    }

    /// A shelf of these effects alone.
    pub(super) fn of_effects(effects: &[Effect]) -> Result<Self, BookAway> {
        let mut shelf = Self::default();
        for effect in effects {
            shelf.put(effect)?;
        }
        shelf.sort();
        Ok(shelf)
    }

    pub(super) fn len(&self) -> usize {
        self.slips.len()
    }

    /// The place of a key's first effect, and its effects.
    pub(super) fn find(&self, key: &Key) -> (usize, &[Slip]) {
        let from = self.slips.partition_point(|slip| slip.key.cmp(key) == Ordering::Less);
        let count = self.slips[from..].partition_point(|slip| slip.key == *key);
        (from, &self.slips[from..from + count])
    }

    pub(super) fn of(&self, id: Uuid) -> &[Slip] {
        self.find(&Key::Id(id)).1
    }

    /// The effects by key: each item is the place of its first effect, and all of them.
    pub(super) fn by_key(&self) -> impl Iterator<Item = (usize, &[Slip])> {
        let mut at = 0;
        self.slips.chunk_by(|a, b| a.key == b.key).map(move |slips| {
            at += slips.len();
            (at - slips.len(), slips)
        })
    }

    pub(super) fn is_of(&self, slip: &Slip, gateway: &str) -> bool {
        slip.gateway.is_none_or(|number| *self.names[usize::from(number)] == *gateway)
    }

    pub(super) fn is_in(&self, slip: &Slip, currency: &str) -> bool {
        *self.names[usize::from(slip.currency)] == *currency
    }
}

impl Slip {
    pub(super) fn is_named(&self, reference: Option<&str>) -> bool {
        reference == Some(&*self.reference)
    }
}

/// What a key's effects come to, in minor units; sums that cannot be are as large as they get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Effects that take or hold or send money first, whether they stand or not: more than one is once too often.
    pub firsts: u64,
    /// Taken and not taken back.
    pub taken_minor: i64,
    /// Given back under the same key.
    pub refunded_minor: i64,
    /// A hold stands.
    pub held: bool,
    /// Sent out.
    pub sent_minor: i64,
    /// Sent out and come back.
    pub returned_minor: i64,
}

impl Standing {
    pub(super) fn of(slips: &[Slip]) -> Self {
        let mut sum = Self::default();
        for slip in slips {
            sum.firsts += u64::from(matches!(
                slip.kind,
                EffectKind::Charge | EffectKind::Authorize | EffectKind::Payout
            ));
            if !slip.standing {
                continue;
            }
            let sum_of = match slip.kind {
                EffectKind::Charge | EffectKind::Capture => &mut sum.taken_minor,
                EffectKind::Refund => &mut sum.refunded_minor,
                EffectKind::Payout => &mut sum.sent_minor,
                EffectKind::PayoutReturn => &mut sum.returned_minor,
                EffectKind::Authorize => {
                    sum.held = true;
                    continue;
                }
                EffectKind::Void | EffectKind::Other => continue,
            };
            *sum_of = sum_of.saturating_add(slip.amount_minor);
        }
        sum
    }

    /// The payer is out of money, or it is held; or money was sent and has not come back.
    pub(super) fn has_effect(self) -> bool {
        let taken = if self.taken_minor == 0 { self.held } else { self.taken_minor > self.refunded_minor };
        taken || self.sent_minor > self.returned_minor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(seq: u64, kind: EffectKind, key: &str, amount_minor: i64) -> Effect {
        Effect {
            seq,
            gateway: Some("g".into()),
            kind,
            key: key.into(),
            reference: format!("r{seq}"),
            amount_minor,
            currency: "EUR".into(),
            standing: true,
        }
    }

    #[test]
    fn only_the_exact_form_of_an_id_is_one() {
        let id = Uuid::from_u128(0xabc);
        assert_eq!(Key::of(&id.to_string()), Key::Id(id));
        for other in
            [id.to_string().to_uppercase(), id.simple().to_string(), format!("capture:{id}"), String::new()]
        {
            assert_eq!(Key::of(&other), Key::Text(other.as_str().into()));
            assert_eq!(Key::of(&other).to_string(), other);
        }
    }

    #[test]
    fn effects_are_found_by_key_whatever_their_order_was() {
        let (a, b) = (Uuid::from_u128(1).to_string(), Uuid::from_u128(2).to_string());
        let shelf = Shelf::of_effects(&[
            effect(1, EffectKind::Charge, &b, 10),
            effect(2, EffectKind::Charge, "foreign", 10),
            effect(3, EffectKind::Authorize, &a, 10),
            effect(4, EffectKind::Capture, &a, 10),
        ])
        .unwrap();
        assert_eq!(shelf.of(Uuid::from_u128(1)).iter().map(|s| s.seq).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(shelf.of(Uuid::from_u128(3)).len(), 0);
        assert_eq!(
            shelf.by_key().map(|(at, slips)| (at, slips.len())).collect::<Vec<_>>(),
            [(0, 2), (2, 1), (3, 1)]
        );
        assert_eq!(shelf.last, 4);
        let slip = &shelf.of(Uuid::from_u128(2))[0];
        assert!(shelf.is_of(slip, "g") && !shelf.is_of(slip, "h") && shelf.is_in(slip, "EUR"));
        assert!(slip.is_named(Some("r1")) && !slip.is_named(None));
    }

    #[test]
    fn what_stands_is_what_was_taken_or_held_and_not_given_back() {
        let standing = |effects: &[(EffectKind, i64, bool)]| {
            let effects: Vec<Effect> = (1..)
                .zip(effects)
                .map(|(seq, (kind, amount, standing))| Effect {
                    standing: *standing,
                    ..effect(seq, *kind, "k", *amount)
                })
                .collect();
            let shelf = Shelf::of_effects(&effects).unwrap();
            let sum = Standing::of(shelf.find(&Key::of("k")).1);
            (sum.firsts, sum.taken_minor, sum.has_effect())
        };
        use EffectKind::{Authorize, Capture, Charge, Payout, PayoutReturn, Refund};
        assert_eq!(standing(&[]), (0, 0, false));
        assert_eq!(standing(&[(Charge, 5, true)]), (1, 5, true));
        assert_eq!(standing(&[(Charge, 5, false)]), (1, 0, false));
        assert_eq!(standing(&[(Charge, 5, true), (Refund, 4, true)]), (1, 5, true));
        assert_eq!(standing(&[(Charge, 5, true), (Refund, 5, true)]), (1, 5, false));
        assert_eq!(standing(&[(Charge, 5, true), (Refund, 5, false)]), (1, 5, true));
        assert_eq!(standing(&[(Authorize, 5, true)]), (1, 0, true));
        assert_eq!(standing(&[(Authorize, 5, false)]), (1, 0, false));
        assert_eq!(standing(&[(Authorize, 5, true), (Capture, 5, true), (Refund, 5, true)]), (1, 5, false));
        assert_eq!(standing(&[(Charge, 5, true), (Charge, 5, true)]), (2, 10, true));
        assert_eq!(standing(&[(Payout, 5, true)]), (1, 0, true));
        assert_eq!(standing(&[(Payout, 5, false)]), (1, 0, false));
        assert_eq!(standing(&[(Payout, 5, true), (PayoutReturn, 5, true)]), (1, 0, false));
        assert_eq!(standing(&[(Payout, 5, true), (PayoutReturn, 4, true)]), (1, 0, true));
        assert_eq!(standing(&[(Payout, 5, true), (Payout, 5, true), (PayoutReturn, 5, true)]), (2, 0, true));
    }
}
