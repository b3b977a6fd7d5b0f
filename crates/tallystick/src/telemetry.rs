//! Logs to stderr, metrics for `/metrics`.
//!
//! Metrics are recorded where things happen, by name; their meanings are here, in one table, so that the text on
//! `/metrics` and the reference in `docs/operations.md` say the same.

use std::io::IsTerminal as _;
use std::time::Duration;

use metrics::Unit;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tallystick_runner::Shutdown;
use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Upper bounds of the buckets of everything that is measured in seconds.
const BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Upper bounds of the buckets of everything that counts items.
const SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
/// How often samples are moved from their buffers into buckets; without it they pile up until somebody asks.
const UPKEEP: Duration = Duration::from_secs(5);

/// Why logs or metrics cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter cannot be read.
    #[error(
        "TALLYSTICK_LOG: {0:?} is no filter: write for example `info` or `info,tallystick_payments=debug`"
    )]
    Filter(String),
    /// Something else in this process has set it up.
    #[error("logs are set up already")]
    Twice,
    /// The recorder cannot be installed.
    #[error("metrics cannot be set up: {0}")]
    Metrics(#[from] BuildError),
}

/// Sends log lines of this process to stderr.
///
/// # Errors
/// [`TelemetryError`] for a filter that cannot be read, or when it was done before.
pub fn logs(log: &Log) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(&log.filter).map_err(|_| TelemetryError::Filter(log.filter.clone()))?;
    // A log that cannot be written (a full disk) must not take requests down with it.
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    let done = match log.format {
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
        }
        LogFormat::Pretty => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    done.map_err(|_| TelemetryError::Twice)
}

/// Collects metrics in this process; the handle renders them.
///
/// # Errors
/// [`TelemetryError::Metrics`] when a recorder was installed before.
pub fn metrics() -> Result<PrometheusHandle, TelemetryError> {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), BUCKETS)?
        .set_buckets_for_metric(Matcher::Suffix("_size".into()), SIZES)?;
    let handle = builder.install_recorder()?;
    describe();
    Ok(handle)
}

/// Keeps the recorder's buffers small until shutdown begins.
pub fn upkeep(handle: PrometheusHandle, shutdown: &Shutdown) {
    let stop = shutdown.clone();
    shutdown.spawn(async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(UPKEEP) => handle.run_upkeep(),
                () = stop.stopping() => return,
            }
        }
    });
}

/// How a metric is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution, in seconds.
    Seconds,
    /// A distribution of whole numbers.
    Size,
}

impl Shape {
    const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Seconds => "histogram, seconds",
            Self::Size => "histogram",
        }
    }
}

/// Every metric: name, shape, meaning.
pub const METRICS: &[(&str, Shape, &str)] = &[
    ("tallystick_http_requests_total", Shape::Counter, "Requests answered, by method, route and status."),
    ("tallystick_http_request_seconds", Shape::Seconds, "Time from a request's head to its answer."),
    ("tallystick_create_batch_size", Shape::Size, "Creations that shared one commit."),
    ("tallystick_claim_batch_size", Shape::Size, "Operations claimed by one transaction."),
    ("tallystick_record_batch_size", Shape::Size, "Results recorded by one transaction."),
    ("tallystick_calls_in_flight", Shape::Gauge, "Gateway calls of this process that have no answer yet."),
    (
        "tallystick_gateway_call_seconds",
        Shape::Seconds,
        "Time of one gateway call, by account, action and outcome.",
    ),
    (
        "tallystick_calls_dropped_total",
        Shape::Counter,
        "Claims given back because too little of the lease was left for a call.",
    ),
    (
        "tallystick_leases_lost_total",
        Shape::Counter,
        "Results that came after their lease had passed to somebody else; the facts in them were learnt.",
    ),
    ("tallystick_record_retries_total", Shape::Counter, "Record transactions tried again."),
    (
        "tallystick_operations_set_apart_total",
        Shape::Counter,
        "Operations whose result could not be written; a person should look at the log.",
    ),
    (
        "tallystick_payment_moves_total",
        Shape::Counter,
        "Moves of payments, by the status moved to and the evidence.",
    ),
    (
        "tallystick_payout_moves_total",
        Shape::Counter,
        "Moves of payouts, by the status moved to and the evidence.",
    ),
    ("tallystick_breaks_total", Shape::Counter, "Breaks opened by this process, by kind."),
    (
        "tallystick_inbound_events_total",
        Shape::Counter,
        "Webhooks of gateways, by account and what became of them.",
    ),
    ("tallystick_outbox_published_total", Shape::Counter, "Events confirmed by a sink."),
    ("tallystick_loop_items_total", Shape::Counter, "Items handled by a background loop."),
    (
        "tallystick_loop_failures_total",
        Shape::Counter,
        "Steps of a background loop that failed and were tried again.",
    ),
    ("tallystick_db_transaction_seconds", Shape::Seconds, "Time of one named transaction, repeats included."),
    (
        "tallystick_db_transaction_conflicts_total",
        Shape::Counter,
        "Transactions run again after a deadlock or serialization failure.",
    ),
    ("tallystick_database_up", Shape::Gauge, "1 when the figures below could be read, else 0."),
    (
        "tallystick_unknown_payments",
        Shape::Gauge,
        "Payments and payouts whose outcome is not known. Alert on it.",
    ),
    ("tallystick_unknown_oldest_seconds", Shape::Gauge, "Age of the oldest of them. Alert on it."),
    ("tallystick_open_operations", Shape::Gauge, "Operations that are not final."),
    (
        "tallystick_due_oldest_seconds",
        Shape::Gauge,
        "How long the oldest due operation has been due. It grows when too few processes dispatch.",
    ),
    ("tallystick_inbound_open", Shape::Gauge, "Webhooks stored and not applied yet."),
    ("tallystick_breaks_open", Shape::Gauge, "Breaks that wait for a person. Alert on it."),
    (
        "tallystick_partition_days_left",
        Shape::Gauge,
        "Days for which the outbox has partitions. Alert below 3.",
    ),
    (
        "tallystick_horizon_age_seconds",
        Shape::Gauge,
        "Age of the oldest write transaction in the whole cluster; it holds back checkpoints. Alert above 5.",
    ),
];

/// The table of metrics, in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut out = String::from("| metric | kind | meaning |\n| --- | --- | --- |\n");
    for (name, shape, meaning) in METRICS {
        out.push_str(&format!("| `{name}` | {} | {meaning} |\n", shape.word()));
    }
    out
}

fn describe() {
    for (name, shape, meaning) in METRICS {
        match shape {
            Shape::Counter => metrics::describe_counter!(*name, *meaning),
            Shape::Gauge => metrics::describe_gauge!(*name, *meaning),
            Shape::Seconds => metrics::describe_histogram!(*name, Unit::Seconds, *meaning),
            Shape::Size => metrics::describe_histogram!(*name, Unit::Count, *meaning),
        }
    }
}
