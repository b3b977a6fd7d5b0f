//! `X-Request-Id`: taken from the client or made, in every answer and every log line.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use super::card;

/// The header, in and out.
pub(super) const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that is taken.
const MAX: usize = 128;

/// The id of one request.
#[derive(Clone, Debug)]
pub(super) struct RequestId(HeaderValue);

impl RequestId {
    /// The client's, when it is one plain id; else a new one.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut given = headers.get_all(HEADER).iter();
        match (given.next(), given.next()) {
            (Some(value), None) if is_plain(value) => Self(value.clone()),
            _ => {
                let id = Uuid::now_v7().to_string();
                Self(HeaderValue::from_str(&id).expect("a UUID is plain ASCII"))
            }
        }
    }

    pub(super) fn as_str(&self) -> &str {
        self.0.to_str().expect("only plain ASCII is taken or made")
    }

    pub(super) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

/// The id is logged, so nothing that could break a line, and no card number, is taken.
fn is_plain(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    (1..=MAX).contains(&bytes.len())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        && value.to_str().is_ok_and(|text| !card::contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(values: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_str(value).unwrap());
        }
        values.first().is_some_and(|v| RequestId::of(&headers).as_str() == *v)
    }

    #[test]
    fn only_one_plain_id_is_taken() {
        for good in ["a", "order-7.try_2", &"x".repeat(128)] {
            assert!(taken(&[good]), "{good}");
        }
        for bad in ["", "a b", "a\tb", "a;b", "{}", &"x".repeat(129), "4111111111111111"] {
            assert!(!taken(&[bad]), "{bad}");
        }
        assert!(!taken(&["a", "a"]));
        assert!(!taken(&[]));
    }
}
