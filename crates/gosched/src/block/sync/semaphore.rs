//! A number of permits. First come, first served, whatever the sizes: a large request is not overtaken.

use super::parking::{Guarded, Held, WaitOptions, WaitOutcome};
use crate::block::before_wait;
use crate::block::waiter::WaitQueue;
use crate::gmp::reason::WaitReason;
use crate::sys::clock;
use std::fmt;
use std::time::Duration;

/// Permits that goroutines and threads take and give back.
///
/// ```
/// let semaphore = gosched::sync::Semaphore::new(2);
/// let both = semaphore.acquire(2);
/// assert!(semaphore.try_acquire(1).is_none());
/// drop(both);
/// assert!(semaphore.try_acquire(1).is_some());
/// ```
pub struct Semaphore {
    state: Guarded<State>,
    /// How many there were at first: more can never be had.
    size: usize,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// The ticket of each is how many it wants.
    queue: WaitQueue,
}

impl Semaphore {
    /// With so many permits.
    pub const fn new(permits: usize) -> Semaphore {
        let state = Guarded::new(State { free: permits, queue: WaitQueue::new() });
        Semaphore { state, size: permits }
    }

    /// Takes `count` permits; waits for them.
    ///
    /// # Panics
    /// There are not so many: it would wait for ever.
    #[track_caller]
    pub fn acquire(&self, count: usize) -> Permit<'_> {
        self.check(count);
        before_wait();
        self.wait(count, None);
        Permit { semaphore: self, count }
    }

    /// Takes `count` permits if they are there, and nobody waits.
    pub fn try_acquire(&self, count: usize) -> Option<Permit<'_>> {
        let taken = self.state.lock().take(count);
        taken.map(|()| Permit { semaphore: self, count })
    }

    /// As [`Semaphore::acquire`], but waits for `duration` at most.
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    pub fn acquire_timeout(&self, count: usize, duration: Duration) -> Option<Permit<'_>> {
        self.check(count);
        self.try_acquire(count).or_else(|| {
            before_wait();
            let taken = self.wait(count, Some(clock::after(duration)));
            taken.then(|| Permit { semaphore: self, count })
        })
    }

    /// How many are free.
    pub fn available(&self) -> usize {
        self.state.lock().free
    }

    /// Gives back what a [`Permit`] had.
    pub(super) fn release(&self, count: usize) {
        let mut held = self.state.lock();
        held.free += count;
        serve(&mut held);
    }

    #[track_caller]
    fn check(&self, count: usize) {
        let size = self.size;
        assert!(count <= size, "`Semaphore::acquire({count})`: there are {size}, ask for no more");
    }

    fn wait(&self, mut count: usize, until: Option<u64>) -> bool {
        let wait = WaitOptions {
            reason: WaitReason::Semaphore,
            holders: std::ptr::null(),
            queue: |state: &mut State| &mut state.queue,
            first: false,
            ticket: (&raw mut count).cast(),
            until,
            gave_up: Some(&serve),
        };
        self.state.wait(&wait, |held| held.take(count)) != Err(WaitOutcome::TimedOut)
    }
}

impl State {
    fn take(&mut self, count: usize) -> Option<()> {
        if !self.queue.is_empty() || self.free < count {
            return None;
        }
        self.free -= count;
        Some(())
    }
}

/// Those who wait get what is free, in their order.
fn serve(held: &mut Held<'_, State>) {
    while let Some(ticket) = held.queue.first_ticket() {
        // SAFETY: every ticket here is the number that its owner, who waits, wants.
        let count = unsafe { *ticket.cast::<usize>() };
        if held.free < count {
            return;
        }
        let before = held.free;
        if let Some(taken) = held.queue.fire_first() {
            held.free = before - count;
            held.ready(taken.g());
        }
    }
}

/// Permits that were taken; given back when dropped.
#[must_use = "the permits are free again as soon as this is dropped"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    count: usize,
}

impl Permit<'_> {
    /// How many.
    pub fn count(&self) -> usize {
        self.count
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.release(self.count);
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({})", self.count)
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Semaphore({} of {})", self.available(), self.size)
    }
}
