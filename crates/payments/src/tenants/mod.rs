//! Tenants and their API keys. A key is shown once, when it is made; only its hash is stored.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rand::RngExt;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tallystick_runner::{Db, DbError};

use crate::ids::{KeyId, TenantId};

pub(crate) mod repo;

/// The longest key that is looked at; a longer one is no key of ours.
pub const MAX_KEY: usize = 200;
/// Characters of a key that find its row.
const PREFIX: usize = 12;
/// How long a checked key and a tenant's settings are believed without asking the database: the delay of a revocation
/// and of a changed setting.
const BELIEVED: Duration = Duration::from_secs(2);
/// Keys and tenants kept at most; beyond it the whole memory of them is dropped and filled again.
const MAX_BELIEVED: usize = 10_000;

/// What a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The API but for work on breaks, resolving and approvals.
    Client,
    /// Also works on breaks and resolves unknown outcomes.
    Operator,
    /// Also approves.
    Approver,
}

impl Scope {
    /// The word in commands and in SQL.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Operator => "operator",
            Self::Approver => "approver",
        }
    }

    /// The scope that a word names.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        [Self::Client, Self::Operator, Self::Approver].into_iter().find(|s| s.as_str() == word)
    }
}

/// Who makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whose rows are seen.
    pub tenant: TenantId,
    /// The key's name.
    pub key_id: KeyId,
    /// What it may do.
    pub scope: Scope,
}

/// A tenant as commands list it.
#[derive(Clone, Debug, Serialize)]
pub struct Tenant {
    /// Its id.
    pub tenant_id: TenantId,
    /// Its name.
    pub name: String,
    /// Payouts start as `requires_approval`.
    pub payout_approval: bool,
    /// Resolving and approving need a second key.
    pub two_people: bool,
    /// Operations of one account one after the other.
    pub strict_order: bool,
}

/// A key as commands list it, without the key.
#[derive(Clone, Debug, Serialize)]
pub struct ApiKey {
    /// Its name.
    pub key_id: KeyId,
    /// Name of its tenant.
    pub tenant: String,
    /// What it may do.
    pub scope: String,
    /// Its first characters.
    pub prefix: String,
    /// When it was made.
    pub created_at: jiff::Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<jiff::Timestamp>,
}

/// Why a command on tenants or keys was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    /// The name is taken.
    #[error("there is a tenant {0:?} already")]
    Exists(String),
    /// The name breaks the rule.
    #[error("a tenant's name is 1 to 63 of a-z, 0-9, '-' and '_', beginning with a letter or digit")]
    Name,
    /// No such tenant.
    #[error("there is no tenant {0:?}: `tallystick tenants list` shows them")]
    Unknown(String),
    /// No such key.
    #[error("there is no key {0}: `tallystick keys list` shows them")]
    UnknownKey(KeyId),
    /// No such setting.
    #[error("a tenant's settings are payout_approval, two_people and strict_order")]
    UnknownSetting,
    /// The database is away or refused.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl tallystick_runner::Fault for TenantError {
    fn db(&self) -> Option<&DbError> {
        match self {
            Self::Db(error) => Some(error),
            Self::Exists(_) | Self::Name | Self::Unknown(_) | Self::UnknownKey(_) | Self::UnknownSetting => {
                None
            }
        }
    }
}

fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

fn prefix(key: &str) -> String {
    key.chars().take(PREFIX).collect()
}

/// A new key: 256 random bits behind a word that scanners for leaked secrets can know.
fn make_key() -> String {
    let mut bytes = [0u8; 32];
    rand::rng().fill(&mut bytes);
    format!("tsk_{}", hex::encode(bytes))
}

/// Makes a tenant and its first key, of scope client. Returns the key, which is not kept anywhere.
///
/// # Errors
/// [`TenantError::Exists`], [`TenantError::Name`], or of the database.
pub async fn create(db: &Db, name: &str) -> Result<(TenantId, String), TenantError> {
    let (tenant, key, name) = (TenantId::new(), make_key(), name.to_owned());
    let plain = key.clone();
    db.tx("tenant.create", move |conn| {
        let (name, key) = (name.clone(), key.clone());
        Box::pin(async move {
            repo::insert_tenant(conn, tenant.0, &name).await.map_err(|e| match e.constraint() {
                Some("tenant_name_key") => TenantError::Exists(name.clone()),
                Some("tenant_name_check") => TenantError::Name,
                _ => TenantError::Db(e),
            })?;
            let id = KeyId::new();
            repo::insert_key(conn, id.0, tenant.0, Scope::Client.as_str(), &prefix(&key), &hash(&key))
                .await?;
            Ok::<_, TenantError>(())
        })
    })
    .await?;
    Ok((tenant, plain))
}

/// The tenant of this name.
///
/// # Errors
/// [`TenantError::Unknown`], or of the database.
pub async fn find(db: &Db, name: &str) -> Result<TenantId, TenantError> {
    let mut conn = db.conn().await?;
    repo::find(&mut conn, name).await?.map(TenantId).ok_or_else(|| TenantError::Unknown(name.to_owned()))
}

/// All tenants by name.
///
/// # Errors
/// Of the database.
pub async fn list(db: &Db) -> Result<Vec<Tenant>, TenantError> {
    Ok(repo::list(&mut *db.conn().await?).await?)
}

/// Switches a setting of a tenant. Servers act on it within two seconds.
///
/// # Errors
/// [`TenantError::Unknown`], [`TenantError::UnknownSetting`], or of the database.
pub async fn set(db: &Db, name: &str, setting: &str, on: bool) -> Result<(), TenantError> {
    if !["payout_approval", "two_people", "strict_order"].contains(&setting) {
        return Err(TenantError::UnknownSetting);
    }
    let mut conn = db.conn().await?;
    match repo::set(&mut conn, name, setting, on).await? {
        0 => Err(TenantError::Unknown(name.to_owned())),
        _ => Ok(()),
    }
}

/// Makes a key for a tenant. Returns the key, which is not kept anywhere.
///
/// # Errors
/// [`TenantError::Unknown`], or of the database.
pub async fn key_create(db: &Db, tenant: &str, scope: Scope) -> Result<(KeyId, String), TenantError> {
    let key = make_key();
    Ok((key_put(db, tenant, scope, &key).await?, key))
}

/// Stores a key that the caller chose. For development set-ups with a known key; anybody who knows it may use it.
///
/// # Errors
/// [`TenantError::Unknown`], or of the database.
pub async fn key_put(db: &Db, tenant: &str, scope: Scope, key: &str) -> Result<KeyId, TenantError> {
    let (tenant, id) = (find(db, tenant).await?, KeyId::new());
    let mut conn = db.conn().await?;
    repo::insert_key(&mut conn, id.0, tenant.0, scope.as_str(), &prefix(key), &hash(key)).await?;
    Ok(id)
}

/// The keys of a tenant, or all.
///
/// # Errors
/// Of the database.
pub async fn keys(db: &Db, tenant: Option<&str>) -> Result<Vec<ApiKey>, TenantError> {
    Ok(repo::keys(&mut *db.conn().await?, tenant).await?)
}

/// Revokes a key for good. Servers refuse it within two seconds. Revoking twice is the same as once.
///
/// # Errors
/// [`TenantError::UnknownKey`], or of the database.
pub async fn key_revoke(db: &Db, id: KeyId) -> Result<(), TenantError> {
    match repo::revoke(&mut *db.conn().await?, id.0).await? {
        0 => Err(TenantError::UnknownKey(id)),
        _ => Ok(()),
    }
}

/// What the database said a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Believed {
    /// Keys that were checked, by hash.
    keys: Mutex<Recent<[u8; 32], Caller>>,
    /// Whether a tenant's payouts wait for an approval.
    payout_approval: Mutex<Recent<TenantId, bool>>,
}

/// Answers with the time at which they were asked for.
#[derive(Debug)]
struct Recent<K, V>(HashMap<K, (Instant, V)>);

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V: Copy> Recent<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        self.0.get(key).filter(|(at, _)| at.elapsed() < BELIEVED).map(|(_, value)| *value)
    }

    /// Keeps what was asked for at `asked`. An answer is as old as its question.
    fn keep(&mut self, key: K, value: V, asked: Instant) {
        if self.0.len() >= MAX_BELIEVED {
            self.0.clear();
        }
        self.0.insert(key, (asked, value));
    }
}

/// Whether payouts of this tenant wait for an approval, mostly from memory: the setting comes along with the key of
/// whoever asks for one.
pub(crate) async fn payout_approval(db: &Db, believed: &Believed, tenant: TenantId) -> Result<bool, DbError> {
    if let Some(known) = believed.payout_approval.lock().expect("no panic while held").get(&tenant) {
        return Ok(known);
    }
    let asked = Instant::now();
    let on = repo::payout_approval(&mut *db.conn().await?, tenant.0).await?;
    believed.payout_approval.lock().expect("no panic while held").keep(tenant, on, asked);
    Ok(on)
}

/// Whose key this is. Rows are found by the public beginning of the key; the rest is compared as hashes in constant
/// time, so neither the answer nor its time tells how much of a wrong key was right.
pub(crate) async fn authenticate(db: &Db, believed: &Believed, key: &str) -> Result<Option<Caller>, DbError> {
    if key.is_empty() || key.len() > MAX_KEY {
        return Ok(None);
    }
    let hash = hash(key);
    if let Some(caller) = believed.keys.lock().expect("no panic while held").get(&hash) {
        return Ok(Some(caller));
    }
    let asked = Instant::now();
    let rows = repo::by_prefix(&mut *db.conn().await?, &prefix(key)).await?;
    let Some((row, scope)) = rows
        .into_iter()
        .find(|row| bool::from(row.hash.ct_eq(&hash)))
        .and_then(|row| Scope::named(&row.scope).map(|scope| (row, scope)))
    else {
        believed.keys.lock().expect("no panic while held").0.remove(&hash);
        return Ok(None);
    };
    let caller = Caller { tenant: TenantId(row.tenant_id), key_id: KeyId(row.key_id), scope };
    believed.keys.lock().expect("no panic while held").keep(hash, caller, asked);
    let mut settings = believed.payout_approval.lock().expect("no panic while held");
    settings.keep(caller.tenant, row.payout_approval, asked);
    Ok(Some(caller))
}
