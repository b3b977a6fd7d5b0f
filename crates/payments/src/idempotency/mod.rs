//! Idempotency of our own API: the key's row is inserted first, in the transaction that it protects.
//!
//! A twin waits on that row and then replays what was stored; there is no check before the act. Answers 4xx and 5xx
//! are never stored, so a client that corrects its request may use the key again. The scope is tenant and route
//! template; the fingerprint covers the concrete path and the typed request, so the same key on another object of
//! the route is a mismatch and not a replay.

pub(crate) mod fingerprint;
pub(crate) mod repo;

pub(crate) use fingerprint::Fingerprint;
