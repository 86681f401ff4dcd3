//! Which M sleeps in the poller, and how that M is woken.
//!
//! Three facts about an M change at different times: the M is in the list of idle Ms, the M holds the *role*
//! of poller, and the M's thread sleeps in the kernel's poller. These rules bind them together:
//!
//! - The role has at most one holder. An M takes the role under the scheduler's lock, in the same step in which
//!   the M enters the list of idle Ms. The M gives the role up under that lock, after its thread has left the
//!   kernel. Taking the M out of the list of idle Ms does *not* end the role. So at most one thread sleeps in the
//!   poller, also while that thread is on its way out.
//! - A wake-up is the M's note. The wake descriptor (an eventfd in the poller) says nothing by itself: it brings the holder
//!   out of the kernel, so that the holder looks at its note.
//! - The holder drains the wake descriptor after the kernel has returned and before it looks at its note. Sysmon drains a
//!   wake descriptor that was signalled for no holder, under the lock, while the role is free. No other thread drains the wake descriptor.
//!
//! Holder: 1. under the lock: enters the list, takes the role; 2. looks at its note; 3. sleeps in the kernel;
//! 4. drains the wake descriptor, and goes on with step 2; 5. under the lock: gives the role up.
//! Waker: 1. under the lock: takes the M out of the list; 2. sets the note; 3. signals the wake descriptor, if the M holds the role.
//!
//! Why no wake-up is lost. A waker that sets the note before the holder's step 2 is seen there. A waker that sets
//! the note later signals later too, so the descriptor is signalled when the holder is in step 3, or is about to be. Only the
//! holder's own step 4 can drain that signal, and step 2 follows. A signal that comes late, when the role has
//! passed on, makes the next holder look at its note once more.

use super::note::Note;
use crate::sys::atomic::{AtomicU32, Ordering};
use std::ptr;

/// The role of poller: under the scheduler's lock.
#[derive(Debug)]
pub(crate) struct PollRole<M: 'static> {
    holder: Option<&'static M>,
}

impl<M> PollRole<M> {
    pub(crate) const fn new() -> PollRole<M> {
        PollRole { holder: None }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.holder.is_none()
    }

    pub(crate) fn is_held_by(&self, m: &M) -> bool {
        self.holder.is_some_and(|holder| ptr::eq(holder, m))
    }

    /// Gives the role to `m`, which enters the list of idle Ms in the same step. The role is free.
    pub(crate) fn take(&mut self, m: &'static M, in_poller: &InPoller) {
        debug_assert!(self.is_free());
        self.holder = Some(m);
        in_poller.0.store(1, Ordering::Relaxed);
    }

    /// `m` gives the role up, if it holds the role: by its own thread, which has left the kernel. Returns
    /// whether it did.
    pub(crate) fn give_up(&mut self, m: &M, in_poller: &InPoller) -> bool {
        let held = self.is_held_by(m);
        if held {
            self.holder = None;
            in_poller.0.store(0, Ordering::Relaxed);
        }
        held
    }

    /// Drains the wake descriptor when it was signalled for no holder.
    pub(crate) fn silence_if_free(&self, silence: impl FnOnce()) {
        if self.is_free() {
            silence();
        }
    }
}

/// Whether an M holds the role, for its wakers: written under the scheduler's lock, read without.
#[derive(Debug)]
pub(crate) struct InPoller(AtomicU32);

impl InPoller {
    pub(crate) fn new() -> InPoller {
        InPoller(AtomicU32::new(0))
    }

    /// A waker that took the M out of the list of idle Ms sees the role that the M took with its place there.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// Steps 2 to 4 of the holder. `wait` sleeps in the kernel and drains the wake descriptor; it returns false, and does not
/// sleep, where the holder has another reason to leave. Returns whether the holder was woken.
pub(crate) fn sleep(note: &Note, mut wait: impl FnMut() -> bool) -> bool {
    loop {
        if note.take() {
            return true;
        }
        if !wait() {
            return false;
        }
    }
}

/// Steps 2 and 3 of a waker. An M without the role sleeps on its note.
pub(crate) fn wake(note: &Note, in_poller: &InPoller, ring: impl FnOnce()) {
    note.wake();
    if in_poller.get() {
        ring();
    }
}
