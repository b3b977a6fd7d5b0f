//! Positions in lists, opaque to clients: base64url of what names the last item shown.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

/// Longest cursor that is looked at.
const MAX: usize = 256;

/// The cursor behind the item with this id.
pub(super) fn after_id(id: Uuid) -> String {
    URL_SAFE_NO_PAD.encode(id.as_bytes())
}

/// The id in a cursor of [`after_id`].
pub(super) fn id(cursor: &str) -> Option<Uuid> {
    Uuid::from_slice(&decode(cursor)?).ok()
}

/// Wraps another layer's own cursor.
pub(super) fn wrap(inner: &str) -> String {
    URL_SAFE_NO_PAD.encode(inner)
}

/// What [`wrap`] wrapped.
pub(super) fn unwrap(cursor: &str) -> Option<String> {
    String::from_utf8(decode(cursor)?).ok()
}

fn decode(cursor: &str) -> Option<Vec<u8>> {
    if cursor.len() > MAX {
        return None;
    }
    URL_SAFE_NO_PAD.decode(cursor).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_cursors_are_read() {
        let id_ = Uuid::now_v7();
        assert_eq!(id(&after_id(id_)), Some(id_));
        assert_eq!(unwrap(&wrap("inner:7")).as_deref(), Some("inner:7"));
        for bad in ["", "nonsense", "!!", &id_.to_string(), &"x".repeat(500), &format!("{}=", after_id(id_))]
        {
            assert_eq!(id(bad), None, "{bad}");
        }
    }
}
