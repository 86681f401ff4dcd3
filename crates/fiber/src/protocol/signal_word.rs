//! The preemption signal of one thread: calls that must not be interrupted are not interrupted.
//!
//! The values of the word, and which side may change each:
//!
//! - [`NONE`] (0): no signal is on its way. A sender changes it to [`SENDING`].
//! - [`SENDING`]: a signal may be sent. The sender changes it to [`SENT`], or back to the old value
//!   if it sends nothing.
//! - [`SENT`]: a signal is on its way, has arrived, or is pending because the thread blocks it. The
//!   handler changes it to `NONE`, or the thread does after it has been in the kernel. (Neither of
//!   them changes [`SENDING`], which may belong to the next signal.)
//!
//! - Sender: 1. sets `SENDING`; 2. checks whether the thread is in a call that must not be
//!   interrupted, and sends nothing if it is; 3. sends the signal, and sets `SENT`.
//! - Thread: 1. records that it is in the call; 2. waits while a signal may arrive; 3. makes the
//!   call.
//!
//! Steps 1 and 2 of both sides are in one total order (`SeqCst`), so at least one side sees the
//! other. (The thread records the call by a compare-exchange, which is a full barrier anyway. The
//! heavy barrier of `barrier` would make the sender wait for every CPU, a thousand times per
//! second.)
//!
//! This module never sends a signal, and never makes a system call: its callers do.

use crate::base::atomic::{AtomicU32, Ordering, const_fn};

const NONE: u32 = 0;
const SENDING: u32 = 1;
const SENT: u32 = 2;

/// The state of a thread's preemption signal (see the top of this file).
#[derive(Debug)]
pub(crate) struct SignalWord(AtomicU32);

impl SignalWord {
    const_fn! {
        /// Creates the word of a thread for which no signal is on its way.
        pub(crate) fn new() -> SignalWord {
            SignalWord(AtomicU32::new(NONE))
        }
    }

    /// Performs the steps of a sender. Sends nothing if `is_in_call` returns `true`, or if another
    /// thread is sending a signal. `is_in_call` must read its state with `SeqCst`. Returns `false`
    /// only if `send` fails.
    pub(crate) fn send(
        &self,
        is_in_call: impl FnOnce() -> bool,
        send: impl FnOnce() -> bool,
    ) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        if before == SENDING || !self.change(before, SENDING) {
            return true; // another thread is sending one
        }
        if is_in_call() {
            self.change(SENDING, before);
            return true;
        }
        let sent = send();
        self.change(SENDING, if sent { SENT } else { before });
        sent
    }

    /// Records that a signal has arrived. Called by the handler.
    pub(crate) fn arrive(&self) {
        self.change(SENT, NONE);
    }

    /// Performs step 2 of the thread, which has recorded the call by a `SeqCst` exchange. `kernel`
    /// makes a system call: a signal that was sent arrives when the system call returns, unless the
    /// thread blocks the signal; a blocked signal interrupts nothing.
    #[inline]
    pub(crate) fn drain(&self, kernel: impl Fn()) {
        // PAIR in-call: in one total order with the sender's change.
        if self.0.load(Ordering::SeqCst) != NONE {
            self.drain_slow(kernel);
        }
    }

    #[cold]
    fn drain_slow(&self, kernel: impl Fn()) {
        loop {
            let seen = self.0.load(Ordering::Relaxed);
            kernel();
            if seen != SENDING {
                self.change(SENT, NONE);
                return;
            }
        }
    }

    fn change(&self, from: u32, to: u32) -> bool {
        // PAIR in-call: in one total order with the check of the other side's word.
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}
