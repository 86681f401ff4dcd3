//! A marked call is never interrupted: a twin of the word of `gosched_fiber::interrupt`.
//!
//! Step for step the same, but for the one order of the four accesses: a fence stands for it here, since loom
//! takes `SeqCst` accesses for weaker ones. The kernel's part is a flag: a signal that was sent, and comes when the thread is
//! next in the kernel. None may be there while the thread is in its call.

use super::{exactly_these_orders, leak, most_orders};
use crate::sys::atomic::{AtomicU32, Ordering};
use loom::sync::atomic::fence;
use loom::thread;

const SENDING: u32 = 1;
const SENT: u32 = 2;

/// What the thread does before its call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Waits,
    /// Broken: does not look.
    GoesOn,
    /// Broken: takes a signal that is being sent for one that was.
    LooksOnce,
}

/// How the handler says that the signal has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handler {
    ByExchange,
    /// Broken: the next one may be on its way already.
    ByStore,
}

/// Whether the four accesses are of one order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ordered {
    Yes,
    No,
}

struct Thread {
    word: AtomicU32,
    in_call: AtomicU32,
    /// A signal waits for the thread.
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
            // PAIR in-call: stands for the order of the accesses.
            fence(Ordering::SeqCst);
        }
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Another thread interrupts this one.
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
        // PAIR model-kernel: the kernel's own order.
        self.waiting.swap(1, Ordering::AcqRel);
        self.change(SENDING, SENT);
    }

    /// A system call: the signal comes, if one waits.
    fn kernel(&self) {
        // One that comes while the handler runs comes when it returns.
        // PAIR model-kernel: as above.
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
            Before::GoesOn => {}
            Before::LooksOnce => self.kernel(),
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
        // PAIR model-kernel: what was sent is seen.
        let interrupted = self.waiting.swap(0, Ordering::AcqRel);
        assert_eq!(interrupted, 0, "a call was interrupted");
        thread::yield_now();
        // PAIR model-kernel: as above.
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
fn broken_by_a_handler_that_only_writes() {
    exactly_these_orders(5, || model(Before::Waits, Handler::ByStore, Ordered::Yes));
}

#[test]
#[should_panic(expected = "a call was interrupted")]
fn broken_by_a_thread_that_does_not_look() {
    most_orders(5, || model(Before::GoesOn, Handler::ByExchange, Ordered::Yes));
}

#[test]
#[should_panic(expected = "a call was interrupted")]
fn broken_by_a_thread_that_looks_once() {
    most_orders(5, || model(Before::LooksOnce, Handler::ByExchange, Ordered::Yes));
}

#[test]
#[should_panic(expected = "a call was interrupted")]
fn broken_by_no_order() {
    most_orders(5, || model(Before::Waits, Handler::ByExchange, Ordered::No));
}
