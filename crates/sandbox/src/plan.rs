//! What a fault means: when the effect happens, what the answer looks like, and what is told.

use std::time::Duration;

use crate::clock::{Micros, SECOND};
use crate::faults::SubmitFault;
use crate::model::{Act, Kind};

/// When the effect of a submit happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happens {
    /// Before the answer.
    Now,
    /// So many microseconds after the acknowledgement.
    Later(Micros),
    /// Never: it is refused at once.
    Refused,
    /// Never: it is acknowledged and refused so many microseconds later.
    RefusedLater(Micros),
    /// It is refused at once and happens nevertheless, so many microseconds later.
    RefusedThenDone(Micros),
}

/// What the answer looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it is.
    Plain,
    /// 500.
    Error,
    /// None.
    Silence,
    /// A reset of the connection.
    Reset,
    /// Half a body.
    Garbage,
    /// As it is, but later.
    Delayed(Duration),
    /// As it is, after the webhook was delivered.
    AfterWebhook,
}

/// How a submit that passed the gateway's checks goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// When the effect happens.
    pub happens: Happens,
    /// What follows by itself after the effect, so many microseconds later.
    pub then: Option<(Act, Micros)>,
    /// What the answer looks like.
    pub form: Form,
    /// No webhook tells of it.
    pub quiet: bool,
    /// Each fact is told three times under two event ids.
    pub dup: bool,
    /// Minor units more than asked for.
    pub extra_minor: i64,
    /// How long the status route does not know it, in microseconds.
    pub hidden_for: Option<Micros>,
}

/// How long what is late or hidden stays so.
pub const LATE: Micros = 3 * SECOND;
/// From a refusal to the effect that happens nevertheless, and from a payout to its return.
pub const SOON: Micros = SECOND;

/// The plan for a fault. `wait` is the time from an acknowledgement to the outcome where `acknowledged` says that
/// submits of this kind are acknowledged first.
///
/// Faults by which the caller learns nothing have their effect at once and stay quiet: a webhook would tell the
/// outcome before the caller has given up on the answer.
#[must_use]
pub fn plan(fault: SubmitFault, kind: Kind, acknowledged: bool, wait: Micros, delay: Duration) -> Plan {
    let usual = Plan {
        happens: if acknowledged { Happens::Later(wait) } else { Happens::Now },
        then: None,
        form: Form::Plain,
        quiet: false,
        dup: false,
        extra_minor: 0,
        hidden_for: None,
    };
    let lost = |form| Plan { happens: Happens::Now, form, quiet: true, ..usual };
    match fault {
        // The last four are answered before a plan is made; what comes through after them is an ordinary submit.
        SubmitFault::Ok
        | SubmitFault::NeverSeen
        | SubmitFault::ErrorBefore
        | SubmitFault::RateLimited
        | SubmitFault::Unavailable => usual,
        SubmitFault::Decline | SubmitFault::Closed => Plan { happens: Happens::Refused, ..usual },
        SubmitFault::LostReply => lost(Form::Silence),
        SubmitFault::ErrorAfter => lost(Form::Error),
        SubmitFault::Reset => lost(Form::Reset),
        SubmitFault::Garbage => lost(Form::Garbage),
        SubmitFault::HiddenThenCaptured => Plan { hidden_for: Some(LATE), ..lost(Form::Silence) },
        SubmitFault::Late => Plan { happens: Happens::Later(LATE), ..usual },
        SubmitFault::WebhookFirst => Plan { happens: Happens::Now, form: Form::AfterWebhook, ..usual },
        SubmitFault::WebhookDup => Plan { dup: true, ..usual },
        SubmitFault::WrongAmount => Plan { extra_minor: 1, quiet: true, ..usual },
        SubmitFault::DeclineThenCaptured => Plan { happens: Happens::RefusedThenDone(SOON), ..usual },
        SubmitFault::NoWebhook => Plan { quiet: true, ..usual },
        SubmitFault::RejectLater => Plan { happens: Happens::RefusedLater(wait), ..usual },
        SubmitFault::Returned => {
            Plan { then: matches!(kind, Kind::Payout).then_some((Act::Return, SOON)), ..usual }
        }
        SubmitFault::Delay => Plan { happens: Happens::Now, form: Form::Delayed(delay), ..usual },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fault: SubmitFault, acknowledged: bool) -> Plan {
        plan(fault, Kind::Payout, acknowledged, 50_000, SOON_ENOUGH)
    }

    const SOON_ENOUGH: Duration = Duration::from_secs(2);

    #[test]
    fn what_goes_by_way_of_unknown_is_quiet_and_done_before_the_answer() {
        for fault in
            [SubmitFault::LostReply, SubmitFault::ErrorAfter, SubmitFault::Reset, SubmitFault::Garbage]
        {
            for acknowledged in [false, true] {
                let plan = of(fault, acknowledged);
                assert!(plan.quiet && plan.happens == Happens::Now && plan.form != Form::Plain, "{fault:?}");
            }
        }
    }

    #[test]
    fn the_bank_acknowledges_first() {
        assert_eq!(of(SubmitFault::Ok, true).happens, Happens::Later(50_000));
        assert_eq!(of(SubmitFault::Ok, false).happens, Happens::Now);
        assert_eq!(of(SubmitFault::Returned, true).then, Some((Act::Return, SOON)));
        assert_eq!(of(SubmitFault::Delay, true).form, Form::Delayed(SOON_ENOUGH));
        let card = plan(SubmitFault::Returned, Kind::Charge, false, 0, SOON_ENOUGH);
        assert_eq!(card.then, None);
    }
}
