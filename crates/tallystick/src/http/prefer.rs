//! `Prefer: wait=N` (RFC 7240): how long the client would like to wait for an outcome.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};

const MAX_SECONDS: u64 = 30;

/// A wish to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    seconds: u64,
}

impl Wait {
    /// The wish of the request. The first `wait` counts; one outside 1 to 30 seconds is ignored, as the standard
    /// wants it for preferences that are not understood.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let preferences = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
        let wait = preferences.flat_map(|text| text.split(',')).find_map(|preference| {
            let (name, value) = preference.split(';').next()?.split_once('=')?;
            name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"'))
        })?;
        let plain = !wait.is_empty() && wait.bytes().all(|b| b.is_ascii_digit());
        let seconds = wait.parse().ok().filter(|n| plain && (1..=MAX_SECONDS).contains(n))?;
        Some(Self { seconds })
    }

    pub(super) fn duration(self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// The value of `Preference-Applied`.
    pub(super) fn applied(self) -> HeaderValue {
        HeaderValue::from_str(&format!("wait={}", self.seconds))
            .expect("letters and digits are a header value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(values: &[&str]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("prefer", value.parse().unwrap());
        }
        Wait::of(&headers).map(|w| w.seconds)
    }

    #[test]
    fn reads_the_standards_forms() {
        assert_eq!(seconds(&["wait=10"]), Some(10));
        assert_eq!(seconds(&["respond-async, wait=5"]), Some(5));
        assert_eq!(seconds(&["respond-async", "Wait = 7; x=y"]), Some(7));
        assert_eq!(seconds(&["wait=\"30\""]), Some(30));
        assert_eq!(seconds(&["wait=1, wait=9"]), Some(1));
    }

    #[test]
    fn ignores_what_it_does_not_understand() {
        for text in [
            "wait",
            "wait=",
            "wait=0",
            "wait=31",
            "wait=-1",
            "wait=+5",
            "wait=1.5",
            "wait=99999999999999999999",
            "waits=5",
        ] {
            assert_eq!(seconds(&[text]), None, "{text}");
        }
        assert_eq!(seconds(&[]), None);
    }
}
