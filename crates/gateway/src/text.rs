//! Text of a gateway is hostile input: bounded, without control characters, without what may be a card number.

/// Longest id that is taken from a gateway; a longer one is no id that anybody could look up.
pub const MAX_REFERENCE: usize = 255;
/// Longest code of a decline that is kept.
pub const MAX_CODE: usize = 64;
/// Longest text for people that is kept.
pub const MAX_MESSAGE: usize = 500;
/// This many digits in a row, single spaces and hyphens between them left aside, may be a card number.
const CARD_DIGITS: usize = 13;

/// True when a text can be kept as an id: 1 to [`MAX_REFERENCE`] visible ASCII characters.
#[must_use]
pub fn is_reference(text: &str) -> bool {
    (1..=MAX_REFERENCE).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// True when a text has the form of a currency's code; whether it is the right one is decided elsewhere.
#[must_use]
pub fn is_currency(text: &str) -> bool {
    text.len() == 3 && text.bytes().all(|b| b.is_ascii_alphabetic())
}

/// A text for people, safe to keep and show: at most `most` characters, no control characters, long runs of digits
/// replaced. `None` when nothing is left.
#[must_use]
pub fn words(text: &str, most: usize) -> Option<String> {
    let mut out = String::new();
    let mut run = String::new();
    // Cut only at the end: a cut through a number would leave a part that no longer looks like one.
    for c in text.chars().filter(|c| !c.is_control()).chain(std::iter::once('\0')) {
        let goes_on =
            c.is_ascii_digit() || matches!(c, ' ' | '-') && run.ends_with(|p: char| p.is_ascii_digit());
        if goes_on {
            run.push(c);
            continue;
        }
        let digits = run.bytes().filter(u8::is_ascii_digit).count();
        if digits >= CARD_DIGITS {
            out.push_str("[digits removed]")
        } else {
            out.push_str(&run)
        }
        run.clear();
        if c != '\0' {
            out.push(c);
        }
    }
    let out: String = out.trim().chars().take(most).collect();
    if out.is_empty() { None } else { Some(out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_and_currencies_are_bounded_and_plain() {
        for good in ["ch_1", "a", "x/y:z", &"r".repeat(255)] {
            assert!(is_reference(good), "{good}");
        }
        for bad in ["", "a b", "a\0b", "a\nb", "é", &"r".repeat(256)] {
            assert!(!is_reference(bad), "{bad:?}");
        }
        assert!(is_currency("EUR") && is_currency("usd"));
        assert!(!is_currency("E\0R") && !is_currency("EURO") && !is_currency(""));
    }

    #[test]
    fn words_are_bounded_and_lose_control_characters_and_card_numbers() {
        assert_eq!(words("insufficient funds", 500).as_deref(), Some("insufficient funds"));
        assert_eq!(words("a\0b\nc", 500).as_deref(), Some("abc"));
        assert_eq!(
            words("card 4242 4242-4242 4242 refused", 500).as_deref(),
            Some("card [digits removed]refused")
        );
        assert_eq!(words("code 51, order 123456789012", 500).as_deref(), Some("code 51, order 123456789012"));
        assert_eq!(words(&"x".repeat(10_000), 64).map(|w| w.len()), Some(64));
        assert_eq!(words("\0\u{7}", 64), None);
        let cut = words(&format!("{} 4242424242424242", "x".repeat(50)), 60).unwrap();
        assert!(!cut.contains("4242"), "{cut}");
    }
}
