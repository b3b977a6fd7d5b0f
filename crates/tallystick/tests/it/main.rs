//! Tests of the whole product, in one program: over HTTP in-process, and of processes from the outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails, also in its helpers")]

mod bench;
mod cli;
#[cfg(feature = "failpoints")]
mod crash;
mod dev;
mod flows;
mod http;
mod serve;
mod support;
mod verify;
