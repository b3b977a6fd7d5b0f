//! SQL of payments.break.

use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use tallystick_runner::DbError;
use uuid::Uuid;

use super::{Break, NewBreak};
use crate::ids::{BreakId, PaymentId, PayoutId};
use crate::operation::OperationKind;

/// Opens breaks. The operation's row lock is held, and its `attention` says that there was none before.
pub(crate) async fn open(conn: &mut PgConnection, breaks: &[NewBreak]) -> Result<(), DbError> {
    if breaks.is_empty() {
        return Ok(());
    }
    let of = |kind| -> Vec<Option<Uuid>> {
        breaks.iter().map(|b| (b.operation.kind == kind).then_some(b.operation.id)).collect()
    };
    let done = sqlx::query!(
        "-- break.open
        INSERT INTO payments.break (break_id, tenant_id, kind, payment_id, payout_id, gateway, gateway_reference, currency,
                                    expected_minor, actual_minor, actual_currency, proposal, created_at)
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::uuid[], $6::text[], $7::text[], $8::text[],
                             $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::timestamptz[])",
        &breaks.iter().map(|b| b.break_id).collect::<Vec<_>>(),
        &breaks.iter().map(|b| b.tenant_id).collect::<Vec<_>>(),
        &breaks.iter().map(|b| b.kind.to_owned()).collect::<Vec<_>>(),
        &of(OperationKind::Charge) as &[Option<Uuid>],
        &of(OperationKind::Payout) as &[Option<Uuid>],
        &breaks.iter().map(|b| b.gateway.clone()).collect::<Vec<_>>(),
        &breaks.iter().map(|b| b.gateway_reference.clone()).collect::<Vec<_>>() as &[Option<String>],
        &breaks.iter().map(|b| b.currency.clone()).collect::<Vec<_>>(),
        &breaks.iter().map(|b| b.expected_minor).collect::<Vec<_>>(),
        &breaks.iter().map(|b| b.actual_minor).collect::<Vec<_>>() as &[Option<i64>],
        &breaks.iter().map(|b| b.actual_currency.clone()).collect::<Vec<_>>() as &[Option<String>],
        &breaks.iter().map(|b| b.proposal.to_owned()).collect::<Vec<_>>(),
        &breaks.iter().map(|b| b.at.to_sqlx()).collect::<Vec<_>>() as &[jiff_sqlx::Timestamp],
    )
    .execute(conn)
    .await?;
    DbError::expect_rows("break.open", done.rows_affected(), breaks.len())
}

/// A page of a tenant's breaks, newest first.
pub(crate) async fn list(
    conn: &mut PgConnection,
    tenant: Uuid,
    status: Option<&str>,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Vec<Break>, DbError> {
    let rows = sqlx::query!(
        r#"-- break.list
        SELECT break_id, kind, status, payment_id, payout_id, gateway_reference, currency, expected_minor, actual_minor, proposal,
               floor(extract(epoch FROM now() - created_at) / 86400)::bigint AS "age_days!", created_at, resolved_at
          FROM payments.break
         WHERE tenant_id = $1 AND break_id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
           AND ($3::text IS NULL OR status = $3)
         ORDER BY break_id DESC LIMIT $4"#,
        tenant,
        before,
        status,
        limit
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| Break {
            break_id: BreakId(r.break_id),
            kind: r.kind,
            status: r.status,
            payment_id: r.payment_id.map(PaymentId),
            payout_id: r.payout_id.map(PayoutId),
            refund_id: None,
            gateway_reference: r.gateway_reference,
            currency: r.currency,
            expected_minor: r.expected_minor,
            actual_minor: r.actual_minor,
            proposal: r.proposal,
            age_days: r.age_days,
            assignee: None,
            created_at: r.created_at.to_jiff(),
            resolved_at: r.resolved_at.map(jiff_sqlx::Timestamp::to_jiff),
        })
        .collect())
}
