//! What the tests share: a migrated database, engines on it, and short ways to use them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _};
use tallystick_gateway::signature::WebhookSecret;
use tallystick_gateway::{Gateway, WebhookMessage};
use tallystick_payments::CreateError;
use tallystick_payments::ids::{PaymentId, TenantId};
use tallystick_payments::payment::{Capture, CreatePayment, Payment, PaymentStatus};
use tallystick_payments::settings::Settings;
use tallystick_payments::{Answer, Engine, InboundError, migrate, tenants};
use tallystick_runner::{Db, Shutdown};
use uuid::Uuid;

use crate::gateway::{SECRET, Scripted};

pub const PATIENCE: Duration = Duration::from_secs(40);

/// Timings of a test: everything that waits for minutes in production waits for a moment.
pub fn quick() -> Settings {
    Settings {
        gateway_timeout: Duration::from_millis(500),
        lease: Duration::from_secs(2),
        sweep_after: Duration::from_millis(100),
        sweep_max_backoff: Duration::from_millis(400),
        status_check_after: Duration::from_millis(200),
        default_gateway: "cards".into(),
        default_payment_method: Some("ok".into()),
        poll: Duration::from_millis(20),
        ..Settings::default()
    }
}

/// One process's engine with its roles.
pub struct Process {
    pub engine: Engine,
    pub shutdown: Shutdown,
}

impl Process {
    pub async fn stop(self) {
        self.shutdown.begin();
        self.shutdown.finished().await;
    }
}

pub struct World {
    pub superuser: PgPool,
    pub gateway: Arc<Scripted>,
    pub tenant: TenantId,
    url: String,
}

impl World {
    pub async fn new(superuser: PgPool, gateway: Arc<Scripted>) -> Self {
        let url = superuser.connect_options().to_url_lossy().to_string();
        migrate::run(&url).await.expect("migrations");
        let db = Db::from_pool(superuser.clone());
        let (tenant, _) = tenants::create(&db, "shop").await.expect("a tenant");
        Self { superuser, gateway, tenant, url }
    }

    /// An engine without roles.
    pub async fn engine(&self, settings: Settings) -> Engine {
        // As the application role itself, so that nothing a superuser may do slips through.
        let options = self.superuser.connect_options().as_ref().clone().username("tallystick_app").options([
            ("plan_cache_mode", "force_generic_plan"),
            ("random_page_cost", "1.1"),
            ("lock_timeout", "5s"),
            ("timezone", "UTC"),
        ]);
        let pool = PgPoolOptions::new().max_connections(10).connect_with(options).await.expect("pool");
        let gateways: Vec<Arc<dyn Gateway>> = vec![self.gateway.clone()];
        Engine::new(Db::from_pool(pool), gateways, settings).expect("settings that fit")
    }

    /// A process with every role.
    pub async fn process(&self) -> Process {
        self.process_with(quick()).await
    }

    pub async fn process_with(&self, settings: Settings) -> Process {
        let process = self.api_only(settings).await;
        process.engine.spawn_dispatch(&process.shutdown);
        process.engine.spawn_sweep(&process.shutdown);
        process.engine.spawn_relay(&process.shutdown, Vec::new());
        process
    }

    /// A process that takes requests and does nothing about them.
    pub async fn api_only(&self, settings: Settings) -> Process {
        let (engine, shutdown) = (self.engine(settings).await, Shutdown::new());
        engine.spawn_api(&shutdown);
        Process { engine, shutdown }
    }

    pub fn order(&self, method: &str, amount_minor: i64, order_id: Option<&str>) -> CreatePayment {
        CreatePayment {
            amount: tallystick_money::Money::new(amount_minor, "EUR".parse().unwrap()).unwrap(),
            description: None,
            metadata: None,
            order_id: order_id.map(str::to_owned),
            payment_method: Some(method.into()),
            gateway: None,
            capture: Capture::Automatic,
            webhook_url: None,
        }
    }

    pub async fn pay(&self, process: &Process, method: &str) -> PaymentId {
        let answer = self.create(process, self.order(method, 10_000, None)).await.expect("accepted");
        PaymentId(answer.id)
    }

    pub async fn create(&self, process: &Process, request: CreatePayment) -> Result<Answer, CreateError> {
        process.engine.create_payment(self.tenant, &Uuid::now_v7().to_string(), request).await
    }

    pub async fn get(&self, process: &Process, id: PaymentId) -> Payment {
        process.engine.payment(self.tenant, id).await.expect("a database").expect("the payment")
    }

    /// Waits until the payment has one of the statuses.
    pub async fn becomes(&self, process: &Process, id: PaymentId, statuses: &[PaymentStatus]) -> Payment {
        let end = Instant::now() + PATIENCE;
        loop {
            let payment = self.get(process, id).await;
            if statuses.contains(&payment.status) {
                return payment;
            }
            assert!(Instant::now() < end, "still {:?}: {payment:?}", payment.status);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn succeeds(&self, process: &Process, id: PaymentId) -> Payment {
        self.becomes(process, id, &[PaymentStatus::Succeeded]).await
    }

    pub async fn statuses(&self, process: &Process, id: PaymentId) -> Vec<String> {
        let history = process.engine.history(id.0).await.expect("history");
        let versions: Vec<i32> = history.iter().map(|h| h.version).collect();
        assert_eq!(versions, (1..).take(versions.len()).collect::<Vec<i32>>(), "versions without a gap");
        history.into_iter().map(|h| h.status).collect()
    }

    /// One effect, one journal, one event per version: what must hold for a payment that was charged.
    pub async fn charged_once(&self, process: &Process, id: PaymentId) {
        let effects = self.gateway.effects(&id.to_string());
        assert_eq!(effects.len(), 1, "effects at the gateway: {effects:?}");
        let payment = self.get(process, id).await;
        assert_eq!(
            (payment.status, payment.captured_minor),
            (PaymentStatus::Succeeded, payment.amount_minor)
        );
        let journals = process.engine.journals_of(self.tenant, id.0).await.expect("journals");
        assert_eq!(journals.iter().map(|j| j.kind.as_str()).collect::<Vec<_>>(), ["payment_captured"]);
        self.told_every_move(process, id).await;
    }

    pub async fn told_every_move(&self, process: &Process, id: PaymentId) {
        let payment = self.get(process, id).await;
        let statuses = self.statuses(process, id).await;
        assert_eq!(statuses.len(), usize::try_from(payment.version).unwrap());
        let events = process.engine.events_of(self.tenant, id.0).await.expect("events");
        let told: Vec<&str> = events.iter().filter_map(|e| e["status"].as_str()).collect();
        assert_eq!(told, statuses, "one event per move");
    }

    /// A statement as the superuser.
    pub async fn sql(&self, statement: &str) {
        self.superuser.execute(AssertSqlSafe(statement.to_owned())).await.expect("statement");
    }

    pub async fn number(&self, query: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(query.to_owned()))
            .fetch_one(&self.superuser)
            .await
            .expect("a number")
    }

    /// Asks until the query gives this number.
    pub async fn until_number(&self, query: &str, expected: i64) {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.number(query).await;
            if found == expected {
                return;
            }
            assert!(Instant::now() < end, "{query}: {found}, not {expected}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

/// A webhook of the scripted gateway, signed.
pub async fn deliver(process: &Process, event_id: &str, body: &Value) -> Result<(), InboundError> {
    deliver_to(process, "cards", event_id, body.to_string().as_bytes()).await
}

pub async fn deliver_to(
    process: &Process,
    gateway: &str,
    event_id: &str,
    body: &[u8],
) -> Result<(), InboundError> {
    let now = jiff::Timestamp::now().as_second();
    let signature = SECRET.parse::<WebhookSecret>().unwrap().sign(event_id, now, body);
    let message = WebhookMessage {
        id: Some(event_id),
        timestamp: Some(&now.to_string()),
        signature: Some(&signature),
        body,
    };
    process.engine.receive_webhook(gateway, message).await
}

pub fn captured(id: PaymentId, amount_minor: i64) -> Value {
    json!({"type": "captured", "key": id, "reference": format!("ref-{id}-0"), "amount_minor": amount_minor, "currency": "EUR"})
}

/// Polls until it holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
