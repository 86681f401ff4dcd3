//! Whether a descriptor can be read, or written, and who waits for that: Go's word, with one more thing in it.
//!
//! One goroutine at a time uses a word; anybody may tell it something. The word is the G that waits, or
//! nothing, and these bits:
//!
//! - [`READY`]: something was told since the last attempt: the next one may succeed.
//! - [`WAITS`]: somebody is about to wait, and its context is not saved yet.
//! - [`EXPIRED`]: the deadline is over. Until it is changed, nobody waits.
//! - [`CLOSED`]: for good.
//!
//! Goroutine: 1. [`reset`](Readiness::reset): what was told before does not count; 2. tries; 3. if that was
//! too early, [`prepare_wait`](Readiness::prepare_wait): `WAITS`, unless a bit speaks against it; 4.
//! [`commit`](Readiness::commit), when its context is saved: the G in place of `WAITS`, if that is still there;
//! 5. when it goes on, [`finish_wait`](Readiness::finish_wait).
//! Others: put their bit there, take `WAITS` and the G away, and make ready whom they found.
//!
//! All of it is one word, so whoever comes second sees the first.

use crate::sys::atomic::{AtomicUsize, Ordering};

/// Go: pdReady.
const READY: usize = 1;
const WAITS: usize = 2;
const EXPIRED: usize = 4;
const CLOSED: usize = 8;
const FLAG_MASK: usize = 15;

/// See the top of this file. A G is a number here: its address, whose last four bits are 0.
/// Go: pollDesc.rg, pollDesc.wg.
#[derive(Debug)]
pub(crate) struct Readiness(AtomicUsize);

/// Why nobody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Closed,
    Expired,
}

/// Whether there is something to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitDecision {
    /// It is to be committed, or taken back by [`Readiness::finish_wait`].
    Waits,
    /// The next attempt may succeed.
    Ready,
}

impl Readiness {
    pub(crate) fn new() -> Readiness {
        Readiness(AtomicUsize::new(CLOSED))
    }

    /// For a new descriptor.
    pub(crate) fn open(&self) {
        self.change(|_| 0);
    }

    /// What was told before does not count from here on.
    /// Go: poll_runtime_pollReset.
    #[inline]
    pub(crate) fn reset(&self) -> Result<(), Refusal> {
        // What is told after this look is seen by `prepare_wait`.
        if self.0.load(Ordering::Relaxed) != 0 {
            return refusal(self.change(|word| word & !READY));
        }
        Ok(())
    }

    /// Whether an attempt is in order. By anybody: what was told stays.
    /// Go: netpollcheckerr.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        refusal(self.0.load(Ordering::Relaxed))
    }

    /// Somebody will wait. Uses up what was told.
    /// Go: netpollblock, before gopark.
    pub(crate) fn prepare_wait(&self) -> Result<WaitDecision, Refusal> {
        let old = self.change(|word| match word & (READY | EXPIRED | CLOSED) {
            0 => word | WAITS,
            _ => word & !READY,
        });
        refusal(old)?;
        Ok(if old & READY != 0 { WaitDecision::Ready } else { WaitDecision::Waits })
    }

    /// Its context is saved: it may be made ready. False: it need not wait.
    /// Go: netpollblockcommit.
    pub(crate) fn commit(&self, g: usize) -> bool {
        debug_assert_eq!(g & FLAG_MASK, 0);
        // PAIR readiness: publishes the saved context.
        self.0.compare_exchange(WAITS, g, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// It goes on, or did not wait in the end. False: nothing was told.
    /// Go: netpollblock, after gopark.
    pub(crate) fn finish_wait(&self) -> Result<bool, Refusal> {
        let old = self.change(|word| word & (EXPIRED | CLOSED));
        debug_assert_eq!(old & !FLAG_MASK, 0);
        refusal(old)?;
        Ok(old & READY != 0)
    }

    /// Something was told: whom to make ready.
    /// Go: netpollunblock(ioready = true).
    pub(crate) fn set_ready(&self) -> Option<usize> {
        waiter_in(self.change(|word| word & (EXPIRED | CLOSED) | READY))
    }

    /// The deadline is over: whom to make ready.
    /// Go: netpolldeadlineimpl.
    pub(crate) fn expire(&self) -> Option<usize> {
        waiter_in(self.change(|word| word & (READY | CLOSED) | EXPIRED))
    }

    /// There is another deadline, or none.
    pub(crate) fn unexpire(&self) {
        self.change(|word| word & !EXPIRED);
    }

    /// It is closed: whom to make ready.
    /// Go: poll_runtime_pollUnblock.
    pub(crate) fn close(&self) -> Option<usize> {
        waiter_in(self.change(|word| word & (READY | EXPIRED) | CLOSED))
    }

    /// Whoever waits is to wait no longer: whom to make ready.
    /// Go: netpollunblock(ioready = false).
    pub(crate) fn unblock(&self) -> Option<usize> {
        waiter_in(self.change(|word| word & (READY | EXPIRED | CLOSED)))
    }

    /// What it was.
    fn change(&self, to: impl Fn(usize) -> usize) -> usize {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            // PAIR readiness: what was done before is seen by whoever finds it.
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
