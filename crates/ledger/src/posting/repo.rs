//! SQL of posting: journals, entries, statuses, locks of limited accounts.

use std::collections::{HashMap, HashSet};

use jiff_sqlx::{Timestamp as SqlTimestamp, ToSqlx as _};
use sqlx::PgConnection;
use uuid::Uuid;

use super::check::Hash;
use super::{Direction, JournalStatus, NewEntry, NewJournal, SourceKey, key};
use crate::account::{AccountKind, AccountRef, currency_from_column};
use crate::error::LedgerError;

/// The columns of journals, one array each.
#[derive(Default)]
struct Columns<'a> {
    journal_ids: Vec<Uuid>,
    tenants: Vec<Uuid>,
    kinds: Vec<&'a str>,
    sources: Vec<Uuid>,
    source_texts: Vec<Option<&'a str>>,
    ordinals: Vec<i16>,
    counts: Vec<i16>,
    hashes: Vec<&'a [u8]>,
    descriptions: Vec<&'a str>,
    metadata: Vec<Option<String>>,
    effective: Vec<Option<SqlTimestamp>>,
    corrects: Vec<Option<Uuid>>,
}

/// The columns of entries, one array each; `journals` is the place in [`Columns`], from 1.
#[derive(Default)]
struct Lines {
    journal_ids: Vec<Uuid>,
    line_nos: Vec<i16>,
    accounts: Vec<i64>,
    currencies: Vec<&'static str>,
    directions: Vec<&'static str>,
    amounts: Vec<i64>,
}

fn columns<'a>(batch: &[(&'a NewJournal, &'a Hash)]) -> (Columns<'a>, Lines) {
    let mut columns = Columns::default();
    let mut lines = Lines::default();
    for (journal, hash) in batch {
        columns.journal_ids.push(journal.journal_id);
        columns.tenants.push(journal.tenant_id);
        columns.kinds.push(journal.kind);
        columns.sources.push(journal.source);
        columns.source_texts.push(journal.source_text.as_deref());
        columns.ordinals.push(journal.ordinal);
        columns.counts.push(i16::try_from(journal.entries.len()).expect("checked: at most MAX_ENTRIES"));
        columns.hashes.push(hash.as_slice());
        columns.descriptions.push(&journal.description);
        columns.metadata.push(journal.metadata.as_ref().map(ToString::to_string));
        columns.effective.push(journal.effective_at.map(|at| at.to_sqlx()));
        columns.corrects.push(journal.corrects);
        for (line_no, entry) in (1_i16..).zip(&journal.entries) {
            lines.journal_ids.push(journal.journal_id);
            lines.line_nos.push(line_no);
            lines.accounts.push(entry.account.id);
            lines.currencies.push(entry.account.currency.code());
            lines.directions.push(entry.direction.as_str());
            lines.amounts.push(entry.amount_minor);
        }
    }
    (columns, lines)
}

/// Inserts journals with their entries in the given order; answers the ids of those that did not stand already.
pub(super) async fn insert(
    conn: &mut PgConnection,
    batch: &[(&NewJournal, &Hash)],
) -> Result<HashSet<Uuid>, LedgerError> {
    let (c, l) = columns(batch);
    let made = sqlx::query_scalar!(
        r#"-- ledger.journal_post
        WITH made AS (
            INSERT INTO ledger.journal (journal_id, tenant_id, kind, source, source_text, ordinal, entry_count,
                                        entries_hash, description, metadata, effective_at, corrects)
            SELECT journal_id, tenant_id, kind, source, source_text, ordinal, entry_count,
                   entries_hash, description, metadata::json, coalesce(effective_at, now()), corrects
              FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::text[], $6::smallint[], $7::smallint[],
                          $8::bytea[], $9::text[], $10::text[], $11::timestamptz[], $12::uuid[]) WITH ORDINALITY
                   AS n (journal_id, tenant_id, kind, source, source_text, ordinal, entry_count,
                         entries_hash, description, metadata, effective_at, corrects, place)
             ORDER BY place     -- source order: two batches with the same sources wait, never deadlock
            ON CONFLICT DO NOTHING
            RETURNING id, journal_id, entry_count
        ), lines AS (
            INSERT INTO ledger.entry (journal_id, line_no, line_count, account_id, currency, direction, amount_minor)
            SELECT made.id, e.line_no, made.entry_count, e.account_id, e.currency, e.direction, e.amount_minor
              FROM unnest($13::uuid[], $14::smallint[], $15::bigint[], $16::text[], $17::text[], $18::bigint[])
                   AS e (journal_id, line_no, account_id, currency, direction, amount_minor)
              JOIN made ON made.journal_id = e.journal_id
        )
        SELECT journal_id AS "journal_id!" FROM made"#,
        &c.journal_ids,
        &c.tenants,
        &c.kinds as &[&str],
        &c.sources,
        &c.source_texts as &[Option<&str>],
        &c.ordinals,
        &c.counts,
        &c.hashes as &[&[u8]],
        &c.descriptions as &[&str],
        &c.metadata as &[Option<String>],
        &c.effective as &[Option<SqlTimestamp>],
        &c.corrects as &[Option<Uuid>],
        &l.journal_ids,
        &l.line_nos,
        &l.accounts,
        &l.currencies as &[&str],
        &l.directions as &[&str],
        &l.amounts,
    )
    .fetch_all(conn)
    .await?;
    Ok(made.into_iter().collect())
}

/// A journal that stands under a source.
pub(super) struct Standing {
    pub journal_id: Uuid,
    pub entries_hash: Vec<u8>,
}

/// The journals that stand under the sources of `batch`.
pub(super) async fn standing(
    conn: &mut PgConnection,
    batch: &[(&NewJournal, &Hash)],
) -> Result<HashMap<SourceKey, Standing>, LedgerError> {
    let (c, _) = columns(batch);
    let rows = sqlx::query!(
        r#"-- ledger.journal_standing
        SELECT n.place AS "place!", j.journal_id, j.entries_hash
          FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::smallint[]) WITH ORDINALITY
               AS n (tenant_id, kind, source, ordinal, place)
         -- LATERAL with a LIMIT: a plan made when the table was small must not read all of it later
         CROSS JOIN LATERAL (SELECT x.journal_id, x.entries_hash
                               FROM ledger.journal x
                              WHERE x.tenant_id = n.tenant_id AND x.source = n.source AND x.kind = n.kind
                                AND x.ordinal = n.ordinal
                              LIMIT 1) j"#,
        &c.tenants,
        &c.kinds as &[&str],
        &c.sources,
        &c.ordinals,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .filter_map(|row| {
            let place = usize::try_from(row.place).ok()?.checked_sub(1)?;
            let (journal, _) = batch.get(place)?;
            Some((key(journal), Standing { journal_id: row.journal_id, entries_hash: row.entries_hash }))
        })
        .collect())
}

pub(super) async fn standing_ids(
    conn: &mut PgConnection,
    ids: &[Uuid],
) -> Result<HashSet<Uuid>, LedgerError> {
    Ok(sqlx::query_scalar!(
        "-- ledger.journal_standing_ids
        SELECT journal_id FROM ledger.journal WHERE journal_id = ANY($1)",
        ids,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .collect())
}

pub(super) async fn set_status(
    conn: &mut PgConnection,
    changes: &[(Uuid, JournalStatus, &str)],
) -> Result<(), LedgerError> {
    let ids: Vec<Uuid> = changes.iter().map(|change| change.0).collect();
    let statuses: Vec<&str> = changes.iter().map(|change| change.1.as_str()).collect();
    let evidences: Vec<&str> = changes.iter().map(|change| change.2).collect();
    sqlx::query_scalar!(
        r#"-- ledger.journal_set_status
        SELECT ledger.set_status($1, $2, $3)::text AS "nothing""#,
        &ids,
        &statuses as &[&str],
        &evidences as &[&str],
    )
    .fetch_one(conn)
    .await?;
    Ok(())
}

/// A limited account whose row is locked.
pub(super) struct Locked {
    pub id: i64,
    pub account_id: Uuid,
    pub kind: AccountKind,
    pub minimum_minor: i64,
}

pub(super) async fn lock_limited(
    conn: &mut PgConnection,
    accounts: &[AccountRef],
) -> Result<Vec<Locked>, LedgerError> {
    let ids: Vec<i64> = accounts.iter().map(|account| account.id).collect();
    let rows = sqlx::query!(
        r#"-- ledger.account_lock_limited
        SELECT id, account_id, kind, minimum_minor AS "minimum_minor!"
          FROM ledger.account
         WHERE id = ANY($1) AND limited
         ORDER BY id            -- the lock order between two transactions with the same accounts
           FOR NO KEY UPDATE"#,
        &ids,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Locked {
                id: row.id,
                account_id: row.account_id,
                kind: AccountKind::from_column(&row.kind)?,
                minimum_minor: row.minimum_minor,
            })
        })
        .collect()
}

/// Debits and credits by account.
pub(super) async fn totals(
    conn: &mut PgConnection,
    ids: &[i64],
) -> Result<HashMap<i64, (i64, i64)>, LedgerError> {
    let rows = sqlx::query!(
        r#"-- ledger.account_totals
        SELECT id AS "id!", debits::bigint AS "debits!", credits::bigint AS "credits!"
          FROM ledger.account_total
         WHERE id = ANY($1)"#,
        ids,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, (row.debits, row.credits))).collect())
}

/// The entries of a journal of the tenant, by line; empty when it has no such journal.
pub(super) async fn entries(
    conn: &mut PgConnection,
    tenant: Uuid,
    journal_id: Uuid,
) -> Result<Vec<NewEntry>, LedgerError> {
    let rows = sqlx::query!(
        "-- ledger.journal_lines
        SELECT e.account_id, e.currency, e.direction, e.amount_minor
          FROM ledger.journal j JOIN ledger.entry e ON e.journal_id = j.id
         WHERE j.journal_id = $1 AND j.tenant_id = $2
         ORDER BY e.line_no",
        journal_id,
        tenant,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let currency = currency_from_column(&row.currency)?;
            Ok(NewEntry {
                account: AccountRef { id: row.account_id, tenant_id: tenant, currency },
                direction: Direction::from_column(&row.direction)?,
                amount_minor: row.amount_minor,
            })
        })
        .collect()
}

/// The last status of a journal; settled when nothing was said.
pub(super) async fn status(conn: &mut PgConnection, journal_id: Uuid) -> Result<JournalStatus, LedgerError> {
    let last = sqlx::query_scalar!(
        "-- ledger.journal_last_status
        SELECT s.status
          FROM ledger.journal j JOIN ledger.journal_status s ON s.journal_id = j.id
         WHERE j.journal_id = $1
         ORDER BY s.status = 'pending'      -- a final status comes before pending
         LIMIT 1",
        journal_id,
    )
    .fetch_optional(conn)
    .await?;
    last.map_or(Ok(JournalStatus::Settled), |text| JournalStatus::from_column(&text))
}
