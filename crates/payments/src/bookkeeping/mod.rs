//! The ledger for clients: accounts and manual journals, under idempotency keys.
//!
//! The key's row, the account or journal, and the stored answer are one transaction. These requests are rare beside
//! payments, so each has a transaction of its own.

mod error;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use tallystick_ledger::{
    self as ledger, AccountKind, Direction, LedgerError, NewAccount, NewEntry, NewJournal,
};
use tallystick_money::Currency;
use uuid::Uuid;

pub use error::BookError;

use crate::engine::{Answer, Inner};
use crate::idempotency::Fingerprint;
use crate::idempotency::repo::{self as idempotency, NewKey};
use crate::ids::TenantId;

/// A checked request to open an account.
#[derive(Clone, Debug)]
pub struct OpenAccount {
    /// For people.
    pub name: String,
    /// Its kind, which gives its natural side.
    pub kind: AccountKind,
    /// Fixed for its life.
    pub currency: Currency,
    /// The balance that it must keep, in minor units; no limit when absent.
    pub minimum_minor: Option<i64>,
    /// A JSON object of the client's own.
    pub metadata: Option<Value>,
}

/// A checked request to post a journal.
#[derive(Clone, Debug)]
pub struct PostJournal {
    /// The client's own name for what happened; the same one again finds the first journal.
    pub source: Option<String>,
    /// For people.
    pub description: String,
    /// When it counts; now when absent.
    pub effective_at: Option<Timestamp>,
    /// A JSON object of the client's own.
    pub metadata: Option<Value>,
    /// Balanced per currency.
    pub entries: Vec<PostEntry>,
}

/// One entry of a journal to post.
#[derive(Clone, Debug)]
pub struct PostEntry {
    /// The account.
    pub account_id: Uuid,
    /// Debit or credit.
    pub direction: Direction,
    /// Minor units of the account's currency, positive.
    pub amount_minor: i64,
}

/// Namespace of sources that clients name by a text of their own.
const SOURCES: Uuid = Uuid::from_u128(0x6f1c_0a52_7a5b_4b0e_9d3e_5f0c_7c1d_2e41);

/// The source of a manual journal: the client's text, hashed to a UUID.
fn source_of(text: &str) -> Uuid {
    Uuid::new_v5(&SOURCES, Sha256::digest(text.as_bytes()).as_slice())
}

/// A request under an idempotency key.
struct Keyed {
    tenant: TenantId,
    route: &'static str,
    key: String,
    fingerprint: Fingerprint,
}

/// What a fresh request makes.
struct Made {
    id: Uuid,
    status: u16,
    body: Bytes,
}

impl Made {
    fn of(id: Uuid, status: u16, shown: &impl Serialize) -> Self {
        Self { id, status, body: serde_json::to_vec(shown).expect("a view always serializes").into() }
    }
}

/// Opens an account.
pub(crate) async fn open_account(
    inner: &Inner,
    tenant: TenantId,
    key: &str,
    request: OpenAccount,
) -> Result<Answer, BookError> {
    const ROUTE: &str = "POST /api/v1/accounts";
    let fingerprint = Fingerprint::of(
        "/api/v1/accounts",
        &[
            ("/name", json!(request.name)),
            ("/kind", json!(request.kind)),
            ("/currency", json!(request.currency)),
            ("/minimum_minor", json!(request.minimum_minor)),
            ("/metadata", json!(request.metadata)),
        ],
    );
    let new = NewAccount {
        account_id: Uuid::now_v7(),
        tenant_id: tenant.0,
        name: request.name,
        kind: request.kind,
        currency: request.currency,
        minimum_minor: request.minimum_minor,
        metadata: request.metadata,
    };
    let keyed = Keyed { tenant, route: ROUTE, key: key.to_owned(), fingerprint };
    run(inner, "account.open", keyed, move |conn| {
        let new = new.clone();
        Box::pin(async move {
            let account = ledger::open_account_in_tx(conn, &new).await?;
            Ok(Made::of(new.account_id, 201, &account))
        })
    })
    .await
}

/// Posts a manual journal; every limited account keeps its minimum.
pub(crate) async fn post_journal(
    inner: &Inner,
    tenant: TenantId,
    key: &str,
    request: PostJournal,
) -> Result<Answer, BookError> {
    const ROUTE: &str = "POST /api/v1/journals";
    let entries: Vec<Value> =
        request.entries.iter().map(|e| json!([e.account_id, e.direction, e.amount_minor])).collect();
    let fingerprint = Fingerprint::of(
        "/api/v1/journals",
        &[
            ("/source", json!(request.source)),
            ("/description", json!(request.description)),
            ("/effective_at", json!(request.effective_at)),
            ("/metadata", json!(request.metadata)),
            ("/entries", json!(entries)),
        ],
    );
    let keyed = Keyed { tenant, route: ROUTE, key: key.to_owned(), fingerprint };
    run(inner, "journal.post", keyed, move |conn| {
        let request = request.clone();
        Box::pin(async move { post(conn, tenant, request).await })
    })
    .await
}

async fn post(conn: &mut PgConnection, tenant: TenantId, request: PostJournal) -> Result<Made, BookError> {
    let ids: Vec<Uuid> = request.entries.iter().map(|e| e.account_id).collect();
    let accounts = ledger::accounts_by_uuid_in_tx(conn, tenant.0, &ids).await?;
    let mut entries = Vec::with_capacity(request.entries.len());
    for entry in &request.entries {
        let account = accounts.get(&entry.account_id).ok_or(BookError::UnknownAccount(entry.account_id))?;
        entries.push(NewEntry {
            account: account.account_ref(),
            direction: entry.direction,
            amount_minor: entry.amount_minor,
        });
    }
    let journal_id = Uuid::now_v7();
    let journal = NewJournal {
        journal_id,
        tenant_id: tenant.0,
        kind: "manual",
        source: request.source.as_deref().map_or(journal_id, source_of),
        source_text: request.source,
        ordinal: 0,
        description: request.description,
        metadata: request.metadata,
        effective_at: request.effective_at,
        corrects: None,
        entries,
        status: None,
    };
    let posted = ledger::post_within_limits_in_tx(conn, &journal).await?;
    let shown = shown(conn, tenant, posted.journal_id).await?;
    Ok(Made::of(posted.journal_id, if posted.already { 200 } else { 201 }, &shown))
}

async fn shown(conn: &mut PgConnection, tenant: TenantId, id: Uuid) -> Result<ledger::Journal, BookError> {
    Ok(ledger::journal(conn, tenant.0, id).await?.ok_or(LedgerError::UnknownJournal(id))?)
}

/// Reverses a journal, once only.
pub(crate) async fn reverse_journal(
    inner: &Inner,
    tenant: TenantId,
    key: &str,
    journal_id: Uuid,
    reason: String,
) -> Result<Answer, BookError> {
    const ROUTE: &str = "POST /api/v1/journals/{id}/reverse";
    let path = format!("/api/v1/journals/{journal_id}/reverse");
    let fingerprint = Fingerprint::of(&path, &[("/reason", json!(reason))]);
    let keyed = Keyed { tenant, route: ROUTE, key: key.to_owned(), fingerprint };
    run(inner, "journal.reverse", keyed, move |conn| {
        let reason = reason.clone();
        Box::pin(async move {
            let posted = ledger::reverse_in_tx(conn, tenant.0, journal_id, &reason, None).await?;
            let shown = shown(conn, tenant, posted.journal_id).await?;
            Ok(Made::of(posted.journal_id, if posted.already { 200 } else { 201 }, &shown))
        })
    })
    .await
}

type Making<'c> = tallystick_runner::TxFuture<'c, Made, BookError>;

/// Runs `make` under the key: once, whoever asks how often.
async fn run<F>(inner: &Inner, name: &'static str, keyed: Keyed, make: F) -> Result<Answer, BookError>
where
    F: for<'c> Fn(&'c mut PgConnection) -> Making<'c> + Send + Sync + 'static,
{
    let (keyed, make) = (std::sync::Arc::new(keyed), std::sync::Arc::new(make));
    let result = inner
        .db
        .tx(name, move |conn| {
            let (keyed, make) = (keyed.clone(), make.clone());
            Box::pin(async move { in_tx(conn, &keyed, make.as_ref()).await })
        })
        .await;
    match result {
        // The key's row is held by a twin that has not committed within the lock timeout.
        Err(BookError::KeyHeld) => Err(BookError::InFlight),
        other => other,
    }
}

async fn in_tx<F>(conn: &mut PgConnection, keyed: &Keyed, make: &F) -> Result<Answer, BookError>
where
    F: for<'c> Fn(&'c mut PgConnection) -> Making<'c>,
{
    // The answer is not known before the work is done; it is filled in below, in this transaction.
    let new = NewKey {
        tenant: keyed.tenant.0,
        key: &keyed.key,
        fingerprint: &keyed.fingerprint,
        status: 0,
        body: b"",
        operation: None,
    };
    let free = idempotency::insert(conn, keyed.route, &[new])
        .await
        .map_err(|e| if e.is_lock_timeout() { BookError::KeyHeld } else { BookError::Db(e) })?;
    if free.is_empty() {
        return replay(conn, keyed).await;
    }
    let made = make(conn).await?;
    idempotency::answer(conn, keyed.route, keyed.tenant.0, &keyed.key, made.status, &made.body, made.id)
        .await?;
    Ok(Answer { status: made.status, body: made.body, replayed: false, existing: false, id: made.id })
}

async fn replay(conn: &mut PgConnection, keyed: &Keyed) -> Result<Answer, BookError> {
    let stored =
        idempotency::stored(conn, keyed.route, &[keyed.tenant.0], std::slice::from_ref(&keyed.key)).await?;
    let stored = stored.into_iter().next().ok_or(BookError::InFlight)?;
    if stored.fingerprint != keyed.fingerprint.whole {
        return Err(BookError::IdempotencyMismatch { fields: keyed.fingerprint.differing(&stored.fields) });
    }
    Ok(Answer {
        status: 200,
        body: stored.body.into(),
        replayed: true,
        existing: false,
        id: stored.operation_id.unwrap_or_default(),
    })
}
