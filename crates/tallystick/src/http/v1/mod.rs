//! Version 1 of the API: one file per endpoint.

pub mod accounts;
pub mod breaks;
pub mod events;
pub mod journals;
pub mod payments;
pub mod payouts;
pub mod trial_balance;

use axum::Router;
use axum::routing::{get, post};

use super::AppState;

/// Where things are, for `Location`.
pub(super) const PAYMENTS: &str = "/api/v1/payments";
pub(super) const PAYOUTS: &str = "/api/v1/payouts";
pub(super) const ACCOUNTS: &str = "/api/v1/accounts";
pub(super) const JOURNALS: &str = "/api/v1/journals";

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/api/v1/payments", post(payments::create::create).get(payments::list::list))
        .route("/api/v1/payments/{id}", get(payments::get::get))
        .route("/api/v1/payouts", post(payouts::create::create).get(payouts::list::list))
        .route("/api/v1/payouts/{id}", get(payouts::get::get))
        .route("/api/v1/accounts", post(accounts::open::open).get(accounts::list::list))
        .route("/api/v1/accounts/{id}", get(accounts::get::get))
        .route("/api/v1/accounts/{id}/entries", get(accounts::entries::entries))
        .route("/api/v1/accounts/{id}/balance", get(accounts::balance::balance))
        .route("/api/v1/journals", post(journals::post::post))
        .route("/api/v1/journals/{id}", get(journals::get::get))
        .route("/api/v1/journals/{id}/reverse", post(journals::reverse::reverse))
        .route("/api/v1/trial-balance", get(trial_balance::trial_balance))
        .route("/api/v1/events", get(events::events))
        .route("/api/v1/breaks", get(breaks::list))
}
