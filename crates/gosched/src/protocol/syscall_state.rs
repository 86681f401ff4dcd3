//! Whether an M is in a blocking call, and who has its P meanwhile.
//!
//! A *marked* call is announced by the M ([`SyscallState::enter`]); every other call that blocks is
//! *unmarked*. The *retaker* is the thread that takes the P of an M in a call. The values of the
//! word, and which side may change each:
//!
//! - [`NOT_MARKED`] (0): the M is not in a marked call, and no retaker is taking its P. The
//!   M changes it to [`IN_SYSCALL`], a retaker to [`RETAKING`].
//! - [`IN_SYSCALL`]: the M is in a marked call, with its P. The M changes it back to 0, a retaker
//!   to [`RETAKING`].
//! - [`RETAKING`]: a retaker is taking the P. The retaker changes it to [`RETAKEN`], or back to 0
//!   if it gives up, which happens only in unmarked calls.
//! - [`RETAKEN`]: the P is gone. The M changes it to 0 when its G has a P again or is queued.
//!
//! So the P belongs to the M while the word is 0 or [`IN_SYSCALL`], and to the retaker from
//! [`RETAKING`] until the retaker has handed the P on.
//!
//! In an unmarked call, at least one side sees the other:
//!
//! - Retaker: 1. sets [`RETAKING`]; 2. passes a heavy barrier; 3. checks whether the M has
//!   preemption off, which means that the M is inside the runtime, and gives up in that case.
//! - M, each time it enters the runtime: 1. turns preemption off; 2. passes a light barrier; 3.
//!   reads the word.
//!
//! In a marked call, both sides change the word by compare-and-exchange, so exactly one of them
//! wins.
//!
//! A thread that signals the M must not interrupt a marked call. The exchange that begins the call
//! and the sender's read ([`SyscallState::is_call_marked`]) are in one total order with the
//! accesses to the signal word: see `signal_word` in `gosched_fiber`.
//!
//! This module never takes a P and never gives one: its callers do, between the transitions.

use crate::sys::atomic::{AtomicU32, Ordering, const_fn, spin_loop};
use crate::sys::barrier;

/// The state word of an M (see the top of this file).
#[derive(Debug)]
pub(crate) struct SyscallState(AtomicU32);

const NOT_MARKED: u32 = 0;
const RETAKING: u32 = 1;
const RETAKEN: u32 = 2;
/// Go: _Psyscall (until 1.25).
const IN_SYSCALL: u32 = 3;

/// Who has the P of an M whose call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The M still has its P.
    HasP,
    /// A retaker has taken the P. The word stays [`RETAKEN`] until [`SyscallState::clear`].
    LostP,
}

/// What the word says about the call that the M is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkedCall {
    Yes,
    No,
    /// The P is being taken or was taken: the state of the G tells.
    Unknown,
}

impl SyscallState {
    const_fn! {
        pub(crate) fn new() -> SyscallState {
            SyscallState(AtomicU32::new(NOT_MARKED))
        }
    }

    /// Performs steps 2 and 3 of an M that enters the runtime. Returns whether the M must call
    /// [`SyscallState::settle`] before it uses its P.
    #[inline(always)]
    pub(crate) fn must_settle_after_barrier(&self) -> bool {
        barrier::light();
        self.must_settle()
    }

    /// Like [`SyscallState::must_settle_after_barrier`], for an M that has passed the barrier.
    #[inline(always)]
    pub(crate) fn must_settle(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NOT_MARKED
    }

    /// Begins a marked call. Called by the M, inside the runtime.
    #[inline]
    pub(crate) fn enter(&self) {
        // A retaker may have set `RETAKING`. It gives up, because preemption is off.
        // PAIR in-call: this exchange and the signal sender's load are in one total order.
        while self
            .0
            .compare_exchange(NOT_MARKED, IN_SYSCALL, Ordering::SeqCst, Ordering::Relaxed)
            .is_err()
        {
            spin_loop();
        }
    }

    /// Ends the marked call, if there is one, and waits for a retaker that is taking the P. Called
    /// by the M, inside the runtime.
    pub(crate) fn settle(&self) -> Settled {
        loop {
            // PAIR p-taken: if the P was taken, everything that the retaker did is visible.
            match self.0.load(Ordering::Acquire) {
                RETAKING => spin_loop(),
                IN_SYSCALL if !self.change(IN_SYSCALL, NOT_MARKED) => {}
                RETAKEN => return Settled::LostP,
                _ => return Settled::HasP,
            }
        }
    }

    /// Records that the M has a P again, or that its G is queued. Called by the M, after
    /// [`Settled::LostP`], or in a forked child.
    #[inline]
    pub(crate) fn clear(&self) {
        self.0.store(NOT_MARKED, Ordering::Relaxed);
    }

    /// Begins to take the P of an M that is blocked in an unmarked call: the three steps of a
    /// retaker. `is_in_runtime` returns whether the M has preemption off, or has no P. Returns
    /// `None` if the M keeps its P.
    pub(crate) fn retake_unmarked(
        &self,
        is_in_runtime: impl FnOnce() -> bool,
    ) -> Option<Retaking<'_>> {
        if !self.change(NOT_MARKED, RETAKING) {
            return None;
        }
        barrier::heavy();
        if is_in_runtime() {
            // The M may be spinning until this word changes.
            self.0.store(NOT_MARKED, Ordering::Relaxed);
            return None;
        }
        Some(Retaking(self))
    }

    /// Begins to take the P of an M that is in a marked call. Returns `None` if the call has ended
    /// or the P was already taken.
    pub(crate) fn retake_in_syscall(&self) -> Option<Retaking<'_>> {
        self.change(IN_SYSCALL, RETAKING).then_some(Retaking(self))
    }

    fn change(&self, from: u32, to: u32) -> bool {
        // PAIR p-taken: in a marked call, each side sees what the other side did before.
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns whether the M is in a marked call and has its P.
    pub(crate) fn is_in_syscall_with_p(&self) -> bool {
        self.0.load(Ordering::Relaxed) == IN_SYSCALL
    }

    /// Returns whether the P was taken and the M has had no P since.
    pub(crate) fn is_retaken(&self) -> bool {
        self.0.load(Ordering::Relaxed) == RETAKEN
    }

    /// Returns whether the M is in a marked call, for a thread that is about to signal the M.
    pub(crate) fn is_call_marked(&self) -> MarkedCall {
        // PAIR in-call: this load and the exchange in `enter` are in one total order.
        match self.0.load(Ordering::SeqCst) {
            IN_SYSCALL => MarkedCall::Yes,
            NOT_MARKED => MarkedCall::No,
            _ => MarkedCall::Unknown,
        }
    }
}

/// The right to take the P of an M: the M waits until the retaker calls [`Retaking::finish`].
#[must_use]
#[derive(Debug)]
pub(crate) struct Retaking<'a>(&'a SyscallState);

impl Retaking<'_> {
    /// Publishes that the M has no P. The caller has taken the P from the M, and owns the P.
    pub(crate) fn finish(self) {
        // PAIR p-taken: the M sees that its P is gone.
        self.0.0.store(RETAKEN, Ordering::Release);
    }
}
