//! Which M sleeps in the poller, and how that M is woken.
//!
//! Three facts about an M change at different times: the M is in the list of idle Ms, the M holds
//! the *role* of poller, and the M's thread sleeps in the kernel's poller. These rules connect
//! them:
//!
//! - The role has at most one holder. An M takes the role under the scheduler's lock, in the same
//!   step in which it enters the list of idle Ms. It gives the role up under that lock, after its
//!   thread has left the kernel. Taking the M out of the list of idle Ms does *not* end the role.
//!   So at most one thread sleeps in the poller, including a thread that is about to leave it.
//! - The M's note carries the wake-up. The wake descriptor (an eventfd in the poller) carries no
//!   information: it makes the holder leave the kernel, so that the holder checks its note.
//! - The holder drains the wake descriptor after the kernel has returned and before it checks its
//!   note. Sysmon drains a wake descriptor that was signalled for no holder; it does so under the
//!   lock, while the role is free. No other thread drains the wake descriptor.
//!
//! - Holder: 1. under the lock: enters the list, takes the role; 2. checks its note; 3. sleeps in
//!   the kernel; 4. drains the wake descriptor, and continues with step 2; 5. under the lock: gives
//!   the role up.
//! - Waker: 1. under the lock: takes the M out of the list; 2. sets the note; 3. signals the wake
//!   descriptor, if the M holds the role.
//!
//! Why no wake-up is lost: if a waker sets the note before the holder's step 2, the holder finds
//! the note set there. If a waker sets the note later, it also signals later, so the descriptor is
//! signalled when the holder is in step 3, or is about to be. Only the holder's own step 4 can
//! drain that signal, and step 2 follows. A signal that arrives after the role has passed to
//! another M makes the new holder check its note once more.
//!
//! This module never takes the scheduler's lock, and never makes a system call: its callers do.

use super::note::Note;
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::fatal::fatal;
use std::ptr;

/// The role of poller. Protected by the scheduler's lock.
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

    /// Gives the role to `m`, which enters the list of idle Ms in the same step. The role must be
    /// free.
    pub(crate) fn take(&mut self, m: &'static M, in_poller: &InPoller) {
        if !self.is_free() {
            fatal!("an M takes the role of poller, which another M has");
        }
        self.holder = Some(m);
        in_poller.0.store(1, Ordering::Relaxed);
    }

    /// Takes the role from `m`, if `m` holds it. Called by the thread of `m`, after it has left the
    /// kernel. Returns whether `m` held the role.
    pub(crate) fn give_up(&mut self, m: &M, in_poller: &InPoller) -> bool {
        let held = self.is_held_by(m);
        if held {
            self.holder = None;
            in_poller.0.store(0, Ordering::Relaxed);
        }
        held
    }

    /// Calls `silence`, which drains the wake descriptor, if the role is free.
    pub(crate) fn silence_if_free(&self, silence: impl FnOnce()) {
        if self.is_free() {
            silence();
        }
    }
}

/// Whether an M holds the role, for its wakers. Written under the scheduler's lock, read without
/// it.
#[derive(Debug)]
pub(crate) struct InPoller(AtomicU32);

impl InPoller {
    pub(crate) fn new() -> InPoller {
        InPoller(AtomicU32::new(0))
    }

    /// Returns whether the M holds the role. A waker that has taken the M out of the list of idle
    /// Ms sees the role that the M took when it entered the list.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// Performs steps 2 to 4 of the holder. `wait` sleeps in the kernel and drains the wake descriptor;
/// it returns false without sleeping if the holder has another reason to leave. Returns whether the
/// holder was woken.
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

/// Performs steps 2 and 3 of a waker; `ring` signals the wake descriptor. An M without the role
/// sleeps on its note.
pub(crate) fn wake(note: &Note, in_poller: &InPoller, ring: impl FnOnce()) {
    note.wake();
    if in_poller.get() {
        ring();
    }
}
