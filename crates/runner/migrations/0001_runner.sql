-- Schema `runner`: what ledger, outbox and payments share about this database cluster.

GRANT USAGE ON SCHEMA runner TO tallystick_app;

-- mark(): a number that never falls over the life of the data, the same for all rows of one transaction.
-- It is the transaction's 64-bit id plus a base. The base is a constant inside the function, so that no row
-- can be written with a wrong one, and the body is parsed here and now (RETURN), so that no type of a caller's own
-- can take the place of the casts; adopting a restored copy replaces both functions with a larger base.
CREATE FUNCTION runner.mark() RETURNS bigint
    LANGUAGE sql STABLE PARALLEL RESTRICTED
    RETURN 0 + pg_catalog.pg_current_xact_id()::text::bigint;

-- horizon(): every row with a mark below it belongs to a transaction that has ended. It is decided: either
-- visible to this snapshot or never visible to any. Any open write transaction of the cluster holds it back.
CREATE FUNCTION runner.horizon() RETURNS bigint
    LANGUAGE sql STABLE PARALLEL RESTRICTED
    RETURN 0 + pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::bigint;

-- The cluster that this data was written in. Transaction ids belong to one cluster; a dump restored into
-- another one would sort its old rows above its new ones. Every role compares at start and refuses to run.
CREATE TABLE runner.cluster (
    one               boolean     PRIMARY KEY DEFAULT true CHECK (one),   -- a single row
    system_identifier bigint      NOT NULL,                               -- pg_control_system(), made by initdb
    base              bigint      NOT NULL DEFAULT 0,                     -- the constant inside mark() and horizon()
    epoch             integer     NOT NULL DEFAULT 0,                     -- raised each time a copy is adopted
    adopted_at        timestamptz NOT NULL DEFAULT now()                  -- when this identifier was taken as ours
);
INSERT INTO runner.cluster (system_identifier)
    SELECT system_identifier FROM pg_catalog.pg_control_system();

GRANT SELECT ON runner.cluster TO tallystick_app;
GRANT EXECUTE ON FUNCTION runner.mark(), runner.horizon() TO tallystick_app;
