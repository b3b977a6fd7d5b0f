//! Other ways to build the same thing, measured in the same run on the same machine.
//!
//! They say what the design is worth: a figure alone mostly says how fast the machine is.

pub mod call_inside_lock;
pub mod one_job_per_thread;

/// Workers of a baseline.
pub const WORKERS: usize = 10;
/// A baseline that is slow is measured for so long and not to its end.
pub const LONGEST: std::time::Duration = std::time::Duration::from_secs(30);
