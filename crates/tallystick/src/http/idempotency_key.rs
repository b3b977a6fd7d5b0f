//! `Idempotency-Key`: 1 to 255 printable ASCII characters; a value in double quotes means its inside.

use axum::http::HeaderMap;

use super::fields::Errors;

const HEADER: &str = "idempotency-key";
const FIELD: &str = "header:Idempotency-Key";
const MAX: usize = 255;

/// What the header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// A key.
    Key(String),
    /// No header, or nothing but blanks in it.
    Missing,
    /// Something that is no key; told in the errors.
    Refused,
}

/// Reads the header; what is wrong with it goes to `errors`.
pub(super) fn read(headers: &HeaderMap, errors: &mut Errors) -> Given {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Given::Missing };
    if values.next().is_some() {
        errors.push(FIELD, "single", "must be given once");
        return Given::Refused;
    }
    let bytes = value.as_bytes();
    let inside = bytes.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let key = inside.unwrap_or(bytes);
    if key.iter().all(|b| matches!(b, b' ' | b'\t')) {
        return Given::Missing;
    }
    if key.len() > MAX || !key.iter().all(|b| (0x20..=0x7e).contains(b)) {
        errors.push(FIELD, "format", "must be 1 to 255 printable ASCII characters");
        return Given::Refused;
    }
    Given::Key(key.iter().copied().map(char::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn given(values: &[&[u8]]) -> (Given, Vec<String>) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_bytes(value).unwrap());
        }
        let mut errors = Errors::default();
        let given = read(&headers, &mut errors);
        (given, errors.into_list().into_iter().map(|e| e.field).collect())
    }

    /// C028: odd keys are either a key or refused by name, never ignored.
    #[test]
    fn c028_odd_keys() {
        let long = "k".repeat(255);
        for (value, key) in [
            ("a", "a"),
            ("\"quoted\"", "quoted"),
            ("../x", "../x"),
            ("a b", "a b"),
            ("%00", "%00"),
            ("\"", "\""),
            (&long, &long),
        ] {
            assert_eq!(given(&[value.as_bytes()]), (Given::Key(key.into()), vec![]), "{value}");
        }
        for value in ["", "   ", "\"\"", "\"  \""] {
            assert_eq!(given(&[value.as_bytes()]).0, Given::Missing, "{value:?}");
        }
        for value in
            ["k".repeat(256).as_bytes(), "ключ".as_bytes(), "🔑".as_bytes(), b"a\tb", &[b'k'; 10_000]]
        {
            assert_eq!(given(&[value]), (Given::Refused, vec![FIELD.to_owned()]));
        }
        assert_eq!(given(&[b"a", b"a"]), (Given::Refused, vec![FIELD.to_owned()]));
        assert_eq!(given(&[]).0, Given::Missing);
    }
}
