//! `Prefer: wait`: all requests of a process that wait share one query.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tallystick_runner::{DbError, Shutdown, looper};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::repo::{self, PaymentRow};
use crate::engine::Inner;

/// How often the shared query runs while anybody waits.
const EVERY: Duration = Duration::from_millis(20);

/// Who waits for which payment.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: Mutex<HashMap<Uuid, Vec<oneshot::Sender<PaymentRow>>>>,
    arrived: Notify,
}

impl Waiters {
    fn join(&self, id: Uuid) -> oneshot::Receiver<PaymentRow> {
        let (tell, told) = oneshot::channel();
        self.waiting.lock().expect("no panic while held").entry(id).or_default().push(tell);
        self.arrived.notify_one();
        told
    }

    /// The payments that somebody still waits for.
    fn ids(&self) -> Vec<Uuid> {
        let mut waiting = self.waiting.lock().expect("no panic while held");
        waiting.retain(|_, tells| {
            tells.retain(|tell| !tell.is_closed());
            !tells.is_empty()
        });
        waiting.keys().copied().collect()
    }

    fn tell(&self, row: &PaymentRow) {
        let tells = self.waiting.lock().expect("no panic while held").remove(&row.life.id);
        for tell in tells.into_iter().flatten() {
            let _ = tell.send(row.clone());
        }
    }
}

/// The payment once it has left `pending`, or as it is at `until`.
pub(crate) async fn wait(
    inner: &Inner,
    tenant: Uuid,
    id: Uuid,
    until: Instant,
) -> Result<Option<PaymentRow>, DbError> {
    match tokio::time::timeout_at(until, inner.waiters.join(id)).await {
        Ok(Ok(row)) => Ok((row.life.tenant_id == tenant).then_some(row)),
        // Time is over, or the shared task is gone with the process.
        Ok(Err(_)) | Err(_) => repo::get(&mut *inner.db.conn().await?, tenant, id).await,
    }
}

/// Starts the shared query.
pub(crate) fn spawn(inner: &Arc<Inner>, shutdown: &Shutdown) {
    let (inner, stop) = (inner.clone(), shutdown.clone());
    shutdown.spawn(async move {
        loop {
            let ids = inner.waiters.ids();
            if ids.is_empty() {
                tokio::select! {
                    () = inner.waiters.arrived.notified() => continue,
                    () = stop.stopping() => return,
                }
            }
            match look(&inner, &ids).await {
                Ok(rows) => rows.iter().for_each(|row| inner.waiters.tell(row)),
                Err(error) => {
                    tracing::debug!(error = looper::chain(&error), "waiting requests could not be looked up")
                }
            }
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                // Those who still wait get what is true when their own time is over.
                () = stop.stopping() => return,
            }
        }
    });
}

async fn look(inner: &Inner, ids: &[Uuid]) -> Result<Vec<PaymentRow>, DbError> {
    repo::left_pending(&mut *inner.db.conn().await?, ids).await
}
