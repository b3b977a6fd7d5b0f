use super::*;
use crate::payment::PaymentStatus;

const TENANT: Uuid = Uuid::from_u128(1);
const ID: Uuid = Uuid::from_u128(2);
const ACCOUNT: Uuid = Uuid::from_u128(4);

fn facts(of: Of) -> Facts {
    Facts {
        tenant_id: TENANT,
        id: ID,
        currency: "EUR".into(),
        gateway: "bank".into(),
        gateway_reference: Some("ch".into()),
        of,
    }
}

fn captured(captured_minor: i64) -> Facts {
    facts(Of::Payment { status: PaymentStatus::Succeeded, authorized_minor: captured_minor, captured_minor })
}

fn payout(status: PayoutStatus, failure_code: Option<&str>) -> Facts {
    facts(Of::Payout {
        status,
        account_id: ACCOUNT,
        amount_minor: 700,
        failure_code: failure_code.map(str::to_owned),
    })
}

/// An entry on a system account, or on the customer's.
fn entry(key: Option<&str>, direction: &str, amount_minor: i64) -> EntryDigest {
    EntryDigest {
        account_id: Some(key.map_or(ACCOUNT, |_| Uuid::from_u128(9))),
        system_key: key.map(str::to_owned),
        direction: direction.into(),
        amount_minor,
        currency: "EUR".into(),
    }
}

fn journal(kind: &str, id: u128, status: JournalStatus, entries: [EntryDigest; 2]) -> JournalDigest {
    JournalDigest {
        place: JournalPlace { tenant_id: TENANT, source: ID, kind: kind.into(), ordinal: 0 },
        journal_id: Uuid::from_u128(id),
        entries: entries.into(),
        status: Some(status),
    }
}

fn capture() -> JournalDigest {
    let entries = [entry(Some("bank/gateway_receivable"), "D", 700), entry(Some("bank/sales"), "C", 700)];
    journal("payment_captured", 3, Settled, entries)
}

fn out() -> [EntryDigest; 2] {
    [entry(None, "D", 700), entry(Some("bank/payout_bank"), "C", 700)]
}

fn back() -> [EntryDigest; 2] {
    [entry(Some("bank/payout_bank"), "D", 700), entry(None, "C", 700)]
}

fn debit(status: JournalStatus) -> JournalDigest {
    journal("payout_debited", 2, status, out())
}

fn reversal(status: JournalStatus) -> JournalDigest {
    journal("payout_reversed", 5, status, back())
}

fn returned(status: JournalStatus) -> JournalDigest {
    journal("payout_returned", 6, status, back())
}

#[test]
fn a_capture_demands_one_journal_with_its_amount_on_the_accounts_of_its_gateway() {
    let right = capture();
    assert!(agree(&captured(700), std::slice::from_ref(&right)));
    assert!(agree(&captured(0), &[]));
    assert!(!agree(&captured(0), std::slice::from_ref(&right)), "nothing was captured");
    assert!(!agree(&captured(700), &[]), "no journal");
    assert!(!agree(&captured(700), &[right.clone(), right.clone()]), "twice");
    assert!(!agree(&captured(701), std::slice::from_ref(&right)), "another amount");
    for status in [Some(Pending), Some(Failed), None] {
        assert!(!agree(&captured(700), &[JournalDigest { status, ..right.clone() }]), "{status:?}");
    }
    let mut other_account = right.clone();
    other_account.entries[1].system_key = Some("shop/sales".into());
    assert!(!agree(&captured(700), &[other_account]));
    let other_kind = JournalPlace { kind: "payment_refunded".into(), ..right.place.clone() };
    assert!(!agree(&captured(700), &[JournalDigest { place: other_kind, ..right }]));
}

#[test]
fn each_status_of_a_payout_demands_its_journals_and_takes_no_others() {
    use PayoutStatus::{Canceled, Processing, RequiresApproval, Returned, Succeeded, Unknown};
    // Everything that could stand, by name.
    let books: [(&str, Vec<JournalDigest>); 9] = [
        ("none", vec![]),
        ("pending", vec![debit(Pending)]),
        ("settled", vec![debit(Settled)]),
        ("undone", vec![debit(Failed), reversal(Failed)]),
        ("returned", vec![debit(Settled), returned(Settled)]),
        ("half undone", vec![debit(Failed)]),
        ("undone but for the reversal's status", vec![debit(Failed), reversal(Settled)]),
        ("returned before it was settled", vec![debit(Pending), returned(Settled)]),
        ("undone and returned", vec![debit(Failed), reversal(Failed), returned(Settled)]),
    ];
    let cases: [(PayoutStatus, Option<&str>, &[&str]); 9] = [
        (RequiresApproval, None, &["none"]),
        (PayoutStatus::Pending, None, &["none", "pending"]),
        (Processing, None, &["pending"]),
        (Unknown, None, &["pending"]),
        (Succeeded, None, &["settled"]),
        (PayoutStatus::Failed, Some("account_closed"), &["undone"]),
        (PayoutStatus::Failed, Some("insufficient_funds"), &["none", "undone"]),
        (Canceled, None, &["none", "undone"]),
        (Returned, Some("account_closed"), &["returned"]),
    ];
    for (status, code, allowed) in cases {
        for (name, book) in &books {
            let agreed = agree(&payout(status, code), book);
            assert_eq!(agreed, allowed.contains(name), "{status:?} {code:?} with {name}");
        }
    }
}

#[test]
fn a_debit_is_of_the_payouts_own_id_account_amount_currency_and_bank() {
    let sent = payout(PayoutStatus::Succeeded, None);
    assert!(agree(&sent, &[debit(Settled)]));
    let changes: [fn(&mut JournalDigest); 10] = [
        |j| j.journal_id = Uuid::from_u128(3),
        |j| j.place.kind = "payout_returned".into(),
        |j| j.entries[0].account_id = Some(Uuid::from_u128(8)),
        |j| j.entries[0].account_id = None,
        |j| j.entries[1].system_key = Some("shop/payout_bank".into()),
        |j| j.entries[1].system_key = None,
        |j| j.entries[0].amount_minor = 699,
        |j| j.entries[0].currency = "USD".into(),
        |j| j.entries.push(entry(None, "D", 700)),
        |j| {
            j.entries[0].direction = "C".into();
            j.entries[1].direction = "D".into();
        },
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut other = debit(Settled);
        change(&mut other);
        assert!(!agree(&sent, &[other]), "change {number}");
    }
    // An account that a program made is a customer's account to a payout, too.
    let mut of_sales = debit(Settled);
    of_sales.entries[0].system_key = Some("bank/sales".into());
    assert!(agree(&sent, &[of_sales]));
}

#[test]
fn journals_of_one_kind_say_nothing_about_operations_of_the_other() {
    assert!(!agree(&payout(PayoutStatus::Succeeded, None), &[capture()]));
    assert!(!agree(&payout(PayoutStatus::Succeeded, None), &[debit(Settled), capture()]));
    assert!(!agree(&captured(700), &[debit(Settled)]));
}
