//! Walking the stack of a goroutine that is not running.

use crate::arch::{self, Saved};

/// Calls `each` with the return addresses of a parked context, from where it left off to its first
/// frame, until `each` says false. Nothing is written to its stack; any thread may do this.
///
/// An address points behind the call it belongs to: look up `address - 1`.
///
/// # Safety
/// - **parked**: `saved` was filled by [`switch`](arch::switch) or
///   [`first_frame`](arch::first_frame), its stack is alive, and nobody resumes it during the call.
pub unsafe fn walk(saved: &Saved, mut each: impl FnMut(usize) -> bool) {
    struct Walk<'a> {
        each: &'a mut dyn FnMut(usize) -> bool,
        failed: Option<Box<dyn std::any::Any + Send>>,
    }
    /// # Safety
    /// - **callback**: `bridge` calls it, with a `Walk`.
    unsafe extern "C" fn start(walk: *mut u8) {
        // SAFETY: `walk` passes its own and waits.
        let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // Frames of this function and the unwinder come first, then the bridge, whose caller
            // is the parked context.
            let bridge = arch::bridge as *const () as usize;
            let mut beyond = false;
            let mut step = |frame: &backtrace::Frame| {
                if beyond {
                    // Unwinders show the end of a stack as a frame at 0.
                    let ip = frame.ip() as usize;
                    return ip != 0 && (walk.each)(ip);
                }
                beyond = frame.symbol_address() as usize == bridge;
                true
            };
            // SAFETY: the unwinder only reads, and `each` is called on this thread.
            unsafe { backtrace::trace_unsynchronized(&mut step) };
        }));
        walk.failed = result.err();
    }
    let mut walk = Walk { each: &mut each, failed: None };
    // SAFETY: parked — promised by the caller; callback — `start` takes a `Walk` and catches panics.
    unsafe { arch::bridge(saved.sp, start, (&raw mut walk).cast()) };
    if let Some(payload) = walk.failed {
        std::panic::resume_unwind(payload);
    }
}
