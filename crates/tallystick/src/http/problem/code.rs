//! The stable names of problems, their statuses and what a client does about each.

use axum::http::StatusCode;

/// What went wrong, as a stable name. A new one is a line in each table here; the list in the documentation is
/// generated from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The body is no JSON.
    MalformedJson,
    /// No valid API key, or a signature that does not hold.
    Unauthenticated,
    /// The key's scope is another one.
    Forbidden,
    /// No such thing.
    NotFound,
    /// Another method.
    MethodNotAllowed,
    /// The key was used with another request.
    IdempotencyMismatch,
    /// The first request with this key is under way.
    IdempotencyInFlight,
    /// The order or reference has another active payment or payout.
    OrderConflict,
    /// The thing's state does not allow it.
    InvalidState,
    /// The journal stands already with other entries.
    JournalConflict,
    /// The body is too large.
    BodyTooLarge,
    /// Not JSON by its header.
    UnsupportedMediaType,
    /// Fields that cannot be taken.
    Validation,
    /// No Idempotency-Key.
    MissingIdempotencyKey,
    /// A card number in the request.
    CardNumberRefused,
    /// An account would fall below its minimum.
    MinimumBalance,
    /// Too many requests with this key.
    RateLimited,
    /// Too many requests at once.
    Overloaded,
    /// Something needed is away.
    Unavailable,
    /// A fault of ours.
    Internal,
}

impl Code {
    /// Every code, by status.
    pub const ALL: [Self; 20] = [
        Self::MalformedJson,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::IdempotencyMismatch,
        Self::IdempotencyInFlight,
        Self::OrderConflict,
        Self::InvalidState,
        Self::JournalConflict,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::Validation,
        Self::MissingIdempotencyKey,
        Self::CardNumberRefused,
        Self::MinimumBalance,
        Self::RateLimited,
        Self::Internal,
        Self::Overloaded,
        Self::Unavailable,
    ];

    /// The name in `code`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MalformedJson => "malformed_json",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::IdempotencyMismatch => "idempotency_mismatch",
            Self::IdempotencyInFlight => "idempotency_in_flight",
            Self::OrderConflict => "order_conflict",
            Self::InvalidState => "invalid_state",
            Self::JournalConflict => "journal_conflict",
            Self::BodyTooLarge => "body_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::Validation => "validation",
            Self::MissingIdempotencyKey => "missing_idempotency_key",
            Self::CardNumberRefused => "card_number_refused",
            Self::MinimumBalance => "minimum_balance",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// The name in `type`.
    #[must_use]
    pub fn urn(self) -> String {
        format!("urn:tallystick:problem:{}", self.as_str())
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::MalformedJson => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::IdempotencyMismatch
            | Self::IdempotencyInFlight
            | Self::OrderConflict
            | Self::InvalidState
            | Self::JournalConflict => StatusCode::CONFLICT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Validation
            | Self::MissingIdempotencyKey
            | Self::CardNumberRefused
            | Self::MinimumBalance => StatusCode::UNPROCESSABLE_ENTITY,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::Overloaded | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The code in words.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::MalformedJson => "The body cannot be read",
            Self::Unauthenticated => "Not authenticated",
            Self::Forbidden => "Not allowed with this key",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "Method not allowed",
            Self::IdempotencyMismatch => "Idempotency-Key used with another request",
            Self::IdempotencyInFlight => "Request under way",
            Self::OrderConflict => "Order or reference has another active payment or payout",
            Self::InvalidState => "Not possible in this state",
            Self::JournalConflict => "Journal stands with other entries",
            Self::BodyTooLarge => "Body too large",
            Self::UnsupportedMediaType => "Unsupported media type",
            Self::Validation => "Request not valid",
            Self::MissingIdempotencyKey => "Idempotency-Key missing",
            Self::CardNumberRefused => "Card number refused",
            Self::MinimumBalance => "Minimum balance",
            Self::RateLimited => "Too many requests",
            Self::Overloaded => "Server busy",
            Self::Unavailable => "Not available",
            Self::Internal => "Internal error",
        }
    }

    /// What a client does about it, for the documentation.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::MalformedJson => "Send one JSON object in UTF-8, nested at most 64 levels deep.",
            Self::Unauthenticated => "Send one valid key, in `X-API-Key` or as a bearer token.",
            Self::Forbidden => "Use a key of the scope that `detail` names.",
            Self::NotFound => "Check the id. A thing of another tenant reads the same as one that never was.",
            Self::MethodNotAllowed => "Use a method that `Allow` names.",
            Self::IdempotencyMismatch => "`errors` names what differs. Use a new key for a new request.",
            Self::IdempotencyInFlight => "Repeat after `Retry-After` with the same key.",
            Self::OrderConflict => {
                "`payment_id` or `payout_id` is the active one, `errors` names what differs."
            }
            Self::InvalidState => "Read the thing again; its state does not allow this.",
            Self::JournalConflict => {
                "A journal of this `source` stands with other entries; use another source."
            }
            Self::BodyTooLarge => "Send at most 1 MiB.",
            Self::UnsupportedMediaType => {
                "Send `Content-Type: application/json` without a `Content-Encoding`."
            }
            Self::Validation => "`errors` names every field and rule. The key is not used up.",
            Self::MissingIdempotencyKey => "Send an `Idempotency-Key` that stays the same for every repeat.",
            Self::CardNumberRefused => "Never send card numbers; send a token of the gateway.",
            Self::MinimumBalance => "The account must keep more than this journal would leave.",
            Self::RateLimited => "Slow down; repeat after `Retry-After`.",
            Self::Overloaded => "Nothing was stored. Repeat after `Retry-After` with the same key.",
            Self::Unavailable => {
                "Repeat after `Retry-After` with the same key: it happens once, however often it is sent."
            }
            Self::Internal => "Repeat with the same key; when it stays, tell us the `request_id`.",
        }
    }

    /// Seconds after which a repeat makes sense, where one does.
    #[must_use]
    pub(super) fn retry_after(self) -> Option<u64> {
        match self {
            Self::IdempotencyInFlight | Self::RateLimited | Self::Overloaded | Self::Unavailable => Some(1),
            Self::MalformedJson
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::IdempotencyMismatch
            | Self::OrderConflict
            | Self::InvalidState
            | Self::JournalConflict
            | Self::BodyTooLarge
            | Self::UnsupportedMediaType
            | Self::Validation
            | Self::MissingIdempotencyKey
            | Self::CardNumberRefused
            | Self::MinimumBalance
            | Self::Internal => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_problems() {
        let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!(code.status().is_client_error() || code.status().is_server_error(), "{code:?}");
        }
    }
}
