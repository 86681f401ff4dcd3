//! A marked call is never interrupted: the product's words (`signal_word` of fiber, `syscall_state`
//! of gosched) against a sender.
//!
//! The kernel's part is a flag: a signal that was sent arrives when the thread next enters the
//! kernel. No signal may be pending while the thread is in its call.

use crate::explore::{leak, most_orders};
use crate::protocol::signal_word::SignalWord;
use crate::protocol::syscall_state::{MarkedCall, SyscallState};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::weakness::{Weakness, weaken};
use loom::thread;

/// What the thread does between the mark and its call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Drains,
    /// Broken: does not check for a signal.
    DoesNotCheck,
    /// Broken: treats a signal that is being sent as one that was sent.
    EntersKernelOnce,
}

struct Thread {
    signal: SignalWord,
    syscall_state: SyscallState,
    /// Whether a signal is pending for the thread.
    pending: AtomicU32,
}

impl Thread {
    fn new() -> &'static Thread {
        leak(Thread {
            signal: SignalWord::new(),
            syscall_state: SyscallState::new(),
            pending: AtomicU32::new(0),
        })
    }

    /// Interrupts this thread. Called by another thread.
    fn interrupt(&self) {
        let is_in_call = || self.syscall_state.is_call_marked() == MarkedCall::Yes;
        self.signal.send(is_in_call, || {
            // PAIR model-kernel: the order that the kernel provides.
            self.pending.swap(1, Ordering::AcqRel);
            true
        });
    }

    /// Makes a system call: a pending signal arrives.
    fn kernel(&self) {
        // A signal that arrives while the handler runs is handled when the handler returns.
        // PAIR model-kernel: the order that the kernel provides.
        while self.pending.swap(0, Ordering::AcqRel) == 1 {
            self.signal.arrive();
        }
        thread::yield_now();
    }

    fn call(&self, before: Before) {
        self.syscall_state.enter();
        match before {
            Before::Drains => self.signal.drain(|| self.kernel()),
            Before::DoesNotCheck => {}
            Before::EntersKernelOnce => self.kernel(),
        }
        self.assert_not_interrupted();
        thread::yield_now();
        self.assert_not_interrupted();
        self.syscall_state.settle();
    }

    fn assert_not_interrupted(&self) {
        // PAIR model-kernel: sees a signal that was sent.
        assert_eq!(self.pending.swap(0, Ordering::AcqRel), 0, "a call was interrupted");
    }
}

fn model(before: Before) {
    let interrupted = Thread::new();
    let other = thread::spawn(move || {
        interrupted.interrupt();
        interrupted.interrupt();
    });
    interrupted.call(before);
    interrupted.kernel();
    interrupted.call(before);
    other.join().unwrap();
}

#[test]
fn a_marked_call_is_not_interrupted() {
    most_orders(5, || model(Before::Drains));
}

#[test]
#[should_panic(expected = "a call was interrupted")]
fn broken_by_a_thread_that_does_not_check_for_a_signal() {
    most_orders(5, || model(Before::DoesNotCheck));
}

#[test]
#[should_panic(expected = "a call was interrupted")]
fn broken_by_a_thread_that_does_not_wait_for_a_signal_being_sent() {
    most_orders(5, || model(Before::EntersKernelOnce));
}

#[test]
#[should_panic(expected = "a call was interrupted")]
fn broken_by_accesses_without_a_total_order() {
    let _weak = weaken(Weakness::TotalOrder);
    most_orders(5, || model(Before::Drains));
}
