//! What handlers take: ids of paths, parameters of queries, bodies with their Idempotency-Key.

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tallystick_payments::Answer;
use tokio::task::JoinError;
use tracing::Instrument;
use uuid::Uuid;

use super::fields::{self, Errors, Fields};
use super::idempotency_key::{self, Given};
use super::problem::Problem;
use super::{body, card, json};

/// Items of a page when the request does not say.
const DEFAULT_LIMIT: i64 = 50;
/// Most items of a page.
const MAX_LIMIT: i64 = 200;

/// The `{id}` of a path.
pub(super) struct PathId(pub(super) Uuid);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        // A path that cannot be decoded holds no id either.
        let text = Path::<String>::from_request_parts(parts, state).await.map(|Path(text)| text);
        match text.ok().as_deref().and_then(fields::uuid) {
            Some(id) => Ok(Self(id)),
            None => Err(Problem::field("path:id", "uuid", "must be a UUID")),
        }
    }
}

/// The parameters of a query, taken one by one; those that are left at the end do not exist here.
pub(super) struct Params {
    pairs: Vec<(String, String)>,
    errors: Errors,
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(pairs)) => Ok(Self { pairs, errors: Errors::default() }),
            Err(_) => Err(Problem::field("query:", "format", "must be a query of names and values")),
        }
    }
}

impl Params {
    /// Complains about a parameter.
    pub(super) fn refuse(&mut self, name: &str, rule: &'static str, message: impl Into<String>) {
        self.errors.push(format!("query:{name}"), rule, message);
    }

    /// Whether the parameter is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.pairs.iter().any(|(key, _)| key == name)
    }

    /// The problem of a query that lacks something required; there is a complaint about it.
    pub(super) fn refused(self) -> Problem {
        Problem::validation(self.errors.into_list())
    }

    /// The parameter's text.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let mut found = None;
        for (_, value) in self.pairs.extract_if(.., |(key, _)| key == name).collect::<Vec<_>>() {
            if found.is_some() {
                self.refuse(name, "single", "must be given once");
            } else if value.contains('\0') {
                self.refuse(name, "nul", "must not contain the character U+0000");
            } else {
                found = Some(value);
            }
        }
        found
    }

    /// What `read` makes of the parameter's text; a complaint when it makes nothing of it.
    pub(super) fn read<T>(
        &mut self,
        name: &str,
        rule: &'static str,
        message: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.take(name)?;
        let found = read(&text);
        if found.is_none() {
            self.refuse(name, rule, message);
        }
        found
    }

    /// `limit`: 1 to 200.
    pub(super) fn limit(&mut self) -> i64 {
        let range = |text: &str| {
            let plain = text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|n| plain && (1..=MAX_LIMIT).contains(n))
        };
        self.read("limit", "range", "must be between 1 and 200", range).unwrap_or(DEFAULT_LIMIT)
    }

    /// A position that a page of this list gave out.
    pub(super) fn cursor<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        self.read(name, "cursor", "must be a cursor that this list gave out", read)
    }

    /// `at`: an instant.
    pub(super) fn at(&mut self) -> Option<jiff::Timestamp> {
        let message = "must be an RFC 3339 time such as 2026-01-02T03:04:05Z";
        self.read("at", "date_time", message, fields::timestamp)
    }

    /// The end of the parameters.
    ///
    /// # Errors
    /// 422 with every complaint; what was not taken is unknown.
    pub(super) fn finish(self) -> Result<(), Problem> {
        const MAX_NAME: usize = 64;
        let Self { pairs, mut errors } = self;
        for (name, _) in &pairs {
            let shown =
                name.len() <= MAX_NAME && !name.chars().any(char::is_control) && !card::contains(name);
            let field = format!("query:{}", if shown { name } else { "" });
            errors.push(field, "unknown_parameter", "is not a parameter of this request");
        }
        errors.check()
    }
}

/// A request that writes: its key and its body, read but not yet checked.
pub(super) struct Write {
    key: Option<String>,
    body: Value,
    errors: Errors,
}

impl<S: Send + Sync> FromRequest<S> for Write {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        check_content_type(&parts.headers)?;
        let bytes = body::read(body).await?;
        let mut errors = Errors::default();
        let body =
            json::parse(&bytes, &mut errors).map_err(|error| Problem::malformed_json(error.to_string()))?;
        let key = match idempotency_key::read(&parts.headers, &mut errors) {
            Given::Key(key) => Some(key),
            Given::Refused => None,
            Given::Missing => return Err(Problem::missing_idempotency_key()),
        };
        Ok(Self { key, body, errors })
    }
}

impl Write {
    /// The key and the fields. The key may be used only after [`Fields::finish`], which knows whether it is one.
    pub(super) fn open(self, known: &[&str]) -> (String, Fields) {
        (self.key.unwrap_or_default(), Fields::new(self.body, known, self.errors))
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Problem::unsupported_media_type("a Content-Encoding is not supported"));
    }
    let mut types =
        headers.get_all(header::CONTENT_TYPE).iter().map(|value| value.to_str().unwrap_or_default());
    let (Some(value), None) = (types.next(), types.next()) else {
        return Err(Problem::unsupported_media_type("Content-Type must be application/json"));
    };
    let mut parts = value.split(';').map(str::trim);
    let json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    // The only charset that JSON may have; other parameters mean nothing and change nothing.
    let utf8 = parts.filter_map(|p| p.split_once('=')).all(|(name, value)| {
        !name.trim().eq_ignore_ascii_case("charset")
            || value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
    });
    if json && utf8 {
        Ok(())
    } else {
        Err(Problem::unsupported_media_type("Content-Type must be application/json"))
    }
}

/// Runs what writes in a task of its own, so that a client that hangs up, or a request that takes too long, does not
/// stop it half-way.
pub(super) async fn detached<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Problem> {
    tokio::spawn(work.in_current_span()).await.map_err(|error| match JoinError::try_into_panic(error) {
        Ok(panic) => std::panic::resume_unwind(panic),
        // Only a runtime that is shutting down cancels a task.
        Err(_) => Problem::unavailable(),
    })
}

/// A JSON answer made of bytes that are JSON already.
pub(super) fn json_bytes(status: StatusCode, bytes: impl Into<axum::body::Body>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], bytes.into()).into_response()
}

/// A JSON answer.
///
/// # Errors
/// 500 when the value cannot be written as JSON, which no type here does.
pub(super) fn json<T: serde::Serialize>(value: &T) -> Result<Response, Problem> {
    let bytes = serde_json::to_vec(value).map_err(|error| Problem::internal(&error))?;
    Ok(json_bytes(StatusCode::OK, bytes))
}

/// The answer to a request that creates something: status, `Location`, marks of a repeat, the stored body.
pub(super) fn created(answer: &Answer, location: &str) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let mut response = json_bytes(status, answer.body.clone());
    let headers = response.headers_mut();
    let value = format!("{location}/{}", answer.id).parse().expect("a path and a UUID are a header value");
    headers.insert(header::LOCATION, value);
    let marks = [("idempotency-replayed", answer.replayed), ("existing-payment", answer.existing)];
    for (name, _) in marks.into_iter().filter(|(_, on)| *on) {
        headers.insert(name, header::HeaderValue::from_static("true"));
    }
    response
}

/// One page of a list out of up to `limit + 1` items, and the cursor of the next one.
pub(super) fn cut<T>(mut items: Vec<T>, limit: i64, id: impl Fn(&T) -> Uuid) -> (Vec<T>, Option<String>) {
    let limit = usize::try_from(limit).unwrap_or_default();
    let more = items.len() > limit;
    items.truncate(limit);
    let next = if more { items.last().map(|item| super::cursor::after_id(id(item))) } else { None };
    (items, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(values: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(*name, value.parse().unwrap());
        }
        check_content_type(&headers).is_ok()
    }

    #[test]
    fn only_plain_json_is_taken() {
        for good in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=\"UTF-8\"",
            "application/json; v=1",
        ] {
            assert!(accepts(&[("content-type", good)]), "{good}");
        }
        for bad in [
            "",
            "text/plain",
            "application/jsonx",
            "application/json; charset=utf-16",
            "application/problem+json",
            "multipart/form-data",
        ] {
            assert!(!accepts(&[("content-type", bad)]), "{bad}");
        }
        assert!(!accepts(&[]));
        assert!(!accepts(&[("content-type", "application/json"), ("content-type", "text/plain")]));
        assert!(!accepts(&[("content-type", "application/json"), ("content-encoding", "gzip")]));
    }

    #[test]
    fn unknown_and_doubled_parameters_are_told() {
        let params = |query: &str| {
            let uri: axum::http::Uri = format!("/x?{query}").parse().unwrap();
            let Query(pairs) = Query::try_from_uri(&uri).unwrap();
            Params { pairs, errors: Errors::default() }
        };
        for (query, holds) in [
            ("", true),
            ("limit=1", true),
            ("limit=200", true),
            ("limit=0", false),
            ("limit=201", false),
            ("limit=x", false),
            ("limit=", false),
            ("limit=+5", false),
            ("limit=1&limit=1", false),
            ("lim=1", false),
            ("limit=1%00", false),
            ("4111111111111111=1", false),
        ] {
            let mut p = params(query);
            p.limit();
            assert_eq!(p.finish().is_ok(), holds, "{query}");
        }
    }
}
