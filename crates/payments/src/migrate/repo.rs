//! SQL of migrating. Not checked at build time: it speaks about roles and schemas that do not exist yet.

use sqlx::PgConnection;
use tallystick_runner::DbError;

use super::MigrateError;

/// The two roles. Roles belong to the cluster, so another database's migration may make them at the same moment.
pub(super) const ROLES: &str = "DO $roles$
BEGIN
    BEGIN
        CREATE ROLE tallystick_owner NOLOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END;
    BEGIN
        CREATE ROLE tallystick_app LOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END;
END $roles$;
";

/// Nobody but the owner needs temporary objects in this database, and their schema comes first in look-ups by name.
/// The functions that run as the owner do not rely on this; where the right cannot be taken away it stays.
const NO_TEMPORARY: &str = "DO $temporary$
BEGIN
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $temporary$;
";

/// Makes roles and the right to create schemas, and continues as the owner.
pub(super) async fn prepare(conn: &mut PgConnection) -> Result<(), MigrateError> {
    let exist: bool = sqlx::query_scalar(
        "-- migrate.roles_exist
        SELECT count(*) = 2 FROM pg_roles WHERE rolname IN ('tallystick_owner', 'tallystick_app')",
    )
    .fetch_one(&mut *conn)
    .await
    .map_err(DbError::from)?;
    if !exist {
        run(conn, "creating the roles", ROLES).await?;
    }
    let may_create: bool = sqlx::query_scalar(
        "-- migrate.may_create
        SELECT has_database_privilege('tallystick_owner', current_database(), 'CREATE')",
    )
    .fetch_one(&mut *conn)
    .await
    .map_err(DbError::from)?;
    if !may_create {
        let grant = "DO $grant$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO tallystick_owner', current_database()); END $grant$";
        run(conn, "letting tallystick_owner create schemas", grant).await?;
    }
    run(conn, "keeping temporary objects from everybody", NO_TEMPORARY).await?;
    run(conn, "becoming tallystick_owner", "SET ROLE tallystick_owner").await
}

async fn run(
    conn: &mut PgConnection,
    what: &'static str,
    statement: &'static str,
) -> Result<(), MigrateError> {
    sqlx::raw_sql(statement).execute(conn).await.map(|_| ()).map_err(|error| {
        let error = DbError::from(error);
        match error.server_message() {
            Some(message) => MigrateError::NotAllowed { what, reason: message.to_owned() },
            None => MigrateError::Db(error),
        }
    })
}

/// Lets programs read which migrations are applied: they refuse a database that is not at their version.
pub(super) async fn grant_versions(
    conn: &mut PgConnection,
    schema: &'static str,
) -> Result<(), MigrateError> {
    let grant = match schema {
        "runner" => "GRANT SELECT ON runner._sqlx_migrations TO tallystick_app",
        "outbox" => "GRANT SELECT ON outbox._sqlx_migrations TO tallystick_app",
        "ledger" => "GRANT SELECT ON ledger._sqlx_migrations TO tallystick_app",
        _ => "GRANT SELECT ON payments._sqlx_migrations TO tallystick_app",
    };
    run(conn, "letting programs read the applied migrations", grant).await
}

/// Migrations of a schema that are applied, oldest first; none when the schema is not there.
pub(super) async fn applied(conn: &mut PgConnection, schema: &'static str) -> Result<Vec<i64>, DbError> {
    // The name of a table cannot be a parameter; these are our own four words.
    let (table, query) = match schema {
        "runner" => (
            "runner._sqlx_migrations",
            "-- migrate.applied
            SELECT version FROM runner._sqlx_migrations WHERE success ORDER BY version",
        ),
        "outbox" => (
            "outbox._sqlx_migrations",
            "-- migrate.applied
            SELECT version FROM outbox._sqlx_migrations WHERE success ORDER BY version",
        ),
        "ledger" => (
            "ledger._sqlx_migrations",
            "-- migrate.applied
            SELECT version FROM ledger._sqlx_migrations WHERE success ORDER BY version",
        ),
        _ => (
            "payments._sqlx_migrations",
            "-- migrate.applied
            SELECT version FROM payments._sqlx_migrations WHERE success ORDER BY version",
        ),
    };
    let there: bool = sqlx::query_scalar(
        "-- migrate.table_exists
        SELECT to_regclass($1) IS NOT NULL",
    )
    .bind(table)
    .fetch_one(&mut *conn)
    .await?;
    if !there {
        return Ok(Vec::new());
    }
    Ok(sqlx::query_scalar(query).fetch_all(conn).await?)
}
