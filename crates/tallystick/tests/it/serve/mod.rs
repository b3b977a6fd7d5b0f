//! `tallystick serve` as a process: what it refuses to start on, and how it stops.

mod pooler;
mod refusals;
pub mod stopping;
