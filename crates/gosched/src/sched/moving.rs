//! Goroutines that move between threads: the backend of systems with a port.
//!
//! What the public face asks of a backend; `threads` answers the same questions. Callers on a
//! goroutine's stack go by its M and P; ordinary threads have neither and use the global queue.

use crate::gmp::current;
use crate::gmp::frame::Registers;
use crate::gmp::g::{Birth, G};
use crate::gmp::m::{Commit, Departure, M};
use crate::gmp::reason::WaitReason;
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::gmp::timer::Timer;
use crate::probe;
use crate::sched::run::{deadlock, schedule, steal, timers};
use crate::sched::state::global::SCHED;
use crate::sched::state::{fork, ps, thread_requests};
use crate::sched::switch::boundary::{enter, leave};
use crate::sched::switch::{self, preempt, stacks, syscall};
use crate::sched::{Order, cpu_use, dump, start, wake, world};
use crate::sys::cpu_limit;
use crate::sys::fatal::fatal;
use gosched_context::Still;
use gosched_context::arch;
use gosched_context::carrier::{Role, role};
use gosched_context::fault;
use gosched_context::lock::Guarded;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

pub(crate) use super::look::{count, head, length_and_tick, locked_m_of, m_of, write_ms, write_ps};
pub(crate) use super::run::poll::get_polled;
pub(crate) use super::spawner::set_max_threads;
pub(crate) use super::state::counts::{cpu_time, num_goroutines};
pub(crate) use super::state::fork::refuse_in_child;
pub(crate) use super::state::thread_requests::call_from_spawner;
pub(crate) use super::switch::prepared::{discard, live, prepare};
pub(crate) use crate::sys::thread_look::id as thread_id;
pub(crate) use deadlock::{PATIENCE, look as look_for_deadlock};
pub(crate) use dump::list as list_goroutines;
pub(crate) use gosched_context::Size;
pub(crate) use preempt::counts as preemptions;
pub(crate) use start::start;
pub(crate) use syscall::hand_offs;

/// Whether the caller is a goroutine of this backend.
#[inline]
pub(crate) fn is_here() -> bool {
    current::goroutine().is_some_and(|g| !g.is_thread())
}

/// A stack of at least `bytes`, for [`Wishes::size`](super::Wishes).
pub(crate) fn size(bytes: usize) -> std::io::Result<Size> {
    Size::new(bytes).map_err(invalid)
}

fn invalid(why: gosched_context::stack::StackError) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidInput, why)
}

/// Starts a goroutine. Returns its id.
#[inline]
pub(crate) fn spawn(order: Order<'_>) -> (&'static G, u64) {
    fork::refuse_in_child("`go`");
    if !is_here() {
        return spawn_from_outside(order);
    }
    let parent = current::goroutine().map_or(0, G::id);
    loop {
        let m = enter();
        let Some(p) = m.p() else { unreachable!("`enter` found one") };
        let Some(g) = stacks::take_dead(p) else {
            leave();
            more_gs();
            continue;
        };
        let id = stacks::take_id(p, g);
        begin(g, id, parent, order);
        stacks::use_kept_stack(p, g);
        p.count_started();
        switch::push_next(m, g);
        probe_and_wake();
        leave();
        return (g, id);
    }
}

#[inline]
fn begin(g: &'static G, id: u64, parent: u64, order: Order<'_>) {
    let mut details = None;
    if let Some(wishes) = order.wishes {
        details = wishes.details.clone();
        // SAFETY: owner — a dead G that was just taken.
        unsafe { g.frame.get() }.size = wishes.size;
    }
    g.begin(Birth { id, parent, site: order.site, task: order.task, details });
    g.enter_group();
    g.transition(GState::Dead, GState::Runnable);
}

/// After each submission, with preemption off.
#[inline]
fn probe_and_wake() {
    probe::point();
    wake::wake_if_idle();
}

/// `goexit` was called in main: the others go on.
pub(crate) fn main_has_exited() {
    deadlock::MAIN_HAS_EXITED.store(true, Ordering::Relaxed);
}

/// See [`set_deadlock_ends`](super::set_deadlock_ends).
pub(crate) fn set_deadlock_ends(ends: bool) {
    deadlock::OTHERS_DO_NOT_COUNT.store(ends, Ordering::Relaxed);
}

/// Memory for Gs: allocates, with preemption on.
#[cold]
pub(super) fn more_gs() {
    let mut new = slab::grow();
    let mut locked = Guarded::new(&SCHED.lock);
    while let Some(g) = new.pop_front() {
        locked.free.push_front(g);
    }
}

#[cold]
fn spawn_from_outside(order: Order<'_>) -> (&'static G, u64) {
    let id = order.wishes.and_then(|wishes| wishes.id).unwrap_or_else(|| SCHED.take_ids(1));
    let for_main_m = order.wishes.is_some_and(|wishes| wishes.for_main_m);
    loop {
        let mut locked = Guarded::new(&SCHED.lock);
        let Some(g) = locked.free.pop_front() else {
            drop(locked);
            more_gs();
            continue;
        };
        begin(g, id, 0, order);
        SCHED.foreign_goroutines.fetch_add(1, Ordering::Relaxed);
        if for_main_m {
            MAIN.store(ptr::from_ref(g).cast_mut(), Ordering::Relaxed);
            return (g, id);
        }
        locked.push(g);
        drop(locked);
        // SAFETY: here — nothing below waits or switches.
        let _still = unsafe { Still::new() };
        wake::wake_if_idle();
        return (g, id);
    }
}

/// Parks the calling goroutine until it is made ready.
///
/// # Safety
/// - **commit**: `commit` may be called once with the G and `data`, on another stack, before this
///   returns; it keeps the rules of [`Commit`].
#[inline]
pub(crate) unsafe fn park(g: &'static G, reason: WaitReason, commit: Commit, data: *const ()) {
    fork::refuse_in_child("a wait");
    enter();
    // SAFETY: commit — promised by the caller.
    unsafe { park_inside(g, reason, commit, data) };
}

/// As [`park`], for a goroutine that is inside the runtime. Returns outside.
///
/// # Safety
/// - **commit**: as for [`park`].
#[inline(never)]
pub(crate) unsafe fn park_inside(
    g: &'static G,
    reason: WaitReason,
    commit: Commit,
    data: *const (),
) {
    // SAFETY: carried — a goroutine of this runtime, that is not moved now.
    let m = unsafe { M::current() };
    g.begin_wait(reason, data);
    switch::depart(m, g, Departure::Park { g, commit, data });
    leave();
}

/// Whether others run, and nobody could here.
pub(crate) fn is_spinning_worth_it() -> bool {
    let alone = enter().p().is_some_and(|p| p.queue.is_empty());
    leave();
    alone && SCHED.idle_ps.load(Ordering::Relaxed) as usize + 1 < SCHED.procs()
}

/// The number of the P the caller is on; another one perhaps as soon as this returns.
#[inline]
pub(crate) fn p_number() -> usize {
    let number = enter().p().map_or(0, |p| p.id as usize);
    leave();
    number
}

/// The calling goroutine is neither stopped nor moved until [`go_outside`].
#[inline]
pub(crate) fn go_inside() {
    enter();
}

/// Ends [`go_inside`].
#[inline]
pub(crate) fn go_outside() {
    leave();
}

/// As [`ready`], by a goroutine that is inside the runtime.
#[inline]
pub(crate) fn ready_inside(g: &'static G) {
    // SAFETY: carried — a goroutine of this runtime, that is not moved now.
    let m = unsafe { M::current() };
    g.make_runnable();
    switch::push_next(m, g);
    probe_and_wake();
}

/// Makes a parked goroutine runnable: next on the caller's P, or in the global queue.
#[inline]
pub(crate) fn ready(g: &'static G) {
    if is_here() {
        enter();
        ready_inside(g);
        leave();
    } else {
        // Inside `host` it could be stopped.
        // SAFETY: here — nothing below waits or switches.
        let _still = unsafe { Still::new() };
        g.make_runnable();
        switch::push_global(g);
        wake::wake_if_idle();
    }
}

/// Starts a timer: in the heap of the caller's P, if it has one.
///
/// # Safety
/// - **alive**: as for [`TimerHeap::insert`](crate::gmp::timer::TimerHeap::insert).
pub(crate) unsafe fn start_timer(timer: &Timer, when: u64) {
    loop {
        let m = is_here().then(enter);
        // SAFETY: here — nothing below waits or switches.
        let still = unsafe { Still::new() };
        // SAFETY: alive — promised by the caller.
        let inserted = unsafe { timers::insert(m, timer, when) };
        drop(still);
        if m.is_some() {
            leave();
        }
        match inserted {
            Ok(()) => return,
            Err(heap) => heap.grow(),
        }
    }
}

/// To the tail of the global queue.
#[inline(never)]
pub(crate) fn yield_now(g: &'static G) {
    fork::refuse_in_child("`yield_now`");
    let m = enter();
    switch::depart_yielding(m, g);
    leave();
}

/// To the tail of the P's own queue: for the runtime's own use.
pub(crate) fn yield_locally(g: &'static G) {
    let m = enter();
    switch::depart(m, g, Departure::YieldLocally { g });
    leave();
}

/// Only this M runs the calling goroutine until it unlocks as often as it locked.
pub(crate) fn lock_os_thread(g: &'static G) {
    let m = enter();
    g.locks.fetch_add(1, Ordering::Relaxed);
    g.pinned.store(ptr::from_ref(m).cast_mut().cast(), Ordering::Relaxed);
    m.set_locked_g(Some(g));
    leave();
}

/// See [`lock_os_thread`]. Without a lock it does nothing.
pub(crate) fn unlock_os_thread(g: &'static G) {
    let locks = g.locks.load(Ordering::Relaxed);
    if locks == 0 {
        return;
    }
    let m = enter();
    g.locks.store(locks - 1, Ordering::Relaxed);
    if locks == 1 {
        g.pinned.store(ptr::null_mut(), Ordering::Relaxed);
        m.set_locked_g(None);
    }
    leave();
}

/// How many Ps there are.
pub(crate) fn procs() -> usize {
    SCHED.procs()
}

/// Changes how many there are. One change at a time.
pub(crate) fn set_procs(procs: usize) -> usize {
    fork::refuse_in_child("`set_procs`");
    change_procs(procs, || true)
}

/// As [`set_procs`], unless the program has chosen a number itself by now.
pub(crate) fn follow_procs(procs: usize) {
    change_procs(procs, || !cpu_limit::is_fixed());
}

/// Changes the number of Ps if that `is_wanted` when no other change is under way. Returns what it was.
fn change_procs(procs: usize, is_wanted: impl FnOnce() -> bool) -> usize {
    let procs = procs.min(super::state::global::MAX_PROCS);
    let mut tries = 0;
    // PAIR changing-procs: sees the last change.
    while CHANGING.swap(true, Ordering::Acquire) {
        world::wait_for_another_stopper(&mut tries);
    }
    let procs = if is_wanted() { procs } else { SCHED.procs() };
    ps::make_more_ps(procs);
    let before = SCHED.procs();
    if procs != before {
        let table = steal::table_for(procs);
        world::with_world_stopped(world::StopReason::SetProcs, |stopped| {
            world::resize(&stopped, procs);
            steal::use_table(table);
        });
        cpu_use::procs_changed(procs);
    }
    // PAIR changing-procs: publishes this one.
    CHANGING.store(false, Ordering::Release);
    before
}

static CHANGING: AtomicBool = AtomicBool::new(false);

/// See [`begin_call`](super::begin_call).
pub(crate) fn begin_call(g: &'static G, long: bool, registers: *const Registers) {
    if fork::is_child() {
        return;
    }
    let mut m = enter();
    if m.carrier.is_pending() {
        // What was asked for before would end the call as it begins.
        leave();
        m = enter();
    }
    match long {
        true => syscall::begin_long_call(m, g, registers),
        false => syscall::begin_call(m, g, registers),
    }
    // What was asked for meanwhile must not end the call either.
    // SAFETY: carried, counted — by `enter`.
    unsafe { arch::preempt_on() };
}

/// The registers of the frame this is called in, for [`begin_call`].
#[inline(always)]
pub(crate) fn registers_here(to: &mut MaybeUninit<Registers>) {
    if probe::ON {
        // SAFETY: to — a place for them.
        unsafe { arch::registers_here(to.as_mut_ptr()) };
    }
}

/// Runs `f` without the calling goroutine being preempted.
pub(crate) fn without_preemption<R>(g: &'static G, f: impl FnOnce() -> R) -> R {
    preempt::without(g, f)
}

/// The runtime's threads.
pub(crate) fn num_threads() -> usize {
    Guarded::new(&SCHED.lock).ms as usize
        + thread_requests::OTHER_THREADS.load(Ordering::Relaxed) as usize
}

/// Makes the calling thread, the process's first, an M, and runs goroutines on it for ever.
pub(crate) fn become_main_m() -> ! {
    let m = start::main_m();
    // SAFETY: null, or a G: they are never freed.
    if let Some(main) = unsafe { MAIN.load(Ordering::Relaxed).as_ref() } {
        switch::push_next(m, main);
    }
    schedule::live(m);
    // A goroutine ended while locked to this thread, which cannot end. It may have been the last.
    thread_requests::OTHER_THREADS.fetch_add(1, Ordering::Relaxed);
    std::thread::sleep(PATIENCE);
    look_for_deadlock();
    loop {
        std::thread::park();
    }
}

/// The main goroutine, until the main thread takes it.
static MAIN: AtomicPtr<G> = AtomicPtr::new(ptr::null_mut());

/// A panic where none may be is the end.
pub(crate) fn check_panic() {
    let inside = match is_here() {
        // SAFETY: carried — a goroutine of this runtime.
        true => (unsafe { arch::preempt_off_count() }) > 0,
        false => current::is_m() && role() == Role::Carrier,
    };
    if inside {
        fatal!("a panic with preemption off");
    }
}

/// What the allocation cache calls when it is entered, in debug builds: fatal where nothing may be
/// allocated, that is with preemption off and a P in hand, and while the caller has stopped the world.
/// Whoever holds the allocator's lock may need that P, or is stopped.
pub(crate) fn check_allocation() {
    if current::has_stopped_the_world() {
        current::set_has_stopped_the_world(false);
        fatal!("the allocator was entered by a thread that has stopped the world");
    }
    if !current::is_m() && !is_here() {
        return;
    }
    // SAFETY: carried — a goroutine of this runtime, or the thread of an M.
    if unsafe { arch::preempt_off_count() } == 0 {
        return;
    }
    // SAFETY: carried — as above, and it is not moved now.
    if unsafe { M::current() }.p().is_some() {
        fatal!("the allocator was entered with preemption off");
    }
}

/// Runs `f` in a stopped world.
pub(crate) fn with_world_stopped<R>(f: impl FnOnce() -> R) -> R {
    world::with_world_stopped(world::StopReason::Test, |_| f())
}

/// Runs `f` with preemption off, in a goroutine.
pub(crate) fn with_preemption_off<R>(f: impl FnOnce() -> R) -> R {
    if !is_here() {
        return f();
    }
    enter();
    let result = f();
    leave();
    result
}

/// Runs `f` on a stack of its own, of at least `bytes`, as the caller.
pub(crate) fn with_stack(bytes: usize, f: &mut dyn FnMut()) -> std::io::Result<()> {
    let size = match cfg!(feature = "threads") {
        // There are no identities, and none is needed here.
        true => Size::without_identity(bytes).map_err(invalid)?,
        false => size(bytes)?,
    };
    let stack = with_preemption_off(|| gosched_context::Stack::new(size));
    let stack = stack.map_err(std::io::Error::other)?;
    stack.set_owner(current::goroutine().map_or(0, G::id));
    /// # Safety
    /// - **callback**: `call_on` calls it, with a closure that does not unwind.
    unsafe extern "C" fn call(f: *mut u8) {
        // SAFETY: callback — as above; its owner waits.
        let f = unsafe { &mut *f.cast::<&mut dyn FnMut()>() };
        f();
    }
    let mut f = f;
    // SAFETY: mapped, quiet — a stack of our own; callback — the caller's closure does not unwind.
    unsafe { gosched_context::arch::call_on(stack.top(), call, (&raw mut f).cast()) };
    with_preemption_off(|| drop(stack));
    Ok(())
}

/// Wakes an M, which looks at the timers before it sleeps again.
pub(crate) fn look_at_timers() {
    let m = is_here().then(enter);
    // Inside `host` it could be stopped.
    // SAFETY: here — nothing below waits or switches.
    let still = unsafe { Still::new() };
    wake::wake_if_idle();
    drop(still);
    if m.is_some() {
        leave();
    }
}

/// What shows the others when a stack has overflowed.
pub(crate) fn set_overflow_report(report: fn()) {
    fault::show_others(report, dump::list);
}
