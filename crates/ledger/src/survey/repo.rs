//! SQL of the survey.

use sqlx::PgConnection;
use uuid::Uuid;

use super::{EntryDigest, JournalDigest, JournalPlace};
use crate::error::LedgerError;
use crate::posting::JournalStatus;

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
        SELECT p.tenant_id, p.source, p.kind, p.ordinal, p.journal_id,
               coalesce(e.accounts, '{}') AS "accounts!: Vec<Option<Uuid>>",
               coalesce(e.system_keys, '{}') AS "system_keys!: Vec<Option<String>>",
               coalesce(e.directions, '{}') AS "directions!", coalesce(e.amounts, '{}') AS "amounts!",
               coalesce(e.currencies, '{}') AS "currencies!",
               -- One that is settled and failed at once, which there cannot be, is what is worse.
               coalesce((SELECT s.status FROM ledger.journal_status s WHERE s.journal_id = p.id
                          ORDER BY array_position(ARRAY['failed', 'settled', 'pending'], s.status) LIMIT 1), 'settled')
                   AS "status!"
          FROM page p
          LEFT JOIN LATERAL (
               SELECT array_agg(a.account_id ORDER BY e.line_no) AS accounts,
                      array_agg(a.system_key ORDER BY e.line_no) AS system_keys,
                      array_agg(e.direction::text ORDER BY e.line_no) AS directions,
                      array_agg(e.amount_minor ORDER BY e.line_no) AS amounts,
                      array_agg(e.currency::text ORDER BY e.line_no) AS currencies
                 FROM ledger.entry e LEFT JOIN ledger.account a ON a.id = e.account_id
                WHERE e.journal_id = p.id) e ON true
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
        .map(|row| {
            let accounts = row.accounts.into_iter().zip(row.system_keys);
            let moved = row.directions.into_iter().zip(row.amounts).zip(row.currencies);
            let entries = accounts.zip(moved).map(
                |((account_id, system_key), ((direction, amount_minor), currency))| EntryDigest {
                    account_id,
                    system_key,
                    direction,
                    amount_minor,
                    currency,
                },
            );
            JournalDigest {
                place: JournalPlace {
                    tenant_id: row.tenant_id,
                    source: row.source,
                    kind: row.kind,
                    ordinal: row.ordinal,
                },
                journal_id: row.journal_id,
                entries: entries.collect(),
                status: JournalStatus::from_column(&row.status).ok(),
            }
        })
        .collect())
}
