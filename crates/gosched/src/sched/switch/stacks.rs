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

use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::gmp::m::{Departure, M};
use crate::gmp::p::{Caches, P};
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::sched::state::fork;
use crate::sched::state::global::{ID_BATCH, SCHED};
use crate::sched::switch::boundary::{enter, leave};
use crate::sched::switch::syscall;
use crate::sched::{switch, wake};
use crate::sys::barrier;
use crate::sys::fatal::fatal;
use gosched_context::arch::{self, Saved};
use gosched_context::carrier::{Role, set_role};
use gosched_context::stack::StackError;
use gosched_context::{Stack, identity};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// A P keeps so many dead Gs, Go's number; then half of them go to all.
const FREE_MAX: usize = 64;
const FREE_HALF: usize = 32;

/// A dead G of the P's, or of all. `None`: there is none, and memory is needed. Preemption is off.
#[inline]
pub(crate) fn take_dead(p: &'static P) -> Option<&'static G> {
    // SAFETY: owner — the caller has the P.
    let caches = unsafe { p.own.get() };
    let g = caches.free.pop_front().or_else(|| refill(&mut caches.free));
    p.dead.store(caches.free.len() as u32, Ordering::Relaxed);
    g
}

#[cold]
fn refill(free: &mut GList) -> Option<&'static G> {
    let mut locked = SCHED.lock.lock();
    for _ in 0..FREE_HALF {
        match locked.free.pop_front() {
            Some(g) => free.push_front(g),
            None => break,
        }
    }
    free.pop_front()
}

/// One in so many batches of ids, the first one's goroutine is tracked: one goroutine in 1024.
const TRACKED_BATCH: u32 = 64;

/// An id for a goroutine that starts on this P, and a dead G that it is to be. Preemption is off.
#[inline]
pub(crate) fn take_id(p: &'static P, g: &'static G) -> u64 {
    // SAFETY: owner — the caller has the P.
    let caches = unsafe { p.own.get() };
    let ids = &mut caches.ids;
    if ids.0 == ids.1 {
        ids.0 = SCHED.take_ids(ID_BATCH);
        ids.1 = ids.0 + ID_BATCH;
        if caches.batches.is_multiple_of(TRACKED_BATCH) {
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
    match frame.size.is_none() {
        true => lay_out(g, stack),
        false => give_up_kept_stack(p, g),
    }
}

/// The stack of a dead G's last life, to the P's cache. With preemption off, by the owner of `p`.
pub(crate) fn give_up_kept_stack(p: &'static P, g: &'static G) {
    // SAFETY: owner — a dead G that was just taken.
    if let Some(stack) = unsafe { g.frame.get() }.stack.take() {
        // SAFETY: owner — the caller has the P.
        unsafe { p.own.get() }.stacks.put(stack);
    }
}

/// Whether `g` can be switched to now: it has a stack, or gets one that is at hand.
#[inline]
pub(crate) fn is_ready_to_run(m: &'static M, g: &'static G) -> bool {
    if g.has_stack() {
        return true;
    }
    // SAFETY: owner — the caller took it from a queue.
    let frame = unsafe { g.frame.get() };
    let Some(p) = m.p().filter(|_| frame.size.is_none()) else { return false };
    // SAFETY: owner — the caller has the P.
    let stacks = unsafe { &mut p.own.get().stacks };
    frame.stack = stacks.take_kept();
    frame.stack.as_ref().inspect(|stack| lay_out(g, stack)).is_some()
}

/// Gives `g` a stack, if it has none. On g0, with a P. False: it waits for one.
pub(crate) fn prepare(m: &'static M, g: &'static G) -> bool {
    if is_ready_to_run(m, g) {
        return true;
    }
    let Some(p) = m.p() else { return false };
    // SAFETY: owner — the caller has the P.
    let stacks = unsafe { &mut p.own.get().stacks };
    // SAFETY: owner — the caller took it from a queue.
    let frame = unsafe { g.frame.get() };
    let size = frame.size.unwrap_or(stacks.size());
    let taken = stacks.take(size).or_else(|_| {
        collect_stacks(p);
        // SAFETY: owner — the caller has the P.
        unsafe { p.own.get() }.stacks.take(size)
    });
    match taken {
        Ok(stack) => {
            TRIED_AGAIN.store(false, Ordering::Relaxed);
            lay_out(g, frame.stack.insert(stack));
            true
        }
        Err(why) => {
            ERRNO.store(errno_of(&why), Ordering::Relaxed);
            wait_among_the_stackless(g);
            false
        }
    }
}

/// Stacks that wait for use on this P and on idle ones, to the depot.
#[cold]
fn collect_stacks(p: &'static P) {
    // SAFETY: owner — the caller has the P.
    give_up_stacks(unsafe { p.own.get() });
    let locked = SCHED.lock.lock();
    for idle in locked.idle_ps.iter() {
        // SAFETY: owner — it is in the list of idle Ps, whose lock is held.
        give_up_stacks(unsafe { idle.own.get() });
    }
}

/// Puts the first frame on the stack of `g`.
#[inline]
fn lay_out(g: &'static G, stack: &Stack) {
    stack.set_owner(g.id());
    let (entry, thread_pointer): (arch::Entry, usize) = match stack.has_identity() {
        true => (start_with_identity, identity::thread_pointer(stack)),
        // SAFETY: carried — a stack without identity is laid out on g0.
        false => (build_identity, unsafe { M::current() }.carrier.thread_pointer()),
    };
    // SAFETY: mapped, quiet — the stack is ours, and nothing runs on it.
    let sp = unsafe { arch::first_frame(stack.top(), entry, ptr::from_ref(g) as usize) };
    // SAFETY: owner — the caller took it from a queue, or from the dead.
    *unsafe { g.saved.get() } = Saved { sp, thread_pointer };
    g.set_has_stack(true);
}

/// First on a stack without identity, with the M's thread pointer: builds the identity, then starts
/// over with it.
///
/// # Safety
/// - **callback**: [`lay_out`] put it there, with the G; g0 switched to it.
unsafe extern "C" fn build_identity(_message: usize, g: usize) -> ! {
    switch::publish();
    // SAFETY: the G this runs for; Gs are never freed.
    let g: &'static G = unsafe { &*(g as *const G) };
    // SAFETY: carried — by the M whose g0 switched here.
    let m = unsafe { M::current() };
    // SAFETY: owner — it runs.
    let frame = unsafe { g.frame.get() };
    let Some(stack) = &frame.stack else { fatal!("goroutine {} runs without a stack", g.id()) };
    // On g0's stack, below its frames: here it would touch a second page, for good.
    // SAFETY: owner — the M's own thread; g0 waits.
    let below = unsafe { m.g0.get() }.sp - arch::RED_ZONE;
    let mut work = Build { stack, failed: None };
    // It allocates: whoever holds the allocator's lock must be able to get a P. This M does not
    // need one for that.
    // SAFETY: carried, counted — g0 runs with preemption off.
    unsafe { arch::preempt_on() };
    // SAFETY: mapped, quiet — g0's stack below all that it uses; callback — `build` takes a `Build`,
    // and does not unwind.
    unsafe { arch::call_on(below as *mut u8, build, (&raw mut work).cast()) };
    // SAFETY: carried — as above.
    unsafe { arch::preempt_off() };
    barrier::light();
    if m.taken.load(Ordering::Relaxed) != 0 {
        syscall::come_back_here(m);
    }
    if let Some(why) = work.failed {
        ERRNO.store(errno_of(&why), Ordering::Relaxed);
        switch::leave_to_g0(m, g, Departure::NoStack { g });
    }
    let (top, thread_pointer) = (stack.top(), identity::thread_pointer(stack));
    // SAFETY: owner — it runs.
    unsafe { g.saved.get() }.thread_pointer = thread_pointer;
    // SAFETY: mapped — the stack this runs on; fs — built above. Nothing here needs a drop.
    unsafe { arch::enter(top, thread_pointer, start, ptr::from_ref(g) as usize) }
}

/// What [`build`] works on.
struct Build<'a> {
    stack: &'a Stack,
    failed: Option<StackError>,
}

/// # Safety
/// - **callback**: `call_on` calls it, with a `Build`.
unsafe extern "C" fn build(work: *mut u8) {
    // SAFETY: callback — as above; its owner waits.
    let work = unsafe { &mut *work.cast::<Build<'_>>() };
    // SAFETY: quiet — the stack has none, and only this code runs on it.
    work.failed = unsafe { identity::create(work.stack) }.err();
}

/// First on a stack with an identity.
///
/// # Safety
/// - **callback**: [`lay_out`] put it there, with the G.
unsafe extern "C" fn start_with_identity(_message: usize, g: usize) -> ! {
    switch::publish();
    // SAFETY: callback — with the identity, at the top of the stack.
    unsafe { start(g) }
}

/// The whole life of a goroutine, with its own identity.
///
/// # Safety
/// - **callback**: it runs with the goroutine's identity, at the top of its stack, with the G, and
///   with preemption off.
unsafe extern "C" fn start(g: usize) -> ! {
    // SAFETY: the G this runs for; Gs are never freed.
    let g: &'static G = unsafe { &*(g as *const G) };
    // SAFETY: own — this runs with the goroutine's identity, fresh or wiped.
    unsafe { identity::begin() };
    // SAFETY: true — an identity of its own, carried by an M.
    unsafe { set_role(Role::Goroutine) };
    current::set_goroutine(Some(g));
    leave();
    let task = g.task();
    // SAFETY: the task was given with the G, and is alive until it says otherwise.
    let kind = unsafe { (*task).kind };
    // SAFETY: as above; once.
    let heard = unsafe { (kind.run)(task) };
    g.forget_details();
    // SAFETY: own — nothing of it is needed any more.
    unsafe { identity::retire() };
    if fork::is_child() {
        // The last thread of a forked child has ended.
        // SAFETY: as libc does when a thread's function returns there.
        unsafe { libc::exit(0) };
    }
    g.leave_group();
    if let Some(p) = enter().p() {
        p.count_ended();
    }
    leave();
    if heard {
        // SAFETY: the task is alive: `run` said so; once.
        unsafe { (kind.complete)(task) };
    }
    let m = enter();
    switch::depart(m, g, Departure::Exit { g });
    fatal!("goroutine {} goes on after its end", g.id())
}

/// Whether a goroutine's end can be published without a lock or a system call.
#[inline]
pub(crate) fn can_be_put_away_quickly(m: &'static M) -> bool {
    let Some(p) = m.p() else { return false };
    // SAFETY: owner — the caller has the P.
    let caches = unsafe { p.own.get() };
    caches.free.len() < FREE_MAX - 1
        && !caches.ends.wrapping_add(1).is_multiple_of(TRIM)
        && !STACK_WANTED.load(Ordering::Relaxed)
}

/// One in so many stacks gives back what it touched beyond its first pages: asking the kernel each
/// time costs more than the whole reuse.
const TRIM: u32 = 256;

/// A goroutine that is finished: its G, with the stack, to the P's dead ones.
pub(crate) fn put_away(m: &'static M, g: &'static G) {
    g.transition(GState::Running, GState::Dead);
    g.set_exiting(false);
    g.set_has_stack(false);
    g.forget_reason();
    if m.locked_g().is_some() {
        // It ended while locked: the thread is not as others may expect it, and ends too.
        m.set_locked_g(None);
        g.pinned.store(ptr::null_mut(), Ordering::Relaxed);
        g.locks.store(0, Ordering::Relaxed);
        m.set_dying(true);
    }
    let Some(p) = m.p() else { fatal!("goroutine {} ended on M{} that has no P", g.id(), m.id) };
    // SAFETY: owner — the caller has the P.
    let caches = unsafe { p.own.get() };
    // SAFETY: owner — it has left for good.
    let frame = unsafe { g.frame.get() };
    if let Some(stack) = &frame.stack {
        // SAFETY: quiet — its goroutine retired it, and has left.
        unsafe { identity::wipe(stack) };
    }
    caches.ends = caches.ends.wrapping_add(1);
    let trim = caches.ends.is_multiple_of(TRIM);
    if (frame.size.take().is_some() || trim)
        && let Some(stack) = frame.stack.take()
    {
        caches.stacks.put_trimmed(stack);
    }
    keep_dead(caches, g);
    p.dead.store(caches.free.len() as u32, Ordering::Relaxed);
    if STACK_WANTED.load(Ordering::Relaxed) {
        give_up_stacks(caches);
        serve_stackless();
    }
}

/// A dead G for the P's next goroutines.
pub(crate) fn keep_dead(caches: &mut Caches, g: &'static G) {
    caches.free.push_front(g);
    if caches.free.len() >= FREE_MAX {
        spill(caches);
    }
}

/// Half of a P's dead Gs to all, without their stacks.
#[cold]
fn spill(caches: &mut Caches) {
    let mut gone = GList::new();
    while caches.free.len() > FREE_HALF {
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
static ERRNO: AtomicI32 = AtomicI32::new(0);

fn errno_of(why: &StackError) -> i32 {
    match why {
        StackError::Memory { errno, .. } => *errno,
        _ => libc::ENOMEM,
    }
}

/// [`Departure::NoStack`]: its identity could not be built.
pub(crate) fn wait_for_a_stack(g: &'static G) {
    g.transition(GState::Running, GState::Runnable);
    // SAFETY: owner — it has left.
    drop(unsafe { g.frame.get() }.stack.take());
    g.set_has_stack(false);
    wait_among_the_stackless(g);
}

/// It goes on when a goroutine ends. If none has a stack by now, none will: whoever ended before this
/// one was known to wait has not looked for it.
fn wait_among_the_stackless(g: &'static G) {
    SCHED.lock.lock().stackless.push_back(g);
    STACK_WANTED.store(true, Ordering::Relaxed);
    barrier::heavy();
    if !slab::all().any(G::has_stack) {
        let first = !TRIED_AGAIN.swap(true, Ordering::Relaxed);
        if !first {
            no_stack_ever();
        }
        serve_stackless();
    }
}

/// Nothing had a stack, and the one that waits was given another try; until one is had.
static TRIED_AGAIN: AtomicBool = AtomicBool::new(false);

/// No goroutine has a stack, so none will ever be given back.
pub(crate) fn no_stack_ever() -> ! {
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
fn serve_stackless() {
    let mut locked = SCHED.lock.lock();
    if let Some(g) = locked.stackless.pop_front() {
        locked.push(g);
    }
    STACK_WANTED.store(!locked.stackless.is_empty(), Ordering::Relaxed);
    drop(locked);
    wake::wake_if_idle();
}
