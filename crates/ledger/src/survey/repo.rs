//! SQL of the survey.

use sqlx::PgConnection;

use super::{JournalDigest, JournalPlace};
use crate::error::LedgerError;

/// Entries that name no account of ours show the account's number, so that they match nothing.
pub(super) async fn journals(
    conn: &mut PgConnection,
    after: &JournalPlace,
    limit: i64,
) -> Result<Vec<JournalDigest>, LedgerError> {
    let rows = sqlx::query!(
        r#"-- ledger.survey_journals
        WITH page AS MATERIALIZED (
            SELECT id, tenant_id, source, kind, ordinal, journal_id
              FROM ledger.journal
             WHERE (tenant_id, source, kind, ordinal) > ($1, $2, $3::text, $4)
             ORDER BY tenant_id, source, kind, ordinal
             LIMIT $5
        )
        SELECT p.tenant_id, p.source, p.kind, p.ordinal, p.journal_id, coalesce(l.lines, '{}') AS "lines!",
               NOT EXISTS (SELECT FROM ledger.journal_status s WHERE s.journal_id = p.id)
               OR EXISTS (SELECT FROM ledger.journal_status s WHERE s.journal_id = p.id AND s.status = 'settled')
                   AS "settled!"
          FROM page p
          LEFT JOIN LATERAL (
               SELECT array_agg(t.line ORDER BY t.line COLLATE "C") AS lines
                 FROM ledger.entry e
                 LEFT JOIN ledger.account a ON a.id = e.account_id
                CROSS JOIN LATERAL (SELECT coalesce(a.system_key, a.account_id::text, 'account ' || e.account_id)
                                           || ' ' || e.direction || ' ' || e.amount_minor || ' ' || e.currency AS line) t
                WHERE e.journal_id = p.id) l ON true
         ORDER BY p.tenant_id, p.source, p.kind, p.ordinal"#,
        after.tenant_id,
        after.source,
        after.kind,
        after.ordinal,
        limit
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| JournalDigest {
            place: JournalPlace {
                tenant_id: row.tenant_id,
                source: row.source,
                kind: row.kind,
                ordinal: row.ordinal,
            },
            journal_id: row.journal_id,
            lines: row.lines,
            settled: row.settled,
        })
        .collect())
}
