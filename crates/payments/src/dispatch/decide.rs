//! When may a byte be sent, and what comes next? Pure.

use std::time::Duration;

use tallystick_gateway::{Capability, LostCause, Replay};
use tallystick_runner::backoff::Backoff;

use crate::operation::{Fact, Progress};
use crate::settings::Settings;

/// What a claimed operation is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Send it, with the key that was committed at creation.
    Submit,
    /// Only ask about the key.
    Ask,
}

/// What the claim found, as far as it decides.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub progress: Progress,
    /// The gateway gave us its id: it knows the operation.
    pub has_reference: bool,
    /// The client asked to cancel.
    pub cancel_requested: bool,
    /// An earlier claim left no result: its worker may have sent something.
    pub unrecorded: bool,
    /// The gateway answered `not_found` after the last possible send.
    pub cleared: bool,
    /// Time since the first claim, by the database's clock.
    pub age: Duration,
}

/// A submit is sent only when nothing was sent before, or the gateway said after the last possible send that it
/// does not know the key; and only while the gateway still recognises the key, with a margin. Anything else asks.
pub(crate) fn act(standing: &Standing, capability: &Capability, margin: Duration) -> Act {
    let retained = standing.age < capability.key_retention.saturating_sub(margin);
    if standing.has_reference || standing.cancel_requested || !retained {
        return Act::Ask;
    }
    let may_send = match standing.progress {
        // Every earlier claim ended without a byte sent, or there was none.
        Progress::Unsent => !standing.unrecorded,
        Progress::Unknown if !standing.unrecorded => {
            match (capability.replay, capability.query_by_key) {
                (Replay::ReExecutes, _) => false,
                (_, true) => standing.cleared,
                // There is no way to ask; the gateway's own replay makes the repeat harmless.
                (_, false) => true,
            }
        }
        Progress::Unknown => capability.replay != Replay::ReExecutes && !capability.query_by_key,
        Progress::Acknowledged | Progress::Over => false,
    };
    if may_send { Act::Submit } else { Act::Ask }
}

/// Nothing will be sent for this operation any more, and only an answer of the gateway or a person ends it.
pub(crate) fn is_stranded(standing: &Standing, capability: &Capability, margin: Duration) -> bool {
    let forgotten = standing.age >= capability.key_retention.saturating_sub(margin);
    match standing.progress {
        Progress::Unsent => forgotten,
        Progress::Unknown => forgotten || capability.replay == Replay::ReExecutes,
        Progress::Acknowledged | Progress::Over => false,
    }
}

/// What a call brought back.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// Something was learnt about the operation.
    Fact(Fact),
    /// Certainly nothing was sent.
    NotSent { retry_after: Option<Duration> },
    /// The gateway does not know the key now.
    NotFound,
    /// A question got no usable answer.
    Unanswered,
    /// The call was not begun because this process stops; somebody else may begin it at once.
    HandedBack,
}

impl News {
    /// Weak news counts only from the holder of the lease: somebody else may know better by now.
    pub(crate) fn is_weak(&self) -> bool {
        match self {
            Self::Fact(fact) => matches!(fact, Fact::ReplyLost(_)),
            Self::NotSent { .. } | Self::NotFound | Self::Unanswered | Self::HandedBack => true,
        }
    }
}

/// What becomes of the dispatch row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The operation needs no more work.
    Done,
    /// Look again after this long.
    After {
        wait: Duration,
        /// The gateway does not know the key: the next claim may send it again.
        cleared: bool,
        /// Results without progress so far.
        tries: i32,
    },
}

const NOT_SENT: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(15));

/// What comes after `news`, for an operation that is at `progress` now and had `tries` results without progress.
pub(crate) fn next(
    news: &News,
    progress: Progress,
    awaits_person: bool,
    cleared: bool,
    tries: i32,
    settings: &Settings,
) -> Next {
    if progress == Progress::Over {
        return Next::Done;
    }
    let tries = tries.saturating_add(1);
    let n = u32::try_from(tries).unwrap_or(1);
    let sweep = Backoff::new(settings.sweep_after, settings.sweep_max_backoff);
    if awaits_person {
        // Still asked now and then: the gateway may correct itself before anybody has looked.
        return Next::After { wait: settings.sweep_max_backoff, cleared: false, tries };
    }
    match news {
        News::HandedBack => Next::After { wait: Duration::ZERO, cleared, tries: tries - 1 },
        News::NotSent { retry_after } => {
            let wait = NOT_SENT.half_jitter(n).min(settings.sweep_max_backoff);
            Next::After { wait: retry_after.unwrap_or_default().max(wait), cleared, tries }
        }
        // The next claim sends at once; a gateway that keeps losing submits is met by the back-off after those.
        News::NotFound if progress == Progress::Unknown && !cleared => {
            Next::After { wait: Duration::ZERO, cleared: true, tries }
        }
        News::NotFound => Next::After { wait: sweep.spread(n), cleared, tries },
        News::Unanswered => Next::After { wait: sweep.spread(n), cleared: false, tries },
        News::Fact(Fact::Acknowledged { .. }) => {
            let check = Backoff::new(settings.status_check_after, settings.status_check_after * 4);
            Next::After { wait: check.no_sooner(n), cleared: false, tries }
        }
        News::Fact(Fact::ReplyLost(_) | Fact::Approved(_) | Fact::Declined(_) | Fact::InsufficientFunds) => {
            Next::After { wait: sweep.spread(n), cleared: false, tries }
        }
    }
}

/// A decline counts only when no earlier attempt with this key can have had an effect that it hides.
pub(crate) fn trusted_decline(lost_before: bool, replay: Replay) -> Result<(), LostCause> {
    if lost_before && replay == Replay::ReExecutes { Err(LostCause::UnprovenDecline) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystick_gateway::{Approval, Decline, Stage};

    const DAY: Duration = Duration::from_secs(86_400);
    const HOUR: Duration = Duration::from_secs(3_600);

    fn capability(replay: Replay, query_by_key: bool) -> Capability {
        Capability { key_retention: DAY, replay, query_by_key, definite_declines: "" }
    }

    fn standing(progress: Progress) -> Standing {
        Standing {
            progress,
            has_reference: false,
            cancel_requested: false,
            unrecorded: false,
            cleared: false,
            age: Duration::ZERO,
        }
    }

    fn decide(standing: &Standing, replay: Replay) -> Act {
        act(standing, &capability(replay, true), HOUR)
    }

    #[test]
    fn a_byte_is_sent_first_or_after_the_gateway_said_that_it_does_not_know_the_key() {
        use Progress::{Acknowledged, Over, Unknown, Unsent};
        let same = Replay::SameResult;
        assert_eq!(decide(&standing(Unsent), same), Act::Submit);
        assert_eq!(decide(&standing(Unknown), same), Act::Ask);
        assert_eq!(decide(&Standing { cleared: true, ..standing(Unknown) }, same), Act::Submit);
        for progress in [Acknowledged, Over] {
            assert_eq!(
                decide(&Standing { cleared: true, ..standing(progress) }, same),
                Act::Ask,
                "{progress:?}"
            );
        }
    }

    #[test]
    fn nothing_is_sent_after_a_vanished_worker_a_reference_a_cancel_or_the_key_retention() {
        let cleared = Standing { cleared: true, ..standing(Progress::Unknown) };
        let fresh = standing(Progress::Unsent);
        for base in [cleared, fresh] {
            let spoiled = [
                Standing { unrecorded: true, ..base.clone() },
                Standing { has_reference: true, ..base.clone() },
                Standing { cancel_requested: true, ..base.clone() },
                Standing { age: DAY - HOUR, ..base.clone() },
                Standing { age: DAY * 2, ..base.clone() },
            ];
            for one in spoiled {
                assert_eq!(decide(&one, Replay::SameResult), Act::Ask, "{one:?}");
            }
            let last_moment = Standing { age: DAY - HOUR - Duration::from_secs(1), ..base };
            assert_eq!(decide(&last_moment, Replay::SameResult), Act::Submit);
        }
    }

    #[test]
    fn a_gateway_that_runs_a_key_twice_is_sent_it_once() {
        let cleared = Standing { cleared: true, ..standing(Progress::Unknown) };
        assert_eq!(decide(&cleared, Replay::ReExecutes), Act::Ask);
        assert_eq!(decide(&standing(Progress::Unsent), Replay::ReExecutes), Act::Submit);
        assert_eq!(trusted_decline(true, Replay::ReExecutes), Err(LostCause::UnprovenDecline));
        assert_eq!(trusted_decline(false, Replay::ReExecutes), Ok(()));
        assert_eq!(trusted_decline(true, Replay::SameResult), Ok(()));
    }

    #[test]
    fn where_nothing_can_be_asked_the_same_key_is_sent_again_if_its_replay_is_harmless() {
        let unknown = standing(Progress::Unknown);
        for (replay, expected) in [
            (Replay::SameResult, Act::Submit),
            (Replay::LatestStatus, Act::Submit),
            (Replay::ReExecutes, Act::Ask),
        ] {
            assert_eq!(act(&unknown, &capability(replay, false), HOUR), expected);
        }
    }

    fn after(news: &News, progress: Progress, cleared: bool, tries: i32) -> (Duration, bool) {
        match next(news, progress, false, cleared, tries, &Settings::default()) {
            Next::After { wait, cleared, .. } => (wait, cleared),
            Next::Done => panic!("there is work left"),
        }
    }

    #[test]
    fn final_states_need_no_work_and_open_ones_always_have_a_next_time() {
        let news = [
            News::Fact(Fact::ReplyLost(LostCause::Timeout)),
            News::Fact(Fact::Acknowledged { reference: None }),
            News::Fact(Fact::Declined(Decline { code: String::new(), message: String::new() })),
            News::Fact(Fact::Approved(Approval {
                reference: String::new(),
                stage: Stage::Captured,
                amount_minor: 1,
                currency: "EUR".into(),
            })),
            News::NotSent { retry_after: None },
            News::NotFound,
            News::Unanswered,
            News::HandedBack,
        ];
        let settings = Settings::default();
        for one in &news {
            for progress in [Progress::Unsent, Progress::Unknown, Progress::Acknowledged, Progress::Over] {
                for (person, tries) in [(false, 0), (true, 5), (false, i32::MAX)] {
                    let found = next(one, progress, person, false, tries, &settings);
                    assert_eq!(found == Next::Done, progress == Progress::Over, "{one:?} {progress:?}");
                    if let Next::After { wait, .. } = found {
                        assert!(wait <= settings.status_check_after * 5, "{one:?} waits {wait:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn not_found_sends_again_at_once_but_only_once_per_loss() {
        assert_eq!(after(&News::NotFound, Progress::Unknown, false, 7), (Duration::ZERO, true));
        let (wait, cleared) = after(&News::NotFound, Progress::Unknown, true, 1);
        assert!(wait > Duration::ZERO && cleared);
        let lost = News::Fact(Fact::ReplyLost(LostCause::Timeout));
        let (wait, cleared) = after(&lost, Progress::Unknown, true, 0);
        assert!(wait >= Settings::default().sweep_after * 8 / 10 && !cleared);
    }

    #[test]
    fn an_acknowledgement_is_not_asked_about_before_its_time() {
        let news = News::Fact(Fact::Acknowledged { reference: None });
        for _ in 0..100 {
            let (wait, cleared) = after(&news, Progress::Acknowledged, true, 0);
            assert!(wait >= Settings::default().status_check_after && !cleared, "{wait:?}");
        }
    }

    #[test]
    fn retry_after_is_honoured() {
        let news = News::NotSent { retry_after: Some(Duration::from_secs(90)) };
        assert_eq!(after(&news, Progress::Unsent, false, 0).0, Duration::from_secs(90));
    }
}
