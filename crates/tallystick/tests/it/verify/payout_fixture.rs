//! Payouts of every status, for the fixture: most of them made by the engine, the rest as it will make them.

use std::collections::BTreeMap;

use tallystick_ledger::{AccountKind, JournalStatus};
use tallystick_money::Money;
use tallystick_payments::ids::TenantId;
use tallystick_payments::payout::{CreatePayout, PayoutStatus};
use tallystick_runner::Shutdown;
use uuid::Uuid;

use super::fixture::{AMOUNT, Running};
use super::plant::moved;
use crate::support::until;

/// What the account has that payouts are debited from: enough for all but the largest.
const FUNDS: i64 = 1_000_000;

/// A request to send [`AMOUNT`]; the bank does what the destination says.
pub fn wanted(account_id: Uuid, destination: &str) -> CreatePayout {
    CreatePayout {
        account_id,
        destination: destination.into(),
        amount: Money { minor: AMOUNT, currency: "EUR".parse().unwrap() },
        reference: None,
        description: None,
        metadata: None,
        gateway: None,
        webhook_url: None,
    }
}

/// A webhook about a payout.
pub fn told(kind: &str, id: Uuid, amount_minor: i64) -> String {
    format!(
        r#"{{"type":"{kind}","key":"{id}","reference":"ref-{id}","amount_minor":{amount_minor},"currency":"EUR"}}"#
    )
}

/// An account with [`FUNDS`] to send, and what it was funded from.
pub async fn funded(running: &Running, tenant: TenantId, name: &str) -> Uuid {
    let wages = running.open(tenant, name, AccountKind::Liability, Some(0)).await;
    let source = running.open(tenant, &format!("{name} from"), AccountKind::Equity, None).await;
    running.post(tenant, &format!("{name} funded"), source, wages, FUNDS).await;
    wages
}

/// Payouts that a bank pays, refuses, loses, leaves open and sends back.
pub async fn payouts(running: &Running, ids: &mut BTreeMap<&'static str, Uuid>) {
    use PayoutStatus::{Failed, Pending, Processing, Succeeded, Unknown};
    let (ours, other) = (TenantId(ids["tenant"]), TenantId(ids["other tenant"]));
    let wages = funded(running, ours, "wages").await;
    let theirs = funded(running, other, "their wages").await;
    ids.insert("wages", wages);
    let plain = |destination: &str| wanted(wages, destination);
    // The first reference is also an order's name: that is something else.
    let of = |reference: &str, destination: &str| CreatePayout {
        reference: Some(reference.into()),
        ..plain(destination)
    };
    let all = [
        ("sent", of("first", "approve"), Succeeded),
        ("refused", of("april", "decline"), Failed),
        ("resent", of("april", "approve"), Succeeded),
        ("lost payout", plain("lose"), Succeeded),
        ("back", of("may", "approve"), Succeeded),
        ("banked", of("june", "accept"), Processing),
        ("gone", plain("vanish"), Unknown),
        ("waiting", plain("unreachable"), Pending),
        ("stopped", plain("decline"), Failed),
        ("late payout", plain("decline"), Failed),
        ("odd payout", plain("accept"), Processing),
    ];
    for (name, wanted, status) in all {
        ids.insert(name, running.send(ours, wanted, status).await);
    }
    let amount = Money { minor: FUNDS + 1, currency: "EUR".parse().unwrap() };
    let short = CreatePayout { amount, ..plain("approve") };
    ids.insert("short", running.send(ours, short, Failed).await);
    ids.insert("their payout", running.send(other, wanted(theirs, "approve"), Succeeded).await);
    until("what cannot be sent is debited", async || {
        let journals = running.engine.journals_of(ours, ids["waiting"]).await.expect("read");
        journals.iter().any(|journal| journal.status == JournalStatus::Pending).then_some(())
    })
    .await;
    later_words(running, ids).await;
    let after = running.send(ours, of("may", "approve"), Succeeded).await;
    ids.insert("after back", after);
}

/// What the bank says about payouts that it had answered.
async fn later_words(running: &Running, ids: &mut BTreeMap<&'static str, Uuid>) {
    let ours = TenantId(ids["tenant"]);
    let (back, late, odd) = (ids["back"], ids["late payout"], ids["odd payout"]);
    running.gateway.returns(back);
    running.webhook("back", &told("returned", back, AMOUNT)).await;
    running.gateway.pays(late, AMOUNT);
    running.webhook("late payout", &told("settled", late, AMOUNT)).await;
    running.gateway.pays(odd, AMOUNT + 1);
    running.webhook("odd payout", &told("settled", odd, AMOUNT + 1)).await;
    until("it came back", async || {
        (running.payout(ours, back).await.status == PayoutStatus::Returned).then_some(())
    })
    .await;
    for (name, id) in [("late payout break", late), ("odd payout break", odd)] {
        let attention = until("a person is called", async || running.payout(ours, id).await.attention).await;
        ids.insert(name, attention.break_id.0);
    }
    let bank = running.engine.accounts(ours, None, 200).await.expect("read").data;
    let bank = bank.iter().find(|account| account.name == "payout_bank").expect("it was used");
    ids.insert("bank", bank.account_id);
}

/// Payouts that nobody has claimed: the engine takes requests and does nothing about them.
pub async fn unclaimed(running: &Running, ids: &mut BTreeMap<&'static str, Uuid>) {
    let (ours, wages, shutdown) = (TenantId(ids["tenant"]), ids["wages"], Shutdown::new());
    let engine = running.another();
    engine.spawn_api(&shutdown);
    for name in ["fresh", "asked", "dropped"] {
        let wanted = wanted(wages, "approve");
        ids.insert(name, engine.create_payout(ours, name, wanted).await.expect("created").id);
    }
    shutdown.begin();
    shutdown.finished().await;
}

/// SQL that makes of `asked` one that waits for consent, of `dropped` one that was canceled before its claim, and of
/// `stopped` one that was canceled after its debit.
pub fn undecided() -> String {
    let asked = "UPDATE payments.payout SET status = 'requires_approval' WHERE payout_id = '{asked}';
        UPDATE payments.history SET status = 'requires_approval' WHERE object_id = '{asked}';
        UPDATE outbox.event SET payload = convert_to(replace(convert_from(payload, 'UTF8'), 'pending', 'requires_approval'), 'UTF8')
         WHERE aggregate_id = '{asked}';
        DELETE FROM payments.dispatch WHERE operation_id IN ('{asked}', '{dropped}');";
    let dropped = "UPDATE payments.payout SET status = 'canceled', version = 2, processed_at = now() WHERE payout_id = '{dropped}';";
    let stopped = "UPDATE payments.payout SET status = 'canceled', failure_code = NULL, failure_message = NULL WHERE payout_id = '{stopped}';
        UPDATE payments.history SET status = 'canceled' WHERE object_id = '{stopped}' AND version = 2;
        UPDATE outbox.event SET type = 'payout.canceled', payload = convert_to(replace(convert_from(payload, 'UTF8'), 'failed', 'canceled'), 'UTF8')
         WHERE aggregate_id = '{stopped}' AND version = 2;";
    [asked, dropped, &moved("payout", "dropped", 2, "canceled"), stopped].concat()
}
