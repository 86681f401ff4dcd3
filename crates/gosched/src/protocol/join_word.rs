//! The word through which a goroutine and its handle meet: the goroutine reports that it is done,
//! and the handle waits for that, or is dropped.
//!
//! The word determines which side may use the packet that contains it (`block::goroutine::packet`):
//!
//! - [`EMPTY`]: the goroutine is not done, and nothing waits for it.
//! - the address of a waiter: that waiter waits in `join`.
//! - [`LOCKED`]: a thread stores the waker or takes it out.
//! - [`WAKER`]: a future waits, and its waker is stored.
//! - [`TIMED_OUT`]: the time limit of a join was reached before the waiter was published.
//! - [`DETACHED`]: the handle was dropped, so the goroutine frees the packet.
//! - [`DONE`]: the result is available to the handle, and the goroutine no longer accesses the
//!   packet.
//!
//! - Goroutine: 1. writes the result; 2. sets the word to `DONE`, through `LOCKED` if a waker is
//!   stored ([`complete`](JoinWord::complete)); 3. makes ready the waiter that was in the word, or
//!   calls the waker that it took out under `LOCKED`, or frees the packet if the word was
//!   `DETACHED`.
//! - Handle that joins: 1. parks; after the switch, changes the word from `EMPTY` to the address of
//!   the waiter ([`commit`](JoinWord::commit)), and does not wait if the word is not `EMPTY`; 2.
//!   reads the result.
//! - Handle that is polled: 1. sets the word to `LOCKED`; 2. stores the waker; 3. sets the word to
//!   `WAKER` ([`store_waker`](JoinWord::store_waker)).
//! - Handle that is dropped: 1. takes a stored waker out, as the goroutine does; 2. sets the word
//!   to `DETACHED`, or frees the packet if the word is `DONE` ([`detach`](JoinWord::detach)).
//! - Alarm of a join with a time limit: 1. changes the address of the waiter to `EMPTY`, or `EMPTY`
//!   to `TIMED_OUT` ([`time_out`](JoinWord::time_out)); 2. makes ready the waiter that was in the
//!   word. The handle clears `TIMED_OUT` once its alarm is stopped.
//!
//! Why no wake-up is lost, and why a waiter is made ready once: a waiter enters the word only from
//! `EMPTY`, so after `DONE` or `TIMED_OUT` the commit fails. The goroutine and the alarm each take
//! the waiter out by one exchange, so only one of them finds it.
//!
//! Why the packet is freed once: the word ends as `DETACHED`, which the goroutine finds, or as
//! `DONE`, which the handle finds.
//!
//! A waker is never called, cloned or dropped while the word is `LOCKED`. This module never makes a
//! waiter ready and never frees a packet: its callers do both.

use crate::sys::atomic::{AtomicUsize, Ordering, spin_loop};
use std::marker::PhantomData;
use std::ptr;

const EMPTY: usize = 0;
const DONE: usize = 1;
const DETACHED: usize = 2;
const WAKER: usize = 3;
const LOCKED: usize = 4;
const TIMED_OUT: usize = 5;

/// Added to the address of a word, which is even, by a waiter that waits with a time limit and
/// parks with that address: so an inspector sees that the wait has a limit.
pub(crate) const LIMIT_MARK: usize = 1;

/// The word of a join, whose waiters are of type `W` (see the top of this file). Inspectors know a
/// join by the address of its word.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct JoinWord<W: 'static> {
    word: AtomicUsize,
    waiter: PhantomData<&'static W>,
}

/// What the goroutine must do after [`JoinWord::complete`]. Except for `Detached`, the handle may
/// already have freed the packet.
#[derive(Debug)]
#[must_use]
pub(crate) enum Completed<W: 'static, K> {
    /// The handle was dropped: the goroutine frees the packet.
    Detached,
    /// Nothing waits.
    Unawaited,
    /// The goroutine makes this waiter ready.
    Waiter(&'static W),
    /// A future waits: the goroutine calls this waker.
    Waker(K),
}

impl<W: 'static> JoinWord<W> {
    /// Creates the word of a goroutine that is not done.
    #[inline]
    pub(crate) fn new() -> JoinWord<W> {
        JoinWord { word: AtomicUsize::new(EMPTY), waiter: PhantomData }
    }

    /// Returns whether the goroutine is done: the packet then belongs to the handle.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        // PAIR packet: sees the result.
        self.word.load(Ordering::Acquire) == DONE
    }

    /// Returns whether the handle was dropped before the goroutine was done: the packet then
    /// belongs to the goroutine.
    #[inline]
    pub(crate) fn is_detached(&self) -> bool {
        // PAIR packet: sees what the handle did before it was dropped.
        self.word.load(Ordering::Acquire) == DETACHED
    }

    /// Sets the word of a goroutine that could not be started: its packet belongs to the handle.
    #[inline]
    pub(crate) fn never_started(&self) {
        self.word.store(DONE, Ordering::Relaxed);
    }

    /// Publishes `waiter`, whose context is saved: from here on it may be made ready. Returns false
    /// if it need not wait: the word is not `EMPTY`.
    #[inline]
    pub(crate) fn commit(&self, waiter: &'static W) -> bool {
        const { assert!(align_of::<W>() > TIMED_OUT, "the address of a waiter is no constant") };
        let waiter = ptr::from_ref(waiter) as usize;
        // PAIR packet: publishes the parked waiter; or sees the result.
        self.word.compare_exchange(EMPTY, waiter, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Reports that the goroutine is done. Called once, after the result was written. `take_waker`
    /// takes the waker out of the packet; it is called under `LOCKED`, if a waker is stored.
    #[inline]
    pub(crate) fn complete<K>(&self, take_waker: impl FnOnce() -> K) -> Completed<W, K> {
        loop {
            // PAIR packet: sees what the waiter did before it waited.
            let found = self.word.load(Ordering::Acquire);
            if found == LOCKED {
                spin_loop();
                continue;
            }
            let to = if found == WAKER { LOCKED } else { DONE };
            // PAIR packet: publishes the result.
            if self.word.compare_exchange(found, to, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            return match found {
                EMPTY | DONE | LOCKED | TIMED_OUT => Completed::Unawaited,
                DETACHED => Completed::Detached,
                WAKER => {
                    let waker = take_waker();
                    // PAIR packet: publishes the result.
                    self.word.store(DONE, Ordering::Release);
                    Completed::Waker(waker)
                }
                // SAFETY: address — every value that is no constant is one.
                waiter => Completed::Waiter(unsafe { JoinWord::waiter(waiter) }),
            };
        }
    }

    /// Ends the wait of a waiter whose time limit was reached, or prevents the wait if it has not
    /// begun. Returns the waiter to make ready, if there is one. Called while only the goroutine
    /// and a handle that waits with a time limit change the word.
    #[inline]
    pub(crate) fn time_out(&self) -> Option<&'static W> {
        loop {
            let found = self.word.load(Ordering::Relaxed);
            let to = match found {
                EMPTY => TIMED_OUT,
                DONE | DETACHED | WAKER | LOCKED | TIMED_OUT => return None,
                _ => EMPTY,
            };
            // PAIR packet: sees the parked waiter.
            if self.word.compare_exchange(found, to, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                if to == TIMED_OUT {
                    return None;
                }
                // SAFETY: address — every value that is no constant is one.
                return Some(unsafe { JoinWord::waiter(found) });
            }
        }
    }

    /// Clears `TIMED_OUT`: called by the handle when [`time_out`](JoinWord::time_out) can no longer
    /// be called, so that the next wait is a wait.
    #[inline]
    pub(crate) fn clear_timed_out(&self) {
        let _ = self.word.compare_exchange(TIMED_OUT, EMPTY, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Calls `store`, which replaces the waker in the packet, under `LOCKED`. Returns its result,
    /// or `None` if the goroutine is done.
    #[inline]
    pub(crate) fn store_waker<K>(&self, store: impl FnOnce() -> K) -> Option<K> {
        loop {
            // PAIR packet: sees the result, or the waker that was stored before.
            let found = self.word.load(Ordering::Acquire);
            match found {
                DONE => return None,
                EMPTY | WAKER => {}
                _ => {
                    spin_loop();
                    continue;
                }
            }
            // PAIR packet: sees the waker that was stored before.
            let locked =
                self.word.compare_exchange(found, LOCKED, Ordering::Acquire, Ordering::Relaxed);
            if locked.is_ok() {
                let before = store();
                // PAIR packet: publishes the waker.
                self.word.store(WAKER, Ordering::Release);
                return Some(before);
            }
        }
    }

    /// Gives the packet to the goroutine, because the handle is dropped. Returns false if the
    /// goroutine is done: the caller then frees the packet. `take_waker` takes the waker out of the
    /// packet; it is called under `LOCKED`, if a waker is stored.
    #[inline]
    #[must_use]
    pub(crate) fn detach(&self, mut take_waker: impl FnMut()) -> bool {
        let mut from = EMPTY;
        // After a join the word is `DONE`, and no longer changes.
        while !self.is_done() {
            // PAIR packet: publishes what the handle did; or sees the result.
            let changed = self.word.compare_exchange(
                from,
                if from == WAKER { LOCKED } else { DETACHED },
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match changed {
                Ok(WAKER) => {
                    take_waker();
                    // PAIR packet: publishes that the waker was taken out.
                    self.word.store(EMPTY, Ordering::Release);
                    from = EMPTY;
                }
                Ok(_) => return true,
                Err(DONE) => {}
                Err(WAKER) => from = WAKER,
                Err(_) => {
                    from = EMPTY;
                    spin_loop();
                }
            }
        }
        false
    }

    /// Returns the waiter with this address.
    ///
    /// # Safety
    /// - **address**: a `JoinWord<W>` had this value, which is no constant.
    #[inline]
    unsafe fn waiter(address: usize) -> &'static W {
        // SAFETY: only `commit` stores a value that is no constant, and it stores the address of a
        // `'static` reference. No such address equals a constant: it is a multiple of the
        // alignment, which is larger than all constants.
        unsafe { &*(address as *const W) }
    }
}
