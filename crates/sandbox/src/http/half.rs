//! A response that breaks off in the middle: 200, the length of the whole body, half of its bytes, end of connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use hyper::body::Frame;
use tokio::time::Sleep;

/// Between the half and the end, so that the half is sent and not thrown away with the connection.
const PAUSE: Duration = Duration::from_millis(20);

/// The response with half of `body`.
pub(super) fn response(body: Vec<u8>) -> Response<Body> {
    let length = body.len();
    let half = Bytes::from(body).slice(..length / 2);
    Response::builder()
        .header("content-type", "application/json")
        .header("content-length", length)
        .body(Body::new(Half { half: Some(half), pause: Box::pin(tokio::time::sleep(PAUSE)) }))
        .expect("constant headers")
}

struct Half {
    half: Option<Bytes>,
    pause: Pin<Box<Sleep>>,
}

impl hyper::body::Body for Half {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(half) = self.half.take() {
            return Poll::Ready(Some(Ok(Frame::data(half))));
        }
        self.pause.as_mut().poll(cx).map(|()| Some(Err(io::ErrorKind::BrokenPipe.into())))
    }
}
