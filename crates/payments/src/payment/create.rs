//! Creating a payment: its defaults, its fingerprint, and what makes two orders the same intent.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use sqlx::PgConnection;
use tallystick_money::Money;
use tallystick_runner::{DbError, clock};
use uuid::Uuid;

use super::repo;
use super::state::PaymentStatus;
use super::view::{CreatePayment, Payment};
use crate::create::{self, CreateError, Created};
use crate::engine::{Answer, Inner};
use crate::idempotency::Fingerprint;
use crate::ids::{PaymentId, TenantId};
use crate::operation::OperationKind;

const PATH: &str = "/api/v1/payments";

/// Creates a payment, or answers as before.
pub(crate) async fn create(
    inner: &Arc<Inner>,
    tenant: TenantId,
    key: &str,
    request: CreatePayment,
) -> Result<Answer, CreateError> {
    let payment = prepare(inner, request)?;
    let fingerprint = fingerprint(&payment);
    create::create(&inner.payment_writer, tenant, key, payment, fingerprint).await
}

fn prepare(inner: &Inner, request: CreatePayment) -> Result<Payment, CreateError> {
    let gateway = request.gateway.unwrap_or_else(|| inner.settings.default_gateway.clone());
    if !inner.gateways.contains_key(&gateway) {
        return Err(CreateError::UnknownGateway);
    }
    let payment_method = request
        .payment_method
        .or_else(|| inner.settings.default_payment_method.clone())
        .ok_or(CreateError::PaymentMethodRequired)?;
    let now = clock::now();
    Ok(Payment {
        payment_id: PaymentId::new(),
        status: PaymentStatus::Pending,
        amount: request.amount.major(),
        amount_minor: request.amount.minor,
        currency: request.amount.currency,
        authorized_minor: 0,
        captured_minor: 0,
        refunded_minor: 0,
        capture: request.capture,
        description: request.description,
        metadata: request.metadata,
        order_id: request.order_id,
        payment_method,
        gateway,
        gateway_reference: None,
        failure: None,
        attention: None,
        unknown_since: None,
        cancel_requested_at: None,
        webhook_url: request.webhook_url,
        created_at: now,
        updated_at: now,
        processed_at: None,
        version: 1,
    })
}

fn fingerprint(payment: &Payment) -> Fingerprint {
    Fingerprint::of(
        PATH,
        &[
            ("/amount_minor", json!(payment.amount_minor)),
            ("/currency", json!(payment.currency)),
            ("/description", json!(payment.description)),
            ("/metadata", json!(payment.metadata)),
            ("/order_id", json!(payment.order_id)),
            ("/payment_method", json!(payment.payment_method)),
            ("/gateway", json!(payment.gateway)),
            ("/capture", json!(payment.capture)),
            ("/webhook_url", json!(payment.webhook_url)),
        ],
    )
}

impl Created for Payment {
    const KIND: OperationKind = OperationKind::Charge;
    const ROUTE: &'static str = "POST /api/v1/payments";
    const TX: &'static str = "payment.create";

    fn id(&self) -> Uuid {
        self.payment_id.0
    }

    fn gateway(&self) -> &str {
        &self.gateway
    }

    fn status(&self) -> &'static str {
        self.status.as_str()
    }

    fn needs_work(&self) -> bool {
        self.status.needs_work()
    }

    fn money(&self) -> Money {
        Money { minor: self.amount_minor, currency: self.currency }
    }

    fn created_at(&self) -> Timestamp {
        self.created_at
    }

    fn order(&self) -> Option<&str> {
        self.order_id.as_deref()
    }

    fn conflict(&self, active: &Self) -> Option<&'static str> {
        if self.currency != active.currency {
            Some("/currency")
        } else if self.amount_minor != active.amount_minor {
            Some("/amount_minor")
        } else if self.capture != active.capture {
            Some("/capture")
        } else {
            None
        }
    }

    async fn insert(
        conn: &mut PgConnection,
        rows: &[Self],
        tenants: &[TenantId],
    ) -> Result<Vec<Uuid>, DbError> {
        repo::insert(conn, rows, tenants).await
    }

    async fn active(
        conn: &mut PgConnection,
        tenants: &[Uuid],
        orders: &[String],
    ) -> Result<Vec<(Uuid, Self)>, DbError> {
        let rows = repo::active_of_orders(conn, tenants, orders).await?;
        Ok(rows.into_iter().map(|row| (row.life.tenant_id, row.into_view())).collect())
    }
}
