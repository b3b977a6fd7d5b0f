//! SQL of accounts.

use jiff_sqlx::Timestamp as SqlTimestamp;
use serde_json::Value;
use sqlx::PgConnection;
use tallystick_money::Currency;
use uuid::Uuid;

use super::{
    Account, AccountKind, AccountRef, KnownAccount, NewAccount, SystemAccount, currency_from_column,
};
use crate::error::LedgerError;

struct Row {
    id: i64,
    account_id: Uuid,
    tenant_id: Uuid,
    name: String,
    kind: String,
    currency: String,
    minimum_minor: Option<i64>,
    metadata: Option<Value>,
    created_at: SqlTimestamp,
}

impl TryFrom<Row> for Account {
    type Error = LedgerError;

    fn try_from(row: Row) -> Result<Self, LedgerError> {
        let currency = currency_from_column(&row.currency)?;
        Ok(Self {
            account_id: row.account_id,
            name: row.name,
            kind: AccountKind::from_column(&row.kind)?,
            currency,
            minimum_minor: row.minimum_minor,
            metadata: row.metadata,
            created_at: row.created_at.to_jiff(),
            handle: AccountRef { id: row.id, tenant_id: row.tenant_id, currency },
        })
    }
}

pub(super) async fn open(conn: &mut PgConnection, new: &NewAccount) -> Result<Option<Account>, LedgerError> {
    let row = sqlx::query_as!(
        Row,
        "-- ledger.account_open
        INSERT INTO ledger.account (account_id, tenant_id, name, kind, currency, minimum_minor, metadata)
        VALUES ($1, $2, $3, $4, $5, $6, $7::text::json)
        ON CONFLICT (account_id) DO NOTHING
        RETURNING id, account_id, tenant_id, name, kind, currency, minimum_minor, metadata, created_at",
        new.account_id,
        new.tenant_id,
        new.name,
        new.kind.as_str(),
        new.currency.code(),
        new.minimum_minor,
        new.metadata.as_ref().map(Value::to_string),
    )
    .fetch_optional(conn)
    .await?;
    row.map(Account::try_from).transpose()
}

pub(super) async fn by_uuid(
    conn: &mut PgConnection,
    tenant: Uuid,
    ids: &[Uuid],
) -> Result<Vec<Account>, LedgerError> {
    let rows = sqlx::query_as!(
        Row,
        "-- ledger.account_by_uuid
        SELECT id, account_id, tenant_id, name, kind, currency, minimum_minor, metadata, created_at
          FROM ledger.account
         WHERE account_id = ANY($1) AND tenant_id = $2",
        ids,
        tenant,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(Account::try_from).collect()
}

/// An account that stands, as far as it never changes.
pub(super) struct KnownRow {
    pub account_id: Uuid,
    pub known: KnownAccount,
    /// Committed for good; never true of a row that this transaction made.
    pub decided: bool,
}

pub(super) async fn known(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<KnownRow>, LedgerError> {
    let rows = sqlx::query!(
        r#"-- ledger.account_known
        SELECT id, account_id, tenant_id, kind, currency, mark < runner.horizon() AS "decided!"
          FROM ledger.account
         WHERE account_id = ANY($1)"#,
        ids,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let currency = currency_from_column(&row.currency)?;
            let account = AccountRef { id: row.id, tenant_id: row.tenant_id, currency };
            let known = KnownAccount { account, kind: AccountKind::from_column(&row.kind)? };
            Ok(KnownRow { account_id: row.account_id, known, decided: row.decided })
        })
        .collect()
}

pub(super) async fn page(
    conn: &mut PgConnection,
    tenant: Uuid,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<Account>, LedgerError> {
    let rows = sqlx::query_as!(
        Row,
        "-- ledger.account_page
        SELECT id, account_id, tenant_id, name, kind, currency, minimum_minor, metadata, created_at
          FROM ledger.account
         WHERE tenant_id = $1 AND id < coalesce($2, 9223372036854775807)
         ORDER BY id DESC
         LIMIT $3",
        tenant,
        before,
        limit,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(Account::try_from).collect()
}

/// A system account that stands.
pub(super) struct SystemRow {
    pub key: (Uuid, String, Currency),
    pub handle: AccountRef,
    /// Committed for good; never true of a row that this transaction made.
    pub decided: bool,
}

pub(super) async fn system(
    conn: &mut PgConnection,
    wanted: &[&SystemAccount],
) -> Result<Vec<SystemRow>, LedgerError> {
    let tenants: Vec<Uuid> = wanted.iter().map(|account| account.tenant_id).collect();
    let keys: Vec<&str> = wanted.iter().map(|account| account.key.as_str()).collect();
    let currencies: Vec<&str> = wanted.iter().map(|account| account.currency.code()).collect();
    let rows = sqlx::query!(
        r#"-- ledger.account_system
        SELECT a.id, a.tenant_id, a.system_key AS "system_key!", a.currency,
               a.mark < runner.horizon() AS "decided!"
          FROM unnest($1::uuid[], $2::text[], $3::text[]) AS w (tenant_id, system_key, currency)
         -- LATERAL with a LIMIT: a plan made when the table was small must not read all of it later
         CROSS JOIN LATERAL (SELECT x.id, x.tenant_id, x.system_key, x.currency, x.mark
                               FROM ledger.account x
                              WHERE x.tenant_id = w.tenant_id AND x.system_key = w.system_key
                                AND x.currency = w.currency::char(3)
                              LIMIT 1) a"#,
        &tenants,
        &keys as &[&str],
        &currencies as &[&str],
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let currency = currency_from_column(&row.currency)?;
            Ok(SystemRow {
                key: (row.tenant_id, row.system_key, currency),
                handle: AccountRef { id: row.id, tenant_id: row.tenant_id, currency },
                decided: row.decided,
            })
        })
        .collect()
}

/// Makes those that are missing, in the given order.
pub(super) async fn make_system(conn: &mut PgConnection, new: &[&SystemAccount]) -> Result<(), LedgerError> {
    let ids: Vec<Uuid> = new.iter().map(|_| Uuid::now_v7()).collect();
    let tenants: Vec<Uuid> = new.iter().map(|account| account.tenant_id).collect();
    let names: Vec<&str> = new.iter().map(|account| account.name).collect();
    let kinds: Vec<&str> = new.iter().map(|account| account.kind.as_str()).collect();
    let currencies: Vec<&str> = new.iter().map(|account| account.currency.code()).collect();
    let keys: Vec<&str> = new.iter().map(|account| account.key.as_str()).collect();
    sqlx::query!(
        "-- ledger.account_make_system
        INSERT INTO ledger.account (account_id, tenant_id, name, kind, currency, system_key)
        SELECT account_id, tenant_id, name, kind, currency, system_key
          FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[])
               WITH ORDINALITY AS n (account_id, tenant_id, name, kind, currency, system_key, place)
         ORDER BY place      -- key order: two transactions that make the same accounts wait, never deadlock
        ON CONFLICT (tenant_id, system_key, currency) DO NOTHING",
        &ids,
        &tenants,
        &names as &[&str],
        &kinds as &[&str],
        &currencies as &[&str],
        &keys as &[&str],
    )
    .execute(conn)
    .await?;
    Ok(())
}
