//! Moves against events: each move of an object was told by one event, and each event tells a move.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use sqlx::PgConnection;
use tallystick_money::Money;
use tallystick_outbox::survey::{self, EventDigest, EventPlace};
use uuid::Uuid;

use super::repo::{self, Move};
use super::report::Draft;
use super::{Tell, VerifyError};

/// Between a move's time and its event's lie one transaction and the difference of two clocks.
const CLOCKS: SignedDuration = SignedDuration::from_mins(1);

/// Whose moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    Payment,
    Payout,
    Break,
}

impl Object {
    fn aggregate(self) -> &'static str {
        match self {
            Self::Payment => "payment",
            Self::Payout => "payout",
            Self::Break => "break",
        }
    }
}

/// The events of one kind of object, read on as far as they are needed.
struct Events {
    object: Object,
    buffer: VecDeque<EventDigest>,
    after: EventPlace,
    page: i64,
    ended: bool,
}

impl Events {
    fn of(object: Object, page: i64) -> Self {
        Self { object, buffer: VecDeque::new(), after: EventPlace::start(), page, ended: false }
    }

    /// The next event, unless it is behind (object, version).
    async fn next_up_to(
        &mut self,
        conn: &mut PgConnection,
        key: Option<(Uuid, i32)>,
    ) -> Result<Option<EventDigest>, VerifyError> {
        if self.buffer.is_empty() && !self.ended {
            let page = survey::events(conn, self.object.aggregate(), self.after, self.page).await?;
            self.ended = i64::try_from(page.len()).unwrap_or(self.page) < self.page;
            if let Some(last) = page.last() {
                self.after = last.place;
            }
            self.buffer.extend(page);
        }
        let due = |event: &EventDigest| {
            key.is_none_or(|key| (event.place.aggregate_id, event.place.version) <= key)
        };
        Ok(if self.buffer.front().is_some_and(due) { self.buffer.pop_front() } else { None })
    }
}

/// Compares all moves with all events. Moves from before the events that are retained need none.
pub(super) async fn compare(conn: &mut PgConnection, page: i64, tell: &Tell) -> Result<Draft, VerifyError> {
    let mut draft = Draft::default();
    let since = survey::retained_since(conn).await?;
    of_operations(conn, page, since, tell, &mut draft).await?;
    of_breaks(conn, page, since, tell, &mut draft).await?;
    Ok(draft)
}

/// One walk over the history of payments and payouts, beside the events of both.
async fn of_operations(
    conn: &mut PgConnection,
    page: i64,
    since: Option<Timestamp>,
    tell: &Tell,
    draft: &mut Draft,
) -> Result<(), VerifyError> {
    let mut of_payments = Events::of(Object::Payment, page);
    let mut of_payouts = Events::of(Object::Payout, page);
    let mut place = Some((Uuid::nil(), 0));
    while let Some((after, version)) = place {
        let moves = repo::moves(conn, after, version, page).await?;
        for moved in &moves {
            let events = match (moved.payment_id, moved.payout_id) {
                (Some(_), None) => &mut of_payments,
                (None, Some(_)) => &mut of_payouts,
                // Of nothing, or of two things at once.
                _ => {
                    draft.checked += 1;
                    draft.wrong(moved.object_id, &[]);
                    continue;
                }
            };
            one_move(conn, events, moved, since, draft).await?;
        }
        tell.at(draft.checked);
        place = behind(&moves, page);
    }
    strays(conn, &mut of_payments, draft).await?;
    strays(conn, &mut of_payouts, draft).await
}

async fn of_breaks(
    conn: &mut PgConnection,
    page: i64,
    since: Option<Timestamp>,
    tell: &Tell,
    draft: &mut Draft,
) -> Result<(), VerifyError> {
    let mut events = Events::of(Object::Break, page);
    let mut place = Some((Uuid::nil(), 0));
    while let Some((after, version)) = place {
        let moves = repo::break_moves(conn, after, version, page).await?;
        for moved in &moves {
            one_move(conn, &mut events, moved, since, draft).await?;
        }
        tell.at(draft.checked);
        place = behind(&moves, page);
    }
    strays(conn, &mut events, draft).await
}

/// Where the next page begins; none after the last one.
fn behind(moves: &[Move], page: i64) -> Option<(Uuid, i32)> {
    let full = i64::try_from(moves.len()).unwrap_or(page) == page;
    moves.last().filter(|_| full).map(|last| (last.object_id, last.version))
}

/// After the last move: any event that is left tells of nothing.
async fn strays(conn: &mut PgConnection, events: &mut Events, draft: &mut Draft) -> Result<(), VerifyError> {
    while let Some(stray) = events.next_up_to(conn, None).await? {
        draft.wrong(stray.place.aggregate_id, &[]);
    }
    Ok(())
}

async fn one_move(
    conn: &mut PgConnection,
    events: &mut Events,
    moved: &Move,
    since: Option<Timestamp>,
    draft: &mut Draft,
) -> Result<(), VerifyError> {
    draft.checked += 1;
    let mut told = 0;
    while let Some(event) = events.next_up_to(conn, Some((moved.object_id, moved.version))).await? {
        let about_it = (event.place.aggregate_id, event.place.version) == (moved.object_id, moved.version);
        if about_it {
            told += 1;
        }
        if !about_it || !says(events.object, &event, moved) {
            draft.wrong(event.place.aggregate_id, &[]);
        }
    }
    let retained = since.is_none_or(|since| moved.at.to_jiff() >= since + CLOCKS);
    if told > 1 || (told == 0 && retained) {
        draft.wrong(moved.object_id, &[]);
    }
    Ok(())
}

/// The members of a body that must agree with the move.
#[derive(Deserialize)]
struct Body {
    r#type: String,
    event_id: Uuid,
    payment_id: Option<Uuid>,
    payout_id: Option<Uuid>,
    break_id: Option<Uuid>,
    status: String,
    amount: String,
    amount_minor: i64,
    currency: String,
    sequence: i32,
}

/// Whether an event tells this move and nothing else.
fn says(object: Object, event: &EventDigest, moved: &Move) -> bool {
    let Ok(body) = serde_json::from_slice::<Body>(&event.payload) else { return false };
    let word = if moved.version == 1 { "created" } else { &moved.status };
    let kind = format!("{}.{word}", object.aggregate());
    let id = match object {
        Object::Payment => body.payment_id,
        Object::Payout => body.payout_id,
        Object::Break => body.break_id,
    };
    let money = moved.amount_minor.zip(moved.currency.as_deref().and_then(|code| code.parse().ok()));
    let major = money.map(|(minor, currency)| Money { minor, currency }.major());
    Some(event.tenant_id) == moved.tenant_id
        && event.kind == kind
        && body.r#type == kind
        && body.event_id == event.event_id
        && id == Some(moved.object_id)
        && body.payment_id == moved.payment_id
        && body.payout_id == moved.payout_id
        && (object == Object::Break) == body.break_id.is_some()
        && body.status == moved.status
        && Some(&body.amount) == major.as_ref()
        && Some(body.amount_minor) == moved.amount_minor
        && Some(&body.currency) == moved.currency.as_ref()
        && body.sequence == moved.version
}

#[cfg(test)]
mod tests {
    use jiff_sqlx::ToSqlx as _;

    use super::*;
    use crate::events::{self, Told};
    use crate::ids::{BreakId, PaymentId, PayoutId, TenantId};
    use crate::operation::{OperationId, OperationKind};

    fn moved() -> Move {
        Move {
            object_id: Uuid::from_u128(5),
            version: 2,
            status: "succeeded".into(),
            at: Timestamp::UNIX_EPOCH.to_sqlx(),
            tenant_id: Some(Uuid::from_u128(1)),
            payment_id: Some(Uuid::from_u128(5)),
            payout_id: None,
            amount_minor: Some(1234),
            currency: Some("EUR".into()),
        }
    }

    fn told<'a>(moved: &'a Move) -> Told<'a> {
        Told {
            tenant: TenantId(Uuid::from_u128(1)),
            status: &moved.status,
            amount: Money { minor: 1234, currency: "EUR".parse().unwrap() },
            version: moved.version,
            at: Timestamp::UNIX_EPOCH,
        }
    }

    fn digest(event: tallystick_outbox::NewEvent) -> EventDigest {
        EventDigest {
            place: EventPlace { aggregate_id: event.aggregate_id, version: event.version, seq: 1 },
            event_id: event.event_id,
            tenant_id: event.tenant_id,
            kind: event.kind,
            payload: event.payload,
        }
    }

    #[test]
    fn an_event_as_it_is_written_says_what_happened_and_any_difference_is_seen() {
        let moved = moved();
        let event = digest(events::of_payment(PaymentId(moved.object_id), &told(&moved)));
        assert!(says(Object::Payment, &event, &moved));
        let differs: [fn(&mut Move); 8] = [
            |m| m.version = 3,
            |m| m.status = "failed".into(),
            |m| m.amount_minor = Some(1235),
            |m| m.currency = Some("USD".into()),
            |m| m.tenant_id = Some(Uuid::from_u128(2)),
            |m| m.object_id = Uuid::from_u128(6),
            |m| m.payment_id = None,
            |m| m.payout_id = Some(Uuid::from_u128(5)),
        ];
        for change in differs {
            let mut other = moved.clone();
            change(&mut other);
            assert!(!says(Object::Payment, &event, &other), "{other:?}");
        }
        assert!(!says(Object::Payment, &EventDigest { payload: b"{".to_vec(), ..event.clone() }, &moved));
        assert!(!says(
            Object::Payment,
            &EventDigest { kind: "payment.failed".into(), ..event.clone() },
            &moved
        ));
        assert!(!says(Object::Payment, &EventDigest { event_id: Uuid::nil(), ..event }, &moved));
    }

    #[test]
    fn a_payout_is_told_as_a_payout() {
        let sent = Move { payment_id: None, payout_id: Some(Uuid::from_u128(5)), ..moved() };
        let event = digest(events::of_payout(PayoutId(sent.object_id), &told(&sent)));
        assert_eq!(event.kind, "payout.succeeded");
        assert!(says(Object::Payout, &event, &sent));
        assert!(!says(Object::Payment, &event, &sent));
        assert!(!says(Object::Payment, &event, &moved()));
        let as_payment = digest(events::of_payment(PaymentId(sent.object_id), &told(&sent)));
        assert!(!says(Object::Payout, &as_payment, &sent));
        for status in ["returned", "failed"] {
            let later = Move { status: status.into(), ..sent.clone() };
            assert!(!says(Object::Payout, &event, &later));
            assert!(says(
                Object::Payout,
                &digest(events::of_payout(PayoutId(later.object_id), &told(&later))),
                &later
            ));
        }
        let created = Move { version: 1, status: "requires_approval".into(), ..sent };
        let event = digest(events::of_payout(PayoutId(created.object_id), &told(&created)));
        assert_eq!(event.kind, "payout.created");
        assert!(says(Object::Payout, &event, &created));
    }

    #[test]
    fn a_break_is_told_with_what_it_is_about() {
        let about = Uuid::from_u128(7);
        let opened = Move { version: 1, status: "open".into(), payment_id: Some(about), ..moved() };
        let event = |kind| {
            let operation = OperationId { kind, id: about };
            digest(events::of_break(BreakId(opened.object_id), operation, &told(&opened)))
        };
        let of_payment = event(OperationKind::Charge);
        assert_eq!(of_payment.kind, "break.created");
        assert!(says(Object::Break, &of_payment, &opened));
        let other = Move { payment_id: Some(Uuid::from_u128(8)), ..opened.clone() };
        assert!(!says(Object::Break, &of_payment, &other));
        let of_payout = event(OperationKind::Payout);
        assert!(!says(Object::Break, &of_payout, &opened));
        let opened = Move { payment_id: None, payout_id: Some(about), ..opened.clone() };
        assert!(says(Object::Break, &of_payout, &opened) && !says(Object::Break, &of_payment, &opened));
    }
}
