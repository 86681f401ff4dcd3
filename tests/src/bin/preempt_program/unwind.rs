//! Goroutines that are preempted while they unwind, and while they hold the dynamic linker's lists.

use crate::harness::{self, Heartbeat, burn, burn_micros, spawn_group};
use std::panic::{catch_unwind, panic_any};

/// A frame that counts when it is unwound.
struct Frame<'a>(&'a mut u64);

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        burn(500);
        *self.0 += 1;
    }
}

/// The payload of an intended panic.
struct ExpectedPanic(u64);

#[inline(never)]
fn down(depth: u64, left: &mut u64) -> u64 {
    let frame = Frame(left);
    match depth {
        0 => panic_any(ExpectedPanic(77)),
        _ => burn(10) | down(depth - 1, frame.0),
    }
}

fn panic_and_catch(number: usize, lane: &Heartbeat) -> u64 {
    while !harness::is_over() || lane.steps() == 0 {
        let depth = (number as u64 + lane.steps()) % 30;
        let mut left = 0;
        let outcome = catch_unwind(std::panic::AssertUnwindSafe(|| down(depth, &mut left)));
        let payload = outcome.unwrap_err().downcast::<ExpectedPanic>();
        assert_eq!(payload.ok().map(|meant| meant.0), Some(77));
        assert_eq!(left, depth + 1, "frames that were left");
        lane.step();
    }
    lane.steps()
}

/// Counts a loaded object. Called by `dl_iterate_phdr`.
///
/// # Safety
/// - **count**: points to a `u64` that no other code uses during the call.
unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    size: usize,
    count: *mut libc::c_void,
) -> i32 {
    assert!(!info.is_null() && size >= size_of::<usize>());
    burn_micros(50);
    // SAFETY: count — promised by the caller.
    unsafe { *count.cast::<u64>() += 1 };
    0
}

fn visit_all(_: usize, lane: &Heartbeat) -> u64 {
    let mut first = 0;
    while !harness::is_over() || lane.steps() == 0 {
        let mut count = 0u64;
        // SAFETY: count — a local of this function.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut count).cast()) };
        assert!(count > 0 && (first == 0 || first == count), "{first} objects, then {count}");
        first = count;
        lane.step();
    }
    lane.steps()
}

fn look_up(number: usize, lane: &Heartbeat) -> u64 {
    while !harness::is_over() || lane.steps() == 0 {
        if number.is_multiple_of(2) {
            // SAFETY: a C string.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
            // A static program may have no dynamic symbols.
            assert!(!found.is_null() || cfg!(target_feature = "crt-static"));
        } else {
            let trace = std::backtrace::Backtrace::force_capture();
            assert_eq!(trace.status(), std::backtrace::BacktraceStatus::Captured);
        }
        lane.step();
    }
    lane.steps()
}

pub(crate) fn unwind() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<ExpectedPanic>() {
            usual(info);
        }
    }));
    let panicking = spawn_group("a goroutine that panics", 6, panic_and_catch);
    let visiting = spawn_group("a goroutine in dl_iterate_phdr", 3, visit_all);
    let looking = spawn_group("a goroutine that looks up names", 2, look_up);
    harness::wait_and_stop();
    let least = [panicking, visiting, looking].map(|all| all.join().into_iter().min().unwrap());
    println!("least {}", least.into_iter().min().unwrap());
}
