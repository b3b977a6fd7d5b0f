//! SQL of payments.tenant and payments.api_key.

use sqlx::PgConnection;
use tallystick_runner::DbError;
use uuid::Uuid;

use super::{ApiKey, Tenant};
use crate::ids::{KeyId, TenantId};

pub(crate) async fn insert_tenant(conn: &mut PgConnection, id: Uuid, name: &str) -> Result<(), DbError> {
    sqlx::query!(
        "-- tenant.insert
        INSERT INTO payments.tenant (tenant_id, name) VALUES ($1, $2)",
        id,
        name
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(crate) async fn find(conn: &mut PgConnection, name: &str) -> Result<Option<Uuid>, DbError> {
    Ok(sqlx::query_scalar!(
        "-- tenant.find
        SELECT tenant_id FROM payments.tenant WHERE name = $1",
        name
    )
    .fetch_optional(conn)
    .await?)
}

pub(crate) async fn list(conn: &mut PgConnection) -> Result<Vec<Tenant>, DbError> {
    let rows = sqlx::query!(
        "-- tenant.list
        SELECT tenant_id, name, payout_approval, two_people, strict_order FROM payments.tenant ORDER BY name"
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| Tenant {
            tenant_id: TenantId(r.tenant_id),
            name: r.name,
            payout_approval: r.payout_approval,
            two_people: r.two_people,
            strict_order: r.strict_order,
        })
        .collect())
}

pub(crate) async fn set(
    conn: &mut PgConnection,
    name: &str,
    setting: &str,
    on: bool,
) -> Result<u64, DbError> {
    Ok(sqlx::query!(
        "-- tenant.set
        UPDATE payments.tenant
           SET payout_approval = CASE WHEN $2 = 'payout_approval' THEN $3 ELSE payout_approval END,
               two_people = CASE WHEN $2 = 'two_people' THEN $3 ELSE two_people END,
               strict_order = CASE WHEN $2 = 'strict_order' THEN $3 ELSE strict_order END
         WHERE name = $1",
        name,
        setting,
        on
    )
    .execute(conn)
    .await?
    .rows_affected())
}

/// Nobody's payouts go out unasked: a tenant that is not there counts as one that wants to be asked.
pub(crate) async fn payout_approval(conn: &mut PgConnection, tenant: Uuid) -> Result<bool, DbError> {
    let found = sqlx::query_scalar!(
        "-- tenant.payout_approval
        SELECT payout_approval FROM payments.tenant WHERE tenant_id = $1",
        tenant
    )
    .fetch_optional(conn)
    .await?;
    Ok(found.unwrap_or(true))
}

pub(crate) async fn insert_key(
    conn: &mut PgConnection,
    id: Uuid,
    tenant: Uuid,
    scope: &str,
    prefix: &str,
    hash: &[u8],
) -> Result<(), DbError> {
    sqlx::query!(
        "-- api_key.insert
        INSERT INTO payments.api_key (key_id, tenant_id, scope, prefix, hash) VALUES ($1, $2, $3, $4, $5)",
        id,
        tenant,
        scope,
        prefix,
        hash
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(crate) struct KeyRow {
    pub key_id: Uuid,
    pub tenant_id: Uuid,
    pub scope: String,
    pub hash: Vec<u8>,
    /// Of the tenant, which everything that is asked with the key may need.
    pub payout_approval: bool,
}

pub(crate) async fn by_prefix(conn: &mut PgConnection, prefix: &str) -> Result<Vec<KeyRow>, DbError> {
    Ok(sqlx::query_as!(
        KeyRow,
        "-- api_key.by_prefix
        SELECT k.key_id, k.tenant_id, k.scope, k.hash, t.payout_approval
          FROM payments.api_key k JOIN payments.tenant t ON t.tenant_id = k.tenant_id
         WHERE k.prefix = $1 AND k.revoked_at IS NULL LIMIT 100",
        prefix
    )
    .fetch_all(conn)
    .await?)
}

pub(crate) async fn keys(conn: &mut PgConnection, tenant: Option<&str>) -> Result<Vec<ApiKey>, DbError> {
    let rows = sqlx::query!(
        "-- api_key.list
        SELECT k.key_id, t.name, k.scope, k.prefix, k.created_at, k.revoked_at
          FROM payments.api_key k JOIN payments.tenant t USING (tenant_id)
         WHERE $1::text IS NULL OR t.name = $1
         ORDER BY t.name, k.key_id",
        tenant
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| ApiKey {
            key_id: KeyId(r.key_id),
            tenant: r.name,
            scope: r.scope,
            prefix: r.prefix,
            created_at: r.created_at.to_jiff(),
            revoked_at: r.revoked_at.map(jiff_sqlx::Timestamp::to_jiff),
        })
        .collect())
}

pub(crate) async fn revoke(conn: &mut PgConnection, id: Uuid) -> Result<u64, DbError> {
    Ok(sqlx::query!(
        "-- api_key.revoke
        UPDATE payments.api_key SET revoked_at = coalesce(revoked_at, now()) WHERE key_id = $1",
        id
    )
    .execute(conn)
    .await?
    .rows_affected())
}
