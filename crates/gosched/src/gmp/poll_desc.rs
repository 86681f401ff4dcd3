//! What is known of a descriptor that is polled: Go's pollDesc. Records are never freed, and never move: an
//! event that comes late finds one, if only another's. Each has a number that changes with every life, which
//! is part of the key the poller knows it by, so most late events are seen for what they are. The rest make
//! somebody try in vain.

use super::g::G;
use super::list::GList;
use super::readiness::Readiness;
use super::timer::{Timer, TimerKind};
use crate::sys::Lock;
use crate::sys::poller::{Direction, Event};
use gosched_fiber::lock::NoPreemptLockGuard;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// See the top of this file.
/// Go: pollDesc.
#[derive(Debug)]
pub(crate) struct PollDesc {
    read: Side,
    write: Side,
    /// Which life it is.
    generation: AtomicU32,
    /// The other side is gone, or something is special: what an attempt finds is not all there is.
    exceptional: AtomicBool,
    /// The next one that is free.
    next: AtomicPtr<PollDesc>,
}

fn pop_free() -> Option<&'static PollDesc> {
    let mut free = NoPreemptLockGuard::new(&FREE);
    let desc = (*free)?;
    // SAFETY: null, or a record: they are never freed.
    *free = unsafe { desc.next.load(Ordering::Relaxed).as_ref() };
    Some(desc)
}

/// One direction. `repr(C)`: a pointer to the timer is a pointer to the side.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Side {
    /// The deadline, if there is one.
    pub(crate) timer: Timer,
    pub(crate) readiness: Readiness,
    callback: Lock<Option<AsyncCallback>>,
}

/// How async code is told: what to call, with what. It says whom to make ready, and allocates nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsyncCallback {
    pub(crate) notify: unsafe fn(*const ()) -> Option<&'static G>,
    pub(crate) data: *const (),
    /// In which life of the record it was left.
    pub(crate) generation: u32,
}

// SAFETY: whoever leaves one promises that it may be rung anywhere.
unsafe impl Send for AsyncCallback {}

/// In the place of a G: the async callback is to be called.
const ASYNC_CALLBACK: usize = 16;

/// How many wait, for any descriptor.
static WAITERS: AtomicUsize = AtomicUsize::new(0);

/// Whether anybody waits.
/// Go: netpollAnyWaiters.
#[inline]
pub(crate) fn has_waiters() -> bool {
    WAITERS.load(Ordering::Relaxed) != 0
}

/// Records that are in no use, through their links.
static FREE: Lock<Option<&'static PollDesc>> = Lock::new(None);

/// How many are made at a time.
const DESCS_PER_SLAB: usize = 64;

/// Where the number of the life is in a key: addresses are shorter.
const GENERATION_SHIFT: u32 = 48;

impl PollDesc {
    fn new() -> PollDesc {
        PollDesc {
            read: Side::new(),
            write: Side::new(),
            generation: AtomicU32::new(0),
            exceptional: AtomicBool::new(false),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// One that nobody uses, for a new descriptor. Allocates.
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

    /// Its descriptor is gone, and nobody waits for it.
    /// Go: pollCache.free.
    pub(crate) fn free(&'static self) {
        self.read.timer.stop();
        self.write.timer.stop();
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.push_free();
    }

    fn push_free(&'static self) {
        let mut free = NoPreemptLockGuard::new(&FREE);
        self.next.store(free.map_or(ptr::null(), ptr::from_ref).cast_mut(), Ordering::Relaxed);
        *free = Some(self);
    }

    pub(crate) fn side(&self, direction: Direction) -> &Side {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// What the poller is to call it.
    pub(crate) fn key(&'static self) -> usize {
        let generation = self.generation.load(Ordering::Relaxed) as u16;
        ptr::from_ref(self).expose_provenance() | usize::from(generation) << GENERATION_SHIFT
    }

    #[cfg_attr(not(feature = "hyper"), expect(dead_code, reason = "only async code asks"))]
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Whether what an attempt finds may not be all there is.
    #[inline]
    pub(crate) fn is_exceptional(&self) -> bool {
        self.exceptional.load(Ordering::Relaxed)
    }
}

/// Something was told: goroutines to be made ready go into the list. Inside the runtime.
/// Go: netpollready.
pub(crate) fn deliver_event(event: Event, ready: &mut GList) {
    let generation = (event.key >> GENERATION_SHIFT) as u16;
    let address = event.key & ((1 << GENERATION_SHIFT) - 1);
    // SAFETY: a key is the address of a record, and they are never freed.
    let desc = unsafe { &*ptr::with_exposed_provenance::<PollDesc>(address) };
    if desc.generation.load(Ordering::Relaxed) as u16 != generation {
        return;
    }
    if event.exceptional {
        desc.exceptional.store(true, Ordering::Relaxed);
    }
    let sides = [(event.readable, &desc.read), (event.writable, &desc.write)];
    for (_, side) in sides.into_iter().filter(|(is_ready, _)| *is_ready) {
        ready_if_there(side.resolve_waiter(side.readiness.set_ready()), ready);
    }
}

fn ready_if_there(g: Option<&'static G>, ready: &mut GList) {
    if let Some(g) = g {
        ready.push_back(g);
    }
}

static TIMER: TimerKind = TimerKind { fire, can_wake: None };

impl Side {
    fn new() -> Side {
        Side {
            // SAFETY: fire — the timer is the first field of a `Side`, and those are never freed.
            timer: unsafe { Timer::new(&TIMER) },
            readiness: Readiness::new(),
            callback: Lock::new(None),
        }
    }

    /// The context of `g` is saved: it waits. False: it need not.
    pub(crate) fn commit(&self, g: &'static G) -> bool {
        self.commit_waiter(ptr::from_ref(g).expose_provenance())
    }

    /// Async code waits: the callback is called once. False: it need not.
    ///
    /// # Safety
    /// - **alive**: the callback may be called until [`Side::clear_callback`] was called with its data.
    #[cfg_attr(not(feature = "hyper"), expect(dead_code, reason = "only async code leaves one"))]
    pub(crate) unsafe fn set_callback(&self, callback: AsyncCallback) -> bool {
        *NoPreemptLockGuard::new(&self.callback) = Some(callback);
        self.commit_waiter(ASYNC_CALLBACK)
    }

    /// No async code waits any more. By those who use the descriptor.
    #[cfg_attr(not(feature = "hyper"), expect(dead_code, reason = "only async code leaves one"))]
    pub(crate) fn cancel_async_wait(&self) {
        if self.readiness.unblock().is_some() {
            WAITERS.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The callback is not called any more; a call that was under way is over. Also where the record has
    /// another descriptor by now, whose callback stays.
    #[cfg_attr(not(feature = "hyper"), expect(dead_code, reason = "only async code leaves one"))]
    pub(crate) fn clear_callback(&self, data: *const (), generation: u32) {
        let mut callback = NoPreemptLockGuard::new(&self.callback);
        if callback.is_some_and(|callback| {
            ptr::eq(callback.data, data) && callback.generation == generation
        }) {
            *callback = None;
        }
    }

    fn commit_waiter(&self, waiter: usize) -> bool {
        // PAIR waiters: one order for this and who looks whether somebody must poll.
        WAITERS.fetch_add(1, Ordering::SeqCst);
        let waits = self.readiness.commit(waiter);
        if !waits {
            WAITERS.fetch_sub(1, Ordering::Relaxed);
        }
        waits
    }

    /// Whom to make ready, after the word said that somebody waited.
    pub(crate) fn resolve_waiter(&self, waiter: Option<usize>) -> Option<&'static G> {
        let waiter = waiter?;
        WAITERS.fetch_sub(1, Ordering::Relaxed);
        if waiter != ASYNC_CALLBACK {
            // SAFETY: what is in the word is a G, and they are never freed.
            return Some(unsafe { &*ptr::with_exposed_provenance::<G>(waiter) });
        }
        let callback = NoPreemptLockGuard::new(&self.callback);
        // SAFETY: alive — promised by who left it: it is taken back under this lock.
        callback.and_then(|callback| unsafe { (callback.notify)(callback.data) })
    }
}

/// The deadline is over.
///
/// # Safety
/// - **side**: the timer is the first field of a `Side`.
unsafe fn fire(timer: &Timer, _now: u64, ready: &mut GList) -> Option<u64> {
    // SAFETY: side — promised by the caller.
    let side = unsafe { &*ptr::from_ref(timer).cast::<Side>() };
    ready_if_there(side.resolve_waiter(side.readiness.expire()), ready);
    None
}
