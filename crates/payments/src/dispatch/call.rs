//! Phase two: talk to the gateway. No connection is in scope here, and no row is locked.

use std::time::Instant;

use tallystick_gateway::{Answer, Gateway, NotSentCause, Outcome, text};
use tallystick_runner::clock;

use super::claim::Work;
use super::decide::{Act, News, trusted_decline};
use super::record::Item;
use crate::engine::Inner;
use crate::history::Evidence;
use crate::history::repo::NewAttempt;
use crate::operation::Fact;
use crate::settings::LEASE_MARGIN;

/// Characters of a detail that are kept.
const MAX_DETAIL: usize = 200;

/// How a call is shown in the list of attempts.
struct Shown {
    outcome: &'static str,
    detail: Option<String>,
}

/// Does what the claim was told to do. `None`: the process was held up so long after its claim that the call could
/// outlive the lease; nothing is sent and nothing recorded, and the next claim asks.
pub(super) async fn call(inner: &Inner, work: &Work) -> Option<Item> {
    let (named, name) = (work.operation.named(), work.operation.gateway());
    let Some(gateway) = inner.gateways.get(name) else {
        tracing::error!(
            operation.kind = named.kind.object(), operation.id = %named.id, gateway.name = name,
            "no gateway account of this name is configured: add it to the settings, the operation waits"
        );
        return Some(Item::held(work, News::NotSent { retry_after: None }, Evidence::Reply, None));
    };
    let deadline = inner.settings.gateway_timeout;
    let latest_start = inner.settings.lease.saturating_sub(deadline + LEASE_MARGIN);
    if work.claimed_at.elapsed() >= latest_start {
        metrics::counter!("tallystick_calls_dropped_total").increment(1);
        tracing::warn!(operation.id = %named.id, "held up after the claim: the call is dropped and the gateway will be asked");
        return None;
    }
    let (at, begun) = (clock::now(), Instant::now());
    let (news, evidence, shown, action) = match work.act {
        Act::Submit => {
            let (news, shown) = submit(gateway.as_ref(), work, deadline).await;
            tallystick_runner::failpoint!("after_reply");
            (news, Evidence::Reply, shown, "submit")
        }
        Act::Ask => {
            let (news, shown) = ask(gateway.as_ref(), work, deadline).await;
            (news, Evidence::StatusQuery, shown, "ask")
        }
    };
    let took = begun.elapsed();
    metrics::histogram!("tallystick_gateway_call_seconds", "gateway" => name.to_owned(), "action" => action, "outcome" => shown.outcome)
        .record(took);
    tracing::debug!(
        operation.kind = named.kind.object(), operation.id = %named.id, gateway.name = name, action, outcome = shown.outcome,
        duration_ms = took.as_millis(), "gateway call"
    );
    let attempt = NewAttempt {
        operation: named.id,
        fence: work.fence,
        action,
        at,
        duration_ms: i32::try_from(took.as_millis()).unwrap_or(i32::MAX),
        outcome: shown.outcome,
        detail: shown.detail,
    };
    Some(Item::held(work, news, evidence, Some(attempt)))
}

async fn submit(gateway: &dyn Gateway, work: &Work, deadline: std::time::Duration) -> (News, Shown) {
    let request = work.operation.submit();
    let sent = gateway.submit(&request, deadline);
    #[cfg(feature = "failpoints")]
    let sent = tallystick_runner::failpoint::during("after_send", sent);
    match sent.await {
        Outcome::Approved(approval) => shown(News::Fact(Fact::Approved(approval)), "approved", None),
        Outcome::Declined(decline) => match trusted_decline(work.lost_before, gateway.capability().replay) {
            Ok(()) => {
                let detail = Some(decline.code.clone());
                shown(News::Fact(Fact::Declined(decline)), "declined", detail)
            }
            Err(cause) => {
                let detail = Some(cause.name().to_owned());
                shown(News::Fact(Fact::ReplyLost(cause)), "lost", detail)
            }
        },
        Outcome::Accepted { reference } => {
            shown(News::Fact(Fact::Acknowledged { reference }), "accepted", None)
        }
        Outcome::NotSent(cause) => {
            let (retry_after, detail) = match cause {
                NotSentCause::Connect(reason) => (None, reason),
                NotSentCause::RateLimited { retry_after } => (retry_after, "rate limited".to_owned()),
            };
            shown(News::NotSent { retry_after }, "not_sent", Some(detail))
        }
        Outcome::Lost(cause) => {
            let detail = Some(format!("{cause:?}"));
            shown(News::Fact(Fact::ReplyLost(cause)), "lost", detail)
        }
    }
}

async fn ask(gateway: &dyn Gateway, work: &Work, deadline: std::time::Duration) -> (News, Shown) {
    match gateway.query(&work.operation.key(), deadline).await {
        Answer::Approved(approval) => shown(News::Fact(Fact::Approved(approval)), "approved", None),
        Answer::Declined(decline) => {
            let detail = Some(decline.code.clone());
            shown(News::Fact(Fact::Declined(decline)), "declined", detail)
        }
        Answer::Pending { reference } => {
            shown(News::Fact(Fact::Acknowledged { reference }), "accepted", None)
        }
        Answer::NotFound => shown(News::NotFound, "not_found", None),
        Answer::Unanswered(reason) => shown(News::Unanswered, "unanswered", Some(reason)),
    }
}

fn shown(news: News, outcome: &'static str, detail: Option<String>) -> (News, Shown) {
    // An answer that could not be read may be long; a few words are enough for people.
    let detail = detail.and_then(|d| text::words(&d, MAX_DETAIL));
    (news, Shown { outcome, detail })
}
