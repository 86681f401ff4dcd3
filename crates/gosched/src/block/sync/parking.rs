//! A place to wait, for the types of this folder: what they guard is under one lock with those who wait.

use crate::block::limit::{TIMEOUT, WaitTimeout};
use crate::block::wait_record::WaitRecord;
use crate::block::waiter::{WaitQueue, Waiter, Wakeup};
use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::gmp::reason::WaitReason;
use crate::probe;
use crate::sched::{self, RuntimeGuard};
use crate::sys::Lock;
use std::ops::{Deref, DerefMut};

/// State that goroutines and threads wait for. The lock is held for moments, inside the runtime: nothing
/// may be allocated or dropped, or panic, while it is.
#[derive(Debug)]
pub(crate) struct Guarded<S> {
    state: Lock<S>,
}

/// The right to use the state; and, when it is given back, those who go on then.
#[derive(Debug)]
pub(crate) struct Held<'a, S> {
    lock: &'a Lock<S>,
    inside: Option<RuntimeGuard>,
    ready: GList,
}

/// Whether what was waited for has happened.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// Somebody took the waiter out of its queue.
    Woken,
    /// The time is over, and nobody did.
    TimedOut,
}

impl<S> Guarded<S> {
    pub(crate) const fn new(state: S) -> Guarded<S> {
        Guarded { state: Lock::new(state) }
    }

    /// Where the state is.
    pub(crate) fn as_ptr(&self) -> *const S {
        self.state.as_ptr()
    }

    #[inline]
    pub(crate) fn lock(&self) -> Held<'_, S> {
        let inside = sched::enter_runtime();
        self.state.acquire();
        Held { lock: &self.state, inside: Some(inside), ready: GList::new() }
    }

    /// Waits in the queue that `queue` finds, with `ticket` for whoever takes the caller out, unless
    /// `ready` says, under the lock, that there is nothing to wait for: `Ok` with what it says.
    ///
    /// With a time limit the caller takes itself out again when that is over. The timer is started before
    /// `ready` is asked: who may not have to wait tries that first.
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
            // A timer may want memory: not under the lock.
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
            // SAFETY: frame — the only waiter of an uncontested wakeup; else removed below.
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

/// Called under the lock when a time limit was over.
pub(crate) type GaveUp<'a, S> = &'a dyn Fn(&mut Held<'_, S>);

/// How to wait.
pub(crate) struct WaitOptions<'a, S> {
    pub(crate) reason: WaitReason,
    /// Where it is told who can end the wait, if it is: see [`Waiter::set_holders`].
    pub(crate) holders: *const (),
    /// Which queue.
    pub(crate) queue: fn(&mut S) -> &mut WaitQueue,
    /// Before all others.
    pub(crate) first: bool,
    /// What whoever takes the caller out finds.
    pub(crate) ticket: *mut (),
    pub(crate) until: Option<u64>,
    /// What is to be done when the time was over.
    pub(crate) gave_up: Option<GaveUp<'a, S>>,
}

impl<S> Held<'_, S> {
    /// Makes `g` ready when the lock was given back.
    pub(crate) fn ready(&mut self, g: Option<&'static G>) {
        if let Some(g) = g {
            self.ready.push_back(g);
        }
    }

    /// Gives the lock back once the caller's context is saved, and waits.
    fn park(mut self, waits: WaitRecord<'_>, reason: WaitReason) {
        let parking = Parking { waits, lock: self.lock };
        let inside = self.inside.take();
        std::mem::forget(self);
        if let Some(inside) = inside {
            // SAFETY: commit — it takes a `Parking`, and this frame waits.
            unsafe { inside.park(reason, commit::<S>, (&raw const parking).cast()) };
        }
    }
}

impl<S> Deref for Held<'_, S> {
    type Target = S;
    fn deref(&self) -> &S {
        // SAFETY: held — while this lives.
        unsafe { self.lock.value() }
    }
}

impl<S> DerefMut for Held<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: held — while this lives; `&mut self` makes it the only reference.
        unsafe { self.lock.value() }
    }
}

impl<S> Drop for Held<'_, S> {
    fn drop(&mut self) {
        // SAFETY: held — by `Guarded::lock`.
        unsafe { self.lock.release() };
        if let Some(inside) = &self.inside {
            while let Some(g) = self.ready.pop_front() {
                inside.ready(g);
            }
        }
    }
}

/// What [`commit`] needs. `repr(C)`: what is waited for comes first.
#[repr(C)]
struct Parking<'a, S> {
    waits: WaitRecord<'a>,
    lock: &'a Lock<S>,
}

/// The caller's context is saved: others may know.
///
/// # Safety
/// - **parking**: `data` is a `Parking<S>`, alive until the wakeup is committed, and what it names until the lock is free.
unsafe fn commit<S>(g: &'static G, data: *const ()) -> bool {
    // SAFETY: parking — promised by the caller.
    let &Parking { waits: WaitRecord { wakeup, .. }, lock } =
        unsafe { &*data.cast::<Parking<'_, S>>() };
    // From here on a time limit may make it ready without the lock: the `Parking` is gone.
    let wait = wakeup.commit(g);
    // SAFETY: held — by the one who waits. What it waits with may be gone as soon as the lock is free.
    unsafe { lock.release_before_free() };
    wait
}
