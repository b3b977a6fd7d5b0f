//! What this thread logs, as text. Tests run on one thread, so it is everything that their server logs.
//!
//! One subscriber for the whole program sorts lines by thread. A subscriber per test would not do: whether a place in
//! the code logs at all is remembered for the program, also when it was first reached by a test that captures nothing.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

use tracing_subscriber::EnvFilter;

/// Everything of ours, and of others what an operator may see.
const FILTER: &str = "info,tallystick=trace,tallystick_payments=trace,tallystick_runner=trace,sqlx=debug";

static SUBSCRIBER: Once = Once::new();

thread_local! {
    static LINES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Log lines of this thread while it lives.
pub struct Logs(());

impl Logs {
    pub fn capture() -> Self {
        SUBSCRIBER.call_once(|| {
            let lines = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(FILTER)).with_ansi(false);
            lines.with_writer(|| OfThread).init();
        });
        LINES.set(Some(Vec::new()));
        Self(())
    }

    pub fn text(&self) -> String {
        LINES.with_borrow(|lines| String::from_utf8_lossy(lines.as_deref().unwrap_or_default()).into_owned())
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        LINES.set(None);
    }
}

struct OfThread;

impl io::Write for OfThread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.with_borrow_mut(|lines| lines.iter_mut().for_each(|lines| lines.extend_from_slice(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
