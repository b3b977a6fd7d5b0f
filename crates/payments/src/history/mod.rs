//! The append-only record of every move of a status, and of every call to a gateway.

pub(crate) mod repo;

/// How a move is known; the words of the API and of SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// The client asked for it.
    Request,
    /// The gateway's reply to a submit, or its absence.
    Reply,
    /// The gateway's answer to a question.
    StatusQuery,
    /// A signed webhook.
    Webhook,
    /// The ledger: the account had not enough.
    Ledger,
    /// A lease ran out without a result.
    Expiry,
}

impl Evidence {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Reply => "reply",
            Self::StatusQuery => "status_query",
            Self::Webhook => "webhook",
            Self::Ledger => "ledger",
            Self::Expiry => "expiry",
        }
    }
}
