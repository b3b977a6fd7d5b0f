//! Business time: what is shown to people. Leases and due times use the database's clock only.

/// Now, to the microsecond: PostgreSQL keeps no more, so a time read back equals the one written.
#[must_use]
pub fn now() -> jiff::Timestamp {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}
