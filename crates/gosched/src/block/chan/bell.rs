//! Async code that waits to receive: it is not given a value, it is told to look.
//!
//! A future may be dropped at any time, so nothing may be handed to it. It leaves a [`Bell`] in the
//! channel, and a goroutine that is prepared to ring it: wakers are code of the program, and those who find
//! the bell hold locks, or are a timer.
//!
//! Who owns what: links and messenger are the channel's, under its lock, while the bell hangs there. Who
//! takes it down to ring it makes the messenger ready, which has a share of the bell, and does not touch it
//! again. The future takes its own down, if nobody did. If somebody did and the future never looked, it
//! passes the ringing on.

use super::core::{Core, State};
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

/// See the top of this file. `repr(C)`: a pointer to the task is a pointer to the bell.
#[repr(C)]
pub(crate) struct Bell {
    task: Task,
    next: Cell<*const Bell>,
    before: Cell<*const Bell>,
    /// Some while it hangs.
    messenger: Cell<Option<&'static G>>,
    waker: Mutex<Waker>,
}

// SAFETY: cells are under the channel's lock.
unsafe impl Send for Bell {}
// SAFETY: as above.
unsafe impl Sync for Bell {}

impl Bell {
    pub(crate) fn new(waker: &Waker) -> Arc<Bell> {
        Arc::new(Bell {
            task: Task { kind: &KIND },
            next: Cell::new(ptr::null()),
            before: Cell::new(ptr::null()),
            messenger: Cell::new(None),
            waker: Mutex::new(waker.clone()),
        })
    }

    /// Whom to wake.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        if !self.waker.hold().will_wake(waker) {
            // Code of others: not under the lock.
            let new = waker.clone();
            let old = std::mem::replace(&mut *self.waker.hold(), new);
            drop(old);
        }
    }

    /// A goroutine to ring it, with a share of it.
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
            // SAFETY: the share that `Bell::messenger` gave it.
            drop(unsafe { Arc::from_raw(task.cast_const().cast::<Bell>()) });
        }
    }
}

static KIND: TaskKind =
    TaskKind { run, complete, name: || "gosched::chan::messenger", offsets: None };

/// See [`TaskKind::run`].
///
/// # Safety
/// - **share**: `task` is the share of a `Bell` that belongs to the calling goroutine.
unsafe fn run(task: *mut Task) -> bool {
    sched::begin_prepared();
    // SAFETY: share — promised by the caller.
    let bell = unsafe { Arc::from_raw(task.cast_const().cast::<Bell>()) };
    exit::run_and_forget(move || {
        // It stays: the bell may hang again already, for another ringing.
        let waker = bell.waker.hold().clone();
        waker.wake();
    });
    false
}

/// # Safety
/// - **never**: it is not called: nobody hears of the end.
unsafe fn complete(_task: *mut Task) {}

/// Bells that hang in a channel, in the order they came. Under its lock.
#[derive(Debug)]
pub(super) struct Bells {
    first: *const Bell,
    last: *const Bell,
}

// SAFETY: bells are used under the channel's lock.
unsafe impl Send for Bells {}

impl Bells {
    pub(super) const fn new() -> Bells {
        Bells { first: ptr::null(), last: ptr::null() }
    }

    /// # Safety
    /// - **alive**: the bell is taken down before it goes; it does not hang.
    pub(super) unsafe fn hang(&mut self, bell: &Bell, mut messenger: Messenger) {
        bell.messenger.set(messenger.0.take());
        bell.next.set(ptr::null());
        bell.before.set(self.last);
        // SAFETY: alive — those that hang are.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.next.set(bell),
            None => self.first = bell,
        }
        self.last = bell;
    }

    /// Takes a bell down. `None`: it does not hang.
    pub(super) fn take_down(&mut self, bell: &Bell) -> Option<Messenger> {
        let messenger = bell.messenger.take()?;
        let (before, next) = (bell.before.get(), bell.next.get());
        // SAFETY: alive — those that hang are.
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

    pub(super) fn hangs(bell: &Bell) -> bool {
        bell.messenger.get().is_some()
    }

    /// Takes the first one down: whom to make ready, so that it rings.
    #[inline]
    pub(super) fn ring(&mut self) -> Option<&'static G> {
        // SAFETY: alive — those that hang are.
        let bell = unsafe { self.first.as_ref() }?;
        self.take_down(bell).and_then(|mut messenger| messenger.0.take())
    }
}

impl<T> Core<T> {
    /// Takes the first bell down: whom to make ready, so that it rings.
    #[inline]
    pub(super) fn ring(&self, state: &mut State) -> Option<&'static G> {
        let g = state.bells.ring();
        if g.is_some() {
            self.tell_bells(state);
        }
        g
    }

    /// Shows those without the lock whether a bell hangs.
    pub(super) fn tell_bells(&self, state: &State) {
        self.bells_hang.store(!state.bells.is_empty(), Ordering::Relaxed);
    }

    /// Whether a goroutine, a thread or async code waits to receive, without the lock.
    pub(super) fn is_received_from(&self) -> bool {
        self.receivers_wait.load(Ordering::Relaxed) || self.bells_hang.load(Ordering::Relaxed)
    }
}
