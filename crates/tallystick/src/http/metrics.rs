//! `GET /metrics`: the process's metrics in Prometheus' text form, and figures that live in the database.

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use tallystick_payments::Engine;
use tallystick_payments::gauges::Gauges;

use super::AppState;

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/metrics", get(metrics))
}

/// Metrics for Prometheus. When the database is away its figures are left as they were last and
/// `tallystick_database_up` is 0.
#[utoipa::path(
    get,
    operation_id = "get_metrics",
    path = "/metrics",
    tag = "operation",
    responses((status = 200, description = "Prometheus' text form", body = String, content_type = "text/plain")),
    security(())
)]
pub(super) async fn metrics(
    State(engine): State<Engine>,
    State(handle): State<PrometheusHandle>,
) -> Response {
    let up = match engine.gauges().await {
        Ok(gauges) => {
            set(&gauges);
            1.0
        }
        Err(error) => {
            tracing::warn!(error = tallystick_runner::looper::chain(&error), "figures could not be read");
            0.0
        }
    };
    ::metrics::gauge!("tallystick_database_up").set(up);
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], handle.render()).into_response()
}

fn set(gauges: &Gauges) {
    let Gauges {
        unknown_count,
        unknown_oldest_seconds,
        open_operations,
        due_oldest_seconds,
        inbound_open,
        breaks_open,
        partition_days_left,
        horizon_age_seconds,
    } = *gauges;
    for (name, value) in [
        ("tallystick_unknown_payments", unknown_count),
        ("tallystick_unknown_oldest_seconds", unknown_oldest_seconds),
        ("tallystick_open_operations", open_operations),
        ("tallystick_due_oldest_seconds", due_oldest_seconds),
        ("tallystick_inbound_open", inbound_open),
        ("tallystick_breaks_open", breaks_open),
        ("tallystick_partition_days_left", partition_days_left),
        ("tallystick_horizon_age_seconds", horizon_age_seconds),
    ] {
        // Counts and seconds stay far below the integers that a float holds exactly.
        ::metrics::gauge!(name).set(value as f64);
    }
}
