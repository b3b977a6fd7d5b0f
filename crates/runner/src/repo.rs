//! SQL of schema `runner`.

use sqlx::PgConnection;

use crate::error::DbError;
use crate::figures::{Counters, Durability};

pub(crate) struct Server {
    pub system_identifier: i64,
    pub in_recovery: bool,
    pub fsync: bool,
    pub full_page_writes: bool,
    pub synchronous_commit: bool,
    pub migrated: bool,
}

pub(crate) async fn server(conn: &mut PgConnection) -> Result<Server, DbError> {
    Ok(sqlx::query_as!(
        Server,
        r#"-- runner.server
        SELECT system_identifier AS "system_identifier!",
               pg_is_in_recovery() AS "in_recovery!",
               current_setting('fsync')::boolean AS "fsync!",
               current_setting('full_page_writes')::boolean AS "full_page_writes!",
               current_setting('synchronous_commit') <> 'off' AS "synchronous_commit!",
               to_regclass('runner.cluster') IS NOT NULL AS "migrated!"
          FROM pg_control_system()"#
    )
    .fetch_one(conn)
    .await?)
}

pub(crate) async fn cluster(conn: &mut PgConnection) -> Result<i64, DbError> {
    Ok(sqlx::query_scalar!(
        "-- runner.cluster
        SELECT system_identifier FROM runner.cluster"
    )
    .fetch_one(conn)
    .await?)
}

/// Settings of a long read, for this transaction only. The sums of `verify` sort and hash whole tables.
pub(crate) async fn settings_of_snapshot(conn: &mut PgConnection) -> Result<(), DbError> {
    sqlx::query!(
        "-- runner.settings_of_snapshot
        SELECT set_config('statement_timeout', '0', true) AS a, set_config('idle_in_transaction_session_timeout', '0', true) AS b,
               set_config('plan_cache_mode', 'force_custom_plan', true) AS c, set_config('work_mem', '64MB', true) AS d,
               set_config('enable_seqscan', 'on', true) AS e"
    )
    .fetch_one(conn)
    .await?;
    Ok(())
}

/// One of several statements that only differ in their text; each answers with its own number.
pub(crate) async fn pooler_probe(conn: &mut PgConnection, number: i64) -> Result<i64, DbError> {
    // The number is in the text and not a parameter, so that these are different prepared statements.
    let statement = format!(
        "-- runner.pooler_probe
        SELECT {number}::bigint"
    );
    Ok(sqlx::query_scalar(sqlx::AssertSqlSafe(statement)).fetch_one(conn).await?)
}

pub(crate) async fn is_privileged(conn: &mut PgConnection) -> Result<bool, DbError> {
    Ok(sqlx::query_scalar!(
        r#"-- runner.is_privileged
        SELECT rolsuper OR pg_has_role(current_user, 'tallystick_owner', 'MEMBER') AS "privileged!"
          FROM pg_roles WHERE rolname = current_user"#
    )
    .fetch_one(conn)
    .await?)
}

pub(crate) async fn counters(conn: &mut PgConnection) -> Result<Counters, DbError> {
    Ok(sqlx::query_as!(
        Counters,
        r#"-- runner.counters
        SELECT s.xact_commit AS "commits!",
               pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS "writes!",
               (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint AS "wal_bytes!"
          FROM pg_stat_database AS s WHERE s.datname = current_database()"#
    )
    .fetch_one(conn)
    .await?)
}

pub(crate) async fn durability(conn: &mut PgConnection) -> Result<Durability, DbError> {
    Ok(sqlx::query_as!(
        Durability,
        r#"-- runner.durability
        SELECT current_setting('server_version') AS "server_version!",
               current_setting('fsync') AS "fsync!",
               current_setting('synchronous_commit') AS "synchronous_commit!",
               current_setting('full_page_writes') AS "full_page_writes!",
               current_setting('wal_sync_method') AS "wal_sync_method!",
               (SELECT setting FROM pg_settings WHERE name = 'commit_delay') AS "commit_delay!",
               current_setting('commit_siblings') AS "commit_siblings!""#
    )
    .fetch_one(conn)
    .await?)
}
