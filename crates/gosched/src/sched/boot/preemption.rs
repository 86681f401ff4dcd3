//! Configures preemption from the environment and installs the handler of the preemption signal.
//! This module never sends the preemption signal: `switch::preempt` does.

use crate::probe::field::PreemptMethod;
use crate::sched::switch::boundary::InRuntime;
use crate::sched::switch::{preempt, syscall};
use crate::sys::fatal::warning;
use gosched_fiber::base::environment;
use gosched_fiber::interrupt::{self, OnInterruption};
use std::sync::atomic::Ordering;
use std::time::Duration;

static ON_INTERRUPTION: OnInterruption = preempt::on_preempt_signal;

/// Reads the environment and installs the signal handler. Called once, when the runtime starts.
pub(crate) fn start() {
    if let Some(text) = environment::SLICE.read() {
        let text = text.to_string_lossy();
        match parse_duration(&text) {
            Some(slice) => preempt::SLICE_NANOS.store(slice.as_nanos() as u64, Ordering::Relaxed),
            None => warning!(
                "GOSCHED_SLICE is {text:?}: set it to a time such as 500us, 10ms or 1s; using 10ms"
            ),
        }
    }
    preempt::MAY_MOVE.store(is_allocator_without_locks(), Ordering::Relaxed);
    if let Some(way) = environment::PREEMPT.read() {
        match way.to_str() {
            Some("in-place") => preempt::MAY_MOVE.store(false, Ordering::Relaxed),
            Some("moving") => {
                preempt::MAY_MOVE.store(true, Ordering::Relaxed);
                preempt::MAY_STOP_IN_PLACE.store(false, Ordering::Relaxed);
            }
            _ => {
                warning!(
                    "GOSCHED_PREEMPT is {way:?}: set it to `in-place` or `moving`; using the default"
                )
            }
        }
    }
    let off = environment::ASYNC_PREEMPT_OFF.number().is_some_and(|value| value != 0);
    // The handler is installed even if preemption is off: stack snapshots use the same signal.
    // SAFETY: then — `async_preempt` runs on the redirected goroutine's stack, and enables
    // preemption before it returns.
    match unsafe { interrupt::install(&ON_INTERRUPTION, async_preempt) } {
        Ok(()) => {
            preempt::INSTALLED.store(true, Ordering::Relaxed);
            preempt::SIGNALS_ENABLED.store(!off, Ordering::Relaxed);
        }
        Err(why) => warning!("goroutines are not preempted: {why}"),
    }
}

/// Returns whether the program's global allocator is the allocation cache. The cache enters the
/// underlying allocator only as the carrier, where no goroutine is moved.
///
/// Any other allocator may take locks in the program's text, as jemalloc or a counting wrapper
/// does. If a goroutine is moved while it holds such a lock, no M can be created, because creating
/// a thread allocates. If all Ms then wait for the lock, no M is left to resume the goroutine.
fn is_allocator_without_locks() -> bool {
    drop(std::hint::black_box(Box::new(0)));
    gosched_alloc::stats().reserved > 0
}

fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok().filter(|&number| number > 0)?;
    let nanos = match unit {
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    Some(Duration::from_nanos(number.checked_mul(nanos)?))
}

/// Queues the calling goroutine and switches away. The signal handler redirects a goroutine here in
/// order to move it, with preemption off. Returns when the goroutine is resumed.
/// Go: asyncPreempt2.
///
/// # Safety
/// - **redirect**: reached from [`preempt::on_preempt_signal`], on the stack of the goroutine.
pub(crate) unsafe extern "C" fn async_preempt() {
    // SAFETY: carried — redirect: the caller is a goroutine; counted — the signal handler has
    // turned preemption off.
    let mut inside = unsafe { InRuntime::new() };
    let on = inside.may_move();
    if on.syscall_state.must_settle() {
        syscall::exit_syscall(on);
    } else {
        preempt::serve_request(on, PreemptMethod::Moved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_a_number_with_a_unit() {
        assert_eq!(parse_duration("500us"), Some(Duration::from_micros(500)));
        assert_eq!(parse_duration("10ms"), Some(Duration::from_millis(10)));
        assert_eq!(parse_duration("2s"), Some(Duration::from_secs(2)));
        for wrong in
            ["", "10", "ms", "0ms", "-1ms", "1.5ms", "10 ms", "1h", "99999999999999999999s"]
        {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
    }
}
