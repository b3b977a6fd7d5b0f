//! Reads a request's body: bounded in bytes and in time.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use bytes::BytesMut;
use http_body_util::BodyExt;

use super::problem::Problem;

/// Most bytes of a body.
pub(super) const MAX: usize = 1024 * 1024;
/// How long a body may take, from the first read to its end.
const DEADLINE: Duration = Duration::from_secs(20);

/// The whole body.
///
/// # Errors
/// 413 when it is too large, known from its announced length where there is one; 400 when it does not arrive.
pub(super) async fn read(body: Body) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > MAX as u64 {
        return Err(Problem::body_too_large());
    }
    match tokio::time::timeout(DEADLINE, collect(body)).await {
        Ok(read) => read,
        Err(_) => Err(Problem::malformed_json("the body did not arrive in time")),
    }
}

async fn collect(mut body: Body) -> Result<Bytes, Problem> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::malformed_json("the body was cut off"))?;
        let Ok(data) = frame.into_data() else { continue };
        if read.len() + data.len() > MAX {
            return Err(Problem::body_too_large());
        }
        read.extend_from_slice(&data);
    }
    Ok(read.freeze())
}
