//! Every setting: its variable, its place in the file, its meaning. The reference is made from this list.

use std::fmt::Write as _;
use std::time::Duration;

use super::Config;

/// What a variable's text is turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As it is.
    Text,
    /// As it is, and never shown.
    Secret,
    /// `200ms`, `5s`, `30m`.
    Duration,
    /// A whole number.
    Number,
    /// Words separated by commas.
    List,
    /// JSON.
    Json,
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// The variable, without its prefix.
    pub name: &'static str,
    /// The key in the file.
    pub path: &'static str,
    /// What its text means.
    pub kind: Kind,
    /// Its default as text, from the defaults themselves.
    pub default: fn(&Config) -> String,
    /// What it does.
    pub doc: &'static str,
}

/// Variables with the prefix that are no settings: the file's name, tests, and what `dev` marks its processes with.
pub const TOLERATED: &[&str] = &["CONFIG", "FAILPOINT", "DEV_FOLDER"];
/// Variables that begin with this are for tests.
pub const TOLERATED_PREFIX: &str = "TEST_";

fn time(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// The settings, in the order of the reference.
pub const ALL: &[Setting] = &[
    Setting {
        name: "DATABASE_URL",
        path: "database.url",
        kind: Kind::Secret,
        default: |_| "required".into(),
        doc: "`postgres://user@host:port/database`, as the application role `tallystick_app`. A socket: `postgres://user@localhost/database?host=/run/postgresql`.",
    },
    Setting {
        name: "DB_CONNECTIONS",
        path: "database.connections",
        kind: Kind::Number,
        default: |c| c.database.connections.to_string(),
        doc: "Most database connections of this process.",
    },
    Setting {
        name: "LISTEN",
        path: "http.listen",
        kind: Kind::Text,
        default: |c| c.http.listen.to_string(),
        doc: "Address and port of the API. Other than the default it is reachable from outside: put TLS in front.",
    },
    Setting {
        name: "MAX_REQUESTS",
        path: "http.max_requests",
        kind: Kind::Number,
        default: |c| c.http.max_requests.to_string(),
        doc: "Requests at once; more are answered 503 `overloaded`.",
    },
    Setting {
        name: "REQUEST_TIMEOUT",
        path: "http.request_timeout",
        kind: Kind::Duration,
        default: |c| time(c.http.request_timeout),
        doc: "Longest time of one request; after it 503 `unavailable`. Below 31 s it cuts `Prefer: wait=30` short.",
    },
    Setting {
        name: "REQUESTS_PER_SECOND",
        path: "http.requests_per_second",
        kind: Kind::Number,
        default: |c| c.http.requests_per_second.to_string(),
        doc: "Requests per second of one API key; more are answered 429 `rate_limited`. 0 switches it off.",
    },
    Setting {
        name: "GATEWAYS",
        path: "gateways.accounts",
        kind: Kind::Json,
        default: |_| "none".into(),
        doc: "The gateway accounts: an array (in the file `[[gateways.accounts]]`) of objects with `name`, `adapter`, `base_url`, `secret`, `webhook_secrets`, `key_retention_seconds`, `re_executes`, `webhook_tolerance_seconds`.",
    },
    Setting {
        name: "GATEWAYS_FILE",
        path: "gateways.file",
        kind: Kind::Text,
        default: |_| "none".into(),
        doc: "A JSON file with the same array, so that no secret stands in the environment.",
    },
    Setting {
        name: "DEFAULT_GATEWAY",
        path: "gateways.default",
        kind: Kind::Text,
        default: |c| c.gateways.default.clone(),
        doc: "Account of a payment that names none. It must be one of the accounts.",
    },
    Setting {
        name: "DEFAULT_PAYMENT_METHOD",
        path: "gateways.default_payment_method",
        kind: Kind::Text,
        default: |_| "none".into(),
        doc: "`payment_method` of a payment that names none; without it the field is required.",
    },
    Setting {
        name: "GATEWAY_TIMEOUT",
        path: "gateways.timeout",
        kind: Kind::Duration,
        default: |c| time(c.gateways.timeout),
        doc: "Deadline of one call to a gateway: connection, request and answer together.",
    },
    Setting {
        name: "MAX_IN_FLIGHT",
        path: "gateways.max_in_flight",
        kind: Kind::Number,
        default: |c| c.gateways.max_in_flight.to_string(),
        doc: "Gateway calls at once, in this process.",
    },
    Setting {
        name: "KEY_RETENTION_MARGIN",
        path: "gateways.key_retention_margin",
        kind: Kind::Duration,
        default: |c| time(c.gateways.key_retention_margin),
        doc: "Nothing is sent again this long before the gateway forgets its key; from then on it is only asked.",
    },
    Setting {
        name: "LEASE",
        path: "dispatch.lease",
        kind: Kind::Duration,
        default: |c| time(c.dispatch.lease),
        doc: "How long a claim on a piece of work holds. At least twice `GATEWAY_TIMEOUT` and half a second.",
    },
    Setting {
        name: "POLL",
        path: "dispatch.poll",
        kind: Kind::Duration,
        default: |c| time(c.dispatch.poll),
        doc: "Pause between two looks for due work when there is none.",
    },
    Setting {
        name: "BATCH",
        path: "dispatch.batch",
        kind: Kind::Number,
        default: |c| c.dispatch.batch.to_string(),
        doc: "Operations of one claim or record transaction, at most.",
    },
    Setting {
        name: "CREATE_LINGER",
        path: "dispatch.create_linger",
        kind: Kind::Duration,
        default: |c| time(c.dispatch.create_linger),
        doc: "How long a request to create waits for others, to share one commit.",
    },
    Setting {
        name: "RECORD_LINGER",
        path: "dispatch.record_linger",
        kind: Kind::Duration,
        default: |c| time(c.dispatch.record_linger),
        doc: "How long a result waits for others, to share one commit.",
    },
    Setting {
        name: "MAX_QUEUED",
        path: "dispatch.max_queued",
        kind: Kind::Number,
        default: |c| c.dispatch.max_queued.to_string(),
        doc: "Requests waiting to be written at once; more are answered 503 `overloaded`.",
    },
    Setting {
        name: "SWEEP_AFTER",
        path: "sweep.after",
        kind: Kind::Duration,
        default: |c| time(c.sweep.after),
        doc: "When the gateway is first asked about an outcome that is not known; doubled with each try.",
    },
    Setting {
        name: "SWEEP_MAX_BACKOFF",
        path: "sweep.max_backoff",
        kind: Kind::Duration,
        default: |c| time(c.sweep.max_backoff),
        doc: "Longest pause between two questions. They never end by themselves.",
    },
    Setting {
        name: "STATUS_CHECK_AFTER",
        path: "sweep.status_check_after",
        kind: Kind::Duration,
        default: |c| time(c.sweep.status_check_after),
        doc: "When an operation that the gateway acknowledged is asked about, if no news came.",
    },
    Setting {
        name: "WEBHOOK_TOLERANCE",
        path: "webhooks.tolerance",
        kind: Kind::Duration,
        default: |c| time(c.webhooks.tolerance),
        doc: "How old or early the timestamp of a gateway's webhook may be, for accounts that do not say it themselves.",
    },
    Setting {
        name: "WEBHOOK_ALLOW_CIDRS",
        path: "webhooks.allow_cidrs",
        kind: Kind::List,
        default: |_| "none".into(),
        doc: "Networks such as `10.0.0.0/8` that merchants' webhooks may go to although they are not public.",
    },
    Setting {
        name: "SINKS",
        path: "events.sinks",
        kind: Kind::List,
        default: |_| "none".into(),
        doc: "Where events are published, by name: `stdout`. The pull feed is always there.",
    },
    Setting {
        name: "ROLES",
        path: "process.roles",
        kind: Kind::List,
        default: |c| c.process.roles.iter().map(|role| role.name()).collect::<Vec<_>>().join(","),
        doc: "What this process does; `--roles` wins over it.",
    },
    Setting {
        name: "SHUTDOWN_TIMEOUT",
        path: "process.shutdown_timeout",
        kind: Kind::Duration,
        default: |c| time(c.process.shutdown_timeout),
        doc: "How long work in flight may take after the first SIGTERM; after it the process stops at once, with exit code 1.",
    },
    Setting {
        name: "LOG",
        path: "log.filter",
        kind: Kind::Text,
        default: |c| c.log.filter.clone(),
        doc: "Which log lines, for example `info,tallystick_payments=debug`.",
    },
    Setting {
        name: "LOG_FORMAT",
        path: "log.format",
        kind: Kind::Text,
        default: |_| "json".into(),
        doc: "`json`, or `pretty` for people.",
    },
];

/// The setting with this variable name, without prefix.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Setting> {
    ALL.iter().find(|setting| setting.name == name)
}

/// The setting with this key in the file.
#[must_use]
pub fn by_path(path: &str) -> Option<&'static Setting> {
    ALL.iter().find(|setting| setting.path == path)
}

/// The reference as a Markdown table.
#[must_use]
pub fn reference() -> String {
    let defaults = Config::default();
    let mut out =
        String::from("| variable | key in the file | default | meaning |\n| --- | --- | --- | --- |\n");
    for Setting { name, path, default, doc, .. } in ALL {
        let _ = writeln!(
            out,
            "| `{prefix}{name}` | `{path}` | {} | {doc} |",
            default(&defaults),
            prefix = super::PREFIX
        );
    }
    out
}
