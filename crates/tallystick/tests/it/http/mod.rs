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
mod secrets;
mod text;

use serde_json::{Value, json};

/// A request for a payment that the gateway approves.
fn order(amount_minor: i64) -> Value {
    json!({"amount_minor": amount_minor, "currency": "EUR", "payment_method": "approve"})
}

/// `base` with other or further members.
fn with(mut base: Value, more: Value) -> Value {
    let (Value::Object(base_members), Value::Object(more)) = (&mut base, more) else { panic!("two objects") };
    base_members.extend(more);
    base
}
