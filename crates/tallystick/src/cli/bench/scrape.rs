//! The server's own counters, read from `/metrics`: transactions by name, and how many items shared one.

#![expect(clippy::float_arithmetic, reason = "Prometheus' samples are floats; money is never counted here")]

use std::collections::BTreeMap;

use serde::Serialize;

use super::stats;

/// Counts transactions by name.
const TRANSACTIONS: &str = "tallystick_db_transaction_seconds_count";
/// Ends of the names of a distribution's samples.
const BUCKET: &str = "_size_bucket";

/// One reading: samples by name and labels, as they are printed.
#[derive(Clone, Debug, Default)]
pub struct Scrape(BTreeMap<String, f64>);

/// How many items shared one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Batches {
    /// Transactions.
    pub count: f64,
    /// Items of one, on average.
    pub mean: f64,
    /// Half of the transactions had at most so many; the upper bound of a bucket, absent above the last one.
    pub median_at_most: Option<f64>,
}

impl Scrape {
    /// Reads Prometheus' text form.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(samples.collect())
    }

    /// What grew since an earlier reading.
    pub fn since(&self, before: &Self) -> Self {
        let grown =
            self.0.iter().map(|(name, now)| (name.clone(), now - before.0.get(name).copied().unwrap_or(0.0)));
        Self(grown.collect())
    }

    /// Transactions by name.
    pub fn transactions(&self) -> BTreeMap<String, f64> {
        let mut found = BTreeMap::new();
        for (sample, value) in &self.0 {
            if let Some(labels) = sample.strip_prefix(TRANSACTIONS)
                && let Some(name) = label(labels, "name")
                && *value > 0.0
            {
                *found.entry(name.to_owned()).or_insert(0.0) += value;
            }
        }
        found
    }

    /// Batches by what is in them: `create`, `claim`, `record` …
    pub fn batches(&self) -> BTreeMap<String, Batches> {
        let mut buckets: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for (sample, value) in &self.0 {
            let Some((name, labels)) = sample.split_once(BUCKET) else { continue };
            let bound = label(labels, "le").map(|le| le.parse().unwrap_or(f64::INFINITY));
            if let Some(bound) = bound {
                let found = buckets.entry(name).or_default();
                match found.iter_mut().find(|(other, _)| other.total_cmp(&bound).is_eq()) {
                    // The same bound under other labels: what is counted apart there is one here.
                    Some((_, count)) => *count += value,
                    None => found.push((bound, *value)),
                }
            }
        }
        let mut batches = BTreeMap::new();
        for (name, mut found) in buckets {
            found.sort_by(|a, b| a.0.total_cmp(&b.0));
            let count = found.last().map_or(0.0, |(_, count)| *count);
            if count > 0.0 {
                let sum = self.sum(&format!("{name}_size_sum"));
                let half = found.iter().find(|(_, upto)| *upto >= count / 2.0).map(|(bound, _)| *bound);
                let median_at_most = half.filter(|bound| bound.is_finite());
                let name = name.trim_start_matches("tallystick_").trim_end_matches("_batch").to_owned();
                batches.insert(name, Batches { count, mean: stats::ratio(sum, count), median_at_most });
            }
        }
        batches
    }

    fn sum(&self, name: &str) -> f64 {
        let of_name = |sample: &str| {
            sample.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        };
        self.0.iter().filter(|(sample, _)| of_name(sample)).map(|(_, value)| value).sum()
    }
}

/// A label's value in `{a="b",c="d"}`.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let inside = labels.strip_prefix('{')?.strip_suffix('}')?;
    let mut parts = inside.split(',').filter_map(|part| part.split_once('='));
    parts.find(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
# HELP tallystick_db_transaction_seconds Time of one named transaction.
# TYPE tallystick_db_transaction_seconds histogram
tallystick_db_transaction_seconds_bucket{name=\"dispatch.claim\",le=\"0.001\"} 5
tallystick_db_transaction_seconds_count{name=\"dispatch.claim\"} 5
tallystick_claim_batch_size_bucket{le=\"1\"} 5
tallystick_claim_batch_size_bucket{le=\"64\"} 5
tallystick_claim_batch_size_bucket{le=\"+Inf\"} 5
tallystick_claim_batch_size_sum 5
tallystick_claim_batch_size_count 5
";
    const AFTER: &str = "\
tallystick_db_transaction_seconds_count{name=\"dispatch.claim\"} 15
tallystick_db_transaction_seconds_count{name=\"payment.create\"} 3
tallystick_claim_batch_size_bucket{le=\"1\"} 7
tallystick_claim_batch_size_bucket{le=\"64\"} 14
tallystick_claim_batch_size_bucket{le=\"+Inf\"} 15
tallystick_claim_batch_size_sum 305
tallystick_claim_batch_size_count 15
";

    #[test]
    fn what_grew_is_counted_by_name() {
        let grown = Scrape::parse(AFTER).since(&Scrape::parse(BEFORE));
        let transactions = grown.transactions();
        assert_eq!(transactions["dispatch.claim"], 10.0);
        assert_eq!(transactions["payment.create"], 3.0);
        let claims = grown.batches()["claim"];
        assert_eq!(claims, Batches { count: 10.0, mean: 30.0, median_at_most: Some(64.0) });
    }

    #[test]
    fn nothing_new_and_beyond_the_last_bucket() {
        let same = Scrape::parse(AFTER).since(&Scrape::parse(AFTER));
        assert!(same.transactions().is_empty() && same.batches().is_empty());
        let above = Scrape::parse(
            "tallystick_record_batch_size_bucket{le=\"512\"} 0\ntallystick_record_batch_size_bucket{le=\"+Inf\"} 2\ntallystick_record_batch_size_sum 2000\n",
        );
        assert_eq!(above.batches()["record"], Batches { count: 2.0, mean: 1_000.0, median_at_most: None });
    }
}
