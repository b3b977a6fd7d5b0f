//! Ten workers that each hold one job until the bank has answered; nothing shares a commit.
//!
//! It is our own server with the settings that make it work like that, so everything else is the same.

use std::collections::BTreeMap;

use super::WORKERS;

/// The settings that make our server work like that.
pub fn settings() -> BTreeMap<String, String> {
    [
        ("TALLYSTICK_MAX_IN_FLIGHT", WORKERS.to_string()),
        ("TALLYSTICK_BATCH", "1".to_owned()),
        ("TALLYSTICK_CREATE_LINGER", "0s".to_owned()),
        ("TALLYSTICK_RECORD_LINGER", "0s".to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_server_takes_these_settings() {
        let given =
            super::settings().into_iter().chain([("TALLYSTICK_GATEWAYS".to_owned(), "[]".to_owned())]);
        let config = crate::config::load(None, given).unwrap();
        let engine = config.engine();
        engine.check().unwrap();
        assert_eq!((engine.max_in_flight, engine.batch), (super::WORKERS, 1));
        assert!(engine.create_linger.is_zero() && engine.record_linger.is_zero());
    }
}
