//! Numbered items with an index by key, so that `?key=` never scans.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Items by number, and the numbers of each key in ascending order.
#[derive(Debug)]
pub struct Series<T> {
    items: BTreeMap<u64, T>,
    by_key: HashMap<String, VecDeque<u64>>,
    limit: usize,
}

impl<T> Series<T> {
    /// Keeps at most `limit` items; older ones are forgotten.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self { items: BTreeMap::new(), by_key: HashMap::new(), limit }
    }

    /// The number that the next item gets.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.items.last_key_value().map_or(1, |(number, _)| number + 1)
    }

    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds or replaces an item. The oldest one is forgotten when there are too many, and returned.
    pub fn insert(&mut self, number: u64, key: &str, item: T, key_of: impl Fn(&T) -> &str) -> Option<T> {
        if self.items.insert(number, item).is_none() {
            let numbers = match self.by_key.get_mut(key) {
                Some(numbers) => numbers,
                None => self.by_key.entry(key.to_owned()).or_default(),
            };
            let place = numbers.partition_point(|other| *other < number);
            numbers.insert(place, number);
        }
        if self.items.len() <= self.limit {
            return None;
        }
        let (oldest, item) = self.items.pop_first()?;
        let key = key_of(&item);
        if let Some(numbers) = self.by_key.get_mut(key) {
            numbers.retain(|number| *number != oldest);
            if numbers.is_empty() {
                self.by_key.remove(key);
            }
        }
        Some(item)
    }

    /// One item.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&T> {
        self.items.get(&number)
    }

    /// One item, to change.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.items.get_mut(&number)
    }

    /// All items, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.values()
    }

    /// At most `limit` items after a number, of one key or of all, oldest first.
    pub fn page(&self, after: u64, key: Option<&str>, limit: usize) -> Vec<&T> {
        match key {
            None => self.items.range(after.saturating_add(1)..).map(|(_, item)| item).take(limit).collect(),
            Some(key) => {
                let numbers = self.by_key.get(key).into_iter().flatten().filter(|number| **number > after);
                numbers.filter_map(|number| self.items.get(number)).take(limit).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(limit: usize, items: &[(u64, &str)]) -> Series<String> {
        let mut series = Series::with_limit(limit);
        for (number, key) in items {
            series.insert(*number, key, (*key).to_owned(), |item| item);
        }
        series
    }

    #[test]
    fn pages_by_key_and_number() {
        let series = series(10, &[(1, "a"), (3, "a"), (2, "b"), (4, "a")]);
        assert_eq!(series.page(0, None, 10), ["a", "b", "a", "a"]);
        assert_eq!(series.page(1, Some("a"), 10).len(), 2);
        assert_eq!(series.page(0, Some("a"), 1).len(), 1);
        assert!(series.page(0, Some("c"), 10).is_empty());
        assert_eq!(series.next_number(), 5);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let series = series(2, &[(1, "a"), (2, "b"), (3, "b")]);
        assert_eq!((series.len(), series.page(0, Some("a"), 10).len()), (2, 0));
        assert_eq!(series.page(0, None, 10), ["b", "b"]);
        assert!(!series.is_empty() && series.get(1).is_none() && series.get(3).is_some());
    }
}
