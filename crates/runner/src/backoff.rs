//! Capped exponential back-off with jitter. The exponent is clamped, so no number of tries overflows.

use std::time::Duration;

use rand::RngExt;

/// Doubling delays between `base` and `cap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
}

impl Backoff {
    /// Delays `base`, `2·base`, `4·base` … up to `cap`.
    #[must_use]
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap }
    }

    /// The delay after `tries` tries (1 = the first), without jitter.
    #[must_use]
    pub fn plain(self, tries: u32) -> Duration {
        let doubled = self.base.saturating_mul(1u32 << tries.saturating_sub(1).min(30));
        doubled.min(self.cap)
    }

    /// A random delay between nothing and [`Self::plain`]: spreads a crowd that failed together.
    #[must_use]
    pub fn full_jitter(self, tries: u32) -> Duration {
        let most = u64::try_from(self.plain(tries).as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(rand::rng().random_range(0..=most))
    }

    /// [`Self::plain`] give or take a fifth: for what has a due time and should not come in step with others.
    #[must_use]
    pub fn spread(self, tries: u32) -> Duration {
        self.plain(tries).saturating_mul(rand::rng().random_range(80..=120)) / 100
    }

    /// [`Self::plain`] and up to a fifth more: for what must not come before its time.
    #[must_use]
    pub fn no_sooner(self, tries: u32) -> Duration {
        self.plain(tries).saturating_mul(rand::rng().random_range(100..=120)) / 100
    }

    /// A random delay between half of [`Self::plain`] and all of it: spread, yet never at once.
    #[must_use]
    pub fn half_jitter(self, tries: u32) -> Duration {
        let plain = self.plain(tries);
        let half = u64::try_from((plain / 2).as_micros()).unwrap_or(u64::MAX);
        plain - Duration::from_micros(rand::rng().random_range(0..=half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_cap_and_never_overflows() {
        let b = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let plain: Vec<u64> = [1, 2, 3, 6, 7, 1000, u32::MAX].map(|t| b.plain(t).as_secs()).to_vec();
        assert_eq!(plain, [1, 2, 4, 32, 60, 60, 60]);
    }

    #[test]
    fn jitter_stays_inside() {
        let b = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        for tries in 1..50 {
            assert!(b.full_jitter(tries) <= b.plain(tries));
            assert!((b.plain(tries) / 2..=b.plain(tries)).contains(&b.half_jitter(tries)));
            assert!((b.plain(tries)..=b.plain(tries) * 6 / 5).contains(&b.no_sooner(tries)));
        }
    }
}
