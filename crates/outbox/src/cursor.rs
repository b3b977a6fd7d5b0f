//! A reader's position in the feed, and its text.
//!
//! The text is opaque to readers: base64url of a version byte, epoch, window, seq and a check sum. The check sum is
//! no secret; it makes sure that a mistyped or cut text is refused instead of being read as another position.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::CursorError;

const VERSION: u8 = 1;
const BODY: usize = 1 + 4 + 8 + 8;
const CHECK: usize = 3;
/// Bytes before encoding; a multiple of three, so each position has exactly one text.
const BYTES: usize = BODY + CHECK;
const TEXT: usize = BYTES / 3 * 4;

/// A position: everything up to and including event `seq` of window `window` was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// The window's number; 0 before the first.
    pub window: i64,
    /// The last event read in that window; 0 for none.
    pub seq: i64,
    /// The life of the data that the window belongs to.
    pub epoch: i32,
}

impl Cursor {
    /// Before the oldest event that is kept.
    #[must_use]
    pub const fn start() -> Self {
        Self { window: 0, seq: 0, epoch: 0 }
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::start()
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.epoch.to_be_bytes());
        bytes.extend_from_slice(&self.window.to_be_bytes());
        bytes.extend_from_slice(&self.seq.to_be_bytes());
        let check = check_sum(&bytes);
        bytes.extend_from_slice(&check);
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        if text.len() != TEXT {
            return Err(CursorError::Malformed);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| CursorError::Malformed)?;
        let (body, check) = bytes.split_at_checked(BODY).ok_or(CursorError::Malformed)?;
        if check != check_sum(body) || body.first() != Some(&VERSION) {
            return Err(CursorError::Malformed);
        }
        let cursor = Self {
            epoch: i32::from_be_bytes(part(body, 1)?),
            window: i64::from_be_bytes(part(body, 5)?),
            seq: i64::from_be_bytes(part(body, 13)?),
        };
        if cursor.epoch < 0 || cursor.window < 0 || cursor.seq < 0 {
            return Err(CursorError::Malformed);
        }
        Ok(cursor)
    }
}

fn part<const N: usize>(body: &[u8], from: usize) -> Result<[u8; N], CursorError> {
    body.get(from..from + N).and_then(|bytes| bytes.try_into().ok()).ok_or(CursorError::Malformed)
}

/// The upper bytes of FNV-1a.
fn check_sum(body: &[u8]) -> [u8; CHECK] {
    let hash = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let [a, b, c, ..] = hash.to_be_bytes();
    [a, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_position_are_one_to_one() {
        for cursor in [
            Cursor::start(),
            Cursor { window: 1, seq: 2, epoch: 3 },
            Cursor { window: i64::MAX, seq: i64::MAX, epoch: i32::MAX },
        ] {
            let text = cursor.to_string();
            assert_eq!(text.len(), TEXT);
            assert_eq!(text.parse(), Ok(cursor));
        }
    }

    #[test]
    fn garbage_is_refused() {
        let good = Cursor { window: 77, seq: 4711, epoch: 0 }.to_string();
        for i in 0..good.len() {
            for other in ['A', 'B', '_', '=', ' ', 'é'] {
                let mut bad: Vec<char> = good.chars().collect();
                if bad[i] == other {
                    continue;
                }
                bad[i] = other;
                let bad: String = bad.into_iter().collect();
                assert_eq!(bad.parse::<Cursor>(), Err(CursorError::Malformed), "{bad}");
            }
        }
        for bad in
            ["", "nonsense", &"x".repeat(500), &"A".repeat(TEXT), &good[1..], &format!("{good}A"), "0", "-1"]
        {
            assert_eq!(bad.parse::<Cursor>(), Err(CursorError::Malformed), "{bad}");
        }
        for bad in [
            Cursor { window: -1, seq: 0, epoch: 0 },
            Cursor { window: 0, seq: -1, epoch: 0 },
            Cursor { window: 0, seq: 0, epoch: -1 },
        ] {
            assert_eq!(bad.to_string().parse::<Cursor>(), Err(CursorError::Malformed));
        }
    }
}
