-- Schema `ledger`: accounts, journals and their entries, defended against the application role itself.
--
-- Runs as the owning role; programs connect as tallystick_app, which owns nothing here. What that role may do
-- is at the end of this file: read everything, insert accounts, journals and entries (named columns only), and
-- call two functions. Amounts are integers in minor units of the entry's currency. No payment words here.
--
-- Marks (`runner.mark()`): the number of the transaction that wrote a row, the same in all of its rows. Every row
-- with a mark below `runner.horizon()` is decided, so a sum below a horizon never changes.

REVOKE ALL ON SCHEMA ledger FROM PUBLIC;
GRANT USAGE ON SCHEMA ledger TO tallystick_app;

-- ---------------------------------------------------------------------------------------------------------------
-- Accounts

CREATE TABLE ledger.account (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- inside the database only
    account_id    uuid        NOT NULL UNIQUE,                          -- what the outside calls it
    tenant_id     uuid        NOT NULL,                                 -- whose account; a journal never crosses tenants
    name          text        NOT NULL CHECK (name <> ''),              -- for people
    kind          text        NOT NULL CHECK (kind IN ('asset', 'liability', 'equity', 'revenue', 'expense')),
                                                                        -- decides the natural side of the balance
    currency      char(3)     NOT NULL CHECK (currency ~ '^[A-Z]{3}$'), -- ISO 4217, fixed for ever
    minimum_minor bigint      NULL CHECK (minimum_minor BETWEEN -1000000000000000 AND 0),
                                                                        -- least natural-side balance that a decision may leave; NULL = none.
                                                                        -- Not above 0: an account is opened empty
    limited       boolean     NOT NULL GENERATED ALWAYS AS (minimum_minor IS NOT NULL) STORED,
                                                                        -- has a minimum: locked while a debit is decided
    system_key    text        NULL CHECK (system_key <> ''),            -- made by a program on first use, such as 'gateway/sales'; NULL = opened by a person
    metadata      json        NULL,                                     -- the client's own words, kept as they were written
    created_at    timestamptz NOT NULL DEFAULT now(),                   -- start of the transaction that opened it
    mark          bigint      NOT NULL DEFAULT runner.mark(),           -- see above; below the horizon = committed for good, so it may be cached
    UNIQUE (id, currency),                                              -- target of entry's foreign key: currencies cannot differ
    UNIQUE (tenant_id, system_key, currency)                            -- one of each per tenant and currency (NULLs are distinct)
) WITH (fillfactor = 90);   -- room for row locks and the rare change of metadata

-- Pages of a tenant's accounts, newest first.
CREATE INDEX account_tenant ON ledger.account (tenant_id, id);

-- ---------------------------------------------------------------------------------------------------------------
-- Journals and entries
--
-- A journal declares the number of its entries first. It can only commit full (lines 1 to entry_count, checked by
-- one deferred trigger per journal), and a full journal takes no further line: the primary key refuses a line in
-- range, the check one out of range, the foreign key another count, a trigger every change. So `SET CONSTRAINTS
-- ALL IMMEDIATE` followed by one more entry, an empty journal and entries added later are all refused.

CREATE TABLE ledger.journal (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- inside the database only
    journal_id   uuid        NOT NULL UNIQUE,                           -- what the outside calls it
    tenant_id    uuid        NOT NULL,                                  -- whose money; all accounts of its entries are this tenant's
    kind         text        NOT NULL CHECK (kind <> ''),               -- the money event, such as 'manual' or 'correction'
    source       uuid        NOT NULL,                                  -- what happened: the same source is never posted twice
    source_text  text        NULL,                                      -- the client's own text where `source` was made from one
    ordinal      smallint    NOT NULL DEFAULT 0 CHECK (ordinal >= 0),   -- tells several journals of one kind and source apart
    entry_count  smallint    NOT NULL CHECK (entry_count BETWEEN 2 AND 1000),   -- declared first, never changes
    entries_hash bytea       NOT NULL CHECK (length(entries_hash) = 32),
                                                                        -- SHA-256 over the entries in canonical order: tells a repeat from another content
    description  text        NOT NULL,                                  -- for people
    metadata     json        NULL,                                      -- the client's own words, kept as they were written
    recorded_at  timestamptz NOT NULL DEFAULT now(),                    -- start of the transaction that posted it
    effective_at timestamptz NOT NULL DEFAULT now(),                    -- business time, may lie in the past
    corrects     uuid        NULL REFERENCES ledger.journal (journal_id),       -- the journal that this one corrects
    mark         bigint      NOT NULL DEFAULT runner.mark(),            -- see above
    UNIQUE (tenant_id, source, kind, ordinal),                          -- also finds all journals of a source
    UNIQUE (id, entry_count)                                            -- target of entry's foreign key: the count cannot differ
) WITH (
    -- Only ever inserted into: freeze and set the visibility map early, in small pieces.
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);

-- What corrected a journal; most journals correct nothing and are not in it.
CREATE INDEX journal_corrects ON ledger.journal (corrects) WHERE corrects IS NOT NULL;

CREATE TABLE ledger.entry (
    journal_id   bigint   NOT NULL,                                     -- its journal
    line_no      smallint NOT NULL,                                     -- 1 to line_count, without a gap
    line_count   smallint NOT NULL,                                     -- the journal's entry_count
    account_id   bigint   NOT NULL,                                     -- the account it moves
    currency     char(3)  NOT NULL,                                     -- the account's currency
    direction    char(1)  NOT NULL CHECK (direction IN ('D', 'C')),     -- debit or credit
    amount_minor bigint   NOT NULL CHECK (amount_minor > 0),            -- in minor units; the sign is the direction
    mark         bigint   NOT NULL DEFAULT runner.mark(),               -- see above
    PRIMARY KEY (journal_id, line_no),
    CHECK (line_no BETWEEN 1 AND line_count),
    FOREIGN KEY (journal_id, line_count) REFERENCES ledger.journal (id, entry_count),
    FOREIGN KEY (account_id, currency)   REFERENCES ledger.account (id, currency)
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.05,   -- index-only sums need a fresh visibility map
    autovacuum_analyze_scale_factor = 0.05
);

-- Sums of an account above a horizon, from the index alone.
CREATE INDEX entry_account_mark ON ledger.entry (account_id, mark) INCLUDE (direction, amount_minor);

-- Sequential scans are off in it: a session that planned it when the tables were small keeps that plan.
CREATE FUNCTION ledger.assert_journal_balanced() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
    AS $$
DECLARE
    found     bigint;
    uneven    boolean;
    elsewhere boolean;
    line      record;
BEGIN
    -- One range scan of entry's primary key; details are only fetched for the message.
    SELECT sum(c.entries), bool_or(c.debit <> c.credit), bool_or(c.elsewhere)
      INTO found, uneven, elsewhere
      FROM (SELECT count(*) AS entries,
                   coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'D'), 0) AS debit,
                   coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'C'), 0) AS credit,
                   bool_or((SELECT a.tenant_id FROM ledger.account a WHERE a.id = e.account_id) <> NEW.tenant_id) AS elsewhere
              FROM ledger.entry e
             WHERE e.journal_id = NEW.id
             GROUP BY e.currency) c;
    IF found IS DISTINCT FROM NEW.entry_count THEN
        RAISE EXCEPTION 'journal % has % of % entries', NEW.journal_id, coalesce(found, 0), NEW.entry_count
            USING ERRCODE = 'check_violation', CONSTRAINT = 'journal_balanced', SCHEMA = 'ledger', TABLE = 'journal';
    END IF;
    IF uneven THEN
        SELECT e.currency,
               coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'D'), 0) AS debit,
               coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'C'), 0) AS credit
          INTO line
          FROM ledger.entry e
         WHERE e.journal_id = NEW.id
         GROUP BY e.currency
        HAVING sum(CASE e.direction WHEN 'D' THEN e.amount_minor ELSE -e.amount_minor END) <> 0
         ORDER BY e.currency
         LIMIT 1;
        RAISE EXCEPTION 'journal % unbalanced in %: debit % <> credit %', NEW.journal_id, line.currency, line.debit, line.credit
            USING ERRCODE = 'check_violation', CONSTRAINT = 'journal_balanced', SCHEMA = 'ledger', TABLE = 'journal';
    END IF;
    IF elsewhere THEN
        RAISE EXCEPTION 'journal % has an entry on an account of another tenant', NEW.journal_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'journal_balanced', SCHEMA = 'ledger', TABLE = 'journal';
    END IF;
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER journal_balanced AFTER INSERT ON ledger.journal
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger.assert_journal_balanced();

-- ---------------------------------------------------------------------------------------------------------------
-- Statuses: a journal without a row counts as settled. Rows are added, never changed.

CREATE TABLE ledger.journal_status (
    journal_id bigint      NOT NULL REFERENCES ledger.journal (id),     -- the journal that it says something about
    status     text        NOT NULL CHECK (status IN ('pending', 'settled', 'failed')),
                                                                        -- pending: may still be undone; the two others are final
    at         timestamptz NOT NULL DEFAULT now(),                      -- start of the transaction that said so
    evidence   text        NOT NULL CHECK (evidence <> ''),             -- how it is known
    mark       bigint      NOT NULL DEFAULT runner.mark(),              -- see above
    PRIMARY KEY (journal_id, status)                                    -- each said once
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- One final status per journal: never settled and failed both.
CREATE UNIQUE INDEX journal_status_final ON ledger.journal_status (journal_id) WHERE status IN ('settled', 'failed');
-- What became final after an instant; rows lie in time order, so a block index is enough and costs nothing.
CREATE INDEX journal_status_at ON ledger.journal_status USING brin (at);

-- Derived from the above: what pending journals that are still open moved, per account. It exists so that the
-- pending part of a balance is read in the number of that account's open journals, not in the account's history.
-- It may be rebuilt at any time and is compared with the statuses by `verify`. Rows come and go.
CREATE TABLE ledger.pending_journal (
    account_id bigint  NOT NULL,    -- an account that the journal moves
    journal_id bigint  NOT NULL,    -- the open pending journal
    debits     numeric NOT NULL,    -- sum of the journal's debits on the account, in minor units
    credits    numeric NOT NULL,    -- sum of the journal's credits on the account, in minor units
    PRIMARY KEY (account_id, journal_id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

-- The only writer of journal_status and pending_journal.
--
-- A function instead of an insert privilege with a trigger, because three things must hold whoever calls: both
-- tables change together, `pending` is said only in the transaction that posts the journal (a journal that others
-- saw as settled never turns pending), and a repeated status is no change while a contradicting one is an error.
-- As a function it also works once per batch, where a row trigger works once per row.
--
-- Its look-ups are LATERAL with a LIMIT or OFFSET, and sequential scans are off: a session that planned it when the
-- tables were small keeps that plan, and must not read all of the ledger with it later.
CREATE FUNCTION ledger.set_status(journals uuid[], statuses text[], evidences text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
    AS $$
DECLARE
    ids     bigint[];   -- the journals' numbers, in order: two batches that meet wait for each other, never deadlock
    said    text[];
    why     text[];
    unknown uuid;
    wrong   record;
    news    bigint;
BEGIN
    IF cardinality(journals) <> cardinality(statuses) OR cardinality(journals) <> cardinality(evidences) THEN
        RAISE EXCEPTION 'set_status: the arrays differ in length' USING ERRCODE = 'array_subscript_error';
    END IF;
    SELECT array_agg(j.id ORDER BY j.id, a.place), array_agg(a.status ORDER BY j.id, a.place),
           array_agg(a.evidence ORDER BY j.id, a.place), min(a.journal_id::text) FILTER (WHERE j.id IS NULL)::uuid
      INTO ids, said, why, unknown
      FROM unnest(journals, statuses, evidences) WITH ORDINALITY AS a (journal_id, status, evidence, place)
      LEFT JOIN LATERAL (SELECT x.id FROM ledger.journal x WHERE x.journal_id = a.journal_id LIMIT 1) j ON true;
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION 'there is no journal %', unknown
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'journal_status_journal', DETAIL = unknown::text,
                  SCHEMA = 'ledger', TABLE = 'journal_status';
    END IF;

    IF 'pending' = ANY (said) THEN
        SELECT j.journal_id INTO wrong
          FROM unnest(ids, said) AS a (id, status)
         CROSS JOIN LATERAL (SELECT x.journal_id, x.mark, x.entry_count FROM ledger.journal x WHERE x.id = a.id LIMIT 1) j
         CROSS JOIN LATERAL (SELECT count(*) AS rows, count(*) FILTER (WHERE s.status = 'pending') AS pending
                               FROM ledger.journal_status s WHERE s.journal_id = a.id) s
         CROSS JOIN LATERAL (SELECT count(*) AS rows FROM ledger.entry e WHERE e.journal_id = a.id) e
         WHERE a.status = 'pending' AND s.pending = 0
           AND (j.mark <> runner.mark() OR s.rows > 0 OR e.rows <> j.entry_count)
         LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'journal % can be pending only from the transaction that posts it, when it has all entries and no status', wrong.journal_id
                USING ERRCODE = 'check_violation', CONSTRAINT = 'journal_status_pending_first', DETAIL = wrong.journal_id::text,
                      SCHEMA = 'ledger', TABLE = 'journal_status';
        END IF;
    END IF;

    -- Without a status a journal counts as settled: it can fail only if it was pending, or in its own transaction.
    IF 'failed' = ANY (said) THEN
        SELECT j.journal_id INTO wrong
          FROM unnest(ids, said) AS a (id, status)
         CROSS JOIN LATERAL (SELECT x.journal_id, x.mark FROM ledger.journal x WHERE x.id = a.id LIMIT 1) j
         CROSS JOIN LATERAL (SELECT count(*) AS pending FROM ledger.journal_status s
                              WHERE s.journal_id = a.id AND s.status = 'pending') s
         WHERE a.status = 'failed' AND s.pending = 0 AND j.mark <> runner.mark()
         LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'journal % was never pending and cannot fail: post a correcting journal instead', wrong.journal_id
                USING ERRCODE = 'check_violation', CONSTRAINT = 'journal_status_failed_after_pending', DETAIL = wrong.journal_id::text,
                      SCHEMA = 'ledger', TABLE = 'journal_status';
        END IF;
    END IF;

    -- A status that another transaction is just writing is waited for here and judged below.
    WITH new AS (
        INSERT INTO ledger.journal_status (journal_id, status, evidence)
        SELECT a.id, a.status, a.evidence
          FROM unnest(ids, said, why) WITH ORDINALITY AS a (id, status, evidence, place)
         ORDER BY a.place
        ON CONFLICT DO NOTHING
        RETURNING journal_id, status
    ), opened AS (
        INSERT INTO ledger.pending_journal (account_id, journal_id, debits, credits)
        SELECT e.account_id, new.journal_id, e.debits, e.credits
          FROM new
         CROSS JOIN LATERAL (SELECT x.account_id,
                                    coalesce(sum(x.amount_minor) FILTER (WHERE x.direction = 'D'), 0) AS debits,
                                    coalesce(sum(x.amount_minor) FILTER (WHERE x.direction = 'C'), 0) AS credits
                               FROM ledger.entry x
                              WHERE x.journal_id = new.journal_id
                              GROUP BY x.account_id) e
         WHERE new.status = 'pending'
    )
    SELECT count(*) INTO news FROM new;

    IF news < cardinality(ids) THEN
        -- Some stood already, or two of one journal were asked for. A new statement: it sees what was waited for.
        SELECT j.journal_id, a.status, s.status AS held INTO wrong
          FROM unnest(ids, said) AS a (id, status)
         CROSS JOIN LATERAL (SELECT x.status FROM ledger.journal_status x
                              WHERE x.journal_id = a.id AND x.status IN ('settled', 'failed') LIMIT 1) s
         CROSS JOIN LATERAL (SELECT x.journal_id FROM ledger.journal x WHERE x.id = a.id LIMIT 1) j
         WHERE a.status IN ('settled', 'failed') AND a.status <> s.status
         LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'journal % is %, not %', wrong.journal_id, wrong.held, wrong.status
                USING ERRCODE = 'unique_violation', CONSTRAINT = 'journal_status_final', DETAIL = wrong.journal_id::text,
                      SCHEMA = 'ledger', TABLE = 'journal_status';
        END IF;
    END IF;

    DELETE FROM ledger.pending_journal
     WHERE ctid = ANY (ARRAY(
        SELECT p.ctid
          FROM unnest(ids, said) AS a (id, status)
         CROSS JOIN LATERAL (SELECT x.account_id FROM ledger.entry x WHERE x.journal_id = a.id OFFSET 0) e
         CROSS JOIN LATERAL (SELECT x.ctid FROM ledger.pending_journal x
                              WHERE x.account_id = e.account_id AND x.journal_id = a.id LIMIT 1) p
         WHERE a.status IN ('settled', 'failed')));
END
$$;

-- ---------------------------------------------------------------------------------------------------------------
-- Checkpoints: sums below a horizon, so that a balance adds up only what is newer.

CREATE TABLE ledger.checkpoint (
    account_id bigint      NOT NULL REFERENCES ledger.account (id),     -- the account that is summed up
    horizon    bigint      NOT NULL,                                    -- entries with a mark below it are in the sums
    debits     numeric     NOT NULL,                                    -- sum of debits below the horizon, in minor units
    credits    numeric     NOT NULL,                                    -- sum of credits below the horizon, in minor units
    entries    bigint      NOT NULL,                                    -- number of entries below the horizon
    made_at    timestamptz NOT NULL,                                    -- every entry in it was recorded before this instant
    PRIMARY KEY (account_id, horizon)                                   -- two that make the same one write the same row
);

-- The only writer of checkpoint. Horizon, the checkpoint before and the entries between are read in one statement,
-- all entries below a horizon are decided, so no lock is needed. Says whether a row was made.
CREATE FUNCTION ledger.make_checkpoint(account bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
    AS $$
BEGIN
    WITH here AS MATERIALIZED (SELECT runner.horizon() AS horizon)
    INSERT INTO ledger.checkpoint (account_id, horizon, debits, credits, entries, made_at)
    SELECT a.id, here.horizon, coalesce(last.debits, 0) + fresh.debits, coalesce(last.credits, 0) + fresh.credits,
           coalesce(last.entries, 0) + fresh.entries, clock_timestamp()
      FROM ledger.account a
     CROSS JOIN here
      LEFT JOIN LATERAL (SELECT c.horizon, c.debits, c.credits, c.entries
                           FROM ledger.checkpoint c
                          WHERE c.account_id = a.id
                          ORDER BY c.horizon DESC
                          LIMIT 1) last ON true
     CROSS JOIN LATERAL (SELECT coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'D'), 0) AS debits,
                                coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'C'), 0) AS credits,
                                count(*) AS entries
                           FROM ledger.entry e
                          WHERE e.account_id = a.id AND e.mark >= coalesce(last.horizon, 0) AND e.mark < here.horizon) fresh
     WHERE a.id = account AND here.horizon > coalesce(last.horizon, 0)
    ON CONFLICT (account_id, horizon) DO NOTHING;
    RETURN FOUND;
END
$$;

-- Debits and credits of each account as of this statement: its last checkpoint and what is above that horizon.
-- Asked with a condition on id it reads that account only.
CREATE VIEW ledger.account_total AS
    SELECT a.id, coalesce(last.debits, 0) + fresh.debits AS debits, coalesce(last.credits, 0) + fresh.credits AS credits
      FROM ledger.account a
      LEFT JOIN LATERAL (SELECT c.horizon, c.debits, c.credits
                           FROM ledger.checkpoint c
                          WHERE c.account_id = a.id
                          ORDER BY c.horizon DESC
                          LIMIT 1) last ON true
     CROSS JOIN LATERAL (SELECT coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'D'), 0) AS debits,
                                coalesce(sum(e.amount_minor) FILTER (WHERE e.direction = 'C'), 0) AS credits
                           FROM ledger.entry e
                          WHERE e.account_id = a.id AND e.mark >= coalesce(last.horizon, 0)) fresh;

-- ---------------------------------------------------------------------------------------------------------------
-- Append-only: statement triggers cost nothing on inserts and fire even when no row is met. ALWAYS: also for
-- sessions that switch ordinary triggers off. They refuse the owner and superusers as well.

CREATE FUNCTION ledger.refuse_change() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    RAISE EXCEPTION '% of %.% is refused: the ledger is append-only, post a correcting journal instead', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'append_only', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
END
$$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ledger.journal        FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ledger.entry          FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ledger.journal_status FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ledger.checkpoint     FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON ledger.journal        FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON ledger.entry          FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON ledger.journal_status FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON ledger.checkpoint     FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

ALTER TABLE ledger.journal        ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE ledger.entry          ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE ledger.journal_status ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE ledger.checkpoint     ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE ledger.journal        ENABLE ALWAYS TRIGGER no_truncate;
ALTER TABLE ledger.entry          ENABLE ALWAYS TRIGGER no_truncate;
ALTER TABLE ledger.journal_status ENABLE ALWAYS TRIGGER no_truncate;
ALTER TABLE ledger.checkpoint     ENABLE ALWAYS TRIGGER no_truncate;

-- ---------------------------------------------------------------------------------------------------------------
-- Privileges. Columns that the database itself decides (id, mark, recorded_at, created_at) cannot be named in an
-- insert: else any program could hide an entry below a horizon. UPDATE of account.metadata is what PostgreSQL asks
-- for before it lets a role lock an account's row.

REVOKE ALL ON ALL TABLES IN SCHEMA ledger FROM PUBLIC, tallystick_app;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA ledger FROM PUBLIC, tallystick_app;

GRANT SELECT ON ledger.account, ledger.journal, ledger.entry, ledger.journal_status, ledger.pending_journal,
                ledger.checkpoint, ledger.account_total TO tallystick_app;
GRANT INSERT (account_id, tenant_id, name, kind, currency, minimum_minor, system_key, metadata) ON ledger.account TO tallystick_app;
GRANT UPDATE (metadata) ON ledger.account TO tallystick_app;
GRANT INSERT (journal_id, tenant_id, kind, source, source_text, ordinal, entry_count, entries_hash, description, metadata,
              effective_at, corrects) ON ledger.journal TO tallystick_app;
GRANT INSERT (journal_id, line_no, line_count, account_id, currency, direction, amount_minor) ON ledger.entry TO tallystick_app;
GRANT EXECUTE ON FUNCTION ledger.set_status(uuid[], text[], text[]), ledger.make_checkpoint(bigint) TO tallystick_app;
