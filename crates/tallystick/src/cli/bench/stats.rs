//! Figures out of measurements: medians, spreads, percentiles, shares.

#![expect(clippy::float_arithmetic, reason = "figures about speed; money is never counted here")]

use std::time::Duration;

use serde::Serialize;

/// A figure of several runs. One number alone would say nothing about how far to trust it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one; of an even number the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// The spread of figures; nothing of none.
pub fn spread(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let upper = sorted[sorted.len() / 2];
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(Spread { median: rounded((lower + upper) / 2.0), min, max })
}

/// The value that `percent` of the sorted ones are not above; nothing of none.
pub fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// So many per item.
pub fn each(total: u64, items: u64) -> f64 {
    ratio(total as f64, items as f64)
}

/// `a` in units of `b`; 0 when there is no `b`.
pub fn ratio(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { rounded(a / b) }
}

/// Items in a second.
pub fn per_second(items: u64, time: Duration) -> f64 {
    ratio(items as f64, time.as_secs_f64())
}

/// All together.
pub fn sum(figures: impl IntoIterator<Item = f64>) -> f64 {
    figures.into_iter().sum()
}

/// What is left; never less than nothing.
pub fn less(a: f64, b: f64) -> f64 {
    (a - b).max(0.0)
}

/// A part of a whole, in percent.
pub fn percent(part: u64, whole: u64) -> f64 {
    rounded(100.0 * ratio(part as f64, whole as f64))
}

/// Milliseconds and parts of them.
pub fn millis(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1_000.0)
}

/// What grew, less what the growth itself took: `growth` in all, of which `per_second` for `time`.
pub fn without_pace(growth: u64, pace_per_second: f64, time: Duration) -> f64 {
    (growth as f64 - pace_per_second * time.as_secs_f64()).max(0.0).round()
}

/// Four digits behind the point: less than any figure here is good for, and short in print.
pub fn rounded(figure: f64) -> f64 {
    (figure * 10_000.0).round() / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_in_the_middle_whatever_the_order() {
        assert_eq!(spread([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(spread([4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(spread([7.0]), Some(Spread { median: 7.0, min: 7.0, max: 7.0 }));
        assert_eq!(spread([]), None);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let hundred: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        for (percent, millis) in [(50, 50), (99, 99), (100, 100), (1, 1), (0, 1)] {
            assert_eq!(percentile(&hundred, percent), Some(Duration::from_millis(millis)), "{percent}");
        }
        let three = [1, 2, 30].map(Duration::from_millis);
        assert_eq!(percentile(&three, 50), Some(Duration::from_millis(2)));
        assert_eq!(percentile(&three, 99), Some(Duration::from_millis(30)));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        assert_eq!((each(10, 4), each(10, 0)), (2.5, 0.0));
        assert_eq!(per_second(500, Duration::from_millis(250)), 2_000.0);
        assert_eq!(per_second(500, Duration::ZERO), 0.0);
        assert_eq!(percent(1, 3), 33.33);
        assert_eq!(millis(Duration::from_micros(6_700)), 6.7);
        assert_eq!(without_pace(100, 10.0, Duration::from_secs(3)), 70.0);
        assert_eq!(without_pace(5, 10.0, Duration::from_secs(3)), 0.0);
    }
}
