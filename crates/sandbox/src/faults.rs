//! Misbehaviour on request: magic values, rules, and a seeded mix.
//!
//! A submit that would execute looks for a rule that matches, then at its own magic value (`tok_…`, `acct_…`), then
//! draws from the mix. Status questions and webhooks have faults of their own. All chance is drawn from a seed, the
//! key and a number, so that it does not depend on the interleaving of requests.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::model::{Kind, words};
use crate::seed::{self, Part};

words! {
    /// What a rule is for.
    pub enum Target {
        /// Submits of charges.
        Charge = "charge",
        /// Submits of captures.
        Capture = "capture",
        /// Submits of voids.
        Void = "void",
        /// Submits of refunds.
        Refund = "refund",
        /// Submits of payouts.
        Payout = "payout",
        /// Questions for the status of a key.
        Status = "status",
        /// Our webhooks.
        Webhook = "webhook",
        /// Whatever the fault fits: submits, unless its name says otherwise.
        Any = "any",
    }
}

words! {
    /// Faults of submits; a magic value is `tok_` or `acct_` and one of these words.
    pub enum SubmitFault {
        /// None.
        Ok = "ok",
        /// Refused for good.
        Decline = "decline",
        /// Refused for good: the destination's account is closed.
        Closed = "closed",
        /// The effect, then no answer.
        LostReply = "lost_reply",
        /// The effect, then 500.
        ErrorAfter = "error_after",
        /// The effect, then a connection reset.
        Reset = "reset",
        /// The effect, then half a JSON body.
        Garbage = "garbage",
        /// The first request vanishes: no effect, no answer.
        NeverSeen = "never_seen",
        /// 500 twice without effect, then works.
        ErrorBefore = "error_before",
        /// Acknowledged; the effect 3 s later.
        Late = "late",
        /// The effect and no answer; the status route does not know it for 3 s.
        HiddenThenCaptured = "hidden_then_captured",
        /// The webhook is delivered before the answer.
        WebhookFirst = "webhook_first",
        /// The same fact is told three times under two event ids.
        WebhookDup = "webhook_dup",
        /// One minor unit more than asked for.
        WrongAmount = "wrong_amount",
        /// Refused; 1 s later the effect happens nevertheless.
        DeclineThenCaptured = "decline_then_captured",
        /// Works, but no webhook tells of it.
        NoWebhook = "no_webhook",
        /// Acknowledged, then refused.
        RejectLater = "reject_later",
        /// Of payouts: sent, then it comes back.
        Returned = "returned",
        /// The effect at once, the answer late, the webhook as usual.
        Delay = "delay",
        /// 429 before anything is looked at.
        RateLimited = "rate_limited",
        /// 503 before anything is looked at.
        Unavailable = "unavailable",
    }
}

impl SubmitFault {
    /// Whether it concerns how the answer travels, so that a magic value shows it once per key and not again when
    /// the key executes again.
    #[must_use]
    pub const fn is_of_transport(self) -> bool {
        matches!(
            self,
            Self::LostReply
                | Self::ErrorAfter
                | Self::Reset
                | Self::Garbage
                | Self::NeverSeen
                | Self::ErrorBefore
                | Self::HiddenThenCaptured
                | Self::Delay
                | Self::RateLimited
                | Self::Unavailable
        )
    }

    const fn fits(self, kind: Kind) -> bool {
        !matches!(self, Self::Returned) || matches!(kind, Kind::Payout)
    }
}

words! {
    /// Faults of status questions.
    pub enum StatusFault {
        /// No answer.
        Lost = "status_lost",
        /// 404 although the key is known.
        NotFound = "status_not_found",
        /// Pending although it is decided.
        Pending = "status_pending",
        /// The answer late.
        Delay = "status_delay",
    }
}

words! {
    /// Faults of webhooks.
    pub enum WebhookFault {
        /// Made and listed, never sent.
        Drop = "webhook_drop",
        /// Sent twice.
        Dup = "webhook_dup",
        /// Sent 3 s later.
        Late = "webhook_late",
        /// Held back so that younger ones overtake it.
        Reorder = "webhook_reorder",
    }
}

/// A fault of one of the three families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Of a submit.
    Submit(SubmitFault),
    /// Of a status question.
    Status(StatusFault),
    /// Of a webhook.
    Webhook(WebhookFault),
}

impl Fault {
    /// What a name means for a target. Without a prefix it is looked for in the target's own family.
    #[must_use]
    pub fn parse(target: Target, name: &str) -> Option<Self> {
        let status = || StatusFault::from_word(name).map(Self::Status);
        let webhook = || WebhookFault::from_word(name).map(Self::Webhook);
        match target {
            Target::Status => {
                status().or_else(|| StatusFault::from_word(&format!("status_{name}")).map(Self::Status))
            }
            Target::Webhook => {
                webhook().or_else(|| WebhookFault::from_word(&format!("webhook_{name}")).map(Self::Webhook))
            }
            Target::Any => {
                status().or_else(webhook).or_else(|| SubmitFault::from_word(name).map(Self::Submit))
            }
            submits => SubmitFault::from_word(name)
                .filter(|fault| *fault != SubmitFault::Returned || submits == Target::Payout)
                .map(Self::Submit),
        }
    }
}

/// A rule of `/_faults`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rule {
    /// Its id.
    pub id: String,
    /// What it is for.
    pub operation: Target,
    /// Only for this key.
    pub key: Option<String>,
    /// Only for payouts to this destination.
    pub destination: Option<String>,
    /// What happens.
    pub fault: Fault,
    /// How long the fault `delay` lasts.
    #[serde(with = "clock::as_text")]
    pub delay: Duration,
    /// In which part of the matching cases.
    pub probability: Part,
    /// How many cases are left; absent: no end.
    pub times: Option<u32>,
}

/// Rates of faults that any submit, status question or webhook may meet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    /// Seed of the draws.
    pub seed: u64,
    /// Rates by name.
    pub rates: BTreeMap<String, Part>,
}

impl Mix {
    /// Checks that each name means something and that no family's rates are more than one together.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        let mut sums = [0_u64; 3];
        for (name, part) in &self.rates {
            let family = match Fault::parse(Target::Any, name) {
                Some(Fault::Submit(_)) => 0,
                Some(Fault::Status(_)) => 1,
                Some(Fault::Webhook(_)) => 2,
                None => return Err(format!("no such fault: {name}")),
            };
            sums[family] += part.parts();
        }
        match sums.iter().all(|sum| *sum <= Part::WHOLE.parts()) {
            true => Ok(()),
            false => Err("the rates are more than 1 together".to_owned()),
        }
    }

    fn drawn(&self, purpose: &str, key: &str, number: u64, want: fn(Fault) -> bool) -> Option<Fault> {
        let place = seed::place(seed::draw(self.seed, purpose, key, number));
        let mut upper = 0;
        for (name, part) in &self.rates {
            let Some(fault) = Fault::parse(Target::Any, name).filter(|fault| want(*fault)) else { continue };
            upper += part.parts();
            if place < upper {
                return Some(fault);
            }
        }
        None
    }
}

/// The case for which a fault is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The gateway key.
    pub key: &'a str,
    /// Destination of a payout.
    pub destination: Option<&'a str>,
    /// Attempt, question or event of this key, from 1.
    pub number: u64,
    /// Seed of the rules' probabilities.
    pub seed: u64,
}

/// A fault that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen<F> {
    /// Which.
    pub fault: F,
    /// For the faults named `delay`.
    pub delay: Duration,
    /// The rule that chose it and has a limited number of cases.
    pub used: Option<String>,
}

/// Length of the fault `delay` when the rule does not say.
pub const DEFAULT_DELAY: Duration = Duration::from_secs(2);

impl<F> Chosen<F> {
    fn plain(fault: F) -> Self {
        Self { fault, delay: DEFAULT_DELAY, used: None }
    }
}

/// All rules and the mix.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Rules, oldest first; the first that matches counts.
    pub rules: Vec<Rule>,
    /// The mix.
    pub mix: Mix,
}

impl Faults {
    /// The fault of a submit that is about to execute; `magic` is what its own value asks for.
    #[must_use]
    pub fn of_submit(&self, kind: Kind, case: Case<'_>, magic: SubmitFault) -> Chosen<SubmitFault> {
        let fits = |target: Target| target == Target::Any || target.as_str() == kind.as_str();
        let ruled = self.ruled(case, |rule| match rule.fault {
            Fault::Submit(fault) if fits(rule.operation) && fault.fits(kind) => Some(fault),
            _ => None,
        });
        if let Some(chosen) = ruled {
            return chosen;
        }
        if magic != SubmitFault::Ok {
            return Chosen::plain(magic);
        }
        match self.mix.drawn("submit", case.key, case.number, |fault| matches!(fault, Fault::Submit(_))) {
            Some(Fault::Submit(fault)) if fault.fits(kind) => Chosen::plain(fault),
            _ => Chosen::plain(SubmitFault::Ok),
        }
    }

    /// The fault of a status question, if any.
    #[must_use]
    pub fn of_status(&self, case: Case<'_>) -> Option<Chosen<StatusFault>> {
        let ruled = self.ruled(case, |rule| match rule.fault {
            Fault::Status(fault) => Some(fault),
            _ => None,
        });
        ruled.or_else(|| {
            match self.mix.drawn("status", case.key, case.number, |f| matches!(f, Fault::Status(_))) {
                Some(Fault::Status(fault)) => Some(Chosen::plain(fault)),
                _ => None,
            }
        })
    }

    /// The fault of a webhook, if any.
    #[must_use]
    pub fn of_webhook(&self, case: Case<'_>) -> Option<Chosen<WebhookFault>> {
        let ruled = self.ruled(case, |rule| match rule.fault {
            Fault::Webhook(fault) => Some(fault),
            _ => None,
        });
        ruled.or_else(|| {
            match self.mix.drawn("webhook", case.key, case.number, |f| matches!(f, Fault::Webhook(_))) {
                Some(Fault::Webhook(fault)) => Some(Chosen::plain(fault)),
                _ => None,
            }
        })
    }

    fn ruled<F>(&self, case: Case<'_>, want: impl Fn(&Rule) -> Option<F>) -> Option<Chosen<F>> {
        self.rules.iter().find_map(|rule| {
            let fault = want(rule)?;
            let meant = rule.key.as_deref().is_none_or(|key| key == case.key)
                && rule.destination.as_deref().is_none_or(|to| case.destination == Some(to))
                && rule.times != Some(0)
                && seed::happens(seed::draw(case.seed, &rule.id, case.key, case.number), rule.probability);
            let used = rule.times.map(|_| rule.id.clone());
            meant.then_some(Chosen { fault, delay: rule.delay, used })
        })
    }

    /// Takes one case from a rule with a limited number of them.
    pub fn use_up(&mut self, id: &str) {
        if let Some(times) =
            self.rules.iter_mut().find(|rule| rule.id == id).and_then(|rule| rule.times.as_mut())
        {
            *times = times.saturating_sub(1);
        }
        self.rules.retain(|rule| rule.times != Some(0));
    }
}

/// What a payment method or destination asks for by its name. A value that is not magic is an ordinary one.
#[must_use]
pub fn magic(kind: Kind, instrument: &str) -> SubmitFault {
    let name = match kind {
        Kind::Charge => instrument.strip_prefix("tok_"),
        Kind::Payout => instrument.strip_prefix("acct_"),
        Kind::Capture | Kind::Void | Kind::Refund => None,
    };
    name.and_then(SubmitFault::from_word).filter(|fault| fault.fits(kind)).unwrap_or(SubmitFault::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(key: &str, number: u64) -> Case<'_> {
        Case { key, destination: Some("acct_ok"), number, seed: 1 }
    }

    fn rule(operation: Target, name: &str) -> Rule {
        Rule {
            id: "r1".to_owned(),
            operation,
            key: None,
            destination: None,
            fault: Fault::parse(operation, name).expect("a fault"),
            delay: DEFAULT_DELAY,
            probability: Part::WHOLE,
            times: None,
        }
    }

    #[test]
    fn names_belong_to_families() {
        assert_eq!(Fault::parse(Target::Status, "lost"), Some(Fault::Status(StatusFault::Lost)));
        assert_eq!(Fault::parse(Target::Any, "status_lost"), Some(Fault::Status(StatusFault::Lost)));
        assert_eq!(Fault::parse(Target::Webhook, "drop"), Some(Fault::Webhook(WebhookFault::Drop)));
        assert_eq!(Fault::parse(Target::Charge, "webhook_dup"), Some(Fault::Submit(SubmitFault::WebhookDup)));
        assert_eq!(Fault::parse(Target::Any, "webhook_dup"), Some(Fault::Webhook(WebhookFault::Dup)));
        assert_eq!(Fault::parse(Target::Status, "delay"), Some(Fault::Status(StatusFault::Delay)));
        assert_eq!(Fault::parse(Target::Charge, "returned"), None);
        assert_eq!(Fault::parse(Target::Any, "moon"), None);
    }

    #[test]
    fn rules_match_operation_key_destination_and_times() {
        let mut faults = Faults::default();
        faults.rules.push(Rule {
            times: Some(1),
            key: Some("a".to_owned()),
            ..rule(Target::Payout, "lost_reply")
        });
        let of = |faults: &Faults, kind, key| faults.of_submit(kind, case(key, 1), SubmitFault::Ok);
        assert_eq!(of(&faults, Kind::Charge, "a").fault, SubmitFault::Ok);
        assert_eq!(of(&faults, Kind::Payout, "b").fault, SubmitFault::Ok);
        let hit = of(&faults, Kind::Payout, "a");
        assert_eq!((hit.fault, hit.used.as_deref()), (SubmitFault::LostReply, Some("r1")));
        faults.use_up("r1");
        assert_eq!(of(&faults, Kind::Payout, "a").fault, SubmitFault::Ok);
        faults.rules.push(Rule { destination: Some("acct_ok".to_owned()), ..rule(Target::Any, "reset") });
        assert_eq!(of(&faults, Kind::Payout, "a").fault, SubmitFault::Reset);
        let elsewhere = Case { destination: None, ..case("a", 1) };
        assert_eq!(faults.of_submit(Kind::Charge, elsewhere, SubmitFault::Late).fault, SubmitFault::Late);
    }

    #[test]
    fn the_mix_depends_on_seed_key_and_number_only() {
        let rates = [("lost_reply", 300_000), ("error_after", 300_000), ("status_lost", 500_000)];
        let rates = rates.map(|(name, parts)| (name.to_owned(), Part::per_million(parts))).into();
        let faults = Faults { rules: Vec::new(), mix: Mix { seed: 9, rates } };
        faults.mix.check().unwrap();
        let run = |order: &[usize]| {
            let mut found = BTreeMap::new();
            for n in order {
                let key = format!("k{n}");
                found.insert(*n, faults.of_submit(Kind::Charge, case(&key, 1), SubmitFault::Ok).fault);
            }
            found
        };
        let (up, down): (Vec<_>, Vec<_>) = ((0..500).collect(), (0..500).rev().collect());
        let found = run(&up);
        assert_eq!(found, run(&down));
        let lost = found.values().filter(|f| **f == SubmitFault::LostReply).count();
        assert!((100..200).contains(&lost), "{lost}");
        assert!(!found.values().any(|f| matches!(f, SubmitFault::Returned)));
        let asked = (0..500).filter(|n| faults.of_status(case(&format!("k{n}"), 1)).is_some()).count();
        assert!((200..300).contains(&asked), "{asked}");
        assert_eq!(faults.of_webhook(case("k1", 1)), None);
    }

    #[test]
    fn a_mix_must_make_sense() {
        let mix =
            |name: &str, parts| Mix { seed: 0, rates: [(name.to_owned(), Part::per_million(parts))].into() };
        assert!(mix("moon", 1).check().is_err());
        let mut two = mix("reset", 600_000);
        two.rates.insert("garbage".to_owned(), Part::per_million(600_000));
        assert!(two.check().is_err());
    }

    #[test]
    fn magic_values_are_of_their_own_kind() {
        assert_eq!(magic(Kind::Charge, "tok_lost_reply"), SubmitFault::LostReply);
        assert_eq!(magic(Kind::Payout, "acct_returned"), SubmitFault::Returned);
        for (kind, value) in
            [(Kind::Charge, "acct_closed"), (Kind::Charge, "tok_returned"), (Kind::Charge, "visa")]
        {
            assert_eq!(magic(kind, value), SubmitFault::Ok, "{value}");
        }
    }
}
