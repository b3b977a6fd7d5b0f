//! Ids that cannot be mixed up. All are UUIDs, version 7 where we make them.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new id, sorting after those made before it.
            #[must_use]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A payment: money in. Also the gateway key of its charge.
    PaymentId
);
id!(
    /// A payout: money out. Also its gateway key.
    PayoutId
);
id!(
    /// A tenant; every business row carries one.
    TenantId
);
id!(
    /// A break: one difference that a person works to zero.
    BreakId
);
id!(
    /// An API key's name (not the key).
    KeyId
);
