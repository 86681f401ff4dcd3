//! The record of a polled descriptor: Go's pollDesc.
//!
//! Records are never freed and never move, so an event that arrives late still finds a record,
//! though perhaps one that is reused for another descriptor. Each record has a generation that
//! changes with every reuse and is part of the key that the poller returns, so most late events are
//! recognized and dropped. The remaining ones cause a needless attempt.
//!
//! This module never asks the kernel for events and never makes a G ready: its callers do both.

use super::g::G;
use super::list::GList;
use super::timer::{Timer, TimerKind};
use crate::protocol::io_waiters::IoWaiters;
use crate::protocol::readiness::Readiness;
use crate::sys::Lock;
use crate::sys::poller::{Direction, Event};
use gosched_fiber::base::atomic_ref::AtomicRef;
use gosched_fiber::lock::NoPreemptLockGuard;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The record of a polled descriptor (see the top of this file).
/// Go: pollDesc.
#[derive(Debug)]
pub(crate) struct PollDesc {
    read: Side,
    write: Side,
    /// Generation of the record. Changes each time the record is freed.
    generation: AtomicU32,
    /// Whether the poller has reported a hang-up, an error or urgent data: an attempt may then not
    /// find everything that has happened.
    exceptional: AtomicBool,
    /// Next record in the free list.
    next: AtomicRef<PollDesc>,
}

fn pop_free() -> Option<&'static PollDesc> {
    let mut free = NoPreemptLockGuard::new(&FREE);
    let desc = (*free)?;
    *free = desc.next.load();
    Some(desc)
}

/// One direction of a descriptor. `repr(C)`: a pointer to the timer is a pointer to the side.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Side {
    /// The timer of the deadline. It is in no heap if no deadline is set.
    pub(crate) timer: Timer,
    pub(crate) readiness: Readiness,
    callback: Lock<Option<AsyncCallback>>,
}

/// The callback of async code that waits: a function and its argument. `notify` returns the G to
/// make ready, if any, and must not allocate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsyncCallback {
    pub(crate) notify: unsafe fn(*const ()) -> Option<&'static G>,
    pub(crate) data: *const (),
    /// Generation of the record when the callback was set.
    pub(crate) generation: u32,
}

// SAFETY: the caller of `set_callback` promises that the callback may be called on any thread.
unsafe impl Send for AsyncCallback {}

/// Stored in the readiness word in place of a G: the async callback must be called.
const ASYNC_CALLBACK: usize = 16;

/// The waiters for any descriptor: goroutines, threads and async callbacks.
pub(crate) static IO_WAITERS: IoWaiters = IoWaiters::new();

/// Returns whether there is a waiter for any descriptor.
/// Go: netpollAnyWaiters.
#[inline]
pub(crate) fn has_waiters() -> bool {
    IO_WAITERS.has_any()
}

/// The list of unused records, linked through `next`.
static FREE: Lock<Option<&'static PollDesc>> = Lock::new(None);

/// Number of records that are allocated at a time.
const DESCS_PER_SLAB: usize = 64;

/// Position of the generation in a key, above the bits of an address.
const GENERATION_SHIFT: u32 = 48;

impl PollDesc {
    fn new() -> PollDesc {
        PollDesc {
            read: Side::new(),
            write: Side::new(),
            generation: AtomicU32::new(0),
            exceptional: AtomicBool::new(false),
            next: AtomicRef::new(),
        }
    }

    /// Returns an unused record for a new descriptor. May allocate.
    /// Go: pollCache.alloc.
    pub(crate) fn alloc() -> &'static PollDesc {
        let desc = pop_free().unwrap_or_else(|| {
            let new =
                std::iter::repeat_with(PollDesc::new).take(DESCS_PER_SLAB).collect::<Vec<_>>();
            let (first, rest) = Vec::leak(new).split_first().unwrap_or_else(|| unreachable!());
            rest.iter().for_each(PollDesc::push_free);
            first
        });
        desc.exceptional.store(false, Ordering::Relaxed);
        desc.read.readiness.open();
        desc.write.readiness.open();
        desc
    }

    /// Frees the record. Its descriptor is gone, and has no waiter.
    /// Go: pollCache.free.
    pub(crate) fn free(&'static self) {
        self.read.timer.stop();
        self.write.timer.stop();
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.push_free();
    }

    fn push_free(&'static self) {
        let mut free = NoPreemptLockGuard::new(&FREE);
        self.next.store(*free);
        *free = Some(self);
    }

    pub(crate) fn side(&self, direction: Direction) -> &Side {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// Returns the key by which the poller identifies this record.
    pub(crate) fn key(&'static self) -> usize {
        let generation = self.generation.load(Ordering::Relaxed) as u16;
        ptr::from_ref(self).expose_provenance() | usize::from(generation) << GENERATION_SHIFT
    }

    #[cfg_attr(not(feature = "hyper"), expect(dead_code, reason = "used only by async code"))]
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Returns whether an attempt may not find everything that has happened.
    #[inline]
    pub(crate) fn is_exceptional(&self) -> bool {
        self.exceptional.load(Ordering::Relaxed)
    }
}

/// Handles an event of the poller: pushes the Gs to make ready onto `ready`. Must be called inside
/// the runtime.
/// Go: netpollready.
pub(crate) fn deliver_event(event: Event, ready: &mut GList) {
    let generation = (event.key >> GENERATION_SHIFT) as u16;
    let address = event.key & ((1 << GENERATION_SHIFT) - 1);
    // SAFETY: a key contains the address of a record; records are never freed.
    let desc = unsafe { &*ptr::with_exposed_provenance::<PollDesc>(address) };
    if desc.generation.load(Ordering::Relaxed) as u16 != generation {
        return;
    }
    if event.exceptional {
        desc.exceptional.store(true, Ordering::Relaxed);
    }
    let sides = [(event.readable, &desc.read), (event.writable, &desc.write)];
    for (_, side) in sides.into_iter().filter(|(is_ready, _)| *is_ready) {
        push_if_waiting(side.resolve_waiter(side.readiness.set_ready()), ready);
    }
}

fn push_if_waiting(g: Option<&'static G>, ready: &mut GList) {
    if let Some(g) = g {
        ready.push_back(g);
    }
}

static TIMER: TimerKind = TimerKind { fire, can_wake: None };

impl Side {
    fn new() -> Side {
        Side {
            // SAFETY: fire — the timer is the first field of a `Side`, and sides are never freed.
            timer: unsafe { Timer::new(&TIMER) },
            readiness: Readiness::new(),
            callback: Lock::new(None),
        }
    }

    /// Commits `g`, whose context is saved, to a wait. Returns false if it need not wait.
    pub(crate) fn commit(&self, g: &'static G) -> bool {
        self.commit_waiter(ptr::from_ref(g).expose_provenance())
    }

    /// Commits async code to a wait: the callback is called once. Returns false if it need not
    /// wait.
    ///
    /// # Safety
    /// - **alive**: the callback may be called until [`Side::clear_callback`] has been called with
    ///   its data.
    #[cfg_attr(not(feature = "hyper"), expect(dead_code, reason = "used only by async code"))]
    pub(crate) unsafe fn set_callback(&self, callback: AsyncCallback) -> bool {
        *NoPreemptLockGuard::new(&self.callback) = Some(callback);
        self.commit_waiter(ASYNC_CALLBACK)
    }

    /// Ends the wait of async code, if there is one. Called by a user of the descriptor.
    #[cfg_attr(not(feature = "hyper"), expect(dead_code, reason = "used only by async code"))]
    pub(crate) fn cancel_async_wait(&self) {
        if self.readiness.unblock().is_some() {
            IO_WAITERS.remove();
        }
    }

    /// Removes the callback with this data and generation. When this returns, the callback is not
    /// running and is not called again. The record may already belong to another descriptor; the
    /// callback of that descriptor stays.
    #[cfg_attr(not(feature = "hyper"), expect(dead_code, reason = "used only by async code"))]
    pub(crate) fn clear_callback(&self, data: *const (), generation: u32) {
        let mut callback = NoPreemptLockGuard::new(&self.callback);
        if callback.is_some_and(|callback| {
            ptr::eq(callback.data, data) && callback.generation == generation
        }) {
            *callback = None;
        }
    }

    fn commit_waiter(&self, waiter: usize) -> bool {
        IO_WAITERS.add();
        let waits = self.readiness.commit(waiter);
        if !waits {
            IO_WAITERS.remove();
        }
        waits
    }

    /// Returns the G to make ready for a waiter that was taken from the readiness word. Calls the
    /// async callback if it is the waiter.
    pub(crate) fn resolve_waiter(&self, waiter: Option<usize>) -> Option<&'static G> {
        let waiter = waiter?;
        IO_WAITERS.remove();
        if waiter != ASYNC_CALLBACK {
            // SAFETY: any other value is the address of a G; Gs are never freed.
            return Some(unsafe { &*ptr::with_exposed_provenance::<G>(waiter) });
        }
        let callback = NoPreemptLockGuard::new(&self.callback);
        // SAFETY: alive — promised by the caller of `set_callback`; `clear_callback` takes this
        // lock.
        callback.and_then(|callback| unsafe { (callback.notify)(callback.data) })
    }
}

/// Reports to the side that its deadline has passed.
///
/// # Safety
/// - **side**: the timer is the first field of a `Side`.
unsafe fn fire(timer: &Timer, _now: u64, ready: &mut GList) -> Option<u64> {
    // SAFETY: side — promised by the caller.
    let side = unsafe { &*ptr::from_ref(timer).cast::<Side>() };
    push_if_waiting(side.resolve_waiter(side.readiness.expire()), ready);
    None
}
