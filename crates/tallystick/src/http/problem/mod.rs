//! Refusals and faults as clients see them: `application/problem+json` (RFC 9457) with a stable code.
//!
//! The only place that knows status codes of refusals. A [`Problem`] says what went wrong in the client's words; the
//! outermost layer writes its body, because only that layer knows the request's id. `errors` has one exhaustive match
//! per module error. Nothing here shows SQL, a stack or a value that the client sent.

mod code;
mod errors;

use std::any::Any;
use std::borrow::Cow;
use std::time::Duration;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tallystick_payments::ids::{PaymentId, PayoutId};
use utoipa::ToSchema;

pub use code::Code;

use super::fields::CARD_NUMBER;

/// One complaint about a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// A JSON pointer into the body, or `header:<name>`, `path:<name>`, `query:<name>`.
    #[schema(examples("/amount"))]
    pub field: String,
    /// The broken rule's stable name.
    #[schema(value_type = String, examples("max_decimals"))]
    pub rule: Cow<'static, str>,
    /// Text for people.
    pub message: String,
}

impl FieldError {
    /// A complaint.
    #[must_use]
    pub fn new(field: impl Into<String>, rule: &'static str, message: impl Into<String>) -> Self {
        Self { field: field.into(), rule: Cow::Borrowed(rule), message: message.into() }
    }
}

/// The body of a problem.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody<'a> {
    /// `urn:tallystick:problem:` and the code.
    #[schema(examples("urn:tallystick:problem:validation"))]
    pub r#type: String,
    /// The code in words.
    pub title: &'a str,
    /// The HTTP status.
    #[schema(examples(422))]
    pub status: u16,
    /// What happened in this case.
    pub detail: &'a str,
    /// Stable name of the problem.
    #[schema(examples("validation"))]
    pub code: &'a str,
    /// The request's id, as in `X-Request-Id` and in the log.
    pub request_id: &'a str,
    /// What is wrong with the request, everything that was found.
    pub errors: &'a [FieldError],
    /// `order_conflict` only: the active payment of the order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Uuid)]
    pub payment_id: Option<PaymentId>,
    /// `order_conflict` only: the active payout of the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Uuid)]
    pub payout_id: Option<PayoutId>,
}

/// Why a request was not carried out.
#[derive(Clone, Debug)]
pub struct Problem {
    code: Code,
    detail: Cow<'static, str>,
    errors: Vec<FieldError>,
    /// Seconds.
    retry_after: Option<u64>,
    authenticate: Option<&'static str>,
    payment_id: Option<PaymentId>,
    payout_id: Option<PayoutId>,
}

impl Problem {
    fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let retry_after = code.retry_after();
        Self {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            retry_after,
            authenticate: None,
            payment_id: None,
            payout_id: None,
        }
    }

    fn with(mut self, error: FieldError) -> Self {
        self.errors.push(error);
        self
    }

    /// 400: no JSON.
    pub(super) fn malformed_json(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::MalformedJson, detail)
    }

    /// 401 of the API.
    pub(super) fn unauthenticated() -> Self {
        let problem = Self::new(
            Code::Unauthenticated,
            "a valid API key is required, in X-API-Key or as a bearer token",
        );
        Self { authenticate: Some("ApiKey"), ..problem }
    }

    /// 401 of an inbound webhook. Says no more on purpose.
    pub(super) fn bad_signature() -> Self {
        let problem = Self::new(Code::Unauthenticated, "the signature does not hold");
        Self { authenticate: Some("WebhookSignature"), ..problem }
    }

    /// 403: the key's scope is another one.
    pub(super) fn forbidden(scope: &'static str) -> Self {
        Self::new(Code::Forbidden, format!("this needs a key of scope {scope}"))
    }

    /// 404: no such route, or no such thing of this tenant.
    pub(super) fn not_found() -> Self {
        Self::new(Code::NotFound, "there is nothing at this address for this API key")
    }

    /// 404: something named inside the request.
    pub(super) fn not_found_at(field: impl Into<String>) -> Self {
        let error = FieldError::new(field, "not_found", "there is no such thing for this API key");
        Self::new(Code::NotFound, "the request names something that does not exist").with(error)
    }

    /// 405.
    pub(super) fn method_not_allowed() -> Self {
        Self::new(Code::MethodNotAllowed, "this address has other methods: see Allow")
    }

    /// 413.
    pub(super) fn body_too_large() -> Self {
        Self::new(Code::BodyTooLarge, "the body must not be larger than 1 MiB")
    }

    /// 415.
    pub(super) fn unsupported_media_type(detail: &'static str) -> Self {
        Self::new(Code::UnsupportedMediaType, detail)
    }

    /// 422 with every complaint.
    pub(super) fn validation(errors: Vec<FieldError>) -> Self {
        let problem = if errors.iter().any(|e| e.rule == CARD_NUMBER) {
            Self::new(Code::CardNumberRefused, "card numbers are not taken: use a token of the gateway")
        } else {
            Self::new(Code::Validation, "the request has fields that cannot be taken")
        };
        Self { errors, ..problem }
    }

    /// 422 with one complaint.
    pub(super) fn field(field: impl Into<String>, rule: &'static str, message: impl Into<String>) -> Self {
        Self::validation(vec![FieldError::new(field, rule, message)])
    }

    /// 422.
    pub(super) fn missing_idempotency_key() -> Self {
        let error = FieldError::new("header:Idempotency-Key", "required", "is required");
        Self::new(Code::MissingIdempotencyKey, "a request that creates something needs an Idempotency-Key")
            .with(error)
    }

    /// 429.
    pub(super) fn rate_limited(wait: Duration) -> Self {
        let problem = Self::new(Code::RateLimited, "too many requests with this API key");
        // A part of a second counts as one: earlier would be refused again.
        Self { retry_after: Some(wait.as_secs().saturating_add(1)), ..problem }
    }

    /// 503: too many requests at once.
    pub(super) fn overloaded() -> Self {
        Self::new(Code::Overloaded, "the server is busy; nothing was stored")
    }

    /// 503: something needed is away.
    pub(super) fn unavailable() -> Self {
        Self::new(Code::Unavailable, "the service is not available; the request may be repeated with its key")
    }

    /// 503: no answer in time.
    pub(super) fn timed_out() -> Self {
        Self::new(Code::Unavailable, "the request took too long; it may be repeated with its key")
    }

    /// 500. The cause is logged here and shown to nobody.
    pub(super) fn internal(cause: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(
            error = tallystick_runner::looper::chain(cause),
            "a request failed for a reason of our own"
        );
        Self::fault()
    }

    fn fault() -> Self {
        Self::new(Code::Internal, "something went wrong here; the request may be repeated with its key")
    }

    /// Writes the problem into a response.
    pub(super) fn write(&self, response: &mut Response, request_id: &str) {
        let body = ProblemBody {
            r#type: self.code.urn(),
            title: self.code.title(),
            status: self.code.status().as_u16(),
            detail: &self.detail,
            code: self.code.as_str(),
            request_id,
            errors: &self.errors,
            payment_id: self.payment_id,
            payout_id: self.payout_id,
        };
        let bytes = serde_json::to_vec(&body).expect("strings, integers and ids always serialize");
        *response.status_mut() = self.code.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CONTENT_LENGTH, bytes.len().into());
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(scheme) = self.authenticate {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
        }
        *response.body_mut() = bytes.into();
    }
}

impl IntoResponse for Problem {
    /// Carries the problem out to the layer that writes it.
    fn into_response(self) -> Response {
        let mut response = self.code.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A handler panicked: the client learns nothing about it.
pub(super) fn of_panic(_: Box<dyn Any + Send + 'static>) -> Response {
    tracing::error!("a request handler panicked");
    Problem::fault().into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    #[test]
    fn a_card_number_decides_the_code() {
        let errors =
            vec![FieldError::new("/amount", "range", "m"), FieldError::new("/metadata", CARD_NUMBER, "m")];
        assert_eq!(Problem::validation(errors.clone()).code, Code::CardNumberRefused);
        assert_eq!(Problem::validation(errors[..1].to_vec()).code, Code::Validation);
    }

    #[test]
    fn a_body_has_every_member() {
        let mut response = StatusCode::OK.into_response();
        Problem::overloaded().write(&mut response, "r-1");
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    }
}
