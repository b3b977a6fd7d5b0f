//! What can go wrong in the outbox, sorted by whose move it is.

use tallystick_runner::{DbError, Fault, StepError, looper};
use uuid::Uuid;

/// Why an outbox operation did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// The database could not do it.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The reader's position is no good.
    #[error("the position in the feed is not valid")]
    Cursor(#[from] CursorError),
    /// More events in one call than one statement should carry.
    #[error("{found} events in one call, at most {} are taken", crate::MAX_EVENTS_PER_APPEND)]
    TooManyEvents {
        /// Events given.
        found: usize,
    },
    /// An event's bytes are too many.
    #[error(
        "the payload of event {event_id} has {found} bytes, at most {} are taken",
        crate::MAX_PAYLOAD_BYTES
    )]
    PayloadTooLarge {
        /// The event.
        event_id: Uuid,
        /// Its payload's size in bytes.
        found: usize,
    },
    /// Another process took the sink over while this one was publishing. What was published comes again from there.
    #[error("the lease on sink {sink} was lost while publishing")]
    LostLease {
        /// The sink.
        sink: &'static str,
    },
    /// The sink confirmed nothing of a batch.
    #[error("sink {sink} failed")]
    Sink {
        /// The sink.
        sink: &'static str,
        /// What it said.
        #[source]
        source: SinkError,
    },
    /// The sink confirmed the beginning of a batch only. The position stands behind the last confirmed event.
    #[error("sink {sink} confirmed {confirmed} of {of} events")]
    Partial {
        /// The sink.
        sink: &'static str,
        /// Events confirmed.
        confirmed: usize,
        /// Events handed over.
        of: usize,
    },
}

impl OutboxError {
    /// How loudly to log it: a reader's mistake and a lost lease are ordinary, the rest is a fault of ours.
    #[must_use]
    pub fn severity(&self) -> tracing::Level {
        match self {
            Self::Cursor(_) => tracing::Level::INFO,
            Self::LostLease { .. } | Self::Sink { .. } | Self::Partial { .. } => tracing::Level::WARN,
            Self::Db(_) | Self::TooManyEvents { .. } | Self::PayloadTooLarge { .. } => tracing::Level::ERROR,
        }
    }
}

impl Fault for OutboxError {
    fn db(&self) -> Option<&DbError> {
        match self {
            Self::Db(error) => Some(error),
            Self::Cursor(_)
            | Self::TooManyEvents { .. }
            | Self::PayloadTooLarge { .. }
            | Self::LostLease { .. }
            | Self::Sink { .. }
            | Self::Partial { .. } => None,
        }
    }
}

impl From<sqlx::Error> for OutboxError {
    fn from(error: sqlx::Error) -> Self {
        Self::Db(error.into())
    }
}

/// Every step can be tried again: nothing is lost by a pause, and a position that is no good needs a person,
/// who finds the loop still running once it is put right.
impl From<OutboxError> for StepError {
    fn from(error: OutboxError) -> Self {
        Self::Retry(looper::chain(&error))
    }
}

/// Why a position is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// Not a text that a feed gave out.
    #[error("not a position that this feed gave out")]
    Malformed,
    /// It names a window that does not exist yet: it was given out by another database, or by a later state of
    /// this one that was lost in a restore.
    #[error("the position lies behind the end of this feed")]
    Ahead,
    /// It names a window of another life of the data.
    #[error("the position belongs to another copy of this feed")]
    OtherEpoch,
}

/// Why a sink confirmed nothing.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The other side is away or said no.
    #[error("{0}")]
    Refused(String),
    /// Writing failed.
    #[error("writing failed")]
    Io(#[from] std::io::Error),
    /// No answer while the lease lasted.
    #[error("no answer within {0:?}")]
    Timeout(std::time::Duration),
}
