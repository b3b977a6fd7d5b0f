//! Standard Webhooks signatures (<https://www.standardwebhooks.com>): `v1,` + base64 of
//! HMAC-SHA256 over `id.timestamp.body`.
//!
//! Verification works on the raw bytes before anything is parsed, in constant time, and says nothing about why
//! it failed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretSlice};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};

use crate::{WebhookError, WebhookMessage};

/// Most signatures of one header that are looked at; rotation needs two.
const MAX_SIGNATURES: usize = 16;
/// Longest `webhook-id` that is taken.
const MAX_ID: usize = 255;

/// A signing secret: 16 to 64 bytes, written `whsec_<base64>`.
#[derive(Clone)]
pub struct WebhookSecret(SecretSlice<u8>);

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookSecret(***)")
    }
}

/// Why a text is no signing secret. Does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a webhook secret is `whsec_` and the base64 of 16 to 64 bytes")]
pub struct SecretError;

impl std::str::FromStr for WebhookSecret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let bytes = text.strip_prefix("whsec_").and_then(|b| STANDARD.decode(b).ok()).ok_or(SecretError)?;
        if (16..=64).contains(&bytes.len()) { Ok(Self(bytes.into())) } else { Err(SecretError) }
    }
}

impl WebhookSecret {
    fn mac(&self, id: &str, timestamp: &str, body: &[u8]) -> [u8; 32] {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.0.expose_secret()).expect("HMAC takes keys of any length");
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// The value of `webhook-signature` for this secret alone.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        format!("v1,{}", STANDARD.encode(self.mac(id, &timestamp.to_string(), body)))
    }
}

/// Holds when any signature of the message is right for any of the secrets and the timestamp is within
/// `tolerance` seconds of `now`, before or after.
///
/// # Errors
/// [`WebhookError::Unverified`], whatever the reason.
pub fn verify(
    secrets: &[WebhookSecret],
    message: WebhookMessage<'_>,
    now: i64,
    tolerance: i64,
) -> Result<(), WebhookError> {
    let (Some(id), Some(timestamp), Some(signatures)) = (message.id, message.timestamp, message.signature)
    else {
        return Err(WebhookError::Unverified);
    };
    if id.is_empty() || id.len() > MAX_ID {
        return Err(WebhookError::Unverified);
    }
    // Digits only: "+5" and " 5" parse as numbers but were not what the sender signed in this scheme.
    let at = if timestamp.bytes().all(|b| b.is_ascii_digit()) { timestamp.parse::<i64>().ok() } else { None };
    let fresh = at
        .and_then(|at| now.checked_sub(at))
        .is_some_and(|age| age.checked_abs().is_some_and(|a| a <= tolerance));
    if !fresh {
        return Err(WebhookError::Unverified);
    }
    let mut right = Choice::from(0);
    for signature in signatures.split(' ').filter_map(|s| s.strip_prefix("v1,")).take(MAX_SIGNATURES) {
        let Ok(given) = STANDARD.decode(signature) else { continue };
        for secret in secrets {
            right |= given.ct_eq(&secret.mac(id, timestamp, message.body));
        }
    }
    if bool::from(right) { Ok(()) } else { Err(WebhookError::Unverified) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn secret(fill: u8) -> WebhookSecret {
        format!("whsec_{}", STANDARD.encode([fill; 24])).parse().unwrap()
    }

    fn check(id: &str, timestamp: &str, signature: &str, body: &[u8]) -> bool {
        let message =
            WebhookMessage { id: Some(id), timestamp: Some(timestamp), signature: Some(signature), body };
        verify(&[secret(1), secret(2)], message, NOW, 300).is_ok()
    }

    /// The example published with the specification.
    #[test]
    fn agrees_with_the_published_example() {
        let s: WebhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
        let signed = s.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    /// C045: the bytes are what is signed, whatever they spell.
    #[test]
    fn c045_signature_is_over_the_raw_bytes() {
        let bodies: [&[u8]; 6] = [
            "{\"a\":\"\u{2028}\"}".as_bytes(),
            br#"{"a":"\u2028"}"#,
            b"{ \"n\": 1.0 }\r\n",
            b"{\"n\":1e2}",
            b"{\"a\":1,\"a\":2}",
            "{\"e\":\"👩‍👩‍👧\"}\n".as_bytes(),
        ];
        for body in bodies {
            let good = secret(1).sign("evt_1", NOW, body);
            assert!(check("evt_1", &NOW.to_string(), &good, body));
            let mut flipped = body.to_vec();
            flipped[0] ^= 1;
            assert!(!check("evt_1", &NOW.to_string(), &good, &flipped));
            assert!(!check("evt_1", &NOW.to_string(), &good, &[body, b" "].concat()));
        }
    }

    /// C046: while a secret is rotated both hold; a retired one does not.
    #[test]
    fn c046_several_secrets() {
        for (fill, holds) in [(1, true), (2, true), (3, false)] {
            let signed = secret(fill).sign("e", NOW, b"x");
            assert_eq!(check("e", &NOW.to_string(), &signed, b"x"), holds);
        }
    }

    /// C047: any right signature of a known scheme holds; unknown schemes alone do not.
    #[test]
    fn c047_several_signatures_in_the_header() {
        let good = secret(1).sign("e", NOW, b"x");
        let now = NOW.to_string();
        assert!(check("e", &now, &format!("v1,AAAA {good} v0,zzz"), b"x"));
        assert!(check("e", &now, &format!("v1a,xx {good}"), b"x"));
        for bad in [
            String::new(),
            good.replace("v1,", "v0,"),
            good.replace("v1,", "v1a,"),
            format!("v1,{}", "A".repeat(44)),
        ] {
            assert!(!check("e", &now, &bad, b"x"), "{bad}");
        }
        let flood = vec!["v1,AAAA"; 10_000].join(" ");
        assert!(!check("e", &now, &flood, b"x"));
    }

    /// C048: stale, future, missing and unreadable times are refused.
    #[test]
    fn c048_timestamps() {
        for (shift, holds) in [(0, true), (-300, true), (300, true), (-301, false), (301, false)] {
            let at = NOW + shift;
            assert_eq!(check("e", &at.to_string(), &secret(1).sign("e", at, b"x"), b"x"), holds, "{shift}");
        }
        for text in
            ["", "soon", "1e9", "9223372036854775808", "-9223372036854775808", "+1800000000", "1800000000.0"]
        {
            let mac = secret(1).mac("e", text, b"x");
            assert!(!check("e", text, &format!("v1,{}", STANDARD.encode(mac)), b"x"), "{text}");
        }
        let message =
            WebhookMessage { id: Some("e"), timestamp: None, signature: Some("v1,AAAA"), body: b"x" };
        assert_eq!(verify(&[secret(1)], message, NOW, 300), Err(WebhookError::Unverified));
    }

    #[test]
    fn id_and_time_are_part_of_what_is_signed() {
        let good = secret(1).sign("e", NOW, b"x");
        assert!(!check("f", &NOW.to_string(), &good, b"x"));
        assert!(!check("e", &(NOW + 1).to_string(), &good, b"x"));
    }

    #[test]
    fn secrets_are_checked_and_never_shown() {
        assert_eq!(format!("{:?}", secret(1)), "WebhookSecret(***)");
        for text in ["", "whsec_", "whsec_AAAA", "abc", "whsec_!!!"] {
            assert!(text.parse::<WebhookSecret>().is_err(), "{text}");
        }
    }
}
