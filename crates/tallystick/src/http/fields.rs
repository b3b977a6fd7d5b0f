//! The fields of a request body: read one by one, every complaint kept, all of them told at once.
//!
//! `null` counts as absent, except in the fields of an amount, where it is refused. A value is never repeated in a
//! complaint, and a key only where it cannot be a card number.

use jiff::Timestamp;
use serde_json::{Map, Value};
use tallystick_money::{Currency, MAX_MINOR, Money, parse_major};
use uuid::Uuid;

use super::card;
use super::problem::{FieldError, Problem};

/// Most complaints of one answer.
const MAX_ERRORS: usize = 50;
/// Longest key that is repeated in a pointer, in bytes.
const MAX_KEY_SHOWN: usize = 64;
/// Most bytes of metadata, as compact JSON.
const MAX_METADATA: usize = 16 * 1024;
/// The rule of a card number; it decides the problem's code.
pub(super) const CARD_NUMBER: &str = "card_number";

/// The complaints about one request.
#[derive(Debug, Default)]
pub(super) struct Errors(Vec<FieldError>);

impl Errors {
    /// Keeps a complaint; beyond [`MAX_ERRORS`] the rest is left out.
    pub(super) fn push(&mut self, field: impl Into<String>, rule: &'static str, message: impl Into<String>) {
        if self.0.len() < MAX_ERRORS {
            self.0.push(FieldError::new(field, rule, message));
        }
    }

    pub(super) fn into_list(self) -> Vec<FieldError> {
        self.0
    }

    /// Refuses the request when there is a complaint.
    ///
    /// # Errors
    /// 422 `validation`, or `card_number_refused` when one of them is about a card number.
    pub(super) fn check(self) -> Result<(), Problem> {
        if self.0.is_empty() { Ok(()) } else { Err(Problem::validation(self.0)) }
    }
}

/// Where in a body we are.
#[derive(Clone, Debug, Default)]
pub(super) struct Path(Vec<String>);

impl Path {
    pub(super) fn enter_key(&mut self, key: &str) {
        self.0.push(key.to_owned());
    }

    pub(super) fn enter_index(&mut self, index: usize) {
        self.0.push(index.to_string());
    }

    pub(super) fn leave(&mut self) {
        self.0.pop();
    }

    /// The JSON pointer, cut above the first key that is too long to repeat or may be a card number.
    pub(super) fn pointer(&self) -> String {
        pointer(self.0.iter().map(String::as_str))
    }
}

fn pointer<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    let shown = keys.take_while(|key| {
        key.len() <= MAX_KEY_SHOWN && !key.chars().any(char::is_control) && !card::contains(key)
    });
    shown.fold(String::new(), |pointer, key| pointer + "/" + &key.replace('~', "~0").replace('/', "~1"))
}

/// An object whose fields are taken one by one.
pub(super) struct Fields {
    at: String,
    members: Map<String, Value>,
    errors: Errors,
}

impl Fields {
    /// The fields of a body; those that are not `known` are complaints.
    pub(super) fn new(body: Value, known: &[&str], mut errors: Errors) -> Self {
        let members = members(body, "", known, &mut errors);
        Self { at: String::new(), members, errors }
    }

    fn pointer(&self, name: &str) -> String {
        format!("{}/{name}", self.at)
    }

    /// Complains about a field.
    pub(super) fn refuse(&mut self, name: &str, rule: &'static str, message: impl Into<String>) {
        let pointer = self.pointer(name);
        self.errors.push(pointer, rule, message);
    }

    /// The field's value; `null` is absent.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.members.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Complains when `value` is absent although it must be there.
    fn must<T>(&mut self, name: &str, value: Option<T>) -> Option<T> {
        // A field that was there and wrong has its complaint already.
        let told = self.pointer(name);
        if value.is_none() && !self.errors.0.iter().any(|e| e.field == told) {
            self.refuse(name, "required", "is required");
        }
        value
    }

    /// A text of `least` to `most` characters.
    pub(super) fn text(&mut self, name: &str, least: usize, most: usize) -> Option<String> {
        let value = self.take(name)?;
        let Value::String(text) = value else {
            self.refuse(name, "type", "must be a string");
            return None;
        };
        // Counting stops early: the text may be long.
        if !(least..=most).contains(&text.chars().take(most + 1).count()) {
            self.refuse(name, "length", format!("must have {least} to {most} characters"));
            return None;
        }
        Some(text)
    }

    /// A required text of `least` to `most` characters.
    pub(super) fn required_text(&mut self, name: &str, least: usize, most: usize) -> Option<String> {
        let text = self.text(name, least, most);
        self.must(name, text)
    }

    /// A text that people may have put a card number into.
    pub(super) fn cardless_text(&mut self, name: &str, least: usize, most: usize) -> Option<String> {
        let text = self.text(name, least, most)?;
        if card::contains(&text) {
            self.refuse(name, CARD_NUMBER, "must not contain a card number");
            return None;
        }
        Some(text)
    }

    /// A required text that people may have put a card number into.
    pub(super) fn required_cardless_text(&mut self, name: &str, least: usize, most: usize) -> Option<String> {
        let text = self.cardless_text(name, least, most);
        self.must(name, text)
    }

    /// One of some words.
    pub(super) fn choice<T: Copy>(&mut self, name: &str, choices: &[(&'static str, T)]) -> Option<T> {
        let value = self.take(name)?;
        let found = value.as_str().and_then(|text| choices.iter().find(|(word, _)| *word == text));
        if found.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            self.refuse(name, "choice", format!("must be one of: {}", words.join(", ")));
        }
        found.map(|(_, value)| *value)
    }

    /// A required one of some words.
    pub(super) fn required_choice<T: Copy>(
        &mut self,
        name: &str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let choice = self.choice(name, choices);
        self.must(name, choice)
    }

    /// An integer from `least` to `most`, written as plain digits.
    pub(super) fn integer(&mut self, name: &str, least: i64, most: i64) -> Option<i64> {
        let value = self.take(name)?;
        self.read_integer(name, &value, least, most)
    }

    /// A required amount in minor units, 1 to 10^15; `null` is refused.
    pub(super) fn required_amount(&mut self, name: &str) -> Option<i64> {
        match self.members.shift_remove(name) {
            Some(value) => self.read_integer(name, &value, 1, MAX_MINOR),
            None => self.must(name, None),
        }
    }

    fn read_integer(&mut self, name: &str, value: &Value, least: i64, most: i64) -> Option<i64> {
        let text = match value {
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        };
        let digits = text.strip_prefix('-').unwrap_or(&text);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            self.refuse(name, "integer", "must be a JSON integer in plain digits");
            return None;
        }
        let found = text.parse().ok().filter(|n| (least..=most).contains(n));
        if found.is_none() {
            self.refuse(name, "range", format!("must be between {least} and {most}"));
        }
        found
    }

    /// A required UUID.
    pub(super) fn required_uuid(&mut self, name: &str) -> Option<Uuid> {
        let value = self.take(name);
        let found = value.as_ref().and_then(|value| uuid(value.as_str()?));
        if value.is_some() && found.is_none() {
            self.refuse(name, "uuid", "must be a UUID");
        }
        self.must(name, found)
    }

    /// An RFC 3339 time.
    pub(super) fn time(&mut self, name: &str) -> Option<Timestamp> {
        let value = self.take(name)?;
        let found = value.as_str().and_then(timestamp);
        if found.is_none() {
            self.refuse(name, "date_time", "must be an RFC 3339 time such as 2026-01-02T03:04:05Z");
        }
        found
    }

    /// A required ISO 4217 currency; `null` is refused.
    pub(super) fn currency(&mut self, name: &str) -> Option<Currency> {
        let value = self.members.shift_remove(name);
        let found = value.as_ref().and_then(|value| value.as_str()?.parse().ok());
        if value.is_some() && found.is_none() {
            let message =
                "must be an ISO 4217 code in capital letters, such as EUR, of a currency with minor units";
            self.refuse(name, "currency", message);
        }
        self.must(name, found)
    }

    /// `amount` or `amount_minor`, exactly one of them, with `currency`.
    pub(super) fn money(&mut self) -> Option<Money> {
        let currency = self.currency("currency");
        match (self.members.shift_remove("amount"), self.members.shift_remove("amount_minor")) {
            (Some(_), Some(_)) => {
                self.refuse("amount", "exclusive", "give either amount or amount_minor");
                self.refuse("amount_minor", "exclusive", "give either amount or amount_minor");
                None
            }
            (None, None) => {
                self.refuse("amount", "required", "amount or amount_minor is required");
                None
            }
            (Some(major), None) => self.major(&major, currency),
            (None, Some(minor)) => {
                let minor = self.read_integer("amount_minor", &minor, 1, MAX_MINOR)?;
                Some(Money { minor, currency: currency? })
            }
        }
    }

    fn major(&mut self, value: &Value, currency: Option<Currency>) -> Option<Money> {
        let Some(text) = value.as_str() else {
            self.refuse("amount", "type", "must be a string such as \"12.50\"");
            return None;
        };
        match parse_major(text, currency?) {
            Ok(minor) => Some(Money { minor, currency: currency? }),
            Err(error) => {
                self.refuse("amount", error.rule(), error.to_string());
                None
            }
        }
    }

    /// The client's own JSON object, without card numbers.
    pub(super) fn metadata(&mut self, name: &str) -> Option<Value> {
        let value = self.take(name)?;
        if !value.is_object() {
            self.refuse(name, "type", "must be an object");
            return None;
        }
        let size = serde_json::to_vec(&value).map_or(usize::MAX, |bytes| bytes.len());
        if size > MAX_METADATA {
            self.refuse(name, "max_bytes", "must not be longer than 16 KiB as compact JSON");
            return None;
        }
        let mut path = Path(self.pointer(name).split('/').skip(1).map(str::to_owned).collect());
        let before = self.errors.0.len();
        refuse_cards(&value, &mut path, &mut self.errors);
        (self.errors.0.len() == before).then_some(value)
    }

    /// A required list of `least` to `most` objects with the fields `known`, each read by `read`.
    pub(super) fn objects<T>(
        &mut self,
        name: &str,
        (least, most): (usize, usize),
        known: &[&str],
        read: impl Fn(&mut Fields) -> Option<T>,
    ) -> Option<Vec<T>> {
        let value = self.take(name);
        let Value::Array(items) = self.must(name, value)? else {
            self.refuse(name, "type", "must be an array");
            return None;
        };
        if !(least..=most).contains(&items.len()) {
            self.refuse(name, "items", format!("must have {least} to {most} items"));
            return None;
        }
        let at = self.pointer(name);
        let mut found = Vec::with_capacity(items.len());
        let wanted = items.len();
        for (index, item) in items.into_iter().enumerate() {
            let at = format!("{at}/{index}");
            let mut errors = std::mem::take(&mut self.errors);
            let members = members(item, &at, known, &mut errors);
            let mut fields = Self { at, members, errors };
            found.extend(read(&mut fields));
            self.errors = fields.errors;
        }
        (found.len() == wanted).then_some(found)
    }

    /// The problem of a body that lacks something required; there is a complaint about it.
    pub(super) fn refused(self) -> Problem {
        Problem::validation(self.errors.into_list())
    }

    /// The end of the body.
    ///
    /// # Errors
    /// 422 with every complaint.
    pub(super) fn finish(self) -> Result<(), Problem> {
        self.errors.check()
    }
}

/// The members of an object, with complaints about what is none and about fields that do not exist.
fn members(value: Value, at: &str, known: &[&str], errors: &mut Errors) -> Map<String, Value> {
    let Value::Object(members) = value else {
        errors.push(at, "type", "must be an object");
        return Map::new();
    };
    for key in members.keys().filter(|key| !known.contains(&key.as_str())) {
        let field = format!("{at}{}", pointer(std::iter::once(key.as_str())));
        errors.push(field, "unknown_field", "is not a field of this request");
    }
    members
}

/// Complains about card numbers in keys, strings and numbers. A key that is one is told at its object.
fn refuse_cards(value: &Value, path: &mut Path, errors: &mut Errors) {
    let found = match value {
        Value::String(text) => card::contains(text),
        Value::Number(number) => card::contains(&number.to_string()),
        Value::Object(members) => members.keys().any(|key| card::contains(key)),
        Value::Array(_) | Value::Bool(_) | Value::Null => false,
    };
    if found {
        errors.push(path.pointer(), CARD_NUMBER, "must not contain a card number");
    }
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                path.enter_key(key);
                refuse_cards(value, path, errors);
                path.leave();
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                path.enter_index(index);
                refuse_cards(value, path, errors);
                path.leave();
            }
        }
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

/// A UUID in its usual form with hyphens.
pub(super) fn uuid(text: &str) -> Option<Uuid> {
    const LENGTH: usize = 36;
    if text.len() == LENGTH { Uuid::try_parse(text).ok() } else { None }
}

/// An RFC 3339 time. The database keeps microseconds; what is finer is cut off.
pub(super) fn timestamp(text: &str) -> Option<Timestamp> {
    // The library also reads other forms; RFC 3339 has a `T` and an offset, and no zone in brackets.
    let plain = text.len() <= 40
        && text.as_bytes().get(10).is_some_and(|b| matches!(b, b'T' | b't'))
        && !text.contains('[');
    let time: Timestamp = text.parse().ok().filter(|_| plain)?;
    let years = (1900..=9998).contains(&time.to_zoned(jiff::tz::TimeZone::UTC).year());
    Timestamp::from_microsecond(time.as_microsecond()).ok().filter(|_| years)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: &str) -> Fields {
        let mut errors = Errors::default();
        let body = super::super::json::parse(json.as_bytes(), &mut errors).unwrap();
        Fields::new(
            body,
            &["amount", "amount_minor", "currency", "description", "metadata", "entries", "at"],
            errors,
        )
    }

    fn told(fields: Fields) -> Vec<(String, String)> {
        fields.errors.into_list().into_iter().map(|e| (e.field, e.rule.into_owned())).collect()
    }

    fn one(field: &str, rule: &str) -> Vec<(String, String)> {
        vec![(field.to_owned(), rule.to_owned())]
    }

    #[test]
    fn an_amount_is_one_of_two() {
        let money = |json: &str| {
            let mut f = fields(json);
            (f.money().map(|m| m.minor), told(f))
        };
        assert_eq!(money(r#"{"amount":"7.5","currency":"EUR"}"#), (Some(750), vec![]));
        assert_eq!(money(r#"{"amount_minor":100,"currency":"EUR"}"#), (Some(100), vec![]));
        for (minor, rule) in [
            ("0", "range"),
            ("-1", "range"),
            ("-0", "range"),
            ("1000000000000001", "range"),
            ("9223372036854775808", "range"),
            ("1e400", "integer"),
            ("1e2", "integer"),
            ("1.5", "integer"),
            ("1.0", "integer"),
            ("\"100\"", "integer"),
            ("null", "integer"),
            ("true", "integer"),
        ] {
            assert_eq!(
                money(&format!(r#"{{"amount_minor":{minor},"currency":"EUR"}}"#)),
                (None, one("/amount_minor", rule)),
                "{minor}"
            );
        }
        for major in ["null", "10", "10.5", "true", "[]", "{}"] {
            assert_eq!(
                money(&format!(r#"{{"amount":{major},"currency":"EUR"}}"#)),
                (None, one("/amount", "type")),
                "{major}"
            );
        }
        assert_eq!(money(r#"{"currency":"EUR"}"#), (None, one("/amount", "required")));
        for currency in ["null", "978", "\"eur\"", "\"XXX\"", "\"\""] {
            assert_eq!(
                money(&format!(r#"{{"amount_minor":1,"currency":{currency}}}"#)),
                (None, one("/currency", "currency")),
                "{currency}"
            );
        }
        assert_eq!(money(r#"{"amount_minor":1}"#), (None, one("/currency", "required")));
        assert_eq!(money(r#"{"amount":"1","amount_minor":null,"currency":"EUR"}"#).1.len(), 2);
    }

    #[test]
    fn lengths_are_in_code_points() {
        for (text, holds) in [
            ("é".repeat(1000), true),
            ("é".repeat(1001), false),
            (String::new(), false),
            ("👩‍👩‍👧‍👦".to_owned(), true),
        ] {
            let mut f = fields(&format!(r#"{{"description":"{text}"}}"#));
            assert_eq!(f.text("description", 1, 1000).is_some(), holds);
        }
        assert_eq!(fields(r#"{"description":null}"#).text("description", 1, 1000), None);
        assert!(told(fields(r#"{"description":null}"#)).is_empty());
    }

    #[test]
    fn a_card_in_a_key_is_told_without_the_key() {
        for (json, field) in [
            (r#"{"metadata":{"4242 4242 4242 4242":1}}"#, "/metadata"),
            (r#"{"metadata":{"a":{"4242424242424242":{"b":"4242424242424242"}}}}"#, "/metadata/a"),
            (r#"{"metadata":{"a":["x","4242-4242-4242-4242"]}}"#, "/metadata/a/1"),
            (r#"{"metadata":{"a":4242424242424242}}"#, "/metadata/a"),
        ] {
            let mut f = fields(json);
            assert_eq!(f.metadata("metadata"), None);
            let told = told(f);
            assert!(
                told.iter().all(|(f, rule)| f == field && rule == CARD_NUMBER) && !told.is_empty(),
                "{told:?}"
            );
        }
        assert_eq!(told(fields(r#"{"4242424242424242":1}"#)), one("", "unknown_field"));
    }

    #[test]
    fn metadata_is_measured_compact() {
        let value = "x".repeat(MAX_METADATA - r#"{"k":""}"#.len());
        assert!(
            fields(&format!("{{\"metadata\":{{   \"k\" : \"{value}\"}}}}")).metadata("metadata").is_some()
        );
        assert!(fields(&format!(r#"{{"metadata":{{"k":"{value}x"}}}}"#)).metadata("metadata").is_none());
    }

    #[test]
    fn complaints_are_bounded_and_keys_too() {
        let many: Vec<String> = (0..1000).map(|n| format!("\"k{n}\":1")).collect();
        assert_eq!(told(fields(&format!("{{{}}}", many.join(",")))).len(), MAX_ERRORS);
        assert_eq!(told(fields(&format!("{{\"{}\":1}}", "k".repeat(65)))), one("", "unknown_field"));
        assert_eq!(told(fields(r#"{"a/b~c":1}"#)), one("/a~1b~0c", "unknown_field"));
    }

    #[test]
    fn lists_name_the_item() {
        let mut f = fields(r#"{"entries":[{"at":"2026-01-02T03:04:05Z"},{"at":"yesterday","more":1},7]}"#);
        assert_eq!(f.objects("entries", (0, 9), &["at"], |entry| entry.time("at")), None);
        let expected =
            [("/entries/1/more", "unknown_field"), ("/entries/1/at", "date_time"), ("/entries/2", "type")];
        assert_eq!(told(f), expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn times_are_rfc_3339() {
        for good in ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05+02:00"] {
            assert!(timestamp(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "2026-01-02",
            "2026-01-02T03:04:05",
            "2026-01-02 03:04:05Z",
            "2026-13-02T03:04:05Z",
            "2026-01-02T03:04:05Z[UTC]",
            "now",
            "1700000000",
            "0001-01-01T00:00:00Z",
        ] {
            assert_eq!(timestamp(bad), None, "{bad}");
        }
    }

    #[test]
    fn ids_are_plain_uuids() {
        assert!(uuid("0198f2c5-6f3a-7c1e-8000-000000000000").is_some());
        for bad in [
            "",
            "x",
            "0198f2c56f3a7c1e8000000000000000",
            "{0198f2c5-6f3a-7c1e-8000-000000000000}",
            "0198f2c5-6f3a-7c1e-8000-00000000000g",
        ] {
            assert_eq!(uuid(bad), None, "{bad}");
        }
    }
}
