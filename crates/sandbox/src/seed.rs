//! Chance that can be repeated: a draw depends only on the seed, what it is for, the key and a number.
//!
//! So a run with the same seed meets the same faults whatever the interleaving of its requests. Parts of one are
//! kept as parts per million; no floating point is used.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::Number;

const MILLION: u64 = 1_000_000;

/// A part of one, in parts per million: 50,000 is 0.05.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part(u64);

impl Part {
    /// Never.
    pub const NONE: Self = Self(0);
    /// Always.
    pub const WHOLE: Self = Self(MILLION);

    /// So many parts per million, at most a million.
    #[must_use]
    pub const fn per_million(parts: u64) -> Self {
        Self(if parts > MILLION { MILLION } else { parts })
    }

    /// The number of parts per million.
    #[must_use]
    pub const fn parts(self) -> u64 {
        self.0
    }

    /// Reads a decimal number from 0 to 1, such as `0.05` or `5e-2`; what is finer than a millionth is cut off.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let value: u128 = digits.parse().ok()?;
        let shift = exponent.checked_add(6)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
        let factor = 10u128.checked_pow(shift.unsigned_abs());
        let parts = match (shift >= 0, factor) {
            (true, Some(factor)) => value.checked_mul(factor)?,
            (false, Some(factor)) => value / factor,
            (true, None) if value > 0 => return None,
            (_, None) => 0,
        };
        u64::try_from(parts).ok().filter(|parts| *parts <= MILLION).map(Self)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / MILLION, format!("{:06}", self.0 % MILLION));
        match rest.trim_end_matches('0') {
            "" => write!(f, "{whole}.0"),
            rest => write!(f, "{whole}.{rest}"),
        }
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_string().parse::<Number>().map_err(ser::Error::custom)?.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(from)?;
        Self::parse(&number.to_string()).ok_or_else(|| de::Error::custom("expected a number from 0 to 1"))
    }
}

/// A number that looks random and depends on nothing but its four inputs.
#[must_use]
pub fn draw(seed: u64, purpose: &str, key: &str, number: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let bytes = seed.to_le_bytes().into_iter().chain(number.to_le_bytes());
    for byte in bytes.chain(purpose.bytes()).chain([0xff]).chain(key.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    // FNV alone leaves the low bits of near keys alike; the finalizer of splitmix64 mixes them.
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Whether a draw falls into `part` of all cases.
#[must_use]
pub fn happens(drawn: u64, part: Part) -> bool {
    drawn % MILLION < part.0
}

/// A place in 0..1,000,000 for choosing among several parts.
#[must_use]
pub fn place(drawn: u64) -> u64 {
    drawn % MILLION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_exactly() {
        for (text, parts) in
            [("0.05", 50_000), ("1", 1_000_000), ("1.0", 1_000_000), ("5e-2", 50_000), ("0", 0)]
        {
            assert_eq!(Part::parse(text), Some(Part::per_million(parts)), "{text}");
        }
        assert_eq!(Part::parse("0.0000019"), Some(Part::per_million(1)));
        assert_eq!(Part::parse("1e-400"), Some(Part::NONE));
        for text in ["1.1", "-0.1", "2", "1e9", "1e400", "", ".", "x"] {
            assert_eq!(Part::parse(text), None, "{text}");
        }
        assert_eq!(serde_json::to_string(&Part::per_million(300_000)).unwrap(), "0.3");
        assert_eq!(serde_json::from_str::<Part>("0.3").unwrap().to_string(), "0.3");
        assert_eq!(Part::WHOLE.to_string(), "1.0");
    }

    #[test]
    fn draws_repeat_and_spread() {
        assert_eq!(draw(1, "mix", "a", 1), draw(1, "mix", "a", 1));
        assert_ne!(draw(1, "mix", "a", 1), draw(2, "mix", "a", 1));
        let hits = (0..10_000)
            .filter(|n| happens(draw(7, "mix", &format!("key-{n}"), 1), Part::per_million(100_000)));
        let hits = hits.count();
        assert!((850..1150).contains(&hits), "{hits}");
        assert!(!happens(draw(1, "x", "y", 0), Part::NONE) && happens(draw(1, "x", "y", 0), Part::WHOLE));
    }
}
