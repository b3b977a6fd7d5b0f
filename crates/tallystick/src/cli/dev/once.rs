//! `dev --once`: one payment from request to proof. The smallest check that an installation works.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::client::{Client, PAYMENTS, text};
use super::info::DevInfo;
use crate::cli::{CliError, Exit, verify};

/// Runs one payment to its end and verifies.
///
/// # Errors
/// [`CliError::Broken`] when a step did not do what it must.
pub async fn run(info: &DevInfo, folder: &Path, json: bool) -> Result<Exit, CliError> {
    let client = Client::new(info)?;
    let body = json!({"amount": "100.00", "currency": "EUR", "description": "dev --once", "payment_method": "tok_ok"});
    let key = hex::encode(rand::random::<[u8; 8]>());
    let reply = client.post(PAYMENTS, &key, &body).await?;
    if reply.status != 202 {
        return Err(CliError::Broken(format!(
            "a payment was answered {} instead of 202: {}",
            reply.status, reply.body
        )));
    }
    let id = text(&reply.body, "payment_id").to_owned();
    eprintln!("tallystick dev: payment {id} of 100.00 EUR is {}", text(&reply.body, "status"));
    let payment =
        client.until(PAYMENTS, &id, &["succeeded", "failed", "canceled"], Duration::from_secs(30)).await?;
    eprintln!("tallystick dev: payment {id} is {}", text(&payment, "status"));
    if text(&payment, "status") != "succeeded" {
        return Err(CliError::Broken(format!("the payment must have succeeded: {payment}")));
    }
    verify::run(&verify::Args::of_folder(folder).json(json)).await
}
