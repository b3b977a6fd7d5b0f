//! A migrated database, seen by the superuser and by the application role, which must get in without a password.

use std::future::Future;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};
use tallystick_ledger::{
    Account, AccountKind, Direction, LedgerError, NewAccount, NewEntry, NewJournal, Posted,
    open_account_in_tx, post_in_tx, post_within_limits_in_tx,
};
use tallystick_runner::{Db, DbError};
use uuid::Uuid;

/// Roles belong to the cluster: tests that run side by side make them at the same time.
const ROLES: &str = "DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['tallystick_owner', 'tallystick_app'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
                EXECUTE format('CREATE ROLE %I LOGIN', wanted);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END LOOP;
    EXECUTE format('GRANT CREATE ON DATABASE %I TO tallystick_owner', current_database());
END
$$";

pub struct World {
    /// Superuser.
    pub admin: PgPool,
    /// Application role.
    pub app: PgPool,
    /// The same pool for named transactions.
    pub db: Db,
    pub tenant: Uuid,
}

impl World {
    pub async fn new(admin: PgPool) -> Self {
        let mut conn = admin.acquire().await.unwrap();
        conn.execute(ROLES).await.unwrap();
        conn.execute("SET ROLE tallystick_owner").await.unwrap();
        tallystick_runner::MIGRATOR.run(&mut *conn).await.unwrap();
        tallystick_ledger::MIGRATOR.run(&mut *conn).await.unwrap();
        conn.execute("RESET ROLE").await.unwrap();
        drop(conn);
        let app = PgPoolOptions::new()
            .max_connections(50)
            .acquire_timeout(Duration::from_secs(120))
            .after_connect(|conn, _| {
                Box::pin(async move {
                    conn.execute("SET plan_cache_mode = force_generic_plan").await?;
                    Ok(())
                })
            })
            .connect_with((*admin.connect_options()).clone().username("tallystick_app"))
            .await
            .unwrap();
        Self { admin, db: Db::from_pool(app.clone()), app, tenant: Uuid::new_v4() }
    }

    pub async fn account_of(
        &self,
        tenant: Uuid,
        kind: AccountKind,
        code: &str,
        minimum: Option<i64>,
    ) -> Account {
        let mut conn = self.app.acquire().await.unwrap();
        let new = NewAccount {
            account_id: Uuid::now_v7(),
            tenant_id: tenant,
            name: format!("{} {code}", kind.as_str()),
            kind,
            currency: code.parse().unwrap(),
            minimum_minor: minimum,
            metadata: None,
        };
        open_account_in_tx(&mut conn, &new).await.unwrap()
    }

    pub async fn account(&self, kind: AccountKind, code: &str) -> Account {
        self.account_of(self.tenant, kind, code, None).await
    }

    /// A liability that must not go below zero.
    pub async fn customer(&self) -> Account {
        self.account_of(self.tenant, AccountKind::Liability, "EUR", Some(0)).await
    }

    /// A journal that moves `minor` from one account to another.
    pub fn transfer(&self, debit: &Account, credit: &Account, minor: i64) -> NewJournal {
        journal(
            self.tenant,
            vec![entry(debit, Direction::Debit, minor), entry(credit, Direction::Credit, minor)],
        )
    }

    pub async fn post_all(&self, journals: Vec<NewJournal>) -> Result<Vec<Posted>, LedgerError> {
        self.db
            .tx("test.post", move |conn| {
                let journals = journals.clone();
                Box::pin(async move { post_in_tx(conn, &journals).await })
            })
            .await
    }

    pub async fn post(&self, journal: NewJournal) -> Result<Posted, LedgerError> {
        Ok(self.post_all(vec![journal]).await?[0])
    }

    pub async fn post_within(&self, journal: NewJournal) -> Result<Posted, LedgerError> {
        post_within(&self.db, journal).await
    }

    /// A connection of the application role.
    pub async fn conn(&self) -> sqlx::pool::PoolConnection<sqlx::Postgres> {
        self.app.acquire().await.unwrap()
    }

    /// What an account has, by summing up its entries.
    pub async fn plain_balance(&self, account: &Account) -> i64 {
        let mut conn = self.conn().await;
        plain_balance(&mut conn, account).await
    }

    pub async fn balance(&self, account: &Account) -> tallystick_ledger::Balance {
        let mut conn = self.conn().await;
        tallystick_ledger::balance(&mut conn, self.tenant, account.account_id, None).await.unwrap().unwrap()
    }
}

pub async fn post_within(db: &Db, journal: NewJournal) -> Result<Posted, LedgerError> {
    db.tx("test.post_within", move |conn| {
        let journal = journal.clone();
        Box::pin(async move { post_within_limits_in_tx(conn, &journal).await })
    })
    .await
}

pub async fn plain_balance(conn: &mut PgConnection, account: &Account) -> i64 {
    let net: i64 = sqlx::query_scalar(
        "SELECT coalesce(sum(CASE direction WHEN 'D' THEN amount_minor ELSE -amount_minor END), 0)::bigint
           FROM ledger.entry e JOIN ledger.account a ON a.id = e.account_id WHERE a.account_id = $1",
    )
    .bind(account.account_id)
    .fetch_one(conn)
    .await
    .unwrap();
    match account.kind.natural_side() {
        Direction::Debit => net,
        Direction::Credit => -net,
    }
}

pub fn entry(account: &Account, direction: Direction, amount_minor: i64) -> NewEntry {
    NewEntry { account: account.into(), direction, amount_minor }
}

pub fn journal(tenant: Uuid, entries: Vec<NewEntry>) -> NewJournal {
    NewJournal {
        journal_id: Uuid::now_v7(),
        tenant_id: tenant,
        kind: "manual",
        source: Uuid::new_v4(),
        source_text: None,
        ordinal: 0,
        description: "test".to_owned(),
        metadata: None,
        effective_at: None,
        corrects: None,
        entries,
        status: None,
    }
}

/// Runs statements, each alone.
pub async fn sql(conn: &mut PgConnection, statements: &str) -> Result<(), DbError> {
    conn.execute(AssertSqlSafe(statements.to_owned())).await?;
    Ok(())
}

/// The statement fails with this SQLSTATE, and its message says this.
pub async fn refused(conn: &mut PgConnection, statement: &str, code: &str, says: &str) {
    let error = sql(conn, statement).await.expect_err(statement);
    assert_eq!(error.code().as_deref(), Some(code), "{statement}: {error:?}");
    let message = error.server_message().unwrap_or_default();
    assert!(message.contains(says), "{statement}: {message:?} does not say {says:?}");
}

/// Tries until it answers, for a minute: the horizon waits for every open transaction of the whole cluster.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut attempt: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = attempt().await {
            return value;
        }
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
