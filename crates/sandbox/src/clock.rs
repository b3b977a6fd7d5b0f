//! The sandbox's own notion of time, and durations as text.
//!
//! Moments are microseconds since 1970 in UTC. The clock runs with the machine's clock plus an offset that
//! `POST /_clock` may enlarge, so that key retention and late outcomes can be seen without waiting.
//! Signatures of webhooks use the machine's real time, because their receiver compares with its own clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

/// A moment or a span in microseconds.
pub type Micros = i64;

/// Microseconds in a second.
pub const SECOND: Micros = 1_000_000;

/// The machine's clock plus an offset.
#[derive(Debug, Default)]
pub struct Clock {
    offset: AtomicI64,
}

impl Clock {
    /// The present moment, as the sandbox sees it.
    #[must_use]
    pub fn now(&self) -> Micros {
        Timestamp::now().as_microsecond().saturating_add(self.offset.load(Ordering::Relaxed))
    }

    /// Sets how far the sandbox is ahead of the machine's clock.
    pub fn set_offset(&self, offset: Micros) {
        self.offset.store(offset, Ordering::Relaxed);
    }
}

/// Seconds since 1970 by the machine's own clock, for signatures.
#[must_use]
pub fn real_seconds() -> i64 {
    Timestamp::now().as_second()
}

/// A moment in RFC 3339 with milliseconds and `Z`.
#[must_use]
pub fn rfc3339(moment: Micros) -> String {
    format!("{:.3}", Timestamp::from_microsecond(moment).unwrap_or(Timestamp::MAX))
}

/// A length of time in microseconds; what is longer than the clock can hold counts as for ever.
#[must_use]
pub fn micros(length: Duration) -> Micros {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}

/// A span in microseconds as a length of time; a negative one is zero.
#[must_use]
pub fn duration(span: Micros) -> Duration {
    Duration::from_micros(u64::try_from(span).unwrap_or(0))
}

/// Reads `20ms`, `5s`, `25h`.
///
/// # Errors
/// What is wrong with the text, in words.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|e| format!("not a duration like 20ms, 5s or 25h: {e}"))
}

/// Durations as text in JSON.
pub mod as_text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes `20ms`.
    ///
    /// # Errors
    /// What the serializer says.
    pub fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*value))
    }

    /// Reads `20ms`.
    ///
    /// # Errors
    /// When the text is no duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        super::parse_duration(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_in_utc() {
        assert_eq!(rfc3339(1_700_000_000_123_456), "2023-11-14T22:13:20.123Z");
    }

    #[test]
    fn durations_are_text() {
        assert_eq!(micros(parse_duration("25h").unwrap()), 25 * 3600 * SECOND);
        assert!(parse_duration("soon").is_err());
        assert_eq!(duration(-1), Duration::ZERO);
    }

    #[test]
    fn the_clock_can_be_ahead() {
        let clock = Clock::default();
        let before = clock.now();
        clock.set_offset(3600 * SECOND);
        assert!(clock.now() >= before + 3600 * SECOND);
    }
}
