//! A marked call is never interrupted: a copy of the protocol of the signal word in
//! `gosched_fiber::interrupt`.
//!
//! The steps are the same. The real protocol has four `SeqCst` accesses with one total order; here
//! a fence provides that order, since loom treats `SeqCst` accesses as weaker ones. The kernel's
//! part is a flag: a signal that was sent arrives when the thread next enters the kernel. No signal
//! may be pending while the thread is in its call.

use crate::explore::{exactly_these_orders, leak, most_orders};
use crate::sys::atomic::{AtomicU32, Ordering};
use loom::sync::atomic::fence;
use loom::thread;

const SENDING: u32 = 1;
const SENT: u32 = 2;

/// What the thread does before its call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Waits,
    /// Broken: does not check for a signal.
    DoesNotCheck,
    /// Broken: treats a signal that is being sent as one that was sent.
    EntersKernelOnce,
}

/// How the handler records that the signal has arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handler {
    ByExchange,
    /// Broken: the next signal may already be on its way.
    ByStore,
}

/// Whether the four accesses have one total order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ordered {
    Yes,
    No,
}

struct Thread {
    word: AtomicU32,
    in_call: AtomicU32,
    /// Whether a signal is pending for the thread.
    waiting: AtomicU32,
    handler: Handler,
    ordered: Ordered,
}

impl Thread {
    fn new(handler: Handler, ordered: Ordered) -> &'static Thread {
        let word = || AtomicU32::new(0);
        leak(Thread { word: word(), in_call: word(), waiting: word(), handler, ordered })
    }

    fn order(&self) {
        if self.ordered == Ordered::Yes {
            // PAIR in-call: stands for the total order of the four accesses.
            fence(Ordering::SeqCst);
        }
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Interrupts this thread. Called by another thread.
    fn interrupt(&self) {
        let before = self.word.load(Ordering::Relaxed);
        if before == SENDING || !self.change(before, SENDING) {
            return;
        }
        self.order();
        if self.in_call.load(Ordering::Relaxed) == 1 {
            self.change(SENDING, before);
            return;
        }
        // PAIR model-kernel: the order that the kernel provides.
        self.waiting.swap(1, Ordering::AcqRel);
        self.change(SENDING, SENT);
    }

    /// Makes a system call: a pending signal arrives.
    fn kernel(&self) {
        // A signal that arrives while the handler runs is handled when the handler returns.
        // PAIR model-kernel: the order that the kernel provides.
        while self.waiting.swap(0, Ordering::AcqRel) == 1 {
            match self.handler {
                Handler::ByExchange => drop(self.change(SENT, 0)),
                Handler::ByStore => self.word.store(0, Ordering::Relaxed),
            }
        }
        thread::yield_now();
    }

    fn call(&self, before: Before) {
        self.in_call.store(1, Ordering::Relaxed);
        self.order();
        match before {
            Before::DoesNotCheck => {}
            Before::EntersKernelOnce => self.kernel(),
            Before::Waits => {
                if self.word.load(Ordering::Relaxed) != 0 {
                    loop {
                        let seen = self.word.load(Ordering::Relaxed);
                        self.kernel();
                        if seen != SENDING {
                            self.change(SENT, 0);
                            break;
                        }
                    }
                }
            }
        }
        // PAIR model-kernel: sees a signal that was sent.
        let interrupted = self.waiting.swap(0, Ordering::AcqRel);
        assert_eq!(interrupted, 0, "a call was interrupted");
        thread::yield_now();
        // PAIR model-kernel: sees a signal that was sent.
        let interrupted = self.waiting.swap(0, Ordering::AcqRel);
        assert_eq!(interrupted, 0, "a call was interrupted");
        self.in_call.store(0, Ordering::Relaxed);
    }
}

fn model(before: Before, handler: Handler, ordered: Ordered) {
    let machine = Thread::new(handler, ordered);
    let other = thread::spawn(move || {
        machine.interrupt();
        machine.interrupt();
    });
    machine.call(before);
    machine.kernel();
    machine.call(before);
    other.join().unwrap();
}

#[test]
fn a_marked_call_is_not_interrupted() {
    most_orders(5, || model(Before::Waits, Handler::ByExchange, Ordered::Yes));
}

#[test]
#[should_panic(expected = "a call was interrupted")]
fn broken_by_a_handler_that_stores_without_comparing() {
    exactly_these_orders(5, || model(Before::Waits, Handler::ByStore, Ordered::Yes));
}

#[test]
#[should_panic(expected = "a call was interrupted")]
fn broken_by_a_thread_that_does_not_check_for_a_signal() {
    most_orders(5, || model(Before::DoesNotCheck, Handler::ByExchange, Ordered::Yes));
}

#[test]
#[should_panic(expected = "a call was interrupted")]
fn broken_by_a_thread_that_does_not_wait_for_a_signal_being_sent() {
    most_orders(5, || model(Before::EntersKernelOnce, Handler::ByExchange, Ordered::Yes));
}

#[test]
#[should_panic(expected = "a call was interrupted")]
fn broken_by_accesses_without_a_total_order() {
    most_orders(5, || model(Before::Waits, Handler::ByExchange, Ordered::No));
}
