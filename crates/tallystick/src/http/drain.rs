//! Reads and drops what is left of a request's body before the answer goes out.
//!
//! A server that answers and closes while the client is still sending makes the client's system throw the answer
//! away. So a refused body is read to its end, up to [`MAX_DROPPED`] bytes and for [`DEADLINE`] at most; a client that
//! sends more may find the connection closed.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

/// Most bytes of one body that are dropped.
const MAX_DROPPED: usize = 16 * 1024 * 1024;
/// How long that may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// The layer.
pub(super) async fn drain(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let shared = Shared(Arc::new(Mutex::new(body)));
    let response = next.run(Request::from_parts(parts, Body::new(shared.clone()))).await;
    // Too slow, too long or cut off: the answer goes out all the same.
    let _ = tokio::time::timeout(DEADLINE, drop_rest(shared)).await;
    response
}

async fn drop_rest(mut rest: Shared) {
    let mut dropped = 0usize;
    while dropped <= MAX_DROPPED && !rest.is_end_stream() {
        match std::future::poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx)).await {
            Some(Ok(frame)) => dropped = dropped.saturating_add(frame.data_ref().map_or(0, Bytes::len)),
            Some(Err(_)) | None => return,
        }
    }
}

/// A body that the handler reads and that this layer still holds afterwards. The lock is held for one poll only.
#[derive(Clone)]
struct Shared(Arc<Mutex<Body>>);

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).size_hint()
    }
}
