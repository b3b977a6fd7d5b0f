//! The API from the outside. Where a test pins a public case, its name begins with the case's number.

mod auth;
mod documents;
mod events;
mod hooks;
mod idempotency;
mod ledger;
mod limits;
mod money;
mod operation;
mod payments;
mod payouts;
mod secrets;
mod text;

use serde_json::{Value, json};

use crate::support::client::Reply;

/// A request for a payment that the gateway approves.
fn order(amount_minor: i64) -> Value {
    json!({"amount_minor": amount_minor, "currency": "EUR", "payment_method": "approve"})
}

/// A request for a payout that the bank pays.
fn payout(account: &str, amount_minor: i64) -> Value {
    json!({"account_id": account, "destination": "approve", "amount_minor": amount_minor, "currency": "EUR"})
}

/// What a problem says, without the request's id.
fn said(reply: &Reply) -> Value {
    with(reply.json(), json!({"request_id": null}))
}

/// `base` with other or further members.
fn with(mut base: Value, more: Value) -> Value {
    let (Value::Object(base_members), Value::Object(more)) = (&mut base, more) else { panic!("two objects") };
    base_members.extend(more);
    base
}
