//! Async code that waits to receive: it is not given a value, it is told to look.
//!
//! A future may be dropped at any time, so nothing may be handed to it. It leaves an [`AsyncWaiter`] in the
//! channel, and a goroutine that is prepared to wake it: wakers are code of the program, and those who find
//! the waiter hold locks, or are a timer.
//!
//! Who owns what: links and messenger are the channel's, under its lock, while the waiter is queued there. Who
//! removes it to wake it makes the messenger ready, which has a share of the waiter, and does not touch it
//! again. The future removes its own, if nobody did. If somebody did and the future never looked, it
//! wakes the next one.

use super::core::{Chan, State};
use crate::block::exit;
use crate::block::sync::Mutex;
use crate::gmp::g::G;
use crate::gmp::task::{Task, TaskKind};
use crate::sched::{self, SpawnRequest};
use std::cell::Cell;
use std::panic::Location;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// See the top of this file. `repr(C)`: a pointer to the task is a pointer to the waiter.
#[repr(C)]
pub(crate) struct AsyncWaiter {
    task: Task,
    next: Cell<*const AsyncWaiter>,
    before: Cell<*const AsyncWaiter>,
    /// Some while it is queued.
    messenger: Cell<Option<&'static G>>,
    waker: Mutex<Waker>,
}

// SAFETY: cells are under the channel's lock.
unsafe impl Send for AsyncWaiter {}
// SAFETY: as above.
unsafe impl Sync for AsyncWaiter {}

impl AsyncWaiter {
    pub(crate) fn new(waker: &Waker) -> Arc<AsyncWaiter> {
        Arc::new(AsyncWaiter {
            task: Task { kind: &KIND },
            next: Cell::new(ptr::null()),
            before: Cell::new(ptr::null()),
            messenger: Cell::new(None),
            waker: Mutex::new(waker.clone()),
        })
    }

    /// Whom to wake.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        if !self.waker.lock_no_unwind().will_wake(waker) {
            // Code of others: not under the lock.
            let new = waker.clone();
            let old = std::mem::replace(&mut *self.waker.lock_no_unwind(), new);
            drop(old);
        }
    }

    /// A goroutine to wake it, with a share of it.
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

/// A prepared goroutine that nobody has made ready.
#[derive(Debug)]
pub(crate) struct Messenger(pub(crate) Option<&'static G>);

impl Drop for Messenger {
    fn drop(&mut self) {
        if let Some(g) = self.0 {
            let task = g.task();
            sched::discard(g);
            // SAFETY: the share that `AsyncWaiter::messenger` gave it.
            drop(unsafe { Arc::from_raw(task.cast_const().cast::<AsyncWaiter>()) });
        }
    }
}

static KIND: TaskKind =
    TaskKind { run, complete, name: || "gosched::chan::messenger", offsets: None };

/// See [`TaskKind::run`].
///
/// # Safety
/// - **share**: `task` is the share of a `AsyncWaiter` that belongs to the calling goroutine.
unsafe fn run(task: *mut Task) -> bool {
    sched::begin_prepared();
    // SAFETY: share — promised by the caller.
    let waiter = unsafe { Arc::from_raw(task.cast_const().cast::<AsyncWaiter>()) };
    exit::run_discarding_panic(move || {
        // It stays: the waiter may be queued again already.
        let waker = waiter.waker.lock_no_unwind().clone();
        waker.wake();
    });
    false
}

/// # Safety
/// - **never**: it is not called: nobody hears of the end.
unsafe fn complete(_task: *mut Task) {}

/// Async waiters of a channel, in the order they came. Under its lock.
#[derive(Debug)]
pub(super) struct AsyncWaiters {
    first: *const AsyncWaiter,
    last: *const AsyncWaiter,
}

// SAFETY: waiters are used under the channel's lock.
unsafe impl Send for AsyncWaiters {}

impl AsyncWaiters {
    pub(super) const fn new() -> AsyncWaiters {
        AsyncWaiters { first: ptr::null(), last: ptr::null() }
    }

    /// # Safety
    /// - **alive**: the waiter is removed before it goes; it is not queued.
    pub(super) unsafe fn push(&mut self, waiter: &AsyncWaiter, mut messenger: Messenger) {
        waiter.messenger.set(messenger.0.take());
        waiter.next.set(ptr::null());
        waiter.before.set(self.last);
        // SAFETY: alive — those that are queued are.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.next.set(waiter),
            None => self.first = waiter,
        }
        self.last = waiter;
    }

    /// Removes a waiter. `None`: it is not queued.
    pub(super) fn remove(&mut self, waiter: &AsyncWaiter) -> Option<Messenger> {
        let messenger = waiter.messenger.take()?;
        let (before, next) = (waiter.before.get(), waiter.next.get());
        // SAFETY: alive — those that are queued are.
        match unsafe { before.as_ref() } {
            Some(before) => before.next.set(next),
            None => self.first = next,
        }
        // SAFETY: alive — as above.
        match unsafe { next.as_ref() } {
            Some(next) => next.before.set(before),
            None => self.last = before,
        }
        Some(Messenger(Some(messenger)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    pub(super) fn is_queued(waiter: &AsyncWaiter) -> bool {
        waiter.messenger.get().is_some()
    }

    /// Removes the first one: whom to make ready, so that it is woken.
    #[inline]
    pub(super) fn notify_one(&mut self) -> Option<&'static G> {
        // SAFETY: alive — those that are queued are.
        let waiter = unsafe { self.first.as_ref() }?;
        self.remove(waiter).and_then(|mut messenger| messenger.0.take())
    }
}

impl<T> Chan<T> {
    /// Removes the first waiter: whom to make ready, so that it is woken.
    #[inline]
    pub(super) fn notify_async(&self, state: &mut State) -> Option<&'static G> {
        let g = state.async_waiters.notify_one();
        if g.is_some() {
            self.publish_async_waiters(state);
        }
        g
    }

    /// Shows those without the lock whether a waiter is queued.
    pub(super) fn publish_async_waiters(&self, state: &State) {
        self.has_async_waiters.store(!state.async_waiters.is_empty(), Ordering::Relaxed);
    }

    /// Whether a goroutine, a thread or async code waits to receive, without the lock.
    pub(super) fn has_waiting_receivers(&self) -> bool {
        self.receivers_wait.load(Ordering::Relaxed)
            || self.has_async_waiters.load(Ordering::Relaxed)
    }
}
