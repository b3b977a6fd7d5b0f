//! What every handler can reach.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::extract::FromRef;
use metrics_exporter_prometheus::PrometheusHandle;
use tallystick_payments::Engine;

use super::auth::Rates;
use super::limits::Limits;

/// Limits of the HTTP side.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Requests at once in this process; beyond it 503 `overloaded`. Half of them may wait (`Prefer: wait`).
    pub max_requests: usize,
    /// The longest that a request may take, as a whole.
    pub request_timeout: Duration,
    /// Requests per second of one API key; `None`: not limited.
    pub requests_per_second: Option<NonZeroU32>,
    /// Requests of one API key that may come at once on top of an idle second.
    pub burst: NonZeroU32,
}

impl Default for HttpSettings {
    fn default() -> Self {
        const PER_SECOND: NonZeroU32 = NonZeroU32::new(5_000).expect("a constant above zero");
        Self {
            max_requests: 4_096,
            request_timeout: Duration::from_secs(35),
            requests_per_second: Some(PER_SECOND),
            burst: PER_SECOND,
        }
    }
}

/// Shared by all requests. Cheap to clone.
#[derive(Clone)]
pub struct AppState {
    /// The use cases.
    pub engine: Engine,
    /// Renders the process's metrics.
    pub metrics: PrometheusHandle,
    /// Requests at once, and how long one may take.
    pub limits: Limits,
    /// Requests per second and key.
    pub rates: Rates,
}

impl AppState {
    /// State with fresh limits.
    #[must_use]
    pub fn new(engine: Engine, metrics: PrometheusHandle, settings: &HttpSettings) -> Self {
        Self { engine, metrics, limits: Limits::new(settings), rates: Rates::new(settings) }
    }
}

impl FromRef<AppState> for Engine {
    fn from_ref(state: &AppState) -> Self {
        state.engine.clone()
    }
}

impl FromRef<AppState> for Limits {
    fn from_ref(state: &AppState) -> Self {
        state.limits.clone()
    }
}

impl FromRef<AppState> for PrometheusHandle {
    fn from_ref(state: &AppState) -> Self {
        state.metrics.clone()
    }
}
