-- Schema `outbox`: events that were committed together with what they tell about, windows that put them into an
-- order that never has a gap, and one position per sink. The crate's README explains the protocol.

GRANT USAGE ON SCHEMA outbox TO tallystick_app;

-- epoch(): which life of this data new rows belong to. Transaction ids belong to one cluster; adopting a copy in
-- another cluster replaces this function by one with a higher number, so that old ids never mix with new ones.
CREATE FUNCTION outbox.epoch() RETURNS integer
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT 0 $$;

-- CACHE 1, so that whoever holds a row's lock draws a later number than the writer that held it before.
CREATE SEQUENCE outbox.event_seq AS bigint CACHE 1;

-- One row per event, append-only. No primary key: it would have to hold the partition key and would guard nothing.
-- Partitioned by UTC day, made ahead by ensure_partitions(). There is no DEFAULT partition on purpose: rows in it
-- would stand in the way of the partition that they belong to.
CREATE TABLE outbox.event (
    created_at   timestamptz NOT NULL DEFAULT now(),                  -- start of the writing transaction; partition key
    epoch        integer     NOT NULL DEFAULT outbox.epoch(),         -- life of the data that `xid` belongs to
    xid          xid8        NOT NULL DEFAULT pg_current_xact_id(),   -- writing transaction; decides the window
    seq          bigint      NOT NULL DEFAULT nextval('outbox.event_seq'), -- order inside of a window
    event_id     uuid        NOT NULL,                                -- what receivers recognise repeats by
    tenant_id    uuid        NOT NULL,                                -- whose event it is
    aggregate    text        NOT NULL CHECK (octet_length(aggregate) BETWEEN 1 AND 64), -- kind of the object told about
    aggregate_id uuid        NOT NULL,                                -- the object told about
    version      integer     NOT NULL CHECK (version >= 1),           -- the object's version after the move: 1, 2, 3 …
    type         text        NOT NULL CHECK (octet_length(type) BETWEEN 1 AND 128), -- name of the move
    payload      bytea       NOT NULL CHECK (octet_length(payload) <= 262144) -- the exact bytes that are published
) PARTITION BY RANGE (created_at);

-- Kept in the row: an event is read soon after it was written, and then whole.
ALTER TABLE outbox.event ALTER COLUMN payload SET STORAGE MAIN;

CREATE INDEX event_xid ON outbox.event (xid, seq);             -- ticker; late rows of a window
CREATE INDEX event_seq_order ON outbox.event (seq);            -- pages of a window
CREATE INDEX event_aggregate ON outbox.event (aggregate_id);   -- the events of one object

-- A window is the set of events whose transactions are complete in snapshot `hi` and were not in snapshot `lo`.
-- Its content never changes once the row is committed. `lo` is the `hi` of the window before it, so every event is
-- in exactly one window. A window without events is never stored.
CREATE TABLE outbox.window (
    no          bigint      PRIMARY KEY CHECK (no >= 1),   -- 1, 2, 3 … without a gap; the key is the ticker's fence
    epoch       integer     NOT NULL,                      -- life of the data that both snapshots belong to
    lo          pg_snapshot NOT NULL,                      -- everything complete in it lies in earlier windows
    hi          pg_snapshot NOT NULL,                      -- taken after the window before this one was committed
    first_seq   bigint      NOT NULL,                      -- smallest seq among the window's events
    last_seq    bigint      NOT NULL,                      -- largest seq among the window's events
    events      bigint      NOT NULL CHECK (events > 0),   -- how many events the window holds
    total       bigint      NOT NULL,                      -- events of this and all earlier windows
    fresh_first bigint,                                    -- smallest seq of transactions that began after `lo`
    fresh_last  bigint,                                    -- largest seq of these; both empty if there are none
    late        xid8[]      NOT NULL,                      -- transactions open in `lo` whose events lie in this window
    oldest_at   timestamptz NOT NULL,                      -- exact range of created_at among the window's events,
    newest_at   timestamptz NOT NULL,                      --   so that a reader opens only the partitions it needs
    made_at     timestamptz NOT NULL DEFAULT now(),        -- when the ticker made it
    CHECK (first_seq <= last_seq),
    CHECK ((fresh_first IS NULL) = (fresh_last IS NULL))
);

-- How far each sink has got: everything up to and including (window_no, seq) was confirmed by it.
CREATE TABLE outbox.sink (
    name        text        PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 64), -- the sink's own name
    epoch       integer     NOT NULL DEFAULT 0,             -- epoch of the window that the position names
    window_no   bigint      NOT NULL DEFAULT 0,             -- last window of which something was confirmed; 0: none
    seq         bigint      NOT NULL DEFAULT 0,             -- last confirmed seq in that window
    fence       bigint      NOT NULL DEFAULT 0,             -- raised whenever the lease is taken anew
    owner       uuid,                                       -- process that holds, or held last, the lease
    lease_until timestamptz NOT NULL DEFAULT '-infinity',   -- end of the lease, by the database's clock
    enabled     boolean     NOT NULL DEFAULT true,          -- false: nothing is published, the position stays
    updated_at  timestamptz NOT NULL DEFAULT now()          -- last change of the row
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Events and windows are written once. Privileges keep the application out; the triggers also keep out the owner
-- and superusers, whose mistakes would be just as final. Statement triggers cost an insert nothing.
CREATE FUNCTION outbox.refuse_change() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    RAISE EXCEPTION '% on %.% refused: it is append-only', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', HINT = 'Events go away by whole partitions only.';
END $$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON outbox.event
    FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.event
    FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change();
-- Windows may be deleted (by the owner, with the partitions that they lead to), never changed.
CREATE TRIGGER append_only BEFORE UPDATE ON outbox.window
    FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.window
    FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change();

-- make_window(): appends the next window if it would hold at least one event; gives the number of its events.
-- It is a definer's function because a window with wrong snapshots would hide events from everybody for ever.
--
-- One statement, hence one snapshot: it sees window `last` and is `hi`. Seeing it means it was taken after `last`
-- was committed, so all that is complete in last.hi is complete in `hi`. Of two tickers that both saw `last`, the
-- key lets one through. The snapshot is taken before this transaction has an id of its own.
-- Both ranges have two bounds and sequential scans are off, so that a plan made while a partition was tiny stays good.
-- No bound on created_at: it is the transaction's start, and one that was open for long would be left out for ever.
CREATE FUNCTION outbox.make_window() RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
    AS $$
DECLARE made bigint;
BEGIN
    -- outbox.make_window
    WITH span AS MATERIALIZED (
        SELECT coalesce(w.no, 0) AS no, coalesce(w.total, 0) AS total, pg_catalog.pg_current_snapshot() AS hi,
               CASE WHEN w.epoch = outbox.epoch() THEN w.hi ELSE '1:1:'::pg_catalog.pg_snapshot END AS lo
          FROM (SELECT) AS always
          LEFT JOIN (SELECT no, total, epoch, hi FROM outbox.window ORDER BY no DESC LIMIT 1) AS w ON true
    ), part AS MATERIALIZED (
        -- transactions that began after `lo` …
        SELECT NULL::pg_catalog.xid8 AS late, count(*) AS events, min(e.seq) AS first_seq, max(e.seq) AS last_seq,
               min(e.created_at) AS oldest_at, max(e.created_at) AS newest_at
          FROM outbox.event e
         WHERE e.xid >= (SELECT pg_catalog.pg_snapshot_xmax(span.lo) FROM span)
           AND e.xid < (SELECT pg_catalog.pg_snapshot_xmax(span.hi) FROM span)
           AND pg_catalog.pg_visible_in_snapshot(e.xid, (SELECT span.hi FROM span))
           AND e.epoch = outbox.epoch()
        UNION ALL
        -- … and those that were open then
        SELECT x.xid, s.events, s.first_seq, s.last_seq, s.oldest_at, s.newest_at
          FROM span
         CROSS JOIN LATERAL pg_catalog.pg_snapshot_xip(span.lo) AS x(xid)
         CROSS JOIN LATERAL (
               SELECT count(*) AS events, min(e.seq) AS first_seq, max(e.seq) AS last_seq,
                      min(e.created_at) AS oldest_at, max(e.created_at) AS newest_at
                 FROM outbox.event e
                WHERE e.xid = x.xid
                  AND pg_catalog.pg_visible_in_snapshot(e.xid, span.hi)
                  AND e.epoch = outbox.epoch()) AS s
    ), content AS MATERIALIZED (
        SELECT sum(p.events)::bigint AS events, min(p.first_seq) AS first_seq, max(p.last_seq) AS last_seq,
               min(p.first_seq) FILTER (WHERE p.late IS NULL) AS fresh_first,
               max(p.last_seq) FILTER (WHERE p.late IS NULL) AS fresh_last,
               coalesce(array_agg(p.late ORDER BY p.late) FILTER (WHERE p.late IS NOT NULL), '{}') AS late,
               min(p.oldest_at) AS oldest_at, max(p.newest_at) AS newest_at
          FROM part p
         WHERE p.events > 0
    )
    INSERT INTO outbox.window AS w (no, epoch, lo, hi, first_seq, last_seq, events, total,
                                    fresh_first, fresh_last, late, oldest_at, newest_at)
    SELECT span.no + 1, outbox.epoch(), span.lo, span.hi, c.first_seq, c.last_seq, c.events, span.total + c.events,
           c.fresh_first, c.fresh_last, c.late, c.oldest_at, c.newest_at
      FROM span CROSS JOIN content c
     WHERE c.events > 0
    ON CONFLICT (no) DO NOTHING
    RETURNING w.events INTO made;
    RETURN coalesce(made, 0);
END $$;

-- read_page(): looks at up to `scan` events behind a position and gives the first `wanted` that are the tenant's (of
-- any tenant for NULL), together with how far it looked. There is always at least one row; without events all that is
-- about an event is NULL in it.
--
-- Windows are picked until they hold `scan` events. In each of them, events of transactions that began after its `lo`
-- come by seq. There xid must stay a filter, hence the bare comparison function: by the xid index each page of a big
-- window would walk through all of it. Those of late transactions come by (xid, seq), each a range of its own; by seq
-- alone, one that was open for hours would be looked for among everything that was written meanwhile.
-- The range of created_at is the window's own, so it leaves nothing out and opens one or two partitions.
--
-- A function for its settings: planning takes longer than reading, so one plan serves all positions, and without
-- sequential scans a plan that was made while a partition was empty stays good. It runs with the caller's rights.
CREATE FUNCTION outbox.read_page(after_window bigint, after_seq bigint, scan bigint, tenant uuid, wanted bigint)
    RETURNS TABLE (
        cut               boolean,      -- `scan` ended the look; there may be more behind it
        last_window       bigint,       -- newest window; 0: none
        epoch_of_position integer,      -- epoch of window `after_window`; NULL when it is not there
        stop_no           bigint,       -- how far it looked: window,
        stop_seq          bigint,       --   seq in it,
        stop_epoch        integer,      --   epoch of it; NULL when there is nothing behind the position
        no                bigint,       -- window of the event
        epoch             integer,      -- and its epoch
        seq               bigint,       -- the other columns are those of outbox.event
        event_id          uuid,
        tenant_id         uuid,
        aggregate         text,
        aggregate_id      uuid,
        version           integer,
        type              text,
        payload           bytea,
        created_at        timestamptz)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
    AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    -- outbox.read_page
    WITH ahead AS MATERIALIZED (
        SELECT w.no, w.epoch, w.hi, w.last_seq, w.fresh_first, w.fresh_last, w.late, w.oldest_at, w.newest_at,
               pg_snapshot_xmax(w.lo) AS xid_from, pg_snapshot_xmax(w.hi) AS xid_to,
               CASE WHEN w.no = $1 THEN $2 ELSE 0 END AS after_seq,
               w.total - w.events - first_value(w.total - w.events) OVER (ORDER BY w.no) AS events_before
          FROM (SELECT * FROM outbox.window
                 WHERE (no, last_seq) > ($1::bigint, $2::bigint) ORDER BY no LIMIT $3::bigint) AS w
    ), picked AS MATERIALIZED (
        SELECT * FROM ahead WHERE events_before < $3
    ), scanned AS MATERIALIZED (
        SELECT p.no, p.epoch, e.seq, e.event_id, e.tenant_id, e.aggregate, e.aggregate_id, e.version, e.type,
               e.payload, e.created_at
          FROM picked p
         CROSS JOIN LATERAL (
               (SELECT e.seq, e.event_id, e.tenant_id, e.aggregate, e.aggregate_id, e.version, e.type, e.payload,
                       e.created_at
                  FROM outbox.event e
                 WHERE e.seq > greatest(p.after_seq, p.fresh_first - 1) AND e.seq <= p.fresh_last
                   AND e.created_at >= p.oldest_at AND e.created_at <= p.newest_at
                   AND xid8cmp(e.xid, p.xid_from) >= 0 AND xid8cmp(e.xid, p.xid_to) < 0
                   AND pg_visible_in_snapshot(e.xid, p.hi) AND e.epoch = p.epoch
                 ORDER BY e.seq LIMIT $3)
               UNION ALL
               (SELECT l.*
                  FROM unnest(p.late) AS x(xid)
                 CROSS JOIN LATERAL (
                       SELECT e.seq, e.event_id, e.tenant_id, e.aggregate, e.aggregate_id, e.version, e.type,
                              e.payload, e.created_at
                         FROM outbox.event e
                        WHERE (e.xid, e.seq) > (x.xid, p.after_seq) AND (e.xid, e.seq) <= (x.xid, p.last_seq)
                          AND e.created_at >= p.oldest_at AND e.created_at <= p.newest_at
                          AND pg_visible_in_snapshot(e.xid, p.hi) AND e.epoch = p.epoch
                        ORDER BY e.xid, e.seq LIMIT $3) AS l)
               ORDER BY seq LIMIT $3) AS e
         ORDER BY p.no, e.seq LIMIT $3
    ), reached AS (
        SELECT (SELECT count(*) FROM scanned) >= $3 AS cut,
               (SELECT max(no) FROM outbox.window) AS last_window,
               (SELECT w.epoch FROM outbox.window w WHERE w.no = $1) AS epoch_of_position
    ), stop AS (
        SELECT no, seq, epoch FROM (SELECT no, seq, epoch FROM scanned ORDER BY no DESC, seq DESC LIMIT 1) AS s
         WHERE (SELECT cut FROM reached)
        UNION ALL
        SELECT no, last_seq, epoch FROM (SELECT no, last_seq, epoch FROM picked ORDER BY no DESC LIMIT 1) AS s
         WHERE NOT (SELECT cut FROM reached)
    ), matched AS (
        SELECT * FROM scanned WHERE $4::uuid IS NULL OR tenant_id = $4 ORDER BY no, seq LIMIT $5::bigint
    )
    SELECT r.cut, coalesce(r.last_window, 0), r.epoch_of_position, s.no, s.seq, s.epoch,
           m.no, m.epoch, m.seq, m.event_id, m.tenant_id, m.aggregate, m.aggregate_id, m.version, m.type, m.payload,
           m.created_at
      FROM reached r LEFT JOIN stop s ON true LEFT JOIN matched m ON true
     ORDER BY m.no, m.seq;
END $$;

-- ensure_partitions(): sees to it that today (UTC) and the `days` days after it have a partition; gives how many it
-- made. Any number of processes may call it at once: they queue at a lock that ends with the transaction.
-- A table is made aside and attached, which takes a lock that neither readers nor writers of events wait for.
-- It is empty, so attaching it has nothing to check.
CREATE FUNCTION outbox.ensure_partitions(days integer) RETURNS integer
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' SET timezone = 'UTC'
    AS $$
DECLARE
    day  date;
    leaf text;
    made integer := 0;
BEGIN
    IF days IS NULL OR days NOT BETWEEN 0 AND 60 THEN
        RAISE EXCEPTION 'partitions are made for 0 to 60 days ahead, not for %', days
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('outbox.ensure_partitions', 0));
    FOR ahead IN 0 .. days LOOP
        day := (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::date + ahead;
        leaf := 'event_' || pg_catalog.to_char(day, 'YYYYMMDD');
        CONTINUE WHEN outbox.has_partition(day);
        EXECUTE format('CREATE TABLE outbox.%I (LIKE outbox.event INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', leaf);
        -- Statement triggers fire for the table that is named, so a leaf needs its own.
        EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON outbox.%I '
                       'FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change()', leaf);
        EXECUTE format('CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON outbox.%I '
                       'FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change()', leaf);
        EXECUTE format('ALTER TABLE outbox.event ATTACH PARTITION outbox.%I FOR VALUES FROM (%L) TO (%L)',
                       leaf, day::timestamptz, (day + 1)::timestamptz);
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;

-- has_partition(): is there an attached partition for this UTC day?
CREATE FUNCTION outbox.has_partition(day date) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT EXISTS (
        SELECT FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'outbox.event'::pg_catalog.regclass AND NOT i.inhdetachpending
           AND c.relname = 'event_' || pg_catalog.to_char(day, 'YYYYMMDD'))
$$;

-- partition_days_left(): for how many days after today (UTC) events can be written, without a hole; -1 when even
-- today has no partition.
CREATE FUNCTION outbox.partition_days_left() RETURNS integer
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    today  date    := (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::date;
    "left" integer := -1;
BEGIN
    WHILE outbox.has_partition(today + "left" + 1) LOOP
        "left" := "left" + 1;
    END LOOP;
    RETURN "left";
END $$;

REVOKE EXECUTE ON FUNCTION outbox.make_window(), outbox.ensure_partitions(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.make_window(), outbox.ensure_partitions(integer) TO tallystick_app;

-- Of an event the application names what it tells, not where it stands: xid, seq, epoch and created_at are the
-- database's. It has no right on partitions, so it cannot go around the table.
GRANT SELECT ON outbox.event, outbox.window TO tallystick_app;
GRANT INSERT (event_id, tenant_id, aggregate, aggregate_id, version, type, payload) ON outbox.event TO tallystick_app;
GRANT USAGE ON SEQUENCE outbox.event_seq TO tallystick_app;
GRANT SELECT, INSERT, UPDATE ON outbox.sink TO tallystick_app;

SELECT outbox.ensure_partitions(7);
