//! The settlement file: one row for each movement of money, in Tallystick's own CSV form.
//!
//! Amounts are decimals with the currency's digits, signed from the merchant's side; gross − fee = net in each row.
//! Holds and their release move nothing and have no row; what was taken back has a second row on its own day.

use std::fmt::Write;

use iso_currency::Currency;

use crate::book::Book;
use crate::clock::{Micros, rfc3339};
use crate::model::{Effect, EffectKind};

const HEADER: &str =
    "row_id,kind,occurred_at,gateway_reference,our_reference,currency,gross,fee,net,note\r\n";

/// The file of a day (`2026-01-31`), or of all days.
#[must_use]
pub fn file(book: &Book, date: Option<&str>) -> String {
    let mut out = HEADER.to_owned();
    for effect in book.effects.iter() {
        let fee = book
            .operation(effect.gateway, &effect.key)
            .and_then(|operation| operation.fee_minor)
            .unwrap_or(0);
        let (kind, sign) = match effect.kind {
            EffectKind::Charge | EffectKind::Capture => ("payment", 1),
            EffectKind::Refund => ("refund", -1),
            EffectKind::Payout => ("payout", -1),
            EffectKind::PayoutReturn => ("payout_return", 1),
            EffectKind::Authorize | EffectKind::Void => continue,
        };
        let fee = if kind == "payment" { fee } else { 0 };
        let gross = effect.amount_minor.saturating_mul(sign);
        row(&mut out, date, effect, ("", kind, ""), effect.at, gross, fee);
        if let Some(at) = effect.undone_at {
            let (kind, note) = match effect.kind {
                EffectKind::Refund => ("refund_reversal", "refund taken back"),
                _ => ("adjustment", "capture taken back"),
            };
            row(&mut out, date, effect, ("_back", kind, note), at, gross.saturating_neg(), 0);
        }
    }
    out
}

fn row(
    out: &mut String,
    date: Option<&str>,
    effect: &Effect,
    (suffix, kind, note): (&str, &str, &str),
    at: Micros,
    gross: i64,
    fee: i64,
) {
    let at = rfc3339(at);
    if date.is_some_and(|date| !at.starts_with(date)) {
        return;
    }
    let net = gross.saturating_sub(fee);
    let digits = Currency::from_code(&effect.currency).and_then(Currency::exponent).unwrap_or(2);
    let [gross, fee, net] = [gross, fee, net].map(|minor| decimal(minor, usize::from(digits)));
    let (reference, currency) = (&effect.reference, &effect.currency);
    let key = field(&effect.key);
    // The name of the row is the effect's own and one per movement: a return has its payout's reference.
    let id = format!("row_{}_{reference}{suffix}", effect.seq);
    writeln!(out, "{id},{kind},{at},{reference},{key},{currency},{gross},{fee},{net},{note}\r")
        .expect("a text takes all that is written");
}

/// A field of a CSV file, quoted where it must be.
fn field(text: &str) -> String {
    match text.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// Minor units as a plain decimal with so many digits.
fn decimal(minor: i64, digits: usize) -> String {
    let sign = if minor < 0 { "-" } else { "" };
    let figures = format!("{:0width$}", minor.unsigned_abs(), width = digits + 1);
    match figures.split_at(figures.len() - digits) {
        (whole, "") => format!("{sign}{whole}"),
        (whole, fraction) => format!("{sign}{whole}.{fraction}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::Change;
    use crate::model::{EffectState, Gateway};

    #[test]
    fn decimals_have_the_currencys_digits() {
        for (minor, digits, text) in
            [(1, 2, "0.01"), (-12345, 2, "-123.45"), (5, 0, "5"), (-1234, 3, "-1.234"), (0, 2, "0.00")]
        {
            assert_eq!(decimal(minor, digits), text);
        }
    }

    #[test]
    fn each_movement_has_one_row_on_its_day() {
        let mut book = Book::default();
        let day = 24 * 3600 * crate::clock::SECOND;
        let effects = [(EffectKind::Authorize, 9), (EffectKind::Charge, 1000), (EffectKind::Refund, 400)];
        for (seq, (kind, amount_minor)) in (1..).zip(effects) {
            let effect = Effect {
                seq,
                at: 0,
                gateway: Gateway::Sandbox,
                kind,
                key: "a,\"b\"".to_owned(),
                reference: format!("r{seq}"),
                amount_minor,
                currency: "JPY".to_owned(),
                state: EffectState::Done,
                undone_at: None,
            };
            book.apply(&Change::Effect(effect));
        }
        book.apply(&Change::Undone { seq: 3, at: day });
        let first = file(&book, Some("1970-01-01"));
        assert!(first.starts_with(HEADER));
        let rows: Vec<_> = first.lines().skip(1).collect();
        assert_eq!(
            rows,
            [
                r#"row_2_r2,payment,1970-01-01T00:00:00.000Z,r2,"a,""b""",JPY,1000,0,1000,"#,
                r#"row_3_r3,refund,1970-01-01T00:00:00.000Z,r3,"a,""b""",JPY,-400,0,-400,"#,
            ]
        );
        let second = file(&book, Some("1970-01-02"));
        assert!(second.contains("row_3_r3_back,refund_reversal"), "{second}");
        assert_eq!(file(&book, None).lines().count(), 4);
    }
}
