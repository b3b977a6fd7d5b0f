//! The reader of the feed: asks for events as a consumer does and notes what it saw of each payout, and when.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Deserialize;
use uuid::Uuid;

use super::wire::{Side, Wire};
use crate::cli::CliError;

/// Events of one page; the API gives no more.
const PAGE: usize = 200;
/// Pause after a page that was not full.
const PAUSE: Duration = Duration::from_millis(10);
/// Sequences that are told apart; a payout has three or four moves.
const MOST: u32 = 63;

/// What was seen of one payout.
#[derive(Clone, Copy, Debug, Default)]
pub struct Life {
    /// One bit per sequence that was seen.
    sequences: u64,
    /// The first one was `payout.created`.
    created: bool,
    /// A sequence was seen twice, or is none.
    odd: bool,
    /// Moves besides created, processing and succeeded.
    pub detours: u32,
    /// When `payout.succeeded` was read, and its sequence.
    pub succeeded: Option<(Instant, u32)>,
    /// It ended otherwise.
    ended: bool,
}

impl Life {
    /// Takes one event into account.
    pub fn saw(&mut self, kind: &str, sequence: u32, at: Instant) {
        let bit = if sequence == 0 || sequence > MOST { 0 } else { 1_u64 << sequence };
        self.odd |= bit == 0 || self.sequences & bit != 0;
        self.sequences |= bit;
        match kind {
            "payout.created" => self.created = sequence == 1,
            "payout.processing" => {}
            "payout.succeeded" => self.succeeded = Some((at, sequence)),
            "payout.failed" | "payout.canceled" | "payout.returned" => self.ended = true,
            _ => self.detours += 1,
        }
    }

    fn is_over(&self) -> bool {
        self.succeeded.is_some() || self.ended
    }

    /// Whether the webhook overtook the bank's answer: the payout succeeded without having been processing.
    pub fn was_overtaken(&self) -> bool {
        self.succeeded.is_some_and(|(_, sequence)| sequence == 2)
    }

    /// Whether every event was there once: created first, succeeded last, none missing in between.
    pub fn is_whole(&self) -> bool {
        let Some((_, last)) = self.succeeded.filter(|(_, last)| *last <= MOST) else { return false };
        // The bits 1 to `last`.
        let all = ((1_u64 << last) - 1) << 1;
        self.created && !self.odd && !self.ended && last >= 2 && self.sequences == all
    }
}

/// Lives of payouts by id.
pub type Lives = HashMap<Uuid, Life>;

#[derive(Deserialize)]
struct Event<'a> {
    r#type: &'a str,
    payout_id: Option<Uuid>,
    sequence: u32,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    data: Vec<Event<'a>>,
    next_cursor: String,
}

/// What one page brought.
struct Turned {
    events: usize,
    /// Payouts that came to their end with it.
    over: usize,
}

/// A reader with its position.
pub struct Feed {
    wire: Wire,
    cursor: Option<String>,
}

impl Feed {
    /// At the beginning of the feed.
    pub fn of(api: &Side) -> Self {
        Self { wire: api.wire(), cursor: None }
    }

    /// Goes to the end of what is there now.
    ///
    /// # Errors
    /// [`CliError`] when the API does not answer.
    pub async fn skip(&mut self) -> Result<(), CliError> {
        while self.page(&mut Lives::new()).await?.events > 0 {}
        Ok(())
    }

    /// Reads on until so many payouts have come to their end, or no event came for `patience`.
    ///
    /// # Errors
    /// [`CliError`] when the API does not answer.
    pub async fn follow(&mut self, payouts: usize, patience: Duration) -> Result<Lives, CliError> {
        let mut lives = Lives::with_capacity(payouts);
        let (mut over, mut last_news) = (0, Instant::now());
        loop {
            let turned = self.page(&mut lives).await?;
            over += turned.over;
            if turned.events > 0 {
                last_news = Instant::now();
            }
            if over >= payouts || last_news.elapsed() > patience {
                return Ok(lives);
            }
            if turned.events < PAGE {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn page(&mut self, lives: &mut Lives) -> Result<Turned, CliError> {
        let after = self.cursor.as_ref().map(|cursor| format!("&after={cursor}")).unwrap_or_default();
        let answer = self.wire.read(&format!("/api/v1/events?limit={PAGE}{after}")).await?;
        let page: Page<'_> = serde_json::from_slice(&answer.body)
            .map_err(|e| CliError::Broken(format!("a page of the feed cannot be read: {e}")))?;
        let (now, mut over) = (Instant::now(), 0);
        for event in &page.data {
            if let Some(id) = event.payout_id {
                let life = lives.entry(id).or_default();
                let was_over = life.is_over();
                life.saw(event.r#type, event.sequence, now);
                over += usize::from(life.is_over() && !was_over);
            }
        }
        self.cursor = Some(page.next_cursor);
        Ok(Turned { events: page.data.len(), over })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(events: &[(&str, u32)]) -> Life {
        let mut life = Life::default();
        for (kind, sequence) in events {
            life.saw(&format!("payout.{kind}"), *sequence, Instant::now());
        }
        life
    }

    #[test]
    fn a_whole_life_has_every_event_once() {
        for events in [
            &[("created", 1), ("processing", 2), ("succeeded", 3)][..],
            // The webhook overtook the reply.
            &[("created", 1), ("succeeded", 2)],
            &[("created", 1), ("unknown", 2), ("processing", 3), ("succeeded", 4)],
        ] {
            assert!(life(events).is_whole(), "{events:?}");
            assert_eq!(life(events).was_overtaken(), events.len() == 2, "{events:?}");
        }
        assert_eq!(life(&[("created", 1), ("unknown", 2), ("succeeded", 3)]).detours, 1);
    }

    #[test]
    fn a_gap_a_double_and_another_end_are_seen() {
        for events in [
            &[][..],
            &[("created", 1)],
            &[("created", 1), ("processing", 2)],
            &[("created", 1), ("succeeded", 3)],
            &[("processing", 2), ("succeeded", 3)],
            &[("succeeded", 1)],
            &[("created", 1), ("processing", 2), ("processing", 2), ("succeeded", 3)],
            &[("created", 1), ("processing", 2), ("succeeded", 3), ("returned", 4)],
            &[("created", 1), ("failed", 2)],
            &[("created", 1), ("succeeded", 2), ("unknown", 900)],
            &[("created", 0), ("processing", 1), ("succeeded", 2)],
            &[("created", 1), ("succeeded", 64)],
        ] {
            assert!(!life(events).is_whole(), "{events:?}");
        }
    }
}
