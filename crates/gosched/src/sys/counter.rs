//! The time stamp counter of x86-64. This module never checks whether the counter can serve as a
//! clock: `ticks` does.

use std::arch::asm;

/// Reads the counter, after all earlier loads.
pub(crate) const READ: Option<fn() -> u64> = Some(read);

#[inline]
fn read() -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: every x86-64 CPU has these instructions, and Linux lets programs use them.
    unsafe {
        asm!("lfence", "rdtsc", out("rax") low, out("rdx") high, options(nostack, nomem));
    }
    high << 32 | low
}
