//! The outbox against a real PostgreSQL server. `DATABASE_URL` names a superuser.
//!
//! Snapshots span the whole cluster and tests run side by side, so a test never expects a window from one tick: it
//! ticks until what it waits for is there.

mod common;
mod feed;
mod partitions;
mod plans;
mod relay;
mod rights;
mod verify;
mod windows;
