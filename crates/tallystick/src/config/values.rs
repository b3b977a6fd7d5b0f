//! Forms of values: durations, lists, words.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// What a process does. Any number of processes may have each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Answers HTTP requests. Health and metrics are there in every process.
    Api,
    /// Calls gateways.
    Dispatch,
    /// Publishes events to sinks.
    Relay,
    /// Looks after what was left behind: lost work, parked webhooks, partitions, checkpoints.
    Sweep,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Api, Self::Dispatch, Self::Relay, Self::Sweep];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Dispatch => "dispatch",
            Self::Relay => "relay",
            Self::Sweep => "sweep",
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| format!("{text:?} is no role; there are {}", known()))
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Pretty,
}

/// Gateway accounts before they are checked. Their secrets are never shown.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct RawAccounts(pub Vec<Map<String, Value>>);

impl fmt::Debug for RawAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} accounts", self.0.len())
    }
}

/// `200ms`, `5s`, `30m`, `1h 30m`.
pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    parse_duration(&text).map_err(D::Error::custom)
}

/// Reads a duration as settings and arguments write it.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text.trim())
        .map_err(|_| format!("{text:?} is no duration: write for example 200ms, 5s, 30m or 1h 30m"))
}

/// A list: words separated by commas, or an array of words.
pub(super) fn list<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: fmt::Display,
{
    struct Words;

    impl<'de> Visitor<'de> for Words {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("words separated by commas, or an array of words")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(text.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut words = Vec::new();
            while let Some(word) = seq.next_element::<String>()? {
                words.push(word);
            }
            Ok(words)
        }
    }

    let words = from.deserialize_any(Words)?;
    words.iter().map(|word| word.parse().map_err(|e| D::Error::custom(format!("{word:?}: {e}")))).collect()
}
