//! ISO 4217 currencies that money can be moved in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A currency with a number of digits fixed by ISO 4217.
///
/// Codes that name no money one can pay with (`XXX`, `XTS`, precious metals, bond units) have no minor
/// unit in ISO 4217 and are refused by [`FromStr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Currency(iso_currency::Currency);

/// Why a text is no currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an ISO 4217 code in capital letters, such as EUR, of a currency with minor units")]
pub struct CurrencyError;

impl Currency {
    /// The three capital letters.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.0.code()
    }

    /// Digits behind the decimal point: 2 for EUR, 0 for VND, 3 for KWD.
    #[must_use]
    pub fn exponent(self) -> u32 {
        u32::from(self.0.exponent().expect("currencies without an exponent are refused when parsed"))
    }
}

impl FromStr for Currency {
    type Err = CurrencyError;

    fn from_str(text: &str) -> Result<Self, CurrencyError> {
        let found = iso_currency::Currency::from_code(text).ok_or(CurrencyError)?;
        // `from_code` may tolerate other spellings; the wire form is the exact code only.
        if found.code() != text || found.exponent().is_none() {
            return Err(CurrencyError);
        }
        Ok(Self(found))
    }
}

impl PartialOrd for Currency {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Currency {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.code().cmp(other.code())
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl Serialize for Currency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

impl<'de> Deserialize<'de> for Currency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_digits_of_iso_4217() {
        for (code, digits) in
            [("EUR", 2), ("USD", 2), ("VND", 0), ("JPY", 0), ("KWD", 3), ("BHD", 3), ("CLP", 0)]
        {
            assert_eq!(code.parse::<Currency>().unwrap().exponent(), digits, "{code}");
        }
    }

    #[test]
    fn refuses_what_is_no_money() {
        for code in
            ["XXX", "XTS", "XAU", "ZZZ", "eur", "Eur", "EU", "EURO", "", " EUR", "EUR ", "US\0", "978", "BTC"]
        {
            assert_eq!(code.parse::<Currency>(), Err(CurrencyError), "{code:?}");
        }
    }
}
