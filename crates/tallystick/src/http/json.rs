//! A strict JSON reader for request bodies.
//!
//! It differs from a general one in what it tells: a doubled key, a NUL and a lone surrogate are reported with the
//! pointer of the place, all of them at once, instead of being merged, kept or given up on. Numbers keep their text.
//! The depth is bounded, so a body cannot exhaust the stack.

use serde_json::{Map, Number, Value};

use super::fields::{Errors, Path};

/// Deepest nesting of objects and arrays; the body itself is the first level.
pub(super) const MAX_DEPTH: usize = 64;

/// Names that the serializer uses for itself; as a client's key they would be read back as something else.
const RESERVED: &str = "$serde_json::";

/// Text that is no JSON, or nested too deeply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    /// Bytes that are no UTF-8.
    #[error("the body is not UTF-8")]
    Utf8,
    /// Something else stands where JSON wants a certain thing.
    #[error("the body is no JSON: unexpected input at byte {0}")]
    Syntax(usize),
    /// More levels than are taken.
    #[error("the body is nested deeper than {MAX_DEPTH} levels")]
    Depth,
}

/// Reads `bytes` as one JSON value. What is JSON but not taken goes to `errors`.
///
/// # Errors
/// [`Malformed`] when it is no JSON.
pub(super) fn parse(bytes: &[u8], errors: &mut Errors) -> Result<Value, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed::Utf8)?;
    let mut reader = Reader { text, bytes, at: 0, path: Path::default(), errors };
    reader.space();
    let value = reader.value(0)?;
    reader.space();
    if reader.at == bytes.len() { Ok(value) } else { Err(reader.unexpected()) }
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    path: Path,
    errors: &'a mut Errors,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn unexpected(&self) -> Malformed {
        Malformed::Syntax(self.at)
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Takes `byte` if it is next.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.take(byte) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn value(&mut self, depth: usize) -> Result<Value, Malformed> {
        match self.peek() {
            Some(b'{') => self.object(depth + 1).map(Value::Object),
            Some(b'[') => self.array(depth + 1).map(Value::Array),
            Some(b'"') => {
                let (text, flaw) = self.string()?;
                self.report(flaw);
                Ok(Value::String(text))
            }
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => Err(self.unexpected()),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Malformed> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else {
            Err(self.unexpected())
        }
    }

    fn object(&mut self, depth: usize) -> Result<Map<String, Value>, Malformed> {
        if depth > MAX_DEPTH {
            return Err(Malformed::Depth);
        }
        self.at += 1;
        let mut members = Map::new();
        self.space();
        if self.take(b'}') {
            return Ok(members);
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected());
            }
            let (key, flaw) = self.string()?;
            // A key that cannot be shown is reported at its object.
            self.report(flaw);
            if key.starts_with(RESERVED) {
                self.errors.push(self.path.pointer(), "reserved_key", "has a key that cannot be stored");
            }
            self.space();
            self.expect(b':')?;
            self.space();
            self.path.enter_key(&key);
            let value = self.value(depth)?;
            if members.contains_key(&key) {
                self.errors.push(self.path.pointer(), "duplicate_key", "is given more than once");
            } else {
                members.insert(key, value);
            }
            self.path.leave();
            self.space();
            if self.take(b',') {
                continue;
            }
            self.expect(b'}')?;
            return Ok(members);
        }
    }

    fn array(&mut self, depth: usize) -> Result<Vec<Value>, Malformed> {
        if depth > MAX_DEPTH {
            return Err(Malformed::Depth);
        }
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.take(b']') {
            return Ok(items);
        }
        loop {
            self.space();
            self.path.enter_index(items.len());
            items.push(self.value(depth)?);
            self.path.leave();
            self.space();
            if self.take(b',') {
                continue;
            }
            self.expect(b']')?;
            return Ok(items);
        }
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected());
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Number, Malformed> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        self.text[start..self.at].parse().map_err(|_| Malformed::Syntax(start))
    }

    fn report(&mut self, flaw: Option<Flaw>) {
        match flaw {
            Some(Flaw::Nul) => {
                self.errors.push(self.path.pointer(), "nul", "must not contain the character U+0000")
            }
            Some(Flaw::Surrogate) => {
                self.errors.push(self.path.pointer(), "surrogate", "has half of a surrogate pair");
            }
            None => {}
        }
    }

    /// A string and the first thing in it that cannot be stored.
    fn string(&mut self) -> Result<(String, Option<Flaw>), Malformed> {
        self.at += 1;
        let (mut out, mut flaw) = (String::new(), None);
        loop {
            let start = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            // Cut at ASCII bytes, which are character boundaries.
            out.push_str(&self.text[start..self.at]);
            if self.take(b'"') {
                return Ok((out, flaw));
            }
            self.expect(b'\\')?;
            match self.escape()? {
                Ok('\0') => {
                    flaw.get_or_insert(Flaw::Nul);
                }
                Ok(c) => out.push(c),
                Err(Surrogate) => {
                    flaw.get_or_insert(Flaw::Surrogate);
                }
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<Result<char, Surrogate>, Malformed> {
        let plain = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(Ok(plain))
    }

    fn unicode(&mut self) -> Result<Result<char, Surrogate>, Malformed> {
        let first = self.hex()?;
        if let Some(c) = char::from_u32(first) {
            return Ok(Ok(c));
        }
        let high = (0xd800..0xdc00).contains(&first);
        if !high || !self.bytes[self.at..].starts_with(b"\\u") {
            return Ok(Err(Surrogate));
        }
        let before = self.at;
        self.at += 2;
        let second = self.hex()?;
        if !(0xdc00..0xe000).contains(&second) {
            // Not its other half: that escape is read again by itself.
            self.at = before;
            return Ok(Err(Surrogate));
        }
        Ok(char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or(Surrogate))
    }

    fn hex(&mut self) -> Result<u32, Malformed> {
        let digits = self.bytes.get(self.at..self.at + 4).ok_or(Malformed::Syntax(self.bytes.len()))?;
        let mut value = 0;
        for digit in digits {
            value = value * 16 + char::from(*digit).to_digit(16).ok_or(Malformed::Syntax(self.at))?;
        }
        self.at += 4;
        Ok(value)
    }
}

/// Half of a surrogate pair.
struct Surrogate;

/// Why a string cannot be stored.
#[derive(Clone, Copy)]
enum Flaw {
    Nul,
    Surrogate,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &[u8]) -> (Result<Value, Malformed>, Vec<(String, String)>) {
        let mut errors = Errors::default();
        let value = parse(text, &mut errors);
        (value, errors.into_list().into_iter().map(|e| (e.field, e.rule.into_owned())).collect())
    }

    #[test]
    fn reads_what_json_is() {
        let text = " {\"a\" : [1, -0, 1.50, 1e2, 12345678901234567890, true, false, null],\r\n\t\"é\":\"\\ud83d\\ude00\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\",\"o\":{} } ";
        let (value, errors) = read(text.as_bytes());
        assert_eq!(errors, []);
        assert_eq!(value.unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn refuses_what_it_is_not() {
        let bad: &[&[u8]] = &[
            b"",
            b"{",
            b"[",
            b"{\"a\":1,}",
            b"[1,]",
            b"{\"a\"}",
            b"{a:1}",
            b"{'a':1}",
            b"nul",
            b"truex",
            b"01",
            b"1.",
            b".5",
            b"+1",
            b"-",
            b"1e",
            b"1e+",
            b"0x10",
            b"NaN",
            b"Infinity",
            b"\"",
            b"\"\\x\"",
            b"\"\\u12\"",
            b"\"\\u12g4\"",
            b"\"a\nb\"",
            b"\"\x01\"",
            b"{} x",
            b"{}{}",
            b"/**/{}",
            b"\xff\xfe",
            b"\"\xc3\x28\"",
            b"\xef\xbb\xbf{}",
            b"{\"a\":1 \"b\":2}",
            b"\0",
        ];
        for text in bad {
            assert!(read(text).0.is_err(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn tells_every_place_at_once() {
        let (_, errors) = read(br#"{"a":1,"a":2,"b":{"c":[{"d":1,"d":1}],"e":"\u0000"},"f":"\ud800","g":"\udc00x","h\u0000":1,"i":"\ud800\ud800"}"#);
        let found: Vec<_> = errors.iter().map(|(field, rule)| (field.as_str(), rule.as_str())).collect();
        let expected = [
            ("/a", "duplicate_key"),
            ("/b/c/0/d", "duplicate_key"),
            ("/b/e", "nul"),
            ("/f", "surrogate"),
            ("/g", "surrogate"),
            ("", "nul"),
            ("/i", "surrogate"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_key_that_the_serializer_uses_for_itself_is_refused() {
        let (_, errors) = read(br#"{"metadata":{"$serde_json::private::Number":"1"}}"#);
        assert_eq!(errors, [("/metadata".to_owned(), "reserved_key".to_owned())]);
        let (_, errors) = read(br#"{"metadata":{"\u0024serde_json::private::RawValue":"1"}}"#);
        assert_eq!(errors.len(), 1);
    }

    #[test]
    fn c136_depth_is_bounded() {
        let nested = |n: usize| ["[".repeat(n), "]".repeat(n)].concat();
        assert!(read(nested(MAX_DEPTH).as_bytes()).0.is_ok());
        for n in [MAX_DEPTH + 1, 100, 127, 128, 129, 10_000, 500_000] {
            assert_eq!(read(nested(n).as_bytes()).0, Err(Malformed::Depth), "{n}");
        }
        assert_eq!(read("{\"a\":".repeat(100_000).as_bytes()).0, Err(Malformed::Depth));
    }

    proptest! {
        /// Whatever is taken without a complaint is what a general reader makes of it, and the other way round.
        #[test]
        fn agrees_with_a_general_reader(text in r#"[\[\]{}:," \\a-e0-9.eE+\-]{0,24}"#) {
            let (ours, errors) = read(text.as_bytes());
            let theirs = serde_json::from_str::<Value>(&text);
            prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{}", text);
            if let (Ok(ours), Ok(theirs), []) = (ours, theirs, &errors[..]) {
                prop_assert_eq!(ours, theirs);
            }
        }

        #[test]
        fn strings_survive(text in any::<String>()) {
            let json = serde_json::to_string(&text).unwrap();
            let (value, errors) = read(json.as_bytes());
            if text.contains('\0') {
                prop_assert_eq!(errors.len(), 1);
            } else {
                prop_assert_eq!((value, errors), (Ok(Value::String(text)), vec![]));
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = read(&bytes);
        }
    }
}
