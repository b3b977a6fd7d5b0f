//! Kills the servers in turn at seeded moments, each time with calls in flight if there are any to be had.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::http::Http;
use super::load::Load;
use super::servers::Servers;

/// Share of kills that must hit a server with calls in flight; a kill of an idle server proves nothing.
pub const LEAST_PERCENT_IN_FLIGHT: u32 = 80;
/// How long a kill waits for a call in flight.
const FOR_A_CALL: Duration = Duration::from_secs(5);
/// How long the load may take to get to the next kill.
const FOR_THE_LOAD: Duration = Duration::from_secs(180);
/// The server's count of calls that are under way.
const GAUGE: &str = "tallystick_calls_in_flight";

/// One kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// It happens once so many creates were answered …
    pub after: u32,
    /// … and so much later, when a call is in flight.
    pub then: Duration,
    /// Requests that are released before it.
    pub gate: u32,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Kills {
    /// Kills.
    pub kills: u32,
    /// Those that hit a server with calls in flight.
    pub in_flight: u32,
    /// Most calls in flight at a kill.
    pub most_in_flight: u64,
    /// The longest time from a kill to a server that is ready again.
    pub slowest_return: Duration,
}

/// Divides the requests into portions, one per kill; the kill happens somewhere inside its portion.
pub fn plan(requests: u32, kills: u32, seed: u64) -> Vec<Kill> {
    let mut chance = StdRng::seed_from_u64(seed ^ 0x0051_6b11);
    let edge = |portion: u32| {
        let edge = u64::from(requests) * u64::from(portion) / u64::from(kills.max(1));
        u32::try_from(edge).unwrap_or(requests)
    };
    let kill = |number: u32| {
        let (start, gate) = (edge(number), edge(number + 1));
        let size = gate - start;
        // Neither right at the beginning nor at the end of the portion, so that there is work before and behind it.
        let after = start + size * chance.random_range(10..=80) / 100;
        Kill { after, then: Duration::from_millis(chance.random_range(0..120)), gate }
    };
    (0..kills).map(kill).collect()
}

/// How many requests are released at the beginning.
pub fn first_gate(plan: &[Kill], requests: u32) -> u32 {
    plan.first().map_or(requests, |kill| kill.gate)
}

/// Carries the plan out.
///
/// # Errors
/// When the load does not go on or a server does not come back.
pub async fn run(plan: &[Kill], load: &Load, http: &Http, servers: &mut Servers<'_>) -> Result<Kills> {
    let mut done = Kills::default();
    for kill in plan {
        load.release(kill.gate);
        let deadline = Instant::now() + FOR_THE_LOAD;
        while load.count() < kill.after {
            let told = || {
                format!(
                    "{} creates answered, {} needed\n{}",
                    load.count(),
                    kill.after,
                    load.problems().join("\n")
                )
            };
            ensure!(Instant::now() < deadline, "the load does not go on: {}", told());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tokio::time::sleep(kill.then).await;
        once(&mut done, load, http, servers).await?;
    }
    Ok(done)
}

async fn once(done: &mut Kills, load: &Load, http: &Http, servers: &mut Servers<'_>) -> Result<()> {
    let turn = done.kills;
    let door = servers.doors().at(turn).context("the server is away before it was killed")?;
    let calls = calls_in_flight(http, &door.metrics_url).await;
    let back = servers.kill(turn).await?;
    done.kills += 1;
    done.in_flight += u32::from(calls > 0);
    done.most_in_flight = done.most_in_flight.max(calls);
    done.slowest_return = done.slowest_return.max(back);
    eprintln!(
        "chaos: kill {} of server {} with {calls} calls in flight, back after {} ms, {} accepted",
        done.kills,
        turn % servers.count() + 1,
        back.as_millis(),
        load.count()
    );
    Ok(())
}

/// Calls in flight at this moment; waits a while for one.
async fn calls_in_flight(http: &Http, metrics: &str) -> u64 {
    let deadline = Instant::now() + FOR_A_CALL;
    loop {
        // A server that does not answer now is killed as it is, and not counted.
        let page =
            http.get(metrics, "").await.map(|answer| String::from_utf8_lossy(&answer.body).into_owned());
        let calls = page.map_or(0, |page| gauge(&page));
        if calls > 0 || Instant::now() >= deadline {
            return calls;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The gauge's value on a metrics page, over all its labels.
fn gauge(page: &str) -> u64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(GAUGE)?;
        let rest = if rest.starts_with('{') { rest.split_once('}')?.1 } else { rest };
        // Whole numbers, with or without a decimal point.
        rest.strip_prefix(' ')?.split(['.', ' ']).next()?.parse::<u64>().ok()
    };
    page.lines().filter_map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kill_has_requests_before_and_behind_it() {
        let plan = plan(1000, 20, 3);
        assert_eq!(plan.len(), 20);
        for (number, kill) in (0_u32..).zip(&plan) {
            assert_eq!(kill.gate, (number + 1) * 50);
            assert!(kill.after >= number * 50 + 5 && kill.after <= number * 50 + 40, "{kill:?}");
        }
        assert_eq!(first_gate(&plan, 1000), 50);
    }

    #[test]
    fn the_plan_depends_on_the_seed_only() {
        assert_eq!(plan(500, 7, 1), plan(500, 7, 1));
        assert_ne!(plan(500, 7, 1), plan(500, 7, 2));
        assert_eq!(plan(500, 0, 1), []);
        assert_eq!(first_gate(&[], 500), 500);
        assert_eq!(plan(3, 3, 1).last().map(|kill| kill.gate), Some(3));
    }

    #[test]
    fn the_gauge_is_read_with_and_without_labels() {
        let page = "# HELP tallystick_calls_in_flight x\n# TYPE tallystick_calls_in_flight gauge\n\
                    tallystick_calls_in_flight 3\ntallystick_calls_in_flight{gateway=\"b\"} 2.0\n\
                    tallystick_calls_in_flight_other 9\n";
        assert_eq!(gauge(page), 5);
        assert_eq!(gauge("tallystick_calls_in_flight -1\n"), 0);
        assert_eq!(gauge(""), 0);
    }
}
