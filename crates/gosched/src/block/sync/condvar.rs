//! Waiting for a change of the value that a mutex protects. Waiters are notified in the order of
//! their arrival. `Condvar::wait` never returns without a notification.

use super::mutex::{Mutex, MutexGuard};
use super::parking::{Guarded, WaitOptions, WaitOutcome};
use crate::block::before_wait;
use crate::block::waiter::WaitQueue;
use crate::probe::wait_reason::WaitReason;
use crate::sys::clock;
use std::fmt;
use std::time::Duration;

/// A condition variable: lets goroutines and threads wait for a change of the value that a
/// [`Mutex`] protects.
///
/// There are no spurious wake-ups, but the condition may no longer hold when a waiter has
/// reacquired the mutex: check it again, or use [`Condvar::wait_while`].
///
/// ```
/// use gosched::{go, sync::{Condvar, Mutex}};
/// use std::sync::Arc;
///
/// let pair = Arc::new((Mutex::new(false), Condvar::new()));
/// let other = pair.clone();
/// go(move || {
///     *other.0.lock() = true;
///     other.1.notify_one();
/// });
/// let guard = pair.1.wait_while(pair.0.lock(), |ready| !*ready);
/// assert!(*guard);
/// ```
pub struct Condvar {
    queue: Guarded<WaitQueue>,
}

impl Condvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Condvar {
        Condvar { queue: Guarded::new(WaitQueue::new()) }
    }

    /// Releases the mutex, waits for a notification, and reacquires the mutex.
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_until(guard, None).0
    }

    /// Like [`Condvar::wait`], but waits at most `duration` for the notification. The returned flag
    /// is `false` if no notification came in time. Reacquiring the mutex may take longer.
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        duration: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        self.wait_until(guard, Some(clock::after(duration)))
    }

    /// Waits as long as `condition` returns `true`.
    pub fn wait_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    fn wait_until<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        until: Option<u64>,
    ) -> (MutexGuard<'a, T>, bool) {
        before_wait();
        let mutex: &'a Mutex<T> = MutexGuard::mutex(&guard);
        std::mem::forget(guard);
        let wait = WaitOptions {
            reason: WaitReason::Condvar,
            holders: std::ptr::null(),
            queue: |queue: &mut WaitQueue| queue,
            first: false,
            ticket: std::ptr::null_mut(),
            until,
            gave_up: None,
        };
        let waited = self.queue.wait(&wait, |_| {
            // The queue's lock is held until the caller is in the queue, so no notification can be
            // missed.
            // SAFETY: held — by the guard that was passed, which was forgotten above.
            unsafe { mutex.raw().unlock_before_wait() };
            None::<()>
        });
        (mutex.lock(), waited != Err(WaitOutcome::TimedOut))
    }

    /// Wakes the waiter that has waited longest.
    #[doc(alias = "Signal")]
    pub fn notify_one(&self) {
        let mut held = self.queue.lock();
        if let Some(taken) = held.fire_next() {
            held.ready(taken.g());
        }
    }

    /// Wakes all waiters.
    #[doc(alias = "Broadcast")]
    pub fn notify_all(&self) {
        let mut held = self.queue.lock();
        while let Some(taken) = held.fire_next() {
            held.ready(taken.g());
        }
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}
