//! A goroutine's beginning and end.
//!
//! **Beginning.** A new G has no stack. The first to run it takes one: from the P's cache, with the
//! identity of an earlier owner, or from the depot, by g0. A stack without identity gets one from
//! the goroutine itself: it starts with the M's thread pointer, with preemption on, since building
//! an identity allocates; then it starts over with its own.
//!
//! **End.** The goroutine runs its thread-locals' destructors, says that it is done, and leaves for
//! good. Whoever runs next wipes the identity and puts stack and G into the P's caches.
//!
//! **No memory for a stack.** The G waits until another goroutine ends. With no stack in use at all,
//! none can end: fatal.

use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::gmp::m::M;
use crate::gmp::p::{Caches, P};
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::sched::state::global::{ID_BATCH, SCHED};
use crate::sched::wake;
use crate::sys::barrier;
use crate::sys::fatal::fatal;
use gosched_fiber::arch::{self, SavedContext};
use gosched_fiber::stack::StackError;
use gosched_fiber::{Stack, identity};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// A P keeps so many dead Gs, Go's number; then half of them go to all.
/// Go: the 64 in gfput.
const MAX_FREE_GS: usize = 64;
const FREE_GS_BATCH: usize = 32;

/// A dead G of the P's, or of all. `None`: there is none, and memory is needed. Preemption is off.
/// Go: gfget.
#[inline]
pub(crate) fn take_free_g(p: &'static P) -> Option<&'static G> {
    // SAFETY: owner — the caller has the P.
    let caches = unsafe { p.caches.get() };
    let g = caches.free.pop_front().or_else(|| refill(&mut caches.free));
    p.free_g_count.store(caches.free.len() as u32, Ordering::Relaxed);
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

/// One in so many batches of ids, the first one's goroutine is tracked: one goroutine in 1024.
const ID_BATCHES_PER_TRACKED_G: u32 = 64;

/// An id for a goroutine that starts on this P, and a dead G that it is to be. Preemption is off.
/// Go: p.goidcache in newproc1.
#[inline]
pub(crate) fn take_id(p: &'static P, g: &'static G) -> u64 {
    // SAFETY: owner — the caller has the P.
    let caches = unsafe { p.caches.get() };
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

/// A dead G comes with the stack of its last life, if it was of the usual size: laid out here, or given
/// up if this life asked for another size. With preemption off, by the owner of `p`.
#[inline]
pub(crate) fn use_kept_stack(p: &'static P, g: &'static G) {
    // SAFETY: owner — a dead G that was just taken.
    let frame = unsafe { g.frame.get() };
    let Some(stack) = &frame.stack else { return };
    if frame.size.is_none() { write_first_frame(g, stack) } else { give_up_kept_stack(p, g) }
}

/// The stack of a dead G's last life, to the P's cache. With preemption off, by the owner of `p`.
pub(crate) fn give_up_kept_stack(p: &'static P, g: &'static G) {
    // SAFETY: owner — a dead G that was just taken.
    if let Some(stack) = unsafe { g.frame.get() }.stack.take() {
        // SAFETY: owner — the caller has the P.
        unsafe { p.caches.get() }.stacks.put(stack);
    }
}

/// Whether `g` can be switched to now: it has a stack, or gets one that is at hand.
#[inline]
pub(crate) fn ensure_cached_stack(m: &'static M, g: &'static G) -> bool {
    if g.has_stack() {
        return true;
    }
    // SAFETY: owner — the caller took it from a queue.
    let frame = unsafe { g.frame.get() };
    let Some(p) = m.p().filter(|_| frame.size.is_none()) else { return false };
    // SAFETY: owner — the caller has the P.
    let stacks = unsafe { &mut p.caches.get().stacks };
    frame.stack = stacks.take_cached();
    frame.stack.as_ref().inspect(|stack| write_first_frame(g, stack)).is_some()
}

/// Gives `g` a stack, if it has none. On g0, with a P. False: it waits for one.
pub(crate) fn ensure_stack(m: &'static M, g: &'static G) -> bool {
    if ensure_cached_stack(m, g) {
        return true;
    }
    let Some(p) = m.p() else { return false };
    // SAFETY: owner — the caller has the P.
    let stacks = unsafe { &mut p.caches.get().stacks };
    // SAFETY: owner — the caller took it from a queue.
    let frame = unsafe { g.frame.get() };
    let size = frame.size.unwrap_or(stacks.size());
    let taken = stacks.take(size).or_else(|_| {
        collect_stacks(p);
        // SAFETY: owner — the caller has the P.
        unsafe { p.caches.get() }.stacks.take(size)
    });
    match taken {
        Ok(stack) => {
            TRIED_AGAIN.store(false, Ordering::Relaxed);
            write_first_frame(g, frame.stack.insert(stack));
            true
        }
        Err(why) => {
            ERRNO.store(errno_of(&why), Ordering::Relaxed);
            queue_for_stack(g);
            false
        }
    }
}

/// Stacks that wait for use on this P and on idle ones, to the depot.
#[cold]
fn collect_stacks(p: &'static P) {
    // SAFETY: owner — the caller has the P.
    give_up_stacks(unsafe { p.caches.get() });
    let locked = SCHED.lock.lock();
    for idle in locked.idle_ps.iter() {
        // SAFETY: owner — it is in the list of idle Ps, whose lock is held.
        give_up_stacks(unsafe { idle.caches.get() });
    }
}

/// The code that a goroutine begins with.
#[derive(Debug)]
pub(crate) struct FirstFrames {
    /// On a stack that has an identity.
    pub(crate) with_identity: arch::Entry,
    /// On a stack that has none yet.
    pub(crate) without_identity: arch::Entry,
}

/// Set when the runtime starts: `first_frame` is above this module.
pub(crate) static FIRST_FRAMES: OnceLock<FirstFrames> = OnceLock::new();

#[inline]
fn first_frames() -> &'static FirstFrames {
    match FIRST_FRAMES.get() {
        Some(frames) => frames,
        None => fatal!("a goroutine is started before the runtime"),
    }
}

/// Puts the first frame on the stack of `g`.
/// Go: gostartcallfn in newproc1.
#[inline]
fn write_first_frame(g: &'static G, stack: &Stack) {
    stack.set_owner(g.id());
    let (entry, thread_pointer) = if stack.has_identity() {
        (first_frames().with_identity, identity::thread_pointer(stack))
    } else {
        // SAFETY: carried — a stack without identity is laid out on g0.
        let m = unsafe { M::current() };
        (first_frames().without_identity, m.carrier.thread_pointer())
    };
    // SAFETY: mapped, quiet — the stack is ours, and nothing runs on it.
    let sp = unsafe { arch::first_frame(stack.top(), entry, ptr::from_ref(g) as usize) };
    // SAFETY: owner — the caller took it from a queue, or from the dead.
    *unsafe { g.saved.get() } = SavedContext { sp, thread_pointer };
    g.set_has_stack(true);
}

/// Whether a goroutine's end can be published without a lock or a system call.
#[inline]
pub(crate) fn can_recycle_without_lock(m: &'static M) -> bool {
    let Some(p) = m.p() else { return false };
    // SAFETY: owner — the caller has the P.
    let caches = unsafe { p.caches.get() };
    caches.free.len() < MAX_FREE_GS - 1
        && !caches.ends.wrapping_add(1).is_multiple_of(EXITS_PER_STACK_TRIM)
        && !STACK_WANTED.load(Ordering::Relaxed)
}

/// One in so many stacks gives back what it touched beyond its first pages: asking the kernel each
/// time costs more than the whole reuse.
const EXITS_PER_STACK_TRIM: u32 = 256;

/// A goroutine that is finished: its G, with the stack, to the P's dead ones.
/// Go: gdestroy.
pub(crate) fn recycle_g(m: &'static M, g: &'static G) {
    g.transition(GState::Running, GState::Dead);
    g.set_exiting(false);
    g.set_has_stack(false);
    g.forget_reason();
    if m.locked_g().is_some() {
        // It ended while locked: the thread is not as others may expect it, and ends too.
        m.set_locked_g(None);
        g.pinned.store(ptr::null_mut(), Ordering::Relaxed);
        g.os_thread_lock_count.store(0, Ordering::Relaxed);
        m.set_dying(true);
    }
    let Some(p) = m.p() else { fatal!("goroutine {} ended on M{} that has no P", g.id(), m.id) };
    // SAFETY: owner — the caller has the P.
    let caches = unsafe { p.caches.get() };
    // SAFETY: owner — it has left for good.
    let frame = unsafe { g.frame.get() };
    if let Some(stack) = &frame.stack {
        // SAFETY: quiet — its goroutine retired it, and has left.
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
    p.free_g_count.store(caches.free.len() as u32, Ordering::Relaxed);
    if STACK_WANTED.load(Ordering::Relaxed) {
        give_up_stacks(caches);
        retry_stackless();
    }
}

/// A dead G for the P's next goroutines.
/// Go: gfput.
pub(crate) fn put_free_g(caches: &mut Caches, g: &'static G) {
    caches.free.push_front(g);
    if caches.free.len() >= MAX_FREE_GS {
        spill(caches);
    }
}

/// Half of a P's dead Gs to all, without their stacks.
#[cold]
fn spill(caches: &mut Caches) {
    let mut gone = GList::new();
    while caches.free.len() > FREE_GS_BATCH {
        let Some(g) = caches.free.pop_front() else { break };
        // SAFETY: owner — a dead G that was just taken.
        if let Some(stack) = unsafe { g.frame.get() }.stack.take() {
            caches.stacks.put(stack);
        }
        gone.push_front(g);
    }
    SCHED.lock.lock().free.prepend(gone);
}

/// The stacks of a P's dead Gs, and of its cache, to the depot. By the P's owner.
pub(crate) fn give_up_stacks(caches: &mut Caches) {
    let mut bare = GList::new();
    while let Some(g) = caches.free.pop_front() {
        // SAFETY: owner — a dead G that was just taken.
        if let Some(stack) = unsafe { g.frame.get() }.stack.take() {
            caches.stacks.put(stack);
        }
        bare.push_back(g);
    }
    caches.free.prepend(bare);
    caches.stacks.clear();
}

/// Some G waits for a stack.
static STACK_WANTED: AtomicBool = AtomicBool::new(false);

/// Why the last one could not be had.
pub(crate) static ERRNO: AtomicI32 = AtomicI32::new(0);

pub(crate) fn errno_of(why: &StackError) -> i32 {
    match why {
        StackError::Memory { errno, .. } => *errno,
        _ => libc::ENOMEM,
    }
}

/// [`Departure::NoStack`](crate::gmp::m::Departure::NoStack): its identity could not be built.
pub(crate) fn drop_stack_and_queue(g: &'static G) {
    g.transition(GState::Running, GState::Runnable);
    // SAFETY: owner — it has left.
    drop(unsafe { g.frame.get() }.stack.take());
    g.set_has_stack(false);
    queue_for_stack(g);
}

/// It goes on when a goroutine ends. If none has a stack by now, none will: whoever ended before this
/// one was known to wait has not looked for it.
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

/// Nothing had a stack, and the one that waits was given another try; until one is had.
static TRIED_AGAIN: AtomicBool = AtomicBool::new(false);

/// No goroutine has a stack, so none will ever be given back.
pub(crate) fn fatal_out_of_stacks() -> ! {
    let errno = ERRNO.load(Ordering::Relaxed);
    fatal!(
        "no memory for a goroutine's stack, and no goroutine left that could give one back: {}",
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

/// A stack was given back: the one that waits longest tries again.
#[cold]
fn retry_stackless() {
    let mut locked = SCHED.lock.lock();
    if let Some(g) = locked.stackless.pop_front() {
        locked.push(g);
    }
    STACK_WANTED.store(!locked.stackless.is_empty(), Ordering::Relaxed);
    drop(locked);
    wake::wake_if_idle();
}
