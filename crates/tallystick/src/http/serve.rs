//! Connections: what a slow or endless client cannot do is decided here and in `body`.
//!
//! Headers must arrive within [`HEADER_DEADLINE`], also on a connection that is kept open, so idle or dripping
//! connections are cut. When shutdown begins nothing new is accepted, idle connections are closed, and requests that
//! are under way get their answers.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tallystick_runner::Shutdown;
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

/// How long the head of a request may take, from the first byte of the connection or the end of the last answer.
const HEADER_DEADLINE: Duration = Duration::from_secs(20);
/// Most bytes of a request's head; beyond it 431.
const MAX_HEAD: usize = 64 * 1024;
/// Pause after the system refused a connection (out of file descriptors, for one).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `app` on `listener` until shutdown begins, then waits for requests under way or for the abort.
pub async fn serve(listener: TcpListener, app: Router, shutdown: Shutdown) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.stopping() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                shutdown.spawn(connection(stream, app.clone(), shutdown.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, app: Router, shutdown: Shutdown) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let app = app.clone();
        async move { app.oneshot(request.map(Body::new)).await as Result<_, Infallible> }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let mut draining = false;
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                // The other side hung up, was too slow or spoke no HTTP; there is nobody to tell.
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            () = shutdown.stopping(), if !draining => {
                draining = true;
                serving.as_mut().graceful_shutdown();
            }
            () = shutdown.aborted() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    use super::*;
    use crate::http::{body, dressed};

    async fn start(app: Router) -> (SocketAddr, Shutdown) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), Shutdown::new());
        shutdown.spawn(serve(listener, app, shutdown.clone()));
        (address, shutdown)
    }

    async fn connect(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    async fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    /// Time passes by itself here whenever nothing else happens.
    #[tokio::test(start_paused = true)]
    async fn slow_heads_and_bodies_are_cut() {
        let take = async |body: Body| body::read(body).await.map(|_| ());
        let (address, _shutdown) = start(dressed(Router::new().route("/", post(take)))).await;
        for silent in ["", "POST / HT", "POST / HTTP/1.1\r\nHost: x\r\nX: "] {
            let answer = rest(connect(address, silent).await).await;
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
        }
        let half =
            rest(connect(address, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{").await).await;
        assert!(half.starts_with("HTTP/1.1 400") && half.contains("malformed_json"), "{half}");
        let idle = connect(address, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}").await;
        assert!(
            rest(idle).await.starts_with("HTTP/1.1 200"),
            "and then the connection ends, as it is not used"
        );
    }

    #[tokio::test]
    async fn shutdown_lets_a_request_finish_and_takes_no_new_one() {
        let (begun, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (b, d) = (begun.clone(), done.clone());
        let work = async move || {
            b.notify_one();
            d.notified().await;
            "finished"
        };
        let (address, shutdown) = start(Router::new().route("/", get(work))).await;
        let idle = connect(address, "").await;
        let busy = connect(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        begun.notified().await;
        shutdown.begin();
        assert_eq!(rest(idle).await, "");
        done.notify_one();
        let answer = rest(busy).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("finished"), "{answer}");
        shutdown.finished().await;
        assert!(TcpStream::connect(address).await.is_err(), "nobody listens");
    }
}
