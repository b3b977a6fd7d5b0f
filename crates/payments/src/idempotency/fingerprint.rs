//! What makes two requests the same: every field after defaults and normal forms, not the bytes of the body.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Hashes of a request, whole and per field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// Over everything.
    pub whole: Vec<u8>,
    /// `pointer=hash` lines; tells which field differs without keeping its value.
    pub fields: String,
}

/// Hex digits kept per field: enough to tell fields apart, too few to guess a value from.
const FIELD_DIGITS: usize = 12;

impl Fingerprint {
    /// Of the concrete path and the request's fields, each under the JSON pointer that is shown when it differs.
    pub(crate) fn of(path: &str, fields: &[(&str, Value)]) -> Self {
        let mut whole = Sha256::new();
        let mut lines = Vec::with_capacity(fields.len() + 1);
        let path = ("path", Value::from(path));
        for (pointer, value) in std::iter::once(&path).chain(fields) {
            let digest = Sha256::digest(canonical(value).as_bytes());
            whole.update(Sha256::digest(pointer.as_bytes()));
            whole.update(digest);
            lines.push(format!("{pointer}={}", &hex::encode(digest)[..FIELD_DIGITS]));
        }
        Self { whole: whole.finalize().to_vec(), fields: lines.join("\n") }
    }

    /// The fields in which a stored fingerprint differs from this one.
    pub(crate) fn differing(&self, stored_fields: &str) -> Vec<String> {
        let stored: Vec<&str> = stored_fields.lines().collect();
        let differing: Vec<String> = self
            .fields
            .lines()
            .filter(|line| !stored.contains(line))
            .filter_map(|line| line.split_once('=').map(|(pointer, _)| pointer.to_owned()))
            .collect();
        // A request of an older version may have had other fields altogether.
        if differing.is_empty() { vec!["/".to_owned()] } else { differing }
    }
}

/// JSON with sorted members: the order of members in an object means nothing.
fn canonical(value: &Value) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let mut pairs: Vec<(&String, &Value)> = members.iter().collect();
                pairs.sort_by_key(|(name, _)| *name);
                Value::Object(pairs.into_iter().map(|(n, v)| (n.clone(), sorted(v))).collect::<Map<_, _>>())
            }
            Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }
    sorted(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c019_member_order_means_nothing_and_a_changed_field_is_named() {
        let a = Fingerprint::of(
            "/p",
            &[("/m", json!({"b": 1, "a": [1, {"y": 0, "x": 0}]})), ("/amount_minor", json!(5))],
        );
        let b = Fingerprint::of(
            "/p",
            &[("/m", json!({"a": [1, {"x": 0, "y": 0}], "b": 1})), ("/amount_minor", json!(5))],
        );
        assert_eq!(a, b);
        let c = Fingerprint::of(
            "/p",
            &[("/m", json!({"b": 1, "a": [1, {"y": 0, "x": 0}]})), ("/amount_minor", json!(6))],
        );
        assert_ne!(a.whole, c.whole);
        assert_eq!(c.differing(&a.fields), ["/amount_minor"]);
        let d = Fingerprint::of(
            "/q",
            &[("/m", json!({"b": 1, "a": [1, {"y": 0, "x": 0}]})), ("/amount_minor", json!(5))],
        );
        assert_eq!(d.differing(&a.fields), ["path"]);
    }
}
