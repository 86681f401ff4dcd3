//! A coarse clock, for the age of unused memory. The time wraps around, so a value never stands
//! alone: `pool` uses only the difference of two values.

use std::sync::OnceLock;
use std::time::Instant;

/// Returns the milliseconds since the first call. Starts again at 0 after 49 days.
pub(crate) fn millis() -> u32 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u32
}
