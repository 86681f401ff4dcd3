//! The state of the types of this folder: one lock protects it together with its queues of waiters.
//! A `Held` never makes a G ready before it has released its lock.

use crate::block::limit::{TIMEOUT, WaitTimeout};
use crate::block::wait_record::WaitRecord;
use crate::block::waiter::{WaitQueue, Waiter, Wakeup};
use crate::gmp::commit::Commit;
use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::probe;
use crate::probe::wait_reason::WaitReason;
use crate::sched::{self, RuntimeGuard};
use crate::sys::Lock;
use std::ops::{Deref, DerefMut};

/// State that goroutines and threads wait for, under a lock. The lock is held only briefly and
/// inside the runtime: its holder must not allocate, drop values of the program, or panic.
#[derive(Debug)]
pub(crate) struct Guarded<S> {
    state: Lock<S>,
}

/// Exclusive access to the state. When dropped, releases the lock and then makes the collected Gs
/// ready.
#[derive(Debug)]
pub(crate) struct Held<'a, S> {
    lock: &'a Lock<S>,
    inside: Option<RuntimeGuard>,
    ready: GList,
}

/// How a wait ended.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// Another thread removed the waiter from its queue.
    Woken,
    /// The time limit was reached first.
    TimedOut,
}

impl<S> Guarded<S> {
    pub(crate) const fn new(state: S) -> Guarded<S> {
        Guarded { state: Lock::new(state) }
    }

    /// Returns the address of the state.
    pub(crate) fn as_ptr(&self) -> *const S {
        self.state.as_ptr()
    }

    /// Acquires the lock.
    #[inline]
    pub(crate) fn lock(&self) -> Held<'_, S> {
        let inside = sched::enter_runtime();
        self.state.acquire();
        Held { lock: &self.state, inside: Some(inside), ready: GList::new() }
    }

    /// Waits in the queue that `wait.queue` selects, unless `ready`, called under the lock, returns
    /// a result: then returns that result as `Ok`.
    ///
    /// If the time limit is reached, the caller removes its waiter from the queue. The timer is
    /// started before `ready` is called, so callers that may not have to wait try without a limit
    /// first.
    pub(crate) fn wait<R>(
        &self,
        wait: &WaitOptions<'_, S>,
        ready: impl FnOnce(&mut Held<'_, S>) -> Option<R>,
    ) -> Result<R, WaitOutcome> {
        let wakeup = match wait.until {
            None => Wakeup::uncontested(),
            Some(_) => Wakeup::contested(),
        };
        let limit = WaitTimeout::new(&wakeup);
        if let Some(when) = wait.until {
            // Starting a timer may allocate, so this is not done under the lock.
            limit.start(when);
        }
        let mut held = self.lock();
        if let Some(result) = ready(&mut held) {
            return Ok(result);
        }
        let waiter = Waiter::new(&wakeup, 0, wait.ticket);
        if probe::ENABLED {
            waiter.set_holders(wait.holders);
        }
        let queue = (wait.queue)(&mut held);
        if wait.first {
            // SAFETY: frame — the only waiter of an uncontested wakeup, or removed below.
            unsafe { queue.push_front(&waiter) };
        } else {
            // SAFETY: frame — as above.
            unsafe { queue.push(&waiter) };
        }
        held.park(WaitRecord::one(&wakeup, &waiter, wait.until.is_some()), wait.reason);
        if wait.until.is_none() {
            return Err(WaitOutcome::Woken);
        }
        let mut held = self.lock();
        (wait.queue)(&mut held).remove(&waiter);
        match wakeup.fired() {
            Some(TIMEOUT) => {
                if let Some(gave_up) = wait.gave_up {
                    gave_up(&mut held);
                }
                Err(WaitOutcome::TimedOut)
            }
            _ => Err(WaitOutcome::Woken),
        }
    }
}

/// A function that is called under the lock when the time limit was reached.
pub(crate) type GaveUp<'a, S> = &'a dyn Fn(&mut Held<'_, S>);

/// How to wait.
pub(crate) struct WaitOptions<'a, S> {
    pub(crate) reason: WaitReason,
    /// The address of the words that record what can end the wait, or null: see
    /// [`Waiter::set_holders`].
    pub(crate) holders: *const (),
    /// Selects the queue.
    pub(crate) queue: fn(&mut S) -> &mut WaitQueue,
    /// Whether to enter the queue at the front.
    pub(crate) first: bool,
    /// A pointer for the thread that removes the caller from the queue.
    pub(crate) ticket: *mut (),
    /// The time limit, in nanoseconds of `clock::now`.
    pub(crate) until: Option<u64>,
    /// Called when the time limit was reached.
    pub(crate) gave_up: Option<GaveUp<'a, S>>,
}

impl<S> Held<'_, S> {
    /// Makes `g` ready after the lock is released.
    pub(crate) fn ready(&mut self, g: Option<&'static G>) {
        if let Some(g) = g {
            self.ready.push_back(g);
        }
    }

    /// Parks the caller, and releases the lock once the caller's context is saved.
    fn park(mut self, waits: WaitRecord<'_>, reason: WaitReason) {
        let parking = Parking { waits, lock: self.lock };
        let inside = self.inside.take();
        std::mem::forget(self);
        if let Some(inside) = inside {
            // SAFETY: commit — it takes a `Parking`, and this frame stays until the caller is made
            // ready.
            let commit = unsafe { Commit::new(commit::<S>, (&raw const parking).cast()) };
            inside.park(reason, commit);
        }
    }
}

impl<S> Deref for Held<'_, S> {
    type Target = S;
    fn deref(&self) -> &S {
        // SAFETY: held — as long as `self` exists.
        unsafe { self.lock.value() }
    }
}

impl<S> DerefMut for Held<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: held — as long as `self` exists; `&mut self` makes this the only reference.
        unsafe { self.lock.value() }
    }
}

impl<S> Drop for Held<'_, S> {
    fn drop(&mut self) {
        // SAFETY: held — acquired by `Guarded::lock`.
        unsafe { self.lock.release() };
        if let Some(inside) = &mut self.inside {
            while let Some(g) = self.ready.pop_front() {
                inside.ready(g);
            }
        }
    }
}

/// The data that [`commit`] takes. `repr(C)`: the [`WaitRecord`] must come first.
#[repr(C)]
struct Parking<'a, S> {
    waits: WaitRecord<'a>,
    lock: &'a Lock<S>,
}

/// Publishes the parked G, whose context is saved, and releases the lock.
///
/// # Safety
/// - **parking**: `data` is a `Parking<S>`, alive until the wakeup is committed; the lock is alive
///   until it is released.
unsafe fn commit<S>(g: &'static G, data: *const ()) -> bool {
    // SAFETY: parking — promised by the caller.
    let &Parking { waits: WaitRecord { wakeup, .. }, lock } =
        unsafe { &*data.cast::<Parking<'_, S>>() };
    // From here on a time limit may make the G ready without the lock, so the `Parking` may be
    // gone.
    let wait = wakeup.commit(g);
    // SAFETY: held — by the goroutine that waits. The lock may be gone as soon as it is released.
    unsafe { lock.release_before_free() };
    wait
}
