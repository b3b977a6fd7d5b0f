//! How the sandbox misbehaves during a run.

use anyhow::Result;
use reqwest::Method;
use serde_json::{Value, json};

use super::http::Http;

/// Share of each fault. Submits draw from the first group; a third of them goes wrong in some way. Faults that need
/// a person in the end (another amount, a capture after a decline) are no part of it: here everything must end by
/// itself. Status questions draw from the second group, hard enough that many outcomes take three or more questions.
const RATES: [(&str, f64); 20] = [
    ("lost_reply", 0.05),
    ("error_after", 0.03),
    ("error_before", 0.03),
    ("never_seen", 0.03),
    ("reset", 0.03),
    ("garbage", 0.03),
    ("hidden_then_captured", 0.03),
    ("late", 0.02),
    ("delay", 0.02),
    ("webhook_first", 0.02),
    ("rate_limited", 0.02),
    ("unavailable", 0.02),
    ("decline", 0.02),
    ("status_lost", 0.30),
    ("status_not_found", 0.05),
    ("status_pending", 0.30),
    ("webhook_drop", 0.10),
    ("webhook_dup", 0.10),
    ("webhook_late", 0.10),
    ("webhook_reorder", 0.10),
];

/// The rates, by name.
pub fn rates() -> Value {
    RATES
        .iter()
        .map(|(name, rate)| ((*name).to_owned(), json!(rate)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Begins to misbehave.
///
/// # Errors
/// When the sandbox refuses.
pub async fn set(http: &Http, sandbox: &str, seed: u64) -> Result<()> {
    let settings = json!({"latency": "60ms", "spread": 0.5});
    http.change(Method::PUT, &format!("{sandbox}/_settings"), &settings).await?;
    http.change(Method::POST, &format!("{sandbox}/_mix"), &json!({"seed": seed, "rates": rates()})).await
}

/// Behaves again.
///
/// # Errors
/// When the sandbox refuses.
pub async fn clear(http: &Http, sandbox: &str) -> Result<()> {
    http.change(Method::DELETE, &format!("{sandbox}/_faults"), &json!({})).await?;
    http.change(Method::POST, &format!("{sandbox}/_mix"), &json!({"seed": 0, "rates": {}})).await
}
