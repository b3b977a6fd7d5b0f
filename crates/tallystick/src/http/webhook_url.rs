//! The address that gets the final states of an object.

use super::fields::Fields;

const MAX_URL: usize = 2_048;

/// Takes `webhook_url`.
pub(super) fn webhook_url(fields: &mut Fields) -> Option<String> {
    let url = fields.text("webhook_url", 1, MAX_URL)?;
    if !is_plain_url(&url) {
        fields.refuse(
            "webhook_url",
            "url",
            "must be an absolute http or https URL without user name, spaces or backslashes",
        );
        return None;
    }
    Some(url)
}

/// Readers of URLs forgive much, each in its own way; what they could understand differently is refused.
/// Where the URL leads is checked when it is called.
fn is_plain_url(url: &str) -> bool {
    let strange = |c: char| c.is_whitespace() || c.is_control() || c == '\\';
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    if url.chars().any(strange) || !matches!(scheme, Some("http" | "https")) {
        return false;
    }
    let Ok(parsed) = reqwest::Url::parse(url) else { return false };
    parsed.has_host() && parsed.username().is_empty() && parsed.password().is_none()
}

#[cfg(test)]
mod tests {
    use super::is_plain_url;

    #[test]
    fn urls_that_readers_disagree_about_are_refused() {
        for good in [
            "http://127.0.0.1:9/hook",
            "https://shop.example/hooks?x=1&y=%20#f",
            "https://[2001:db8::1]:8443/",
            "http://bücher.example/",
        ] {
            assert!(is_plain_url(good), "{good}");
        }
        for bad in [
            "",
            "/hook",
            "shop.example/hook",
            "http:shop.example",
            "http:/shop.example",
            "http://",
            "HTTP://shop.example",
            "ftp://shop.example",
            "gopher://shop.example",
            "file:///etc/passwd",
            "javascript://x",
            "http://good.example@127.0.0.1",
            "http://user:pass@shop.example",
            "http://good.example\\@127.0.0.1",
            "http://shop.example/a b",
            "http://shop.example/\r\nX: y",
            "http://shop.example/\u{0}",
            "http://shop.example:99999/",
            " http://shop.example",
            "http://shop.example\u{a0}",
            "http://[::1",
        ] {
            assert!(!is_plain_url(bad), "{bad:?}");
        }
    }
}
