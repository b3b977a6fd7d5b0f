//! The API in-process, on a loopback port of its own, with the roles that requests need.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use tallystick::http::{self, AppState, HttpSettings};
use tallystick_gateway::Gateway;
use tallystick_payments::Engine;
use tallystick_payments::settings::Settings;
use tallystick_payments::tenants::{self, Scope};
use tallystick_runner::{Db, Shutdown};
use tokio::net::TcpListener;

use super::client::Client;
use super::db::TestDb;
use super::gateway::{self, ScriptedGateway};

/// What a test may want differently.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub http: HttpSettings,
    pub lock_timeout: Duration,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { http: HttpSettings::default(), lock_timeout: Duration::from_secs(5) }
    }
}

/// A running API.
pub struct Server {
    pub engine: Engine,
    pub gateway: Arc<ScriptedGateway>,
    /// Scope client, tenant `default`.
    pub client: Client,
    /// Scope operator, tenant `default`.
    pub operator: Client,
    /// Scope client, tenant `other`.
    pub other: Client,
    shutdown: Shutdown,
    pub db: TestDb,
}

impl Server {
    pub async fn start() -> Self {
        Self::with(Wanted::default()).await
    }

    pub async fn with(wanted: Wanted) -> Self {
        let db = TestDb::new().await;
        let pool = db.pool(wanted.lock_timeout).await;
        let keys = keys(&pool).await;
        let gateway = Arc::new(ScriptedGateway::new());
        let engine = Engine::new(pool, vec![gateway.clone() as Arc<dyn Gateway>], settings())
            .expect("settings that fit");
        let shutdown = Shutdown::new();
        engine.spawn_api(&shutdown);
        engine.spawn_dispatch(&shutdown);
        engine.spawn_relay(&shutdown, Vec::new());
        let metrics = PrometheusBuilder::new().build_recorder().handle();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let app = http::router(AppState::new(engine.clone(), metrics, &wanted.http));
        shutdown.spawn(http::serve(listener, app, shutdown.clone()));
        let [client, operator, other] = keys.map(|key| Client { address, key });
        Self { engine, gateway, client, operator, other, shutdown, db }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.abort();
    }
}

async fn keys(pool: &Db) -> [String; 3] {
    let (_, client) = tenants::key_create(pool, "default", Scope::Client).await.expect("the tenant is there");
    let (_, operator) =
        tenants::key_create(pool, "default", Scope::Operator).await.expect("the tenant is there");
    let (_, other) = tenants::create(pool, "other").await.expect("the name is free");
    [client, operator, other]
}

fn settings() -> Settings {
    Settings {
        gateway_timeout: Duration::from_secs(5),
        lease: Duration::from_secs(15),
        sweep_after: Duration::from_millis(100),
        sweep_max_backoff: Duration::from_millis(500),
        status_check_after: Duration::from_secs(600),
        default_payment_method: Some("approve".to_owned()),
        default_gateway: gateway::NAME.to_owned(),
        poll: Duration::from_millis(20),
        ..Settings::default()
    }
}
