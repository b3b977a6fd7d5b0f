//! Real data: what the engine makes of a gateway that approves, declines, loses replies and contradicts itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tallystick_gateway::WebhookMessage;
use tallystick_ledger::{AccountKind, Direction};
use tallystick_money::Money;
use tallystick_payments::bookkeeping::{OpenAccount, PostEntry, PostJournal};
use tallystick_payments::ids::{PaymentId, PayoutId, TenantId};
use tallystick_payments::payment::{Capture, CreatePayment, PaymentStatus};
use tallystick_payments::payout::{CreatePayout, Payout, PayoutStatus};
use tallystick_payments::settings::Settings;
use tallystick_payments::verify::{self, Book, Effect, Options, Report, Status};
use tallystick_payments::{Engine, tenants};
use tallystick_runner::{Db, Shutdown};
use uuid::Uuid;

use super::book::{GatewayWithBook, PlainBook};
use super::payout_fixture;
use super::plant::plant;
use crate::support::db::TestDb;
use crate::support::{gateway, until};

/// What a payment was asked for, in minor units of EUR.
pub const AMOUNT: i64 = 1_234;

/// An engine without roles, with timings of a test.
pub fn engine(pool: &Db, gateway: &Arc<GatewayWithBook>) -> Engine {
    let settings = Settings {
        gateway_timeout: Duration::from_secs(5),
        lease: Duration::from_secs(15),
        sweep_after: Duration::from_millis(100),
        sweep_max_backoff: Duration::from_millis(500),
        status_check_after: Duration::from_secs(600),
        default_gateway: gateway::NAME.to_owned(),
        poll: Duration::from_millis(20),
        ..Settings::default()
    };
    Engine::new(pool.clone(), vec![gateway.clone()], settings).expect("settings that fit")
}

/// An engine on a database of its own.
pub struct Running {
    pub db: TestDb,
    pub pool: Db,
    pub engine: Engine,
    pub gateway: Arc<GatewayWithBook>,
    shutdown: Shutdown,
}

impl Running {
    pub async fn start() -> Self {
        let db = TestDb::new().await;
        let pool = db.pool(Duration::from_secs(5)).await;
        let gateway = Arc::new(GatewayWithBook::new());
        let engine = engine(&pool, &gateway);
        let shutdown = Shutdown::new();
        engine.spawn_api(&shutdown);
        engine.spawn_dispatch(&shutdown);
        engine.spawn_relay(&shutdown, Vec::new());
        Self { db, pool, engine, gateway, shutdown }
    }

    /// One more engine on the same database, without roles.
    pub fn another(&self) -> Engine {
        engine(&self.pool, &self.gateway)
    }

    /// Takes no new work and waits for what is in flight.
    pub async fn stop(&self) {
        self.shutdown.begin();
        self.shutdown.finished().await;
    }

    /// A payment, once it is in a status.
    pub async fn pay(&self, tenant: TenantId, wanted: CreatePayment, status: PaymentStatus) -> Uuid {
        let key = Uuid::now_v7().to_string();
        let id = self.engine.create_payment(tenant, &key, wanted).await.expect("created").id;
        self.reaches(tenant, id, status).await;
        id
    }

    pub async fn reaches(&self, tenant: TenantId, id: Uuid, status: PaymentStatus) {
        until(&format!("payment {id} in {}", status.as_str()), async || {
            let found = self.engine.payment(tenant, PaymentId(id)).await.expect("read").expect("there");
            (found.status == status).then_some(())
        })
        .await;
    }

    /// A payout, once it is in a status.
    pub async fn send(&self, tenant: TenantId, wanted: CreatePayout, status: PayoutStatus) -> Uuid {
        let key = Uuid::now_v7().to_string();
        let id = self.engine.create_payout(tenant, &key, wanted).await.expect("created").id;
        until(&format!("payout {id} in {}", status.as_str()), async || {
            (self.payout(tenant, id).await.status == status).then_some(())
        })
        .await;
        id
    }

    pub async fn payout(&self, tenant: TenantId, id: Uuid) -> Payout {
        self.engine.payout(tenant, PayoutId(id)).await.expect("read").expect("there")
    }

    /// An account of the tenant, in EUR.
    pub async fn open(
        &self,
        tenant: TenantId,
        name: &str,
        kind: AccountKind,
        minimum_minor: Option<i64>,
    ) -> Uuid {
        let currency = "EUR".parse().unwrap();
        let request = OpenAccount { name: name.into(), kind, currency, minimum_minor, metadata: None };
        self.engine.open_account(tenant, name, request).await.expect("opened").id
    }

    /// A journal of two entries.
    pub async fn post(
        &self,
        tenant: TenantId,
        name: &str,
        debit: Uuid,
        credit: Uuid,
        amount_minor: i64,
    ) -> Uuid {
        let entry = |account_id, direction| PostEntry { account_id, direction, amount_minor };
        let request = PostJournal {
            source: None,
            description: name.into(),
            effective_at: None,
            metadata: None,
            entries: vec![entry(debit, Direction::Debit), entry(credit, Direction::Credit)],
        };
        self.engine.post_journal(tenant, name, request).await.expect("posted").id
    }

    /// A webhook of the gateway, signed.
    pub async fn webhook(&self, event: &str, body: &str) {
        let now = jiff::Timestamp::now().as_second();
        let signature = gateway::secret().sign(event, now, body.as_bytes());
        let message = WebhookMessage {
            id: Some(event),
            timestamp: Some(&now.to_string()),
            signature: Some(&signature),
            body: body.as_bytes(),
        };
        self.engine.receive_webhook(gateway::NAME, message).await.expect("stored");
    }
}

/// A request for [`AMOUNT`].
pub fn wanted(method: &str) -> CreatePayment {
    CreatePayment {
        amount: Money { minor: AMOUNT, currency: "EUR".parse().unwrap() },
        description: Some("a test".into()),
        metadata: None,
        order_id: None,
        payment_method: Some(method.into()),
        gateway: None,
        capture: Capture::Automatic,
        webhook_url: None,
    }
}

/// A database that nobody works on any more, with data of every kind.
pub struct Fixture {
    db: TestDb,
    /// Payments, payouts, accounts, journals and breaks by the names that the tests give them.
    pub ids: BTreeMap<&'static str, Uuid>,
    /// The gateway's book at the end.
    pub effects: Vec<Effect>,
}

impl Fixture {
    pub async fn new() -> Self {
        let running = Running::start().await;
        let mut ids = BTreeMap::new();
        payments(&running, &mut ids).await;
        journals(&running, &mut ids).await;
        payout_fixture::payouts(&running, &mut ids).await;
        for (name, payment) in [("late break", "late"), ("amount break", "amount")] {
            let found = running.engine.payment(TenantId(ids["tenant"]), PaymentId(ids[payment])).await;
            let attention = found.expect("read").expect("there").attention.expect("a person was called");
            ids.insert(name, attention.break_id.0);
        }
        running.stop().await;
        payout_fixture::unclaimed(&running, &mut ids).await;
        running.pool.pool().close().await;
        let effects = running.gateway.effects();
        let fixture = Self { db: running.db, ids, effects };
        plant(&fixture.db, &fixture.sql(&payout_fixture::undecided())).await;
        fixture
    }

    pub fn id(&self, name: &str) -> Uuid {
        self.ids[name]
    }

    /// Operations that move by themselves, oldest first.
    pub fn open(&self) -> Vec<Uuid> {
        let mut open = ["open", "banked", "gone", "waiting", "fresh"].map(|name| self.id(name)).to_vec();
        open.sort_unstable();
        open
    }

    /// A copy to plant something in.
    pub async fn copy(&self) -> TestDb {
        self.db.copy().await
    }

    /// The fixture's book, as it should be.
    pub fn book(&self) -> PlainBook {
        PlainBook::new(self.effects.clone())
    }

    /// The first effect of a key.
    pub fn effect(&self, name: &str) -> Effect {
        let key = self.id(name).to_string();
        self.effects.iter().find(|effect| effect.key == key).expect("it has one").clone()
    }

    /// SQL with `{name}` replaced by ids.
    pub fn sql(&self, template: &str) -> String {
        self.ids
            .iter()
            .fold(template.to_owned(), |sql, (name, id)| sql.replace(&format!("{{{name}}}"), &id.to_string()))
    }
}

async fn payments(running: &Running, ids: &mut BTreeMap<&'static str, Uuid>) {
    use PaymentStatus::{Authorized, Failed, Processing, Succeeded};
    let ours = tenants::find(&running.pool, "default").await.expect("the first tenant");
    let (other, _) = tenants::create(&running.pool, "other").await.expect("the name is free");
    let ordered =
        |method: &str, order: &str| CreatePayment { order_id: Some(order.into()), ..wanted(method) };
    let held = CreatePayment { capture: Capture::Manual, ..wanted("approve") };
    ids.insert("tenant", ours.0);
    ids.insert("other tenant", other.0);
    ids.insert("paid", running.pay(ours, ordered("approve", "first"), Succeeded).await);
    ids.insert("declined", running.pay(ours, ordered("decline", "second"), Failed).await);
    ids.insert("again", running.pay(ours, ordered("approve", "second"), Succeeded).await);
    ids.insert("lost", running.pay(ours, wanted("lose"), Succeeded).await);
    ids.insert("held", running.pay(ours, held, Authorized).await);
    ids.insert("open", running.pay(ours, wanted("accept"), Processing).await);
    ids.insert("theirs", running.pay(other, wanted("approve"), Succeeded).await);
    // Failed here, taken there.
    let late = running.pay(ours, wanted("decline"), Failed).await;
    ids.insert("late", late);
    running.gateway.takes(late, AMOUNT);
    let captured = |id: Uuid, minor: i64| {
        format!(
            r#"{{"type":"captured","key":"{id}","reference":"ref-{id}","amount_minor":{minor},"currency":"EUR"}}"#
        )
    };
    running.webhook("late", &captured(late, AMOUNT)).await;
    // Another amount there than asked for here.
    let amount = running.pay(ours, wanted("accept"), Processing).await;
    ids.insert("amount", amount);
    running.gateway.takes(amount, AMOUNT + 1);
    running.webhook("amount", &captured(amount, AMOUNT + 1)).await;
    // Names no operation of ours, and says nothing to us.
    running.webhook("parked", &captured(Uuid::nil(), 5)).await;
    running.webhook("ignored", r#"{"type":"newsletter"}"#).await;
    for id in [late, amount] {
        until("a person is called", async || {
            let found = running.engine.payment(ours, PaymentId(id)).await.expect("read").expect("there");
            found.attention.map(|_| ())
        })
        .await;
    }
}

async fn journals(running: &Running, ids: &mut BTreeMap<&'static str, Uuid>) {
    let ours = TenantId(ids["tenant"]);
    let other = TenantId(ids["other tenant"]);
    let cash = running.open(ours, "cash", AccountKind::Asset, None).await;
    let customer = running.open(ours, "customer", AccountKind::Liability, Some(0)).await;
    let equity = running.open(ours, "equity", AccountKind::Equity, None).await;
    let idle = running.open(ours, "idle", AccountKind::Asset, None).await;
    let foreign = running.open(other, "foreign", AccountKind::Asset, None).await;
    ids.insert("funding", running.post(ours, "funding", cash, customer, 5_000).await);
    ids.insert("owed", running.post(ours, "owed", equity, cash, 300).await);
    ids.extend([
        ("cash", cash),
        ("customer", customer),
        ("equity", equity),
        ("idle", idle),
        ("foreign", foreign),
    ]);
}

/// Checks of a database, with this book or none.
pub async fn verified(db: &TestDb, book: Option<&dyn Book>) -> Report {
    let pool = db.pool(Duration::from_secs(5)).await;
    // Small pages, so that every walk turns a page.
    let options = Options { patience: Duration::ZERO, page: 3, ..Options::default() };
    let report = verify::run_with(&pool, book, &options).await.expect("verify reads");
    pool.pool().close().await;
    report
}

/// What of a report is not held, by check: its status and its ids.
pub fn exceptions(report: &Report) -> BTreeMap<&str, (Status, Vec<String>)> {
    let odd = report.checks.iter().filter(|check| check.status != Status::Held);
    odd.map(|check| {
        let mut ids = check.violations.clone();
        ids.sort_unstable();
        assert_eq!(check.violation_count, ids.len() as u64, "{check:?}");
        (check.id, (check.status, ids))
    })
    .collect()
}
