//! The program `tallystick`: command line, configuration, HTTP API and the wiring between the crates.
//!
//! - [`cli`]: one module per command; [`cli::serve`] is the server, [`cli::dev`] an environment to try it in.
//! - [`config`]: settings from defaults, a file and the environment; anything unknown is refused.
//! - [`http`]: the API.
//! - [`wiring`]: the only place that knows both settings and the parts that they configure.
//! - [`telemetry`]: logs and metrics.

pub mod cli;
pub mod config;
pub mod http;
pub mod telemetry;
pub mod wiring;
