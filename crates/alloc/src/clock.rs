//! Coarse time, for memory that nobody has wanted for a while.

use std::sync::OnceLock;
use std::time::Instant;

/// Milliseconds since the first call; after 49 days from the beginning.
pub(crate) fn millis() -> u32 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u32
}
