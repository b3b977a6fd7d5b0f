//! Finds card numbers in text, so that none is ever stored, echoed or logged.
//!
//! A card number is 13 to 19 digits, alone or in groups split by single spaces or hyphens, with the prefix of a card
//! scheme, a length that this scheme issues and a right check digit, and no letter, digit, hyphen or underscore
//! beside it. So a UUID or a hexadecimal key is none.

/// Fewest digits of a card number.
const MIN_DIGITS: usize = 13;
/// Most digits of a card number.
const MAX_DIGITS: usize = 19;

/// Prefixes of one scheme: every number between two bounds of equal length, and the lengths it issues.
struct Scheme {
    from: u32,
    to: u32,
    lengths: &'static [usize],
}

const fn scheme(from: u32, to: u32, lengths: &'static [usize]) -> Scheme {
    Scheme { from, to, lengths }
}

const SIXTEEN: &[usize] = &[16];
const LONG: &[usize] = &[16, 17, 18, 19];
const MAESTRO: &[usize] = &[13, 14, 15, 16, 17, 18, 19];

static SCHEMES: &[Scheme] = &[
    scheme(4, 4, &[13, 16, 19]),               // Visa
    scheme(51, 55, SIXTEEN),                   // Mastercard
    scheme(2221, 2720, SIXTEEN),               // Mastercard
    scheme(34, 34, &[15]),                     // American Express
    scheme(37, 37, &[15]),                     // American Express
    scheme(300, 305, &[14, 16, 17, 18, 19]),   // Diners Club
    scheme(3095, 3095, &[14, 16, 17, 18, 19]), // Diners Club
    scheme(36, 36, &[14, 15, 16, 17, 18, 19]), // Diners Club
    scheme(38, 39, &[14, 16, 17, 18, 19]),     // Diners Club
    scheme(6011, 6011, LONG),                  // Discover
    scheme(644, 649, LONG),                    // Discover
    scheme(65, 65, LONG),                      // Discover, RuPay, Troy, Verve
    scheme(3528, 3589, LONG),                  // JCB
    scheme(62, 62, LONG),                      // UnionPay
    scheme(81, 81, LONG),                      // UnionPay, RuPay
    scheme(82, 82, SIXTEEN),                   // RuPay
    scheme(508, 508, SIXTEEN),                 // RuPay
    scheme(60, 60, SIXTEEN),                   // RuPay
    scheme(2200, 2204, LONG),                  // Mir
    scheme(9792, 9792, SIXTEEN),               // Troy
    scheme(5018, 5018, MAESTRO),
    scheme(5020, 5020, MAESTRO),
    scheme(5038, 5038, MAESTRO),
    scheme(5893, 5893, MAESTRO),
    scheme(6304, 6304, MAESTRO),
    scheme(6759, 6759, MAESTRO),
    scheme(6761, 6763, MAESTRO),
    scheme(5019, 5019, SIXTEEN),             // Dankort
    scheme(506_099, 506_198, &[16, 18, 19]), // Verve
    scheme(606_282, 606_282, &[16, 19]),     // Hipercard
    scheme(636, 636, LONG),                  // InterPayment
    scheme(637, 639, SIXTEEN),               // InstaPayment
    scheme(8600, 8600, SIXTEEN),             // UzCard
    scheme(9860, 9860, SIXTEEN),             // Humo
];

/// Whether `text` has a card number in it.
#[must_use]
pub fn contains(text: &str) -> bool {
    // Nearly every text has too few digits to hold one.
    if text.bytes().filter(u8::is_ascii_digit).count() < MIN_DIGITS {
        return false;
    }
    let mut before = None;
    for (at, c) in text.char_indices() {
        if c.is_ascii_digit() && !before.is_some_and(sticks) && starts_card(&text[at..]) {
            return true;
        }
        before = Some(c);
    }
    false
}

/// Whether a character beside digits makes them part of something else.
fn sticks(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_')
}

/// Whether a card number begins right at the start of `text`, which begins with a digit.
fn starts_card(text: &str) -> bool {
    let mut digits = [0; MAX_DIGITS];
    let mut count = 0;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let (Some(slot), Some(digit)) = (digits.get_mut(count), c.to_digit(10)) else { return false };
        *slot = digit;
        count += 1;
        let next = rest.clone().next();
        if count >= MIN_DIGITS && !next.is_some_and(sticks) && is_card(&digits[..count]) {
            return true;
        }
        // A single separator between two digits goes on with the same number.
        if matches!(next, Some(' ' | '-')) {
            rest.next();
        }
    }
    false
}

fn is_card(digits: &[u32]) -> bool {
    SCHEMES.iter().any(|s| s.lengths.contains(&digits.len()) && has_prefix(s, digits))
        && check_digit_holds(digits)
}

fn has_prefix(scheme: &Scheme, digits: &[u32]) -> bool {
    let length = scheme.from.ilog10() as usize + 1;
    let prefix = digits.iter().take(length).fold(0, |n, d| n * 10 + d);
    (scheme.from..=scheme.to).contains(&prefix)
}

/// Luhn's check.
fn check_digit_holds(digits: &[u32]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| match *digit {
            d if place % 2 == 0 => d,
            d if d > 4 => d * 2 - 9,
            d => d * 2,
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published test numbers of the schemes.
    const NUMBERS: &[&str] = &[
        "4111111111111111",
        "4242424242424242",
        "4222222222222",
        "5555555555554444",
        "5105105105105100",
        "2223003122003222",
        "378282246310005",
        "371449635398431",
        "30569309025904",
        "36227206271667",
        "6011111111111117",
        "6011000990139424",
        "3530111333300000",
        "3566002020360505",
        "6205500000000000004",
        "6759649826438453",
        "6304000000000000",
        "2200000000000004",
    ];

    #[test]
    fn finds_every_schemes_numbers() {
        for number in NUMBERS {
            assert!(contains(number), "{number}");
            for text in [
                format!("card {number}."),
                format!("({number})"),
                format!("pan:{number},exp"),
                format!("\"{number}\""),
                format!("été {number} 12/29"),
                format!("{number} 123"),
                format!("order 7 {number}"),
                format!("x\n{number}\n"),
                format!("{number}.0"),
            ] {
                assert!(contains(&text), "{text}");
            }
        }
    }

    #[test]
    fn finds_groups() {
        for text in [
            "4111 1111 1111 1111",
            "5555-5555-5555-4444",
            "card 5555-5555-5555-4444 exp",
            "3782 822463 10005",
            "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
            "4111 1111-1111 1111",
            "12 4111 1111 1111 1111",
            "4111 1111 1111 1111 12 29 123",
        ] {
            assert!(contains(text), "{text}");
        }
    }

    #[test]
    fn takes_nothing_else_for_a_card() {
        for text in [
            "",
            "4111 1111 1111 1112",
            "4111111111111112",
            "411111111111",
            "00000000-4111-1111-1111-111111111111",
            "a4111111111111111",
            "4111111111111111a",
            "é4111111111111111",
            "_4111111111111111",
            "4111111111111111_",
            "-4111111111111111",
            "4111111111111111-",
            "94111111111111111",
            "4111  1111 1111 1111",
            "4111\n1111\n1111\n1111",
            "4111.1111.1111.1111",
            "tel 0049 170 1234567",
            "0000000000000000",
            "9999999999999995",
            "12345678901234567890123456789012345678901234567890",
            "2026-01-02 03:04:05.123456",
            "0198f2c5-6f3a-7c1e-8000-4111111111111111",
        ] {
            assert!(!contains(text), "{text}");
        }
    }

    #[test]
    fn a_wrong_length_for_the_scheme_is_none() {
        // Right check digits, but Visa issues no 14 digits and American Express no 16.
        for text in ["41111111111115", "3782822463100051"] {
            assert!(!contains(text), "{text}");
        }
    }

    #[test]
    fn many_digits_in_a_row_of_groups_are_no_card() {
        assert!(!contains(&"4 ".repeat(500_000)));
        assert!(!contains(&"4".repeat(1_000_000)));
    }
}
