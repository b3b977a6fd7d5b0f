-- Schema `payments`: tenants, payments, the work that is open on them, and what gateways told us.
-- Everything is owned by tallystick_owner; programs connect as tallystick_app.

GRANT USAGE ON SCHEMA payments TO tallystick_app;

-- ---------------------------------------------------------------------------------------------------------
-- Who calls
-- ---------------------------------------------------------------------------------------------------------

CREATE TABLE payments.tenant (
    tenant_id       uuid        PRIMARY KEY,                       -- UUIDv7, in every business row
    name            text        NOT NULL UNIQUE                    -- shown to people; `default` on a fresh install
                    CHECK (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    payout_approval boolean     NOT NULL DEFAULT false,            -- payouts start as requires_approval
    two_people      boolean     NOT NULL DEFAULT false,            -- resolving and approving need a second key
    strict_order    boolean     NOT NULL DEFAULT false,            -- operations of one account one after the other
    created_at      timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE payments.api_key (
    key_id     uuid        PRIMARY KEY,                            -- names the key in commands and logs
    tenant_id  uuid        NOT NULL REFERENCES payments.tenant,    -- a key belongs to one tenant
    scope      text        NOT NULL CHECK (scope IN ('client', 'operator', 'approver')),
    prefix     text        NOT NULL,                               -- the key's first characters: found by it, no secret
    hash       bytea       NOT NULL CHECK (octet_length(hash) = 32), -- SHA-256 of the whole key; the key itself is never stored
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz                                         -- set once; the key is refused from then on
);
CREATE INDEX api_key_prefix ON payments.api_key (prefix);

-- ---------------------------------------------------------------------------------------------------------
-- Payments (money in)
-- ---------------------------------------------------------------------------------------------------------

CREATE TYPE payments.payment_status AS ENUM
    ('pending', 'processing', 'unknown', 'authorized', 'succeeded', 'failed', 'canceled');

-- The truth about a payment. The gateway key of its charge is payment_id: committed with this row, never made again.
CREATE TABLE payments.payment (
    payment_id          uuid        PRIMARY KEY,                   -- UUIDv7; also the gateway key of the charge
    tenant_id           uuid        NOT NULL,
    status              payments.payment_status NOT NULL DEFAULT 'pending',
    version             integer     NOT NULL DEFAULT 1 CHECK (version >= 1), -- moves of status, 1 = creation
    currency            char(3)     NOT NULL,                      -- ISO 4217
    amount_minor        bigint      NOT NULL CHECK (amount_minor BETWEEN 1 AND 1000000000000000), -- asked for, minor units
    authorized_minor    bigint      NOT NULL DEFAULT 0 CHECK (authorized_minor >= 0),  -- held at the gateway at most
    captured_minor      bigint      NOT NULL DEFAULT 0 CHECK (captured_minor >= 0),    -- taken
    refunded_minor      bigint      NOT NULL DEFAULT 0 CHECK (refunded_minor >= 0),    -- given back
    capture             text        NOT NULL CHECK (capture IN ('automatic', 'manual')), -- take at once, or hold first
    description         text,
    metadata            text,                                      -- compact JSON object, kept as text: numbers of any length come back as sent
    order_id            text,                                      -- the client's order
    active_order        text,                                      -- order_id while it blocks a second payment; emptied on failed and canceled
    payment_method      text        NOT NULL,                      -- the gateway's token; never a card number
    gateway             text        NOT NULL,                      -- gateway account
    gateway_reference   text,                                      -- the gateway's own id; once set no submit is ever sent
    failure_code        text,                                      -- why it failed, the gateway's word
    failure_message     text,
    attention_code      text,                                      -- a person must look; set once, cleared by resolving
    attention_break     uuid,                                      -- the break that tells why
    unknown_since       timestamptz,                               -- when the outcome became unknown
    cancel_requested_at timestamptz,                               -- the client wants it canceled; it is only asked about from then on
    webhook_url         text,                                      -- gets the final states of this payment
    created_at          timestamptz NOT NULL,                      -- the accepting process's clock, as in the first answer
    updated_at          timestamptz NOT NULL,
    processed_at        timestamptz,                               -- when it became final
    UNIQUE (tenant_id, active_order),                              -- one active payment per order; NULLs do not collide
    CHECK ((status = 'failed') = (failure_code IS NOT NULL)),
    CHECK ((status = 'unknown') = (unknown_since IS NOT NULL)),
    CHECK ((status IN ('succeeded', 'failed', 'canceled')) = (processed_at IS NOT NULL)),
    CHECK (active_order IS NOT DISTINCT FROM CASE WHEN status IN ('failed', 'canceled') THEN NULL ELSE order_id END),
    CHECK (captured_minor <= authorized_minor),
    CHECK (status <> 'succeeded' OR captured_minor > 0 OR attention_code IS NOT NULL),
    CHECK ((attention_code IS NULL) = (attention_break IS NULL))
    -- Every row is updated soon after it was inserted; half-empty pages keep those updates heap-only. No index
    -- contains status or updated_at for the same reason: open payments are found through dispatch.
) WITH (fillfactor = 50);
CREATE INDEX payment_tenant ON payments.payment (tenant_id, payment_id);
CREATE INDEX payment_created ON payments.payment USING brin (created_at);
CREATE INDEX payment_gateway_reference ON payments.payment (gateway, gateway_reference);

-- One row per move of a status, of objects of every kind. Append-only.
CREATE TABLE payments.history (
    object_id uuid        NOT NULL,                                -- payment_id
    version   integer     NOT NULL CHECK (version >= 1),           -- without a gap from 1
    status    text        NOT NULL,                                -- the status moved to
    at        timestamptz NOT NULL,
    evidence  text        NOT NULL CHECK (evidence IN              -- how we know
              ('request', 'reply', 'status_query', 'webhook', 'settlement', 'operator', 'ledger', 'expiry')),
    detail    text,                                                -- a few words, such as the cause of a lost reply
    PRIMARY KEY (object_id, version)
);

-- ---------------------------------------------------------------------------------------------------------
-- Open work
-- ---------------------------------------------------------------------------------------------------------

-- One narrow row per operation that is not final: disposable, made again from the payment at any time.
-- What the row asks for follows from the payment's state and the columns here (see dispatch/decide.rs).
CREATE TABLE payments.dispatch (
    operation_id     uuid        PRIMARY KEY,                      -- payment_id of a charge
    kind             smallint    NOT NULL,                         -- 1 charge
    gateway          text        NOT NULL,                         -- gateway account, for ceilings per account
    due_at           timestamptz NOT NULL,                         -- when to work on it; while leased: when the lease ends
    started          integer     NOT NULL DEFAULT 0,               -- claims made
    finished         integer     NOT NULL DEFAULT 0,               -- the last claim whose result was recorded; started > finished = leased, or its worker is gone
    crashes          integer     NOT NULL DEFAULT 0,               -- claims in a row whose worker left no result; from 2 on handled alone
    fence            bigint      NOT NULL DEFAULT 0,               -- +1 per claim; checked by every later write of the claimer
    first_claimed_at timestamptz,                                  -- committed before the first byte; the gateway's key retention counts from here
    cleared          boolean     NOT NULL DEFAULT false,           -- the gateway answered not_found after the last possible send
    tries            integer     NOT NULL DEFAULT 0                -- results in a row without progress, for back-off
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
CREATE INDEX dispatch_due ON payments.dispatch (due_at, operation_id);

-- What was said to a gateway and what came back, without secrets. Append-only; for people, decides nothing.
CREATE TABLE payments.attempt (
    operation_id uuid        NOT NULL,
    fence        bigint      NOT NULL,                             -- the claim that it belongs to
    action       text        NOT NULL CHECK (action IN ('submit', 'ask')),
    at           timestamptz NOT NULL,                             -- when the call began
    duration_ms  integer     NOT NULL,
    outcome      text        NOT NULL,                             -- approved, declined, accepted, not_sent, lost, not_found, unanswered
    detail       text,                                             -- cause, never a secret
    PRIMARY KEY (operation_id, fence)
);

-- ---------------------------------------------------------------------------------------------------------
-- What gateways tell us
-- ---------------------------------------------------------------------------------------------------------

-- Verified webhooks as received. First transaction: stored and acknowledged. Second: applied.
CREATE TABLE payments.inbound_event (
    inbound_id  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    gateway     text        NOT NULL,                              -- gateway account
    event_id    text        NOT NULL,                              -- the sender's id; dedupe of deliveries
    received_at timestamptz NOT NULL DEFAULT now(),
    raw         bytea       NOT NULL,                              -- the verified bytes
    state       text        NOT NULL DEFAULT 'new'                 -- new; parked = no such operation yet; the rest are ends
                CHECK (state IN ('new', 'parked', 'applied', 'ignored', 'orphan')),
    reference   text,                                              -- the gateway's id in it, to find parked events of a payment
    tries       integer     NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL DEFAULT now() + interval '5 s', -- when the loop takes it, unless handled before
    ended_at    timestamptz,                                       -- when it was applied, ignored or given up
    note        text,                                              -- why it was ignored, parked or failed
    UNIQUE (gateway, event_id),
    CHECK ((state IN ('applied', 'ignored', 'orphan')) = (ended_at IS NOT NULL))
) WITH (fillfactor = 70);
CREATE INDEX inbound_event_due ON payments.inbound_event (due_at) WHERE ended_at IS NULL;
CREATE INDEX inbound_event_parked ON payments.inbound_event (gateway, reference) WHERE state = 'parked';

-- Differences that a person works to zero.
CREATE TABLE payments.break (
    break_id          uuid        PRIMARY KEY,
    tenant_id         uuid        NOT NULL,
    kind              text        NOT NULL,                        -- wrong_amount, currency_mismatch, late_capture, …
    status            text        NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'resolved')),
    payment_id        uuid,
    gateway           text        NOT NULL,
    gateway_reference text,
    currency          char(3)     NOT NULL,                        -- of the expected amount
    expected_minor    bigint      NOT NULL,
    actual_minor      bigint,                                      -- as the gateway names it
    actual_currency   text,                                        -- as the gateway names it, when it differs
    proposal          text        NOT NULL,                        -- what a person might do
    created_at        timestamptz NOT NULL,
    resolved_at       timestamptz,
    CHECK ((status = 'resolved') = (resolved_at IS NOT NULL))
);
CREATE UNIQUE INDEX break_open_once ON payments.break (payment_id, kind) WHERE status = 'open';
CREATE INDEX break_tenant ON payments.break (tenant_id, break_id);

-- ---------------------------------------------------------------------------------------------------------
-- Idempotency of our own API
-- ---------------------------------------------------------------------------------------------------------

-- Inserted in the transaction that it protects, before anything else is.
CREATE TABLE payments.idempotency (
    tenant_id    uuid        NOT NULL,
    route        text        NOT NULL,                             -- method and route template
    key          text        NOT NULL,                             -- the client's Idempotency-Key
    fingerprint  bytea       NOT NULL,                             -- SHA-256 over the concrete path and the typed request
    fields       text        NOT NULL,                             -- short hash per field, to name the one that differs
    status       smallint    NOT NULL,                             -- HTTP status of the first answer
    body         bytea       NOT NULL,                             -- its bytes
    operation_id uuid,                                             -- the object made; the row stays while it is not final
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, route, key)
);
CREATE INDEX idempotency_created ON payments.idempotency USING brin (created_at);

-- ---------------------------------------------------------------------------------------------------------
-- What the application role may do
-- ---------------------------------------------------------------------------------------------------------

CREATE FUNCTION payments.refuse_change() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '%.% is append-only', TG_TABLE_SCHEMA, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER history_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON payments.history
    FOR EACH STATEMENT EXECUTE FUNCTION payments.refuse_change();

GRANT SELECT, INSERT ON payments.tenant, payments.api_key, payments.history, payments.attempt TO tallystick_app;
GRANT UPDATE (payout_approval, two_people, strict_order) ON payments.tenant TO tallystick_app;
GRANT UPDATE (revoked_at) ON payments.api_key TO tallystick_app;
GRANT SELECT, INSERT, UPDATE ON payments.payment, payments.inbound_event, payments.break, payments.idempotency TO tallystick_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON payments.dispatch TO tallystick_app;
GRANT DELETE ON payments.idempotency TO tallystick_app;
