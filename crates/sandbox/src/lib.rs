//! `tallystick-sandbox`: a card gateway and a bank, as a separate program with a durable book of its own.
//!
//! It behaves as real ones do (idempotent submits with key retention, status by key, asynchronous acknowledgement,
//! signed webhooks, balance, settlement file) and misbehaves on request: by magic values in the request, by rules over
//! HTTP, and by a seeded mix. In every test it is the independent witness: what happened to money is what stands in
//! its book. Therefore it shares no code with the product.
//!
//! - [`http`] takes requests; [`engine`] decides them; [`book`] is the sum of all changes; [`journal_file`] makes
//!   them durable before they are answered.
//! - [`faults`] chooses a misbehaviour, [`plan`] says what it means, [`seed`] makes chance repeatable.
//! - [`webhooks`] delivers events, [`receiver`] takes those of the product, [`settlement`] writes the file.

pub mod book;
pub mod clock;
pub mod config;
pub mod engine;
pub mod faults;
pub mod http;
pub mod journal_file;
pub mod model;
pub mod plan;
pub mod receiver;
pub mod seed;
pub mod series;
pub mod settings;
pub mod settlement;
pub mod webhooks;

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::config::Config;
use crate::engine::Engine;
use crate::http::App;
use crate::journal_file::JournalError;
use crate::receiver::MerchantReceiver;
use crate::webhooks::{Deliverer, Signer, WebhookError};

/// Why the program cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The settings of webhooks are wrong.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// The journal file cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// It cannot listen, or not write the ready file.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        error: io::Error,
    },
}

fn io_error(what: String) -> impl FnOnce(io::Error) -> ServeError {
    |error| ServeError::Io { what, error }
}

/// Serves until SIGTERM or SIGINT, or until the journal file can no longer be written.
///
/// # Errors
/// What is in the way.
pub async fn serve(config: Config) -> Result<(), ServeError> {
    let signer = Arc::new(Signer::new(&config.webhook_secret)?);
    let listen = config.args.listen;
    let listener = TcpListener::bind(listen).await.map_err(io_error(format!("cannot listen on {listen}")))?;
    let address = listener.local_addr().map_err(io_error("cannot listen".to_owned()))?;
    let engine = Engine::open(&config.args.data_dir)?;
    let deliverer = Deliverer::new(Arc::clone(&engine), Arc::clone(&signer), &config.args.webhook_url)?;
    let app = Arc::new(App {
        engine: Arc::clone(&engine),
        deliverer: Arc::clone(&deliverer),
        signer,
        receiver: MerchantReceiver::default(),
        secret: config.secret,
    });
    let signals = || Ok::<_, io::Error>((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?));
    let (mut terminate, mut interrupt) = signals().map_err(io_error("cannot wait for signals".to_owned()))?;
    let (stop, stopping) = watch::channel(false);
    let serving = tokio::spawn(http::serve(listener, http::router(app), stopping));
    let timers = tokio::spawn(deliverer.run());
    if let Some(path) = &config.args.ready_file {
        write_ready(path, &format!("http://{address}"))
            .map_err(io_error(format!("cannot write {}", path.display())))?;
    }
    tracing::info!(%address, data_dir = %config.args.data_dir.display(), "listening");
    let result = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        () = engine.broken() => Err(ServeError::Journal(JournalError::Closed)),
    };
    stop.send_replace(true);
    if serving.await.is_err() {
        tracing::error!("the server ended badly");
    }
    timers.abort();
    engine.close();
    tracing::info!("stopped");
    result
}

/// Tells by a file that the program listens; readers see it whole or not at all.
fn write_ready(path: &Path, url: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let text = serde_json::json!({"url": url, "pid": std::process::id()}).to_string();
    std::fs::write(&name, text + "\n")?;
    std::fs::rename(&name, path)
}
