//! Settings of the engine, and the relations between them that must hold.

use std::time::Duration;

use tallystick_gateway::Capability;

/// What the engine is told; checked as a whole by [`Settings::check`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// Deadline of one gateway call: connection, request and answer together.
    pub gateway_timeout: Duration,
    /// How long a claim holds; after it another worker may take the row.
    pub lease: Duration,
    /// When an unknown outcome is first asked about, and the base of the back-off.
    pub sweep_after: Duration,
    /// Longest pause between two questions.
    pub sweep_max_backoff: Duration,
    /// When an acknowledged operation without news is asked about.
    pub status_check_after: Duration,
    /// Submits stop this long before the gateway forgets the key.
    pub key_retention_margin: Duration,
    /// Gateway calls at once, in this process.
    pub max_in_flight: usize,
    /// Requests waiting to be written at once; beyond it 503.
    pub max_queued: usize,
    /// `payment_method` of a request that names none.
    pub default_payment_method: Option<String>,
    /// `gateway` of a request that names none.
    pub default_gateway: String,
    /// Operations of one claim or record transaction.
    pub batch: usize,
    /// How long the writer of creations waits for company.
    pub create_linger: Duration,
    /// How long the writer of results waits for company.
    pub record_linger: Duration,
    /// Pause between two looks for due work when idle.
    pub poll: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            gateway_timeout: Duration::from_secs(10),
            lease: Duration::from_secs(30),
            sweep_after: Duration::from_secs(60),
            sweep_max_backoff: Duration::from_secs(600),
            status_check_after: Duration::from_secs(1800),
            key_retention_margin: Duration::from_secs(3600),
            max_in_flight: 512,
            max_queued: 2048,
            default_payment_method: None,
            default_gateway: "sandbox".into(),
            batch: 256,
            create_linger: Duration::from_millis(1),
            record_linger: Duration::from_millis(2),
            poll: Duration::from_millis(50),
        }
    }
}

/// Settings that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub String);

/// What is kept free between the end of a call and the end of its lease, for recording the result.
pub(crate) const LEASE_MARGIN: Duration = Duration::from_millis(500);

/// Longest duration of any setting: thirty days. Sums and multiples of such durations never overflow.
const MAX_DURATION: Duration = Duration::from_secs(30 * 86_400);
const MAX_IN_FLIGHT: usize = 100_000;
const MAX_QUEUED: usize = 1_000_000;
const MAX_BATCH: usize = 10_000;

impl Settings {
    /// Refuses settings under which a guarantee would not hold.
    ///
    /// # Errors
    /// [`SettingsError`] names both settings and their values.
    pub fn check(&self) -> Result<(), SettingsError> {
        let positive = [
            ("gateway_timeout", self.gateway_timeout),
            ("sweep_after", self.sweep_after),
            ("status_check_after", self.status_check_after),
            ("poll", self.poll),
        ];
        for (name, value) in positive {
            if value.is_zero() {
                return Err(SettingsError(format!("{name} must be longer than nothing")));
            }
        }
        let bounded = [
            ("gateway_timeout", self.gateway_timeout),
            ("lease", self.lease),
            ("sweep_after", self.sweep_after),
            ("sweep_max_backoff", self.sweep_max_backoff),
            ("status_check_after", self.status_check_after),
            ("key_retention_margin", self.key_retention_margin),
            ("create_linger", self.create_linger),
            ("record_linger", self.record_linger),
            ("poll", self.poll),
        ];
        for (name, value) in bounded {
            if value > MAX_DURATION {
                return Err(SettingsError(format!(
                    "{name} ({value:?}) must not be longer than {MAX_DURATION:?}"
                )));
            }
        }
        for (name, value, most) in [
            ("max_in_flight", self.max_in_flight, MAX_IN_FLIGHT),
            ("max_queued", self.max_queued, MAX_QUEUED),
            ("batch", self.batch, MAX_BATCH),
        ] {
            if value > most {
                return Err(SettingsError(format!("{name} ({value}) must not be more than {most}")));
            }
        }
        // A call may begin a whole deadline after its claim, and must still end before the lease does.
        if self.gateway_timeout * 2 + LEASE_MARGIN > self.lease {
            return Err(SettingsError(format!(
                "lease ({:?}) must be at least twice gateway_timeout ({:?}) and {LEASE_MARGIN:?}: \
                 a call would outlive its lease",
                self.lease, self.gateway_timeout
            )));
        }
        if self.sweep_max_backoff < self.sweep_after {
            return Err(SettingsError(format!(
                "sweep_max_backoff ({:?}) must not be shorter than sweep_after ({:?})",
                self.sweep_max_backoff, self.sweep_after
            )));
        }
        if self.max_in_flight == 0 || self.batch == 0 || self.max_queued == 0 {
            return Err(SettingsError("max_in_flight, batch and max_queued must be at least 1".into()));
        }
        Ok(())
    }

    /// Refuses a gateway account whose keys would be forgotten before the margin begins.
    pub(crate) fn check_gateway(&self, name: &str, capability: &Capability) -> Result<(), SettingsError> {
        if capability.key_retention <= self.key_retention_margin + self.lease {
            return Err(SettingsError(format!(
                "gateway account {name} recognises a key for {:?}, which leaves no time to send it: \
                 key_retention_margin is {:?} and lease {:?}",
                capability.key_retention, self.key_retention_margin, self.lease
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_that_does_not_hold_is_refused_with_both_names() {
        let s = Duration::from_secs;
        let wrong = [
            (Settings { lease: s(10), gateway_timeout: s(10), ..Settings::default() }, "gateway_timeout"),
            (Settings { lease: s(20), gateway_timeout: s(10), ..Settings::default() }, "lease"),
            (
                Settings { sweep_after: s(60), sweep_max_backoff: s(59), ..Settings::default() },
                "sweep_max_backoff",
            ),
            (Settings { max_in_flight: 0, ..Settings::default() }, "max_in_flight"),
            (Settings { gateway_timeout: s(0), ..Settings::default() }, "gateway_timeout"),
            (Settings { sweep_max_backoff: s(u64::MAX), ..Settings::default() }, "sweep_max_backoff"),
            (Settings { status_check_after: s(u64::MAX), ..Settings::default() }, "status_check_after"),
            (Settings { max_in_flight: usize::MAX, ..Settings::default() }, "max_in_flight"),
            (Settings { batch: usize::MAX, ..Settings::default() }, "batch"),
        ];
        for (settings, word) in wrong {
            let error = settings.check().unwrap_err();
            assert!(error.0.contains(word), "{error}");
        }
        assert_eq!(Settings::default().check(), Ok(()));
    }
}
