//! Tells code, comments and strings of a Rust file apart, and finds what is compiled for tests only.
//!
//! Views have the length of the text: what does not belong to a view is blank, so an offset means the same place in
//! all of them.

use std::ops::Range;

/// A Rust file, taken apart.
pub struct Lexed {
    code: String,
    comments: String,
    strings: Vec<Range<usize>>,
    tests: Vec<Range<usize>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

impl Lexed {
    /// Takes a file apart. Text that is no Rust gives some answer, never a panic.
    pub fn new(text: &str) -> Self {
        let (kinds, strings) = kinds(text.as_bytes());
        let view = |kind| -> String {
            let byte = |(byte, of): (&u8, &Kind)| if *of == kind || *byte == b'\n' { *byte } else { b' ' };
            let bytes = text.as_bytes().iter().zip(&kinds).map(byte).collect();
            // Kinds change at ASCII bytes only, so no character is cut.
            String::from_utf8(bytes).unwrap_or_default()
        };
        let code = view(Kind::Code);
        let tests = tests(&code);
        Self { comments: view(Kind::Comment), code, strings, tests }
    }

    /// The code; comments and literals are blank.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The comments; the rest is blank.
    pub fn comments(&self) -> &str {
        &self.comments
    }

    /// Where the insides of string literals are.
    pub fn strings(&self) -> &[Range<usize>] {
        &self.strings
    }

    /// Whether a place is compiled for tests only.
    pub fn in_tests(&self, offset: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&offset))
    }

    /// What is compiled for tests only.
    pub fn tests(&self) -> &[Range<usize>] {
        &self.tests
    }
}

fn kinds(text: &[u8]) -> (Vec<Kind>, Vec<Range<usize>>) {
    let mut kinds = vec![Kind::Code; text.len()];
    let mut strings = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let (kind, end) = if rest.starts_with(b"//") {
            (Kind::Comment, at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()))
        } else if rest.starts_with(b"/*") {
            (Kind::Comment, at + block_comment(rest))
        } else if let Some((inner, length)) = string(text, at) {
            strings.push(at + inner.start..at + inner.end);
            (Kind::Literal, at + length)
        } else if let Some(length) = character(rest) {
            (Kind::Literal, at + length)
        } else {
            at += 1;
            continue;
        };
        kinds[at..end].fill(kind);
        at = end;
    }
    (kinds, strings)
}

/// Length of a block comment; they nest.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_u32, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    rest.len()
}

/// The inside (relative) and length of a string literal that begins here: `"`, `b"`, `c"`, `r"`, `r#"` and so on.
fn string(text: &[u8], at: usize) -> Option<(Range<usize>, usize)> {
    let rest = &text[at..];
    if at > 0 && is_identifier(text[at - 1]) {
        return None;
    }
    let prefix = rest.iter().take_while(|b| b"bcr".contains(b)).take(2).count();
    let raw = rest[..prefix].contains(&b'r');
    let hashes = if raw { rest[prefix..].iter().take_while(|b| **b == b'#').count() } else { 0 };
    let start = prefix + hashes + 1;
    if rest.get(start - 1) != Some(&b'"') {
        return None;
    }
    let mut end = start;
    while end < rest.len() {
        match rest[end] {
            b'\\' if !raw => end += 1,
            b'"' if rest[end + 1..].iter().take_while(|b| **b == b'#').take(hashes).count() == hashes => {
                return Some((start..end, end + 1 + hashes));
            }
            _ => {}
        }
        end += 1;
    }
    Some((start..rest.len(), rest.len()))
}

/// Length of a character literal that begins here; a lifetime is none.
fn character(rest: &[u8]) -> Option<usize> {
    match rest {
        [b'\'', b'\\', tail @ ..] => tail.iter().skip(1).position(|b| *b == b'\'').map(|end| end + 4),
        [b'\'', first, tail @ ..] if *first != b'\'' => {
            let more = tail.iter().take_while(|b| **b & 0b1100_0000 == 0b1000_0000).count();
            (tail.get(more) == Some(&b'\'')).then_some(more + 3)
        }
        _ => None,
    }
}

/// Items under `#[cfg(test)]`, from the attribute to their end.
fn tests(code: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for attribute in ["#[cfg(test)]", "#[cfg(all(test", "#[cfg(any(test"] {
        for (start, _) in code.match_indices(attribute) {
            found.push(start..item_end(code.as_bytes(), start));
        }
    }
    found
}

/// End of the item that follows an attribute: its `;`, or the end of its braces.
fn item_end(code: &[u8], start: usize) -> usize {
    let (mut round, mut braces) = (0_i32, 0_i32);
    for (offset, byte) in code[start..].iter().enumerate() {
        match byte {
            b'(' | b'[' => round += 1,
            b')' | b']' => round -= 1,
            b'{' => braces += 1,
            b'}' if braces == 1 && round == 0 => return start + offset + 1,
            b'}' => braces -= 1,
            b';' if braces == 0 && round == 0 => return start + offset + 1,
            _ => {}
        }
    }
    code.len()
}

/// Whether a byte can be part of an identifier.
pub fn is_identifier(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Places where a word stands by itself.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let end = at + word.len();
        (*at == 0 || !is_identifier(bytes[at - 1])) && bytes.get(end).is_none_or(|byte| !is_identifier(*byte))
    })
}

/// The identifier that begins here; empty when none does.
pub fn identifier(text: &str, at: usize) -> &str {
    let rest = text.get(at..).unwrap_or_default();
    let end = rest.bytes().position(|byte| !is_identifier(byte)).unwrap_or(rest.len());
    &rest[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(text: &str) -> Vec<&str> {
        Lexed::new(text).strings().iter().map(|range| &text[range.clone()]).collect()
    }

    #[test]
    fn strings_of_every_kind_are_found() {
        let text = r##"let a = ("x\"y", b"bytes", r"raw\", r#"a "quoted" one"#, c"c", "");"##;
        assert_eq!(strings(text), [r#"x\"y"#, "bytes", r"raw\", r#"a "quoted" one"#, "c", ""]);
    }

    #[test]
    fn views_keep_offsets_and_hide_the_rest() {
        let text = "let ä = 'x'; // todo ä \"no string\"\nlet s = \"// no comment\"; /* a /* b */ c */ let e = '\\'';";
        let lexed = Lexed::new(text);
        assert_eq!(lexed.code().len(), text.len());
        assert!(!lexed.code().contains("comment") && !lexed.code().contains("todo"));
        assert!(lexed.code().contains("let e =") && !lexed.code().contains(" c "));
        assert!(lexed.comments().contains("no string") && !lexed.comments().contains("no comment"));
        assert_eq!(strings(text), ["// no comment"]);
        assert_eq!(text.find("let s"), lexed.code().find("let s"));
    }

    #[test]
    fn lifetimes_are_no_characters() {
        let text = "fn a<'a>(x: &'a str) -> &'a str { \"s\" } const Q: [char; 3] = ['\"', '\\n', 'é'];";
        assert_eq!(strings(text), ["s"]);
        assert!(Lexed::new(text).code().contains("<'a>(x: &'a str)"));
    }

    #[test]
    fn what_is_compiled_for_tests_only() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests;\nfn b() {}\n#[cfg(test)]\nmod inner {\n  fn c() { if x {} }\n}\nfn d() {}\n";
        let lexed = Lexed::new(text);
        let inside = |name: &str| lexed.in_tests(text.find(name).unwrap());
        assert!(inside("mod tests") && inside("fn c"));
        assert!(!inside("fn a") && !inside("fn b") && !inside("fn d"));
    }

    #[test]
    fn words_stand_alone() {
        let text = "word words sword word_ (word)";
        assert_eq!(words(text, "word").collect::<Vec<_>>(), [0, 24]);
        assert_eq!(identifier("ab_1.c", 0), "ab_1");
        assert_eq!(identifier(".c", 0), "");
    }

    #[test]
    fn text_that_is_no_rust_does_no_harm() {
        for text in ["\"open", "/* open", "'", "'\\", "r#\"open", "#[cfg(test)]", "b", "r#", "\u{1F600}'"] {
            assert_eq!(Lexed::new(text).code().len(), text.len(), "{text:?}");
        }
    }
}
