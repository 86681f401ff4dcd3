//! The readiness of a descriptor in one direction, and the G that waits for it: Go's word, extended
//! by a deadline flag and a close flag.
//!
//! One goroutine at a time uses a word; any thread may report an event, a deadline or a close to
//! it. The word contains the address of the waiting G, or 0, and these flags:
//!
//! - [`READY`]: an event has arrived since the last attempt, so the next attempt may succeed.
//! - [`WAITS`]: a goroutine is about to wait, and its context is not saved yet.
//! - [`EXPIRED`]: the deadline has passed. No goroutine waits until the deadline is changed.
//! - [`CLOSED`]: the descriptor is closed.
//!
//! - Goroutine: 1. clears `READY` ([`reset`](Readiness::reset)); 2. attempts the operation; 3. if
//!   the operation would block, sets `WAITS`, unless another flag is set
//!   ([`prepare_wait`](Readiness::prepare_wait)); 4. once its context is saved, replaces `WAITS` by
//!   the G, if `WAITS` is still set ([`commit`](Readiness::commit)); 5. when it continues, ends the
//!   wait ([`finish_wait`](Readiness::finish_wait)).
//! - Other threads: 1. set their flag and clear `WAITS` and the G, in one step; 2. make the G ready
//!   that was in the word.
//!
//! Everything is in one word, so the later of two concurrent changes sees the earlier one. This
//! module never makes a G ready: its callers do.

use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::sys::fatal::fatal;

/// Go: pdReady.
const READY: usize = 1;
const WAITS: usize = 2;
const EXPIRED: usize = 4;
const CLOSED: usize = 8;
const FLAG_MASK: usize = 15;

/// The readiness word (see the top of this file). A G is stored as its address, whose low four bits
/// are 0.
/// Go: pollDesc.rg, pollDesc.wg.
#[derive(Debug)]
pub(crate) struct Readiness(AtomicUsize);

/// Why a goroutine must not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Closed,
    Expired,
}

/// Whether a goroutine must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitDecision {
    /// The goroutine must commit, or undo the wait by [`Readiness::finish_wait`].
    Waits,
    /// An event has arrived, so the next attempt may succeed.
    Ready,
}

impl Readiness {
    pub(crate) fn new() -> Readiness {
        Readiness(AtomicUsize::new(CLOSED))
    }

    /// Resets the word for a new descriptor.
    pub(crate) fn open(&self) {
        self.change(|_| 0);
    }

    /// Discards events that have arrived so far. Called before an attempt.
    /// Go: poll_runtime_pollReset.
    #[inline]
    pub(crate) fn reset(&self) -> Result<(), Refusal> {
        // `prepare_wait` sees an event that arrives after this check.
        if self.0.load(Ordering::Relaxed) != 0 {
            return refusal(self.change(|word| word & !READY));
        }
        Ok(())
    }

    /// Returns an error if the descriptor is closed or its deadline has passed. Changes nothing,
    /// and may be called by any thread.
    /// Go: netpollcheckerr.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        refusal(self.0.load(Ordering::Relaxed))
    }

    /// Announces that the calling goroutine is about to wait, unless an event has arrived; consumes
    /// the event.
    /// Go: netpollblock, before gopark.
    pub(crate) fn prepare_wait(&self) -> Result<WaitDecision, Refusal> {
        let old = self.change(|word| match word & (READY | EXPIRED | CLOSED) {
            0 => word | WAITS,
            _ => word & !READY,
        });
        refusal(old)?;
        Ok(if old & READY != 0 { WaitDecision::Ready } else { WaitDecision::Waits })
    }

    /// Commits `g`, whose context is saved: from here on it may be made ready. Returns false if it
    /// need not wait.
    /// Go: netpollblockcommit.
    pub(crate) fn commit(&self, g: usize) -> bool {
        if g & FLAG_MASK != 0 {
            fatal!("the address of a goroutine that waits for I/O overlaps the flags");
        }
        // PAIR readiness: publishes the saved context.
        self.0.compare_exchange(WAITS, g, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends a wait, or undoes [`Readiness::prepare_wait`]. Returns whether an event has arrived.
    /// Go: netpollblock, after gopark.
    pub(crate) fn finish_wait(&self) -> Result<bool, Refusal> {
        let old = self.change(|word| word & (EXPIRED | CLOSED));
        if old & !FLAG_MASK != 0 {
            fatal!("a wait for I/O ends although its goroutine was not made ready");
        }
        refusal(old)?;
        Ok(old & READY != 0)
    }

    /// Reports an event. Returns the waiter to make ready, if there is one.
    /// Go: netpollunblock(ioready = true).
    pub(crate) fn set_ready(&self) -> Option<usize> {
        waiter_in(self.change(|word| word & (EXPIRED | CLOSED) | READY))
    }

    /// Reports that the deadline has passed. Returns the waiter to make ready, if there is one.
    /// Go: netpolldeadlineimpl.
    pub(crate) fn expire(&self) -> Option<usize> {
        waiter_in(self.change(|word| word & (READY | CLOSED) | EXPIRED))
    }

    /// Clears `EXPIRED`: the deadline was changed or removed.
    pub(crate) fn unexpire(&self) {
        self.change(|word| word & !EXPIRED);
    }

    /// Marks the descriptor as closed. Returns the waiter to make ready, if there is one.
    /// Go: poll_runtime_pollUnblock.
    pub(crate) fn close(&self) -> Option<usize> {
        waiter_in(self.change(|word| word & (READY | EXPIRED) | CLOSED))
    }

    /// Ends the current wait without an event. Returns the waiter to make ready, if there is one.
    /// Go: netpollunblock(ioready = false).
    pub(crate) fn unblock(&self) -> Option<usize> {
        waiter_in(self.change(|word| word & (READY | EXPIRED | CLOSED)))
    }

    /// Replaces the word by `to(word)`. Returns the old word.
    fn change(&self, to: impl Fn(usize) -> usize) -> usize {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            // PAIR readiness: publishes what this thread did before, and sees what earlier writers
            // did.
            match self.0.compare_exchange(word, to(word), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return word,
                Err(now) => word = now,
            }
        }
    }
}

fn refusal(word: usize) -> Result<(), Refusal> {
    match word {
        word if word & CLOSED != 0 => Err(Refusal::Closed),
        word if word & EXPIRED != 0 => Err(Refusal::Expired),
        _ => Ok(()),
    }
}

fn waiter_in(word: usize) -> Option<usize> {
    (word & !FLAG_MASK != 0).then_some(word & !FLAG_MASK)
}
