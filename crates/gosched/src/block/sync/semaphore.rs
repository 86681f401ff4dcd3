//! A counting semaphore. Requests are served in the order of their arrival, whatever their size:
//! small requests do not overtake a large one. A semaphore never has more permits than
//! `Semaphore::new` gave it.

use super::parking::{Guarded, Held, WaitOptions, WaitOutcome};
use crate::block::before_wait;
use crate::block::waiter::WaitQueue;
use crate::probe::wait_reason::WaitReason;
use crate::sys::clock;
use std::fmt;
use std::time::Duration;

/// A counting semaphore: a fixed number of permits that goroutines and threads acquire and release.
///
/// Requests are served in the order of their arrival: small requests do not overtake a large one.
///
/// ```
/// let semaphore = gosched::sync::Semaphore::new(2);
/// let both = semaphore.acquire(2);
/// assert!(semaphore.try_acquire(1).is_none());
/// drop(both);
/// assert!(semaphore.try_acquire(1).is_some());
/// ```
///
/// A [`Permit`] borrows the semaphore. A goroutine of a [`scope`](crate::scope) can hold one:
///
/// ```
/// let limit = gosched::sync::Semaphore::new(2);
/// gosched::scope(|s| {
///     for job in 0..10 {
///         let permit = limit.acquire(1);
///         s.go(move || {
///             let _permit = permit;
///             println!("at most two jobs at a time: {job}");
///         });
///     }
/// });
/// ```
///
/// Any goroutine can hold a permit of a `static` semaphore: [`Semaphore::new`] is a `const fn`.
pub struct Semaphore {
    state: Guarded<State>,
    /// The number of permits, free or not.
    size: usize,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// The ticket of each waiter points to the number of permits that it requests.
    queue: WaitQueue,
}

impl Semaphore {
    /// Creates a semaphore with `permits` permits.
    pub const fn new(permits: usize) -> Semaphore {
        let state = Guarded::new(State { free: permits, queue: WaitQueue::new() });
        Semaphore { state, size: permits }
    }

    /// Acquires `count` permits. Blocks until they are free.
    ///
    /// Dropping the returned [`Permit`] releases them. To wait for a permit or for another event,
    /// use a channel whose capacity is the number of permits, and [`select!`](crate::select).
    ///
    /// # Panics
    /// `count` is larger than the number that [`Semaphore::new`] was given: the call would block
    /// forever.
    #[track_caller]
    pub fn acquire(&self, count: usize) -> Permit<'_> {
        self.check(count);
        before_wait();
        self.wait(count, None);
        Permit { semaphore: self, count }
    }

    /// Acquires `count` permits if they are free and no other caller waits. Returns `None`
    /// otherwise.
    pub fn try_acquire(&self, count: usize) -> Option<Permit<'_>> {
        let taken = self.state.lock().take(count);
        taken.map(|()| Permit { semaphore: self, count })
    }

    /// Acquires `count` permits like [`Semaphore::acquire`], but waits at most `duration`. Returns
    /// `None` if they were not free in time.
    ///
    /// # Panics
    /// `count` is larger than the number that [`Semaphore::new`] was given.
    #[track_caller]
    pub fn acquire_timeout(&self, count: usize, duration: Duration) -> Option<Permit<'_>> {
        self.check(count);
        self.try_acquire(count).or_else(|| {
            before_wait();
            let taken = self.wait(count, Some(clock::after(duration)));
            taken.then(|| Permit { semaphore: self, count })
        })
    }

    /// Returns the number of free permits.
    pub fn available(&self) -> usize {
        self.state.lock().free
    }

    /// Releases `count` permits that a [`Permit`] held.
    pub(super) fn release(&self, count: usize) {
        let mut held = self.state.lock();
        held.free += count;
        serve(&mut held);
    }

    #[track_caller]
    fn check(&self, count: usize) {
        let size = self.size;
        assert!(
            count <= size,
            "`Semaphore::acquire({count})`: the semaphore has only {size} permits: acquire at most that many"
        );
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

/// Gives the free permits to the waiters, in the order of their arrival.
fn serve(held: &mut Held<'_, State>) {
    while let Some(ticket) = held.queue.first_ticket() {
        // SAFETY: every ticket in this queue points to a `usize` in the frame of its waiter.
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

/// Permits acquired from a [`Semaphore`]. Dropping this value releases them.
#[must_use = "the permits are free again as soon as this is dropped"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    count: usize,
}

impl Permit<'_> {
    /// Returns the number of permits.
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
