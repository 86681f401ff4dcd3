//! Futures that wait to receive. The channel does not hand a value to such a future: it notifies
//! the future, which then polls again.
//!
//! A future may be dropped at any time, so a value that was handed to it could be lost. The future
//! instead queues an [`AsyncWaiter`] in the channel, with a prepared goroutine, the *messenger*,
//! that calls its waker. Wakers are user code, and the code that finds the waiter must not run user
//! code: it holds locks, or is a timer.
//!
//! Ownership: while a waiter is queued, its links and its messenger belong to the channel, under
//! the channel's lock. The thread that removes a waiter to notify it makes the messenger ready and
//! does not access the waiter again; the messenger has its own reference to the waiter. When the
//! future is dropped, it removes its waiter if that is still queued. If the waiter was removed by a
//! notification and the future was not polled since, the future notifies the next waiter.
//!
//! A notification never calls a waker: the messenger does.

use super::core::{Chan, State};
use crate::block::exit;
use crate::block::linked_list::{Entry, LinkedList, Links};
use crate::block::sync::Mutex;
use crate::gmp::g::G;
use crate::gmp::task::{Task, TaskKind};
use crate::sched::{self, SpawnRequest};
use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// A future's entry in a channel: see the top of this file. `repr(C)`: a pointer to the task is a
/// pointer to the waiter.
#[repr(C)]
pub(crate) struct AsyncWaiter {
    task: Task,
    links: Links<AsyncWaiter>,
    /// The prepared goroutine that calls the waker. `Some` while the waiter is queued.
    messenger: Cell<Option<&'static G>>,
    waker: Mutex<Waker>,
}

// SAFETY: the cells are accessed only under the channel's lock.
unsafe impl Send for AsyncWaiter {}
// SAFETY: as above.
unsafe impl Sync for AsyncWaiter {}

// SAFETY: same — always this field, and only the channel's list accesses it.
unsafe impl Entry for AsyncWaiter {
    #[inline(always)]
    fn links(&self) -> &Links<AsyncWaiter> {
        &self.links
    }
}

impl AsyncWaiter {
    pub(crate) fn new(waker: &Waker) -> Arc<AsyncWaiter> {
        Arc::new(AsyncWaiter {
            task: Task { kind: &KIND },
            links: Links::new(),
            messenger: Cell::new(None),
            waker: Mutex::new(waker.clone()),
        })
    }

    /// Replaces the waker, unless the present one wakes the same task.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        if !self.waker.lock_no_unwind().will_wake(waker) {
            // Cloning and dropping a waker runs user code, so this is not done under the lock.
            let new = waker.clone();
            let old = std::mem::replace(&mut *self.waker.lock_no_unwind(), new);
            drop(old);
        }
    }

    /// Prepares a goroutine that calls the waker. It owns a reference to this waiter.
    #[track_caller]
    pub(crate) fn messenger(self: &Arc<Self>) -> Messenger {
        let task = Arc::into_raw(self.clone()).cast_mut().cast();
        Messenger(Some(sched::prepare(SpawnRequest {
            task,
            site: Location::caller(),
            options: None,
        })))
    }
}

/// A prepared goroutine that has not been made ready. Dropping it discards the goroutine.
#[derive(Debug)]
pub(crate) struct Messenger(pub(crate) Option<&'static G>);

impl Drop for Messenger {
    fn drop(&mut self) {
        if let Some(g) = self.0 {
            let task = g.task();
            sched::discard(g);
            // SAFETY: the raw `Arc` that `AsyncWaiter::messenger` gave to the goroutine.
            drop(unsafe { Arc::from_raw(task.cast_const().cast::<AsyncWaiter>()) });
        }
    }
}

static KIND: TaskKind =
    TaskKind { run, complete, name: || "gosched::chan::messenger", offsets: None };

/// Calls the waker. See [`TaskKind::run`].
///
/// # Safety
/// - **share**: `task` is a raw `Arc<AsyncWaiter>` that the calling goroutine owns.
unsafe fn run(task: *mut Task) -> bool {
    sched::begin_prepared();
    // SAFETY: share — promised by the caller.
    let waiter = unsafe { Arc::from_raw(task.cast_const().cast::<AsyncWaiter>()) };
    exit::run_discarding_panic(move || {
        // The waker is cloned, not taken: the waiter may already be queued again.
        let waker = waiter.waker.lock_no_unwind().clone();
        waker.wake();
    });
    false
}

/// # Safety
/// - **never**: this function is never called, because `run` returns false.
unsafe fn complete(_task: *mut Task) {}

/// The queue of a channel's async waiters, first in, first out. Protected by the channel's lock.
#[derive(Debug)]
pub(super) struct AsyncWaiters(LinkedList<AsyncWaiter>);

impl AsyncWaiters {
    pub(super) const fn new() -> AsyncWaiters {
        AsyncWaiters(LinkedList::new())
    }

    /// Appends a waiter.
    ///
    /// # Safety
    /// - **alive**: the waiter is not queued, and is removed before it is dropped.
    pub(super) unsafe fn push(&mut self, waiter: &AsyncWaiter, mut messenger: Messenger) {
        waiter.messenger.set(messenger.0.take());
        // SAFETY: alive — promised by the caller.
        unsafe { self.0.push_back(waiter) };
    }

    /// Removes a waiter. Returns its messenger, or `None` if the waiter is not queued.
    pub(super) fn remove(&mut self, waiter: &AsyncWaiter) -> Option<Messenger> {
        self.0.remove(waiter);
        waiter.messenger.take().map(|messenger| Messenger(Some(messenger)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_queued(waiter: &AsyncWaiter) -> bool {
        waiter.messenger.get().is_some()
    }

    /// Removes the first waiter. Returns its messenger, which the caller must make ready.
    #[inline]
    pub(super) fn notify_one(&mut self) -> Option<&'static G> {
        // SAFETY: alive — the queued waiters are.
        let waiter = unsafe { self.0.first().as_ref() }?;
        self.remove(waiter).and_then(|mut messenger| messenger.0.take())
    }
}

impl<T> Chan<T> {
    /// Removes the first async waiter. Returns its messenger, which the caller must make ready.
    #[inline]
    pub(super) fn notify_async(&self, state: &mut State) -> Option<&'static G> {
        let g = state.async_waiters.notify_one();
        if g.is_some() {
            self.publish_async_waiters(state);
        }
        g
    }

    /// Updates the flag that is read without the lock.
    pub(super) fn publish_async_waiters(&self, state: &State) {
        self.has_async_waiters.store(!state.async_waiters.is_empty(), Ordering::Relaxed);
    }

    /// Returns whether a goroutine, a thread or a future waits to receive. Does not take the lock.
    pub(super) fn has_waiting_receivers(&self) -> bool {
        self.receivers_wait.load(Ordering::Relaxed)
            || self.has_async_waiters.load(Ordering::Relaxed)
    }
}
