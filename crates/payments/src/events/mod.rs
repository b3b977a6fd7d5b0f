//! Public events: the bodies that the feed, sinks and webhooks carry. One per move of a status.

use jiff::Timestamp;
use serde::Serialize;
use tallystick_money::Money;
use tallystick_outbox::NewEvent;
use uuid::Uuid;

use crate::ids::{BreakId, PaymentId, PayoutId, TenantId};
use crate::operation::{OperationId, OperationKind};

/// The members that every body has after its object's id.
#[derive(Serialize)]
struct Facts<'a> {
    status: &'a str,
    amount: String,
    amount_minor: i64,
    currency: &'a str,
    sequence: i32,
    occurred_at: Timestamp,
}

#[derive(Serialize)]
struct Body<'a, Id: Serialize> {
    r#type: &'a str,
    event_id: Uuid,
    #[serde(flatten)]
    id: Id,
    #[serde(flatten)]
    facts: Facts<'a>,
}

/// A move to tell.
pub(crate) struct Told<'a> {
    pub tenant: TenantId,
    pub status: &'a str,
    pub amount: Money,
    pub version: i32,
    pub at: Timestamp,
}

fn event<Id: Serialize>(aggregate: &'static str, object: Uuid, id: Id, told: &Told<'_>) -> NewEvent {
    // The first version is the creation, whatever status it begins with.
    let word = if told.version == 1 { "created" } else { told.status };
    let kind = format!("{aggregate}.{word}");
    let event_id = Uuid::now_v7();
    let body = Body {
        r#type: &kind,
        event_id,
        id,
        facts: Facts {
            status: told.status,
            amount: told.amount.major(),
            amount_minor: told.amount.minor,
            currency: told.amount.currency.code(),
            sequence: told.version,
            occurred_at: told.at,
        },
    };
    let payload = serde_json::to_vec(&body).expect("strings and integers always serialize");
    NewEvent {
        event_id,
        tenant_id: told.tenant.0,
        aggregate,
        aggregate_id: object,
        version: told.version,
        kind,
        payload,
    }
}

#[derive(Serialize)]
struct OfPayment {
    payment_id: PaymentId,
}

/// An event of a payment.
pub(crate) fn of_payment(payment_id: PaymentId, told: &Told<'_>) -> NewEvent {
    event("payment", payment_id.0, OfPayment { payment_id }, told)
}

#[derive(Serialize)]
struct OfPayout {
    payout_id: PayoutId,
}

/// An event of a payout.
pub(crate) fn of_payout(payout_id: PayoutId, told: &Told<'_>) -> NewEvent {
    event("payout", payout_id.0, OfPayout { payout_id }, told)
}

/// An event of the object that an operation is shown as.
pub(crate) fn of_operation(operation: OperationId, told: &Told<'_>) -> NewEvent {
    match operation.kind {
        OperationKind::Charge => of_payment(PaymentId(operation.id), told),
        OperationKind::Payout => of_payout(PayoutId(operation.id), told),
    }
}

#[derive(Serialize)]
struct OfBreak {
    break_id: BreakId,
    payment_id: Option<PaymentId>,
    payout_id: Option<PayoutId>,
}

/// An event of a break about an operation; the amount is the expected one.
pub(crate) fn of_break(break_id: BreakId, about: OperationId, told: &Told<'_>) -> NewEvent {
    let payment_id = (about.kind == OperationKind::Charge).then_some(PaymentId(about.id));
    let payout_id = (about.kind == OperationKind::Payout).then_some(PayoutId(about.id));
    event("break", break_id.0, OfBreak { break_id, payment_id, payout_id }, told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_the_promised_members_in_their_form() {
        let told = Told {
            tenant: TenantId(Uuid::nil()),
            status: "succeeded",
            amount: Money { minor: 9899, currency: "JPY".parse().unwrap() },
            version: 2,
            at: "2026-01-02T03:04:05.6Z".parse().unwrap(),
        };
        let event = of_payment(PaymentId(Uuid::nil()), &told);
        let text = String::from_utf8(event.payload).unwrap();
        let expected = format!(
            r#"{{"type":"payment.succeeded","event_id":"{}","payment_id":"{}","status":"succeeded","amount":"9899","amount_minor":9899,"currency":"JPY","sequence":2,"occurred_at":"2026-01-02T03:04:05.6Z"}}"#,
            event.event_id,
            Uuid::nil()
        );
        assert_eq!((text, event.kind.as_str()), (expected, "payment.succeeded"));
    }
}
