//! What clients ask for in a run: payments, and between them payouts from a few accounts. Pure: the same for the same
//! seed, so that a client can repeat its request and the accounts can be funded in advance.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Currencies of payments, with two, no and three decimals.
const CURRENCIES: [&str; 3] = ["EUR", "JPY", "KWD"];
/// Largest amount, in minor units.
const MOST_MINOR: i64 = 1_000_000;
/// One request in so many is sent twice at the same time, as by a double click.
const TWIN_EACH: u32 = 10;
/// One payout in so many carries a reference.
const REFERENCE_EACH: u32 = 3;

/// An account from which payouts are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its currency.
    pub currency: &'static str,
    /// Its funds, as a share of all that is asked of it.
    pub funds_percent: i64,
}

/// The accounts. What is asked of the scarce ones is about twice what they have.
pub const SOURCES: [Source; 5] = [
    Source { currency: "EUR", funds_percent: 100 },
    Source { currency: "EUR", funds_percent: 50 },
    Source { currency: "JPY", funds_percent: 100 },
    Source { currency: "JPY", funds_percent: 50 },
    Source { currency: "KWD", funds_percent: 100 },
];

impl Source {
    /// More may be asked of it than it has.
    pub fn is_scarce(self) -> bool {
        self.funds_percent < 100
    }
}

/// How a payout must end when the account can pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As the mix of faults says: paid, or refused.
    Any,
    /// Paid.
    Succeeded,
    /// Refused.
    Failed,
    /// Paid, and it came back.
    Returned,
}

/// Destinations: how many payouts of a hundred go there, and how they end.
const DESTINATIONS: [(&str, u32, Ending); 6] = [
    ("acct_ok", 70, Ending::Any),
    ("acct_closed", 5, Ending::Failed),
    ("acct_reject_later", 5, Ending::Failed),
    ("acct_returned", 6, Ending::Returned),
    ("acct_no_webhook", 6, Ending::Succeeded),
    ("acct_lost_reply", 8, Ending::Succeeded),
];

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A payment.
    Payment,
    /// A payout.
    Payout {
        /// Its account, as an index of [`SOURCES`].
        source: usize,
        /// Where the money goes.
        destination: &'static str,
        /// How it must end.
        ending: Ending,
        /// It carries a reference.
        referenced: bool,
    },
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What.
    pub what: What,
    /// Minor units.
    pub amount_minor: i64,
    /// ISO 4217 code.
    pub currency: &'static str,
    /// It is sent twice at the same time.
    pub twin: bool,
}

/// All requests of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Payments.
    pub payments: u32,
    /// Payouts.
    pub payouts: u32,
    /// Decides everything else.
    pub seed: u64,
}

impl Plan {
    /// How many requests.
    pub fn total(&self) -> u32 {
        self.payments.saturating_add(self.payouts)
    }

    /// Whether a request is for a payout; they are spread evenly.
    fn is_payout(&self, number: u32) -> bool {
        let before = |number: u64| number * u64::from(self.payouts) / u64::from(self.total().max(1));
        before(u64::from(number) + 1) > before(u64::from(number))
    }

    /// The request of a number below [`Plan::total`].
    pub fn wanted(&self, number: u32) -> Wanted {
        let mut chance = StdRng::seed_from_u64(self.seed ^ (u64::from(number) << 20) ^ 0x10ad);
        let currency = CURRENCIES[chance.random_range(0..CURRENCIES.len())];
        let amount_minor = chance.random_range(1..=MOST_MINOR);
        let twin = chance.random_range(0..TWIN_EACH) == 0;
        if !self.is_payout(number) {
            return Wanted { what: What::Payment, amount_minor, currency, twin };
        }
        let source = chance.random_range(0..SOURCES.len());
        let (destination, ending) = destination(chance.random_range(0..100));
        let referenced = chance.random_range(0..REFERENCE_EACH) == 0;
        let what = What::Payout { source, destination, ending, referenced };
        Wanted { what, amount_minor, currency: SOURCES[source].currency, twin }
    }

    /// What each account is given in the beginning, in minor units.
    pub fn funds(&self) -> [i64; SOURCES.len()] {
        let mut asked = [0_i64; SOURCES.len()];
        for wanted in (0..self.total()).map(|number| self.wanted(number)) {
            if let What::Payout { source, .. } = wanted.what {
                asked[source] += wanted.amount_minor;
            }
        }
        let mut index = 0..;
        asked.map(|asked| asked * SOURCES[index.next().unwrap_or_default()].funds_percent / 100)
    }
}

/// The destination at a place from 0 to 99.
fn destination(place: u32) -> (&'static str, Ending) {
    let mut upper = 0;
    for (name, share, ending) in DESTINATIONS {
        upper += share;
        if place < upper {
            return (name, ending);
        }
    }
    let (name, _, ending) = DESTINATIONS[0];
    (name, ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(payments: u32, payouts: u32, seed: u64) -> Vec<Wanted> {
        let plan = Plan { payments, payouts, seed };
        (0..plan.total()).map(|number| plan.wanted(number)).collect()
    }

    #[test]
    fn what_is_asked_for_depends_on_seed_and_number_only() {
        let of = |seed| all(1000, 0, seed);
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        assert!(of(7).iter().all(|one| (1..=1_000_000).contains(&one.amount_minor)));
        let twins = of(7).iter().filter(|one| one.twin).count();
        assert!((60..150).contains(&twins), "{twins}");
    }

    #[test]
    fn payouts_are_spread_evenly_between_payments() {
        for (payments, payouts) in [(1000, 0), (0, 10), (200, 100), (7, 993), (1, 1)] {
            let all = all(payments, payouts, 3);
            let is_payout = |one: &&Wanted| one.what != What::Payment;
            assert_eq!(all.iter().filter(is_payout).count(), payouts as usize, "{payments}, {payouts}");
            let half = all[..all.len() / 2].iter().filter(is_payout).count();
            assert!(
                half.abs_diff(payouts as usize / 2) <= 1,
                "{payments}, {payouts}: {half} in the first half"
            );
        }
    }

    #[test]
    fn accounts_have_all_that_is_asked_or_half_of_it() {
        let plan = Plan { payments: 100, payouts: 2000, seed: 5 };
        let mut asked = [0; SOURCES.len()];
        for one in all(100, 2000, 5) {
            let What::Payout { source, .. } = one.what else { continue };
            assert_eq!(one.currency, SOURCES[source].currency);
            asked[source] += one.amount_minor;
        }
        for ((funds, asked), source) in plan.funds().into_iter().zip(asked).zip(SOURCES) {
            assert_eq!(funds, if source.is_scarce() { asked / 2 } else { asked }, "{source:?}");
        }
    }

    #[test]
    fn every_destination_is_met_in_its_share() {
        assert_eq!(DESTINATIONS.iter().map(|(_, share, _)| share).sum::<u32>(), 100);
        let all = all(0, 2000, 1);
        for (name, share, ending) in DESTINATIONS {
            let met = all.iter().filter(
                |one| matches!(one.what, What::Payout { destination, ending: of, .. } if destination == name && of == ending),
            );
            let percent = met.count() / 20;
            assert!(percent.abs_diff(share as usize) <= 4, "{name}: {percent}");
        }
    }
}
