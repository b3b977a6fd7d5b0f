//! The sandbox over HTTP/1.1. Connections are served one by one, because some faults concern the connection itself:
//! no answer at all, a reset, half a body.

pub mod control;
pub mod events;
pub mod gateway;
mod half;

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower::ServiceExt;

use crate::engine::{Engine, Reply};
use crate::receiver::MerchantReceiver;
use crate::webhooks::{Deliverer, Signer};

/// How long a request without an answer is held.
const HELD: Duration = Duration::from_secs(120);
/// How long open requests may go on after a stop was asked for.
const GRACE: Duration = Duration::from_millis(500);

/// What the routes share.
pub struct App {
    /// The gateway and the bank.
    pub engine: Arc<Engine>,
    /// Deliveries of events.
    pub deliverer: Arc<Deliverer>,
    /// Signatures.
    pub signer: Arc<Signer>,
    /// The receiver of merchant webhooks.
    pub receiver: MerchantReceiver,
    /// Secret of the gateway API.
    pub secret: String,
}

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    gateway::routes().merge(control::routes()).merge(events::routes()).with_state(app)
}

/// Marks a response that is no answer.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Silence,
    Reset,
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response<Body> {
        let ending = |ending| {
            let mut response = Response::new(Body::empty());
            response.extensions_mut().insert(ending);
            response
        };
        match self {
            Self::Silence => ending(Ending::Silence),
            Self::Reset => ending(Ending::Reset),
            Self::Garbage(body) => half::response(body),
            Self::Json(status, body) => {
                let mut response =
                    Response::builder().status(status).header("content-type", "application/json");
                if matches!(status, 409 | 429 | 503) {
                    response = response.header("retry-after", "1");
                }
                if status == 401 {
                    response = response.header("www-authenticate", "Bearer");
                }
                response.body(Body::from(body)).expect("a known status and constant headers")
            }
        }
    }
}

/// Why a connection ends without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection ends without an answer")]
struct NoAnswer;

/// Serves until `stop` says so.
pub async fn serve(listener: TcpListener, router: Router, mut stop: watch::Receiver<bool>) {
    let connections = Arc::new(());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let (router, stop, alive) = (router.clone(), stop.clone(), Arc::clone(&connections));
                tokio::spawn(async move {
                    connection(stream, router, stop).await;
                    drop(alive);
                });
            }
            Err(error) => {
                // Out of file handles, most likely: others must end before it gets better.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    let end = tokio::time::Instant::now() + GRACE;
    while Arc::strong_count(&connections) > 1 && tokio::time::Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn connection(stream: TcpStream, router: Router, mut stop: watch::Receiver<bool>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone at once");
        return;
    }
    let reset = Arc::new(AtomicBool::new(false));
    let socket = Socket { stream, reset: Arc::clone(&reset) };
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (router, reset) = (router.clone(), Arc::clone(&reset));
        async move {
            let answered: Result<Response<Body>, Infallible> = router.oneshot(request.map(Body::new)).await;
            let Ok(response) = answered;
            match response.extensions().get::<Ending>() {
                None => Ok(response),
                Some(Ending::Silence) => {
                    // The wait ends earlier when the client hangs up: hyper then drops this.
                    tokio::time::sleep(HELD).await;
                    Err(NoAnswer)
                }
                Some(Ending::Reset) => {
                    reset.store(true, Ordering::Release);
                    Err(NoAnswer)
                }
            }
        }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.header_read_timeout(None);
    let mut serving = std::pin::pin!(http.serve_connection(TokioIo::new(socket), service));
    tokio::select! {
        ended = serving.as_mut() => {
            if let Err(error) = ended {
                tracing::debug!(%error, "connection ended");
            }
            return;
        }
        _ = stop.wait_for(|stop| *stop) => serving.as_mut().graceful_shutdown(),
    }
    let _cut = tokio::time::timeout(GRACE, serving).await;
}

/// A connection that can end with a reset.
struct Socket {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Acquire)
            && let Err(error) = self.stream.set_zero_linger()
        {
            tracing::debug!(%error, "cannot reset a connection");
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, to)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reset.load(Ordering::Acquire) {
            // An orderly end would come before the reset.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
