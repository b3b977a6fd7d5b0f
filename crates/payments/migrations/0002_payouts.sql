-- Payouts (money out). They share history, dispatch, attempts, breaks and idempotency with payments.

CREATE TYPE payments.payout_status AS ENUM
    ('requires_approval', 'pending', 'processing', 'unknown', 'succeeded', 'failed', 'canceled', 'returned');

-- The truth about a payout. Its gateway key is payout_id: committed with this row, never made again.
-- Its debit is the ledger's journal of the same id, posted with the first claim.
CREATE TABLE payments.payout (
    payout_id         uuid        PRIMARY KEY,                     -- UUIDv7; also the gateway key and the id of the debit's journal
    tenant_id         uuid        NOT NULL,
    status            payments.payout_status NOT NULL DEFAULT 'pending',
    version           integer     NOT NULL DEFAULT 1 CHECK (version >= 1), -- moves of status, 1 = creation
    account_id        uuid        NOT NULL,                        -- the ledger account that is debited; of this tenant and currency
    destination       text        NOT NULL,                        -- the bank's token for the payee's account; never a card number
    currency          char(3)     NOT NULL,                        -- ISO 4217
    amount_minor      bigint      NOT NULL CHECK (amount_minor BETWEEN 1 AND 1000000000000000), -- minor units
    reference         text,                                        -- the client's reference
    active_reference  text,                                        -- reference while it blocks a second payout; emptied on failed, canceled and returned
    description       text,
    metadata          text,                                        -- compact JSON object, kept as text: numbers of any length come back as sent
    batch_id          uuid,                                        -- the batch that it came with
    gateway           text        NOT NULL,                        -- gateway account
    gateway_reference text,                                        -- the bank's own id; once set no submit is ever sent
    failure_code      text,                                        -- why it failed or came back, the bank's word or ours
    failure_message   text,
    attention_code    text,                                        -- a person must look; set once, cleared by resolving
    attention_break   uuid,                                        -- the break that tells why
    unknown_since     timestamptz,                                 -- when the outcome became unknown
    webhook_url       text,                                        -- gets the final states of this payout
    created_at        timestamptz NOT NULL,                        -- the accepting process's clock, as in the first answer
    updated_at        timestamptz NOT NULL,
    processed_at      timestamptz,                                 -- when it became final
    CHECK (status <> 'failed' OR failure_code IS NOT NULL),
    CHECK (failure_code IS NULL OR status IN ('failed', 'returned')),
    CHECK ((status = 'unknown') = (unknown_since IS NOT NULL)),
    CHECK ((status IN ('succeeded', 'failed', 'canceled', 'returned')) = (processed_at IS NOT NULL)),
    CHECK (active_reference IS NOT DISTINCT FROM CASE WHEN status IN ('failed', 'canceled', 'returned') THEN NULL ELSE reference END),
    CHECK ((attention_code IS NULL) = (attention_break IS NULL))
    -- Half-empty pages and no index on status, for the same reason as in payments.payment.
) WITH (fillfactor = 50);
CREATE INDEX payout_tenant ON payments.payout (tenant_id, payout_id);
CREATE INDEX payout_created ON payments.payout USING brin (created_at);
-- One active payout per reference. Most payouts of a batch have none, so the index leaves those out.
CREATE UNIQUE INDEX payout_active_reference ON payments.payout (tenant_id, active_reference) WHERE active_reference IS NOT NULL;
CREATE INDEX payout_gateway_reference ON payments.payout (gateway, gateway_reference) WHERE gateway_reference IS NOT NULL;

COMMENT ON COLUMN payments.dispatch.kind IS '1 charge of a payment, 2 payout';

-- Breaks about payouts.
ALTER TABLE payments.break ADD COLUMN payout_id uuid;
CREATE UNIQUE INDEX break_open_once_of_payout ON payments.break (payout_id, kind) WHERE status = 'open' AND payout_id IS NOT NULL;

-- Everything that is worked on at a gateway, whatever its kind: what looks at all of them reads this.
CREATE VIEW payments.operation AS
    SELECT payment_id AS operation_id, 1::smallint AS kind, tenant_id, status::text AS status, version, currency, amount_minor,
           gateway, gateway_reference, attention_code, attention_break, unknown_since, created_at
      FROM payments.payment
    UNION ALL
    SELECT payout_id, 2::smallint, tenant_id, status::text, version, currency, amount_minor,
           gateway, gateway_reference, attention_code, attention_break, unknown_since, created_at
      FROM payments.payout;

GRANT SELECT, INSERT, UPDATE ON payments.payout TO tallystick_app;
GRANT SELECT ON payments.operation TO tallystick_app;
