//! Amounts and currencies: integers in minor units beside an ISO 4217 code, and nothing else.
//!
//! No input or output, no database, no floating point. An amount that enters the product is parsed here
//! (see [`parse_major`]), an amount that leaves it is written here (see [`format_major`]), so the two
//! directions cannot disagree about a currency's digits.

mod amount;
mod currency;

pub use amount::{AmountError, MAX_MINOR, Money, format_major, parse_major};
pub use currency::{Currency, CurrencyError};
