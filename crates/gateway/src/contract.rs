//! The trait that every gateway account implements, and the values that cross it.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tallystick_money::Money;

/// What is asked of a gateway, besides amount and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Take money from a payment method: at once, or only hold it.
    Charge {
        /// The gateway's token for the payer's means of payment. Never a card number.
        payment_method: String,
        /// `true`: authorize and capture in one; `false`: authorize only.
        capture: bool,
    },
    /// Send money out through a bank.
    Payout {
        /// The bank's token for the payee's account. Never a card number.
        destination: String,
    },
}

/// One submit. The key was committed to the database before this value existed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submit {
    /// The gateway key; the same for every submit of this operation.
    pub key: String,
    /// The amount to move.
    pub amount: Money,
    /// What to do.
    pub operation: Operation,
}

/// How far the money has come at the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Held, not taken.
    Authorized,
    /// Taken.
    Captured,
    /// Paid out.
    Paid,
    /// Paid out, and the bank sent it back.
    Returned,
}

/// The gateway says that it did the thing. Amount and currency are what *it* names; the caller compares them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The gateway's own id for the object.
    pub reference: String,
    /// What was reached.
    pub stage: Stage,
    /// Minor units as the gateway names them.
    pub amount_minor: i64,
    /// Currency as the gateway names it, unchecked.
    pub currency: String,
}

/// A definite "no", from the list that the adapter declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decline {
    /// The gateway's code, as given.
    pub code: String,
    /// Text for people.
    pub message: String,
}

/// Why certainly nothing reached the gateway's processing. Only documented or local causes may stand here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSentCause {
    /// No connection could be made: refused, no such host, TLS, connect deadline.
    Connect(String),
    /// The gateway documents that this answer comes before any processing.
    RateLimited {
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
}

/// Why the outcome is not known. None of these is a decline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostCause {
    /// No answer within the deadline.
    Timeout,
    /// The connection broke after the request may have left.
    Connection(String),
    /// A status that the adapter does not list as definite.
    Status(u16),
    /// An answer that could not be read.
    Unreadable(String),
    /// An answer about another key.
    OtherKey,
    /// A decline that cannot be trusted, because an earlier attempt with this key may have had an effect.
    UnprovenDecline,
    /// The process that sent the request is gone and left no result.
    WorkerGone,
}

impl LostCause {
    /// A short name for metrics and history.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Connection(_) => "connection",
            Self::Status(_) => "status",
            Self::Unreadable(_) => "unreadable",
            Self::OtherKey => "other_key",
            Self::UnprovenDecline => "unproven_decline",
            Self::WorkerGone => "worker_gone",
        }
    }
}

/// What became of a submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, as the approval says.
    Approved(Approval),
    /// A definite no.
    Declined(Decline),
    /// Taken on; the result comes later.
    Accepted {
        /// The gateway's id, when it gave one.
        reference: Option<String>,
    },
    /// Nothing was sent: the operation is what it was.
    NotSent(NotSentCause),
    /// Nobody knows.
    Lost(LostCause),
}

/// What a status query by key found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done, as the approval says.
    Approved(Approval),
    /// A definite no.
    Declined(Decline),
    /// Known and under way.
    Pending {
        /// The gateway's id, when it gave one.
        reference: Option<String>,
    },
    /// The gateway does not know the key *now*. Never a decline by itself: the request may still be on its way.
    NotFound,
    /// The question got no usable answer; it moves nothing.
    Unanswered(String),
}

/// What the gateway does when it sees a key again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// Answers the stored first result.
    SameResult,
    /// Answers the operation's latest status.
    LatestStatus,
    /// May do it again: after any loss only questions are allowed.
    ReExecutes,
}

/// What an adapter declares about its gateway; the rules of sending are decided from this alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// How long the gateway recognises a key, from its first use.
    pub key_retention: Duration,
    /// What it does with a key that it knows.
    pub replay: Replay,
    /// Whether an operation can be looked up by its key.
    pub query_by_key: bool,
    /// The codes that are definite declines on a submit; anything else is lost.
    pub definite_declines: &'static str,
}

/// What a webhook reports about one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Our gateway key, if the event carries it.
    pub key: Option<String>,
    /// The gateway's id, if the event carries it.
    pub reference: Option<String>,
    /// What happened.
    pub kind: ReportKind,
}

/// What happened, in a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// Money was held or taken. Amount as the gateway names it.
    Approved {
        /// How far.
        stage: Stage,
        /// Minor units.
        amount_minor: i64,
        /// Currency, unchecked.
        currency: String,
    },
    /// A definite no.
    Declined(Decline),
    /// Known and under way.
    Pending,
    /// A kind that this version does nothing with; it is kept.
    Other(String),
}

/// A webhook request as received: raw, unparsed.
#[derive(Clone, Copy, Debug)]
pub struct WebhookMessage<'a> {
    /// `webhook-id` header.
    pub id: Option<&'a str>,
    /// `webhook-timestamp` header, seconds since 1970.
    pub timestamp: Option<&'a str>,
    /// `webhook-signature` header: signatures separated by spaces.
    pub signature: Option<&'a str>,
    /// The body's bytes exactly as they came.
    pub body: &'a [u8],
}

/// Why a webhook request is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// Nobody who knows the secret sent this, or it is too old. Says no more on purpose.
    #[error("the signature does not hold")]
    Unverified,
    /// Verified, but no event.
    #[error("the event cannot be read: {0}")]
    Malformed(String),
}

/// One gateway account: an adapter with its address, secrets and declared capabilities.
///
/// Implementations hold no state that matters: killing the process loses nothing.
#[async_trait]
pub trait Gateway: Send + Sync {
    /// The account's name, as in `gateway` of a payment and in `/webhooks/{gateway}`.
    fn name(&self) -> &str;

    /// What the rules of sending are decided from.
    fn capability(&self) -> &Capability;

    /// Sends one operation. Returns within `deadline`; never panics, never retries.
    async fn submit(&self, submit: &Submit, deadline: Duration) -> Outcome;

    /// Asks about a key. Returns within `deadline`; has no effect on money.
    async fn query(&self, key: &str, deadline: Duration) -> Answer;

    /// Checks who sent a webhook, over the raw bytes. `now` in seconds since 1970.
    ///
    /// # Errors
    /// [`WebhookError::Unverified`].
    fn verify_webhook(&self, message: WebhookMessage<'_>, now: i64) -> Result<(), WebhookError>;

    /// Reads a verified webhook; one request may carry several reports.
    ///
    /// # Errors
    /// [`WebhookError::Malformed`].
    fn read_webhook(&self, body: &Bytes) -> Result<Vec<Report>, WebhookError>;
}
