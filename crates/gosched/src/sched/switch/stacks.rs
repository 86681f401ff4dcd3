//! Stacks and records of Gs: where a G gets them from, and where they go when it exits.
//!
//! **Start.** A dead G from the P's cache usually still has the stack of its previous life. A G
//! without a stack gets one from the M that first runs it: from the P's cache, or on g0 from the
//! depot. A stack from the cache has an identity, wiped since its previous owner. On a stack
//! without identity, the G builds the identity itself (see `first_frame`).
//!
//! **Exit.** The G runs the destructors of its thread-locals, reports that it is done, and switches
//! away for the last time. The code that runs next on the M wipes the identity and puts the G, with
//! its stack, into the P's cache of dead Gs.
//!
//! **No memory for a stack.** The G waits until another G exits. If no G has a stack, none can
//! exit, and the process ends with a fatal error.
//!
//! This module never allocates the record of a G: `spawn` does.

use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::gmp::p::Caches;
use crate::gmp::record::record;
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::gmp::token::{OnM, OwnedP};
use crate::probe::event::EventKind;
use crate::probe::field::Place;
use crate::sched::state::global::{ID_BATCH, SCHED};
use crate::sched::wake;
use crate::sys::barrier;
use crate::sys::fatal::fatal;
use gosched_fiber::arch::{self, SavedContext};
use gosched_fiber::hook::Hook;
use gosched_fiber::stack::StackError;
use gosched_fiber::{Stack, identity};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// How many dead Gs a P collects before it moves half of them to the global list (Go's number).
/// Go: the 64 in gfput.
const MAX_FREE_GS: usize = 64;
const FREE_GS_BATCH: usize = 32;

/// Takes a dead G from the P's cache, or from the global list. Returns `None` if there is no dead G
/// and the caller must allocate.
/// Go: gfget.
#[inline]
pub(crate) fn take_free_g(mut p: OwnedP<'_>) -> Option<&'static G> {
    let free = &mut p.caches().free;
    let g = free.pop_front().or_else(|| refill(free));
    p.publish_free_gs();
    g
}

#[cold]
fn refill(free: &mut GList) -> Option<&'static G> {
    let mut locked = SCHED.lock.lock();
    for _ in 0..FREE_GS_BATCH {
        match locked.free.pop_front() {
            Some(g) => free.push_front(g),
            None => break,
        }
    }
    free.pop_front()
}

/// The first G of one in this many batches of ids is tracked: one G in 1024.
const ID_BATCHES_PER_TRACKED_G: u32 = 64;

/// Returns an id for `g`, a dead G that is about to start on this P.
/// Go: p.goidcache in newproc1.
#[inline]
pub(crate) fn take_id(mut p: OwnedP<'_>, g: &'static G) -> u64 {
    let caches = p.caches();
    let ids = &mut caches.ids;
    if ids.0 == ids.1 {
        ids.0 = SCHED.take_ids(ID_BATCH);
        ids.1 = ids.0 + ID_BATCH;
        if caches.batches.is_multiple_of(ID_BATCHES_PER_TRACKED_G) {
            g.track();
        }
        caches.batches = caches.batches.wrapping_add(1);
    }
    ids.0 += 1;
    ids.0 - 1
}

/// Prepares the stack that `g` kept from its previous life. If this life needs a stack of another
/// size, moves the kept stack to the P's cache instead.
#[inline]
pub(crate) fn use_kept_stack(mut p: OwnedP<'_>, g: &'static G) {
    // SAFETY: owner — the caller has taken the dead G from a list.
    let frame = unsafe { g.frame.get() };
    let Some(stack) = &frame.stack else { return };
    if frame.size.is_none() {
        write_first_frame(p.on_m(), g, stack);
    } else {
        give_up_kept_stack(p, g);
    }
}

/// Moves the stack that `g` kept from its previous life to the P's cache.
pub(crate) fn give_up_kept_stack(mut p: OwnedP<'_>, g: &'static G) {
    // SAFETY: owner — the caller has taken the dead G from a list.
    if let Some(stack) = unsafe { g.frame.get() }.stack.take() {
        p.caches().stacks.put(stack);
    }
}

/// Gives `g` a stack from the P's cache if it has none and needs the default size. Returns whether
/// `g` has a stack.
#[inline(always)]
pub(crate) fn ensure_cached_stack(on: OnM<'_>, g: &'static G) -> bool {
    g.has_stack() || take_cached_stack(on, g)
}

/// Gives `g`, which has no stack, a stack from the P's cache if it needs the default size. Returns
/// whether it has one now.
fn take_cached_stack(mut on: OnM<'_>, g: &'static G) -> bool {
    // SAFETY: owner — the caller took `g` from a queue.
    let frame = unsafe { g.frame.get() };
    let Some(mut p) = on.own_p().filter(|_| frame.size.is_none()) else { return false };
    frame.stack = p.caches().stacks.take_cached();
    frame.stack.as_ref().inspect(|stack| write_first_frame(on, g, stack)).is_some()
}

/// Gives `g` a stack if it has none. Called on g0, with a P. Returns false if there is no memory
/// for a stack: `g` is then queued until another G exits.
pub(crate) fn ensure_stack(mut on: OnM<'_>, g: &'static G) -> bool {
    if ensure_cached_stack(on.lend(), g) {
        return true;
    }
    let Some(mut p) = on.own_p() else { return false };
    // SAFETY: owner — the caller took `g` from a queue.
    let frame = unsafe { g.frame.get() };
    let size = frame.size.unwrap_or(p.caches().stacks.size());
    let taken = p.caches().stacks.take(size).or_else(|_| {
        collect_stacks(p.lend());
        p.caches().stacks.take(size)
    });
    match taken {
        Ok(stack) => {
            TRIED_AGAIN.store(false, Ordering::Relaxed);
            write_first_frame(on, g, frame.stack.insert(stack));
            true
        }
        Err(why) => {
            ERRNO.store(errno_of(&why), Ordering::Relaxed);
            queue_for_stack(g);
            false
        }
    }
}

/// Moves the unused stacks of this P and of all idle Ps to the depot.
#[cold]
fn collect_stacks(mut p: OwnedP<'_>) {
    give_up_stacks(p.caches());
    SCHED.lock.lock().for_each_idle_cache(give_up_stacks);
}

/// The functions that a G starts in.
#[derive(Debug)]
pub(crate) struct FirstFrames {
    /// On a stack that has an identity.
    pub(crate) with_identity: arch::Entry,
    /// On a stack that has no identity yet.
    pub(crate) without_identity: arch::Entry,
}

/// The functions that Gs start in. Set when the runtime starts, because `first_frame` is above this
/// module.
pub(crate) static FIRST_FRAMES: Hook<FirstFrames> = Hook::new();

#[inline]
fn first_frames() -> &'static FirstFrames {
    match FIRST_FRAMES.get() {
        Some(frames) => frames,
        None => fatal!("a goroutine was started before the runtime"),
    }
}

/// Writes the first frame onto the stack of `g`, so that a switch to `g` starts it.
/// Go: gostartcallfn in newproc1.
#[inline]
fn write_first_frame(on: OnM<'_>, g: &'static G, stack: &Stack) {
    stack.set_owner(g.id());
    let (entry, thread_pointer) = if stack.has_identity() {
        (first_frames().with_identity, identity::thread_pointer(stack))
    } else {
        // Only g0 prepares a stack without identity.
        (first_frames().without_identity, on.carrier.thread_pointer())
    };
    // SAFETY: mapped, quiet — `g` owns the stack, and nothing runs on it.
    let sp = unsafe { arch::first_frame(stack.top(), entry, ptr::from_ref(g) as usize) };
    // SAFETY: owner — the caller took `g` from a queue or from a list of dead Gs.
    *unsafe { g.saved.get() } = SavedContext { sp, thread_pointer };
    g.set_has_stack(true);
}

/// Returns whether the exit of a G can be published without a lock or a system call.
#[inline]
pub(crate) fn can_recycle_without_lock(mut on: OnM<'_>) -> bool {
    let Some(mut p) = on.own_p() else { return false };
    let caches = p.caches();
    caches.free.len() < MAX_FREE_GS - 1
        && !caches.ends.wrapping_add(1).is_multiple_of(EXITS_PER_STACK_TRIM)
        && !STACK_WANTED.load(Ordering::Relaxed)
}

/// On each P, one stack per this many exits returns its memory, beyond the first pages, to the
/// kernel. A system call on each exit would cost more than the reuse of the stack.
const EXITS_PER_STACK_TRIM: u32 = 256;

/// Puts a G that has exited, with its stack, into the P's cache of dead Gs.
/// Go: gdestroy.
pub(crate) fn recycle_g(mut on: OnM<'_>, g: &'static G) {
    g.transition(GState::Running, GState::Dead);
    g.set_exiting(false);
    g.set_has_stack(false);
    g.forget_reason();
    if on.locked_g().is_some() {
        // The G exited while it was locked to the thread. It may have changed the thread's state,
        // so no other G may run there: the thread exits too.
        on.set_locked_g(None);
        g.pinned.replace(None);
        g.os_thread_lock_count.store(0, Ordering::Relaxed);
        on.set_dying(true);
    }
    let id = on.id;
    let Some(mut p) = on.own_p() else {
        fatal!("goroutine {} exited on M{id}, which has no P", g.id())
    };
    let caches = p.caches();
    // SAFETY: owner — the G has exited and never runs again.
    let frame = unsafe { g.frame.get() };
    if let Some(stack) = &frame.stack {
        // SAFETY: quiet — the G has retired its identity and left the stack.
        unsafe { identity::wipe(stack) };
    }
    caches.ends = caches.ends.wrapping_add(1);
    let trim = caches.ends.is_multiple_of(EXITS_PER_STACK_TRIM);
    if (frame.size.take().is_some() || trim)
        && let Some(stack) = frame.stack.take()
    {
        caches.stacks.put_trimmed(stack);
    }
    put_free_g(caches, g);
    p.publish_free_gs();
    // The other end is the heavy barrier in `queue_for_stack`: that function sees that this G has
    // no stack, or this load sees that a G wants one.
    barrier::light();
    if STACK_WANTED.load(Ordering::Relaxed) {
        give_up_stacks(p.caches());
        retry_stackless();
    }
}

/// Puts a dead G into a P's cache. Moves half of a full cache to the global list.
/// Go: gfput.
pub(crate) fn put_free_g(caches: &mut Caches, g: &'static G) {
    caches.free.push_front(g);
    if caches.free.len() >= MAX_FREE_GS {
        spill(caches);
    }
}

/// Moves half of a P's dead Gs to the global list. Their stacks stay in the P's stack cache.
#[cold]
fn spill(caches: &mut Caches) {
    let mut gone = GList::new();
    while caches.free.len() > FREE_GS_BATCH {
        let Some(g) = caches.free.pop_front() else { break };
        // SAFETY: owner — the caller took the dead G from a list.
        if let Some(stack) = unsafe { g.frame.get() }.stack.take() {
            caches.stacks.put(stack);
        }
        gone.push_front(g);
    }
    SCHED.lock.lock().free.prepend(gone);
}

/// Moves the stacks of a P's dead Gs and of its stack cache to the depot.
pub(crate) fn give_up_stacks(caches: &mut Caches) {
    let mut bare = GList::new();
    while let Some(g) = caches.free.pop_front() {
        // SAFETY: owner — the caller took the dead G from a list.
        if let Some(stack) = unsafe { g.frame.get() }.stack.take() {
            caches.stacks.put(stack);
        }
        bare.push_back(g);
    }
    caches.free.prepend(bare);
    caches.stacks.clear();
}

/// Whether a G waits for a stack.
static STACK_WANTED: AtomicBool = AtomicBool::new(false);

/// The errno of the last stack that could not be allocated.
pub(crate) static ERRNO: AtomicI32 = AtomicI32::new(0);

pub(crate) fn errno_of(why: &StackError) -> i32 {
    match why {
        StackError::Memory { errno, .. } => *errno,
        _ => libc::ENOMEM,
    }
}

/// Carries out [`Departure::NoStack`](crate::gmp::m::Departure::NoStack): frees the stack whose
/// identity could not be built, and queues `g` until it can get another one.
pub(crate) fn drop_stack_and_queue(g: &'static G) {
    g.transition(GState::Running, GState::Runnable);
    // SAFETY: owner — the G has switched away.
    drop(unsafe { g.frame.get() }.stack.take());
    g.set_has_stack(false);
    queue_for_stack(g);
}

/// Queues `g` until another G exits. If no G has a stack, no exit can follow. But a G that exited
/// before `STACK_WANTED` was set may have freed a stack without retrying `g`, so `g` is retried
/// once. If that fails too, the process ends.
fn queue_for_stack(g: &'static G) {
    SCHED.lock.lock().stackless.push_back(g);
    STACK_WANTED.store(true, Ordering::Relaxed);
    barrier::heavy();
    if !slab::all().any(G::has_stack) {
        let first = !TRIED_AGAIN.swap(true, Ordering::Relaxed);
        if !first {
            fatal_out_of_stacks();
        }
        retry_stackless();
    }
}

/// Whether a waiting G has been retried while no G had a stack. Reset by [`ensure_stack`].
static TRIED_AGAIN: AtomicBool = AtomicBool::new(false);

/// Ends the process: Gs wait for stacks, and no G is left that could free one.
pub(crate) fn fatal_out_of_stacks() -> ! {
    let errno = ERRNO.load(Ordering::Relaxed);
    fatal!(
        "no memory for a goroutine's stack, and no other goroutine is left that could free one: {}",
        Errno(errno)
    )
}

struct Errno(i32);

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            libc::ENOMEM => f.write_str("errno 12, out of memory"),
            libc::EAGAIN => f.write_str("errno 11, try again"),
            other => write!(f, "errno {other}"),
        }
    }
}

/// Moves the G that has waited longest for a stack to the global queue, where it is tried again.
#[cold]
fn retry_stackless() {
    let mut locked = SCHED.lock.lock();
    if let Some(g) = locked.stackless.pop_front() {
        record(|| EventKind::Enqueue { g: g.id(), to: Place::Global });
        locked.push(g);
    }
    STACK_WANTED.store(!locked.stackless.is_empty(), Ordering::Relaxed);
    drop(locked);
    wake::wake_if_idle();
}
