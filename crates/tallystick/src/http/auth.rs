//! Who calls: `X-API-Key: <key>` or `Authorization: Bearer <key>`, exactly one of them, and how often.
//!
//! A key in the query is not looked at. The key's length is bounded before anything is computed from it, and neither
//! the key nor why it was refused is told or logged.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tallystick_payments::Engine;
use tallystick_payments::ids::KeyId;
use tallystick_payments::tenants::{Caller, Scope};

use super::problem::Problem;
use super::state::{AppState, HttpSettings};

/// Longest key that is looked up; ours are shorter.
const MAX_KEY: usize = 200;
const API_KEY: &str = "x-api-key";

/// Requests per second of each API key. Only keys that exist get here, so it holds a bounded number of them.
#[derive(Clone, Debug)]
pub struct Rates(Option<Arc<DefaultKeyedRateLimiter<KeyId>>>);

impl Rates {
    /// As the settings say.
    #[must_use]
    pub fn new(settings: &HttpSettings) -> Self {
        let quota = settings.requests_per_second.map(|n| Quota::per_second(n).allow_burst(settings.burst));
        Self(quota.map(|quota| Arc::new(RateLimiter::keyed(quota))))
    }

    /// `Err`: how long to wait.
    fn check(&self, key: KeyId) -> Result<(), Duration> {
        let Some(limiter) = &self.0 else { return Ok(()) };
        limiter.check_key(&key).map_err(|refused| refused.wait_time_from(DefaultClock::default().now()))
    }
}

/// The layer: lets nobody in without a valid key, and hands the [`Caller`] on.
pub async fn authenticate(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    match admit(&state.engine, &state.rates, request.headers()).await {
        Ok(caller) => {
            tracing::Span::current().record("tenant.id", tracing::field::display(caller.tenant));
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

async fn admit(engine: &Engine, rates: &Rates, headers: &HeaderMap) -> Result<Caller, Problem> {
    let key = key(headers).ok_or_else(Problem::unauthenticated)?;
    let caller = engine.authenticate(key).await?.ok_or_else(Problem::unauthenticated)?;
    rates.check(caller.key_id).map_err(Problem::rate_limited)?;
    Ok(caller)
}

/// The one key of the request. Two of them, even equal ones, are none.
fn key(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers
        .get_all(API_KEY)
        .iter()
        .map(|value| value.to_str().ok())
        .chain(headers.get_all(header::AUTHORIZATION).iter().map(|value| bearer(value.to_str().ok()?)));
    match (given.next(), given.next()) {
        (Some(Some(key)), None) if (1..=MAX_KEY).contains(&key.len()) => Some(key),
        _ => None,
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim_start_matches(' '))
}

/// Refuses everybody without the operator scope.
///
/// # Errors
/// 403 `forbidden`.
pub(super) fn need_operator(caller: &Caller) -> Result<(), Problem> {
    match caller.scope {
        Scope::Operator => Ok(()),
        Scope::Client | Scope::Approver => Err(Problem::forbidden("operator")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pairs: &[(&'static str, &str)]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        key(&headers).map(str::to_owned)
    }

    #[test]
    fn exactly_one_key_is_taken() {
        assert_eq!(found(&[("x-api-key", "k")]).as_deref(), Some("k"));
        assert_eq!(found(&[("authorization", "Bearer k")]).as_deref(), Some("k"));
        assert_eq!(found(&[("authorization", "bearer  k")]).as_deref(), Some("k"));
        let long = "k".repeat(MAX_KEY + 1);
        let bad: [&[(&str, &str)]; 9] = [
            &[],
            &[("x-api-key", "")],
            &[("x-api-key", &long)],
            &[("x-api-key", "k"), ("x-api-key", "k")],
            &[("x-api-key", "k"), ("authorization", "Bearer k")],
            &[("x-api-key", "k"), ("authorization", "Basic k")],
            &[("authorization", "Basic k")],
            &[("authorization", "Bearer ")],
            &[("authorization", "k")],
        ];
        for pairs in bad {
            assert_eq!(found(pairs), None, "{pairs:?}");
        }
    }
}
