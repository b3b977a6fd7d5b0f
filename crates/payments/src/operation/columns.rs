//! Changed rows as columns, in the form that `unnest` takes them.

use uuid::Uuid;

use super::state::Life;

/// A row's new values, guarded by the version it was read with.
pub(crate) struct Update<'a, R> {
    pub before: i32,
    pub after: &'a R,
}

/// The columns that a move or news may change, of rows of one kind.
pub(crate) struct Changed<S> {
    pub id: Vec<Uuid>,
    pub before: Vec<i32>,
    pub status: Vec<S>,
    pub version: Vec<i32>,
    pub gateway_reference: Vec<Option<String>>,
    pub failure_code: Vec<Option<String>>,
    pub failure_message: Vec<Option<String>>,
    pub attention_code: Vec<Option<String>>,
    pub attention_break: Vec<Option<Uuid>>,
    pub unknown_since: Vec<Option<jiff_sqlx::Timestamp>>,
    pub updated_at: Vec<jiff_sqlx::Timestamp>,
    pub processed_at: Vec<Option<jiff_sqlx::Timestamp>>,
}

impl<S: Copy> Changed<S> {
    pub(crate) fn of<'a, R: 'a>(updates: &[Update<'a, R>], life: fn(&R) -> &Life<S>) -> Self {
        let mut c = Self {
            id: Vec::with_capacity(updates.len()),
            before: updates.iter().map(|u| u.before).collect(),
            status: Vec::new(),
            version: Vec::new(),
            gateway_reference: Vec::new(),
            failure_code: Vec::new(),
            failure_message: Vec::new(),
            attention_code: Vec::new(),
            attention_break: Vec::new(),
            unknown_since: Vec::new(),
            updated_at: Vec::new(),
            processed_at: Vec::new(),
        };
        for life in updates.iter().map(|u| life(u.after)) {
            c.id.push(life.id);
            c.status.push(life.status);
            c.version.push(life.version);
            c.gateway_reference.push(life.gateway_reference.clone());
            c.failure_code.push(life.failure_code.clone());
            c.failure_message.push(life.failure_message.clone());
            c.attention_code.push(life.attention_code.clone());
            c.attention_break.push(life.attention_break);
            c.unknown_since.push(life.unknown_since);
            c.updated_at.push(life.updated_at);
            c.processed_at.push(life.processed_at);
        }
        c
    }
}
