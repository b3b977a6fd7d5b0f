//! Amounts in minor units, and their decimal form in major units.

use crate::Currency;

/// The largest amount of one payment or entry, in minor units: 10^15.
pub const MAX_MINOR: i64 = 1_000_000_000_000_000;

/// The longest decimal text that is looked at; more digits than any allowed amount has.
const MAX_TEXT: usize = 32;

/// An amount in minor units together with its currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Money {
    /// Minor units (cents of EUR, whole yen of JPY).
    pub minor: i64,
    /// The currency that the minor units are of.
    pub currency: Currency,
}

/// Why a text or number is no amount. `rule` is the stable name shown to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Not plain digits with at most one decimal point between digits.
    #[error("must be a decimal in plain digits such as \"12.50\": no sign, exponent, space or separator")]
    Format,
    /// More decimals than the currency has.
    #[error("has more decimals than the currency has")]
    MaxDecimals,
    /// Outside 1 to 10^15 minor units.
    #[error("must be between 1 and 1000000000000000 minor units")]
    Range,
}

impl AmountError {
    /// The rule's stable name in problem bodies.
    #[must_use]
    pub fn rule(self) -> &'static str {
        match self {
            Self::Format => "decimal",
            Self::MaxDecimals => "max_decimals",
            Self::Range => "range",
        }
    }
}

impl Money {
    /// An amount inside the allowed range of 1 to 10^15 minor units.
    ///
    /// # Errors
    /// [`AmountError::Range`] outside of it.
    pub fn new(minor: i64, currency: Currency) -> Result<Self, AmountError> {
        if (1..=MAX_MINOR).contains(&minor) { Ok(Self { minor, currency }) } else { Err(AmountError::Range) }
    }

    /// The decimal form in major units, with exactly the currency's digits.
    #[must_use]
    pub fn major(self) -> String {
        format_major(self.minor, self.currency)
    }
}

/// Reads a decimal text in major units ("12.50") into minor units.
///
/// Fewer decimals than the currency has are fine ("7.5" EUR is 750); more are refused, never rounded.
///
/// # Errors
/// [`AmountError`] names the rule that the text breaks.
pub fn parse_major(text: &str, currency: Currency) -> Result<i64, AmountError> {
    if text.len() > MAX_TEXT {
        // A long run of digits is a number that is too large; anything else is no number at all.
        let digits = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        return Err(if digits { AmountError::Range } else { AmountError::Format });
    }
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        Some(_) => return Err(AmountError::Format),
        None => (text, ""),
    };
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return Err(AmountError::Format);
    }
    let exponent = currency.exponent() as usize;
    if fraction.len() > exponent {
        return Err(AmountError::MaxDecimals);
    }
    let mut minor: i64 = 0;
    let zeros = std::iter::repeat_n(b'0', exponent - fraction.len());
    for digit in whole.bytes().chain(fraction.bytes()).chain(zeros) {
        minor = minor
            .checked_mul(10)
            .and_then(|m| m.checked_add(i64::from(digit - b'0')))
            .ok_or(AmountError::Range)?;
    }
    Money::new(minor, currency).map(|money| money.minor)
}

/// Writes minor units as a decimal in major units, with exactly the currency's digits ("100.00", "450000", "-1.250").
#[must_use]
pub fn format_major(minor: i64, currency: Currency) -> String {
    let exponent = currency.exponent() as usize;
    let sign = if minor < 0 { "-" } else { "" };
    let digits = format!("{:0width$}", minor.unsigned_abs(), width = exponent + 1);
    let (whole, fraction) = digits.split_at(digits.len() - exponent);
    if exponent == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn currency(code: &str) -> Currency {
        code.parse().unwrap()
    }

    #[test]
    fn reads_plain_decimals() {
        let good = [
            ("10.00", "EUR", 1000),
            ("10", "VND", 10),
            ("1.234", "KWD", 1234),
            ("0.01", "USD", 1),
            ("7.5", "EUR", 750),
        ];
        for (text, code, minor) in good {
            assert_eq!(parse_major(text, currency(code)), Ok(minor), "{text} {code}");
        }
        assert_eq!(parse_major("00010.00", currency("EUR")), Ok(1000));
        assert_eq!(parse_major("10000000000000.00", currency("EUR")), Ok(MAX_MINOR));
    }

    /// C073, C078, C081: strange spellings are refused, never understood by chance.
    #[test]
    fn c078_refuses_strange_decimals() {
        let strange = [
            "",
            " ",
            "-1",
            "+1",
            "1e3",
            "0E+1",
            "NaN",
            " 1",
            "1 ",
            "1_000",
            "1,5",
            "٣",
            "１００",
            "0x10",
            "Infinity",
            "1.",
            ".5",
            "--1",
            "1.2.3",
            "-0",
            "-0.00",
            "10abc",
            "1\u{0}",
        ];
        for text in strange {
            assert_eq!(parse_major(text, currency("EUR")), Err(AmountError::Format), "{text:?}");
        }
    }

    /// C079, C081, C082, C074.
    #[test]
    fn c082_names_the_rule() {
        assert_eq!(parse_major("1.005", currency("USD")), Err(AmountError::MaxDecimals));
        assert_eq!(parse_major("1.5", currency("VND")), Err(AmountError::MaxDecimals));
        assert_eq!(parse_major("1.0", currency("JPY")), Err(AmountError::MaxDecimals));
        assert_eq!(parse_major("1.2345", currency("KWD")), Err(AmountError::MaxDecimals));
        assert_eq!(parse_major("0", currency("EUR")), Err(AmountError::Range));
        assert_eq!(parse_major("0.00", currency("EUR")), Err(AmountError::Range));
        assert_eq!(parse_major("10000000000000.01", currency("EUR")), Err(AmountError::Range));
        assert_eq!(parse_major("92233720368547758.08", currency("EUR")), Err(AmountError::Range));
        assert_eq!(parse_major(&"9".repeat(400), currency("EUR")), Err(AmountError::Range));
    }

    /// C073: every price from 0.01 to 100.00 survives exactly.
    #[test]
    fn c073_every_price_survives() {
        for minor in 1..=10_000 {
            let text = format_major(minor, currency("EUR"));
            assert_eq!(parse_major(&text, currency("EUR")), Ok(minor), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(minor in 1..=MAX_MINOR, code in prop::sample::select(vec!["EUR", "JPY", "KWD", "CLF"])) {
            let c = currency(code);
            prop_assert_eq!(parse_major(&format_major(minor, c), c), Ok(minor));
        }

        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = parse_major(&text, currency("EUR"));
        }
    }
}
