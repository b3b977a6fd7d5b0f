//! Checks find what was planted, and only that.

use sqlx::PgPool;
use tallystick_outbox::verify::versions_without_gap;
use uuid::Uuid;

use crate::common::*;

#[sqlx::test(migrations = false)]
async fn versions_with_gaps_and_doubles_are_named(superuser: PgPool) {
    let db = app(&superuser).await;
    let [good, gap, double, swapped, retired] = [1, 2, 3, 4, 5].map(Uuid::from_u128);
    let mut events = vec![event(good, 1), event(good, 2), event(gap, 1), event(gap, 3)];
    events.extend([event(double, 1), event(double, 2), event(double, 2)]);
    events.extend([event(swapped, 1), event(swapped, 1), event(swapped, 3)]);
    events.extend([event(retired, 7), event(retired, 9)]);
    let mut other_kind = event(Uuid::from_u128(6), 1);
    other_kind.aggregate = "other";
    let mut other_gap = event(Uuid::from_u128(6), 5);
    other_gap.aggregate = "other";
    events.extend([other_kind, other_gap]);
    append_alone(&db, &events).await;
    let mut conn = db.conn().await.expect("connection");
    assert_eq!(
        versions_without_gap(&mut conn, "thing").await.expect("check"),
        (4, vec![gap, double, swapped])
    );
    assert_eq!(versions_without_gap(&mut conn, "none").await.expect("check"), (0, vec![]));
}
