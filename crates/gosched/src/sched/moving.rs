//! Goroutines that move between threads: the backend of systems with a port.
//!
//! What the public face asks of a backend; `threads` answers the same questions. Callers on a
//! goroutine's stack go by its M and P; ordinary threads have neither and use the global queue.

use crate::gmp::current;
use crate::gmp::frame::Registers;
use crate::gmp::g::G;
use crate::gmp::timer::Timer;
use crate::sched::inspect::dump;
use crate::sched::run::{deadlock, timers};
use crate::sched::state::global::SCHED;
use crate::sched::state::thread_requests;
use crate::sched::switch::boundary::{enter, leave};
use crate::sched::switch::{no_preempt, syscall};
use crate::sched::{wake, world};
use crate::sys::forked;
use gosched_context::Still;
use gosched_context::arch;
use gosched_context::fault;
use gosched_context::lock::Guarded;
use std::ptr;
use std::sync::atomic::Ordering;

pub(crate) use super::boot::main_m::become_main_m;
pub(crate) use super::boot::start::start;
pub(crate) use super::boot::thread_maker::set_max_threads;
pub(crate) use super::inspect::dump::list as list_goroutines;
pub(crate) use super::run::deadlock::{PATIENCE, look as look_for_deadlock};
pub(crate) use super::run::poll::get_polled;
pub(crate) use super::state::counts::num_goroutines;
pub(crate) use super::state::thread_requests::call_from_spawner;
pub(crate) use super::switch::checks::check_panic;
pub(crate) use super::switch::park::{
    park, park_inside, ready, ready_inside, yield_locally, yield_now,
};
pub(crate) use super::switch::preempt::counts as preemptions;
pub(crate) use super::switch::prepared::{discard, live, prepare};
pub(crate) use super::switch::spawn::spawn;
pub(crate) use super::switch::syscall::hand_offs;
pub(crate) use super::world::procs::set_procs;
pub(crate) use gosched_context::Size;

/// A stack of at least `bytes`, for [`Wishes::size`](super::Wishes).
pub(crate) fn size(bytes: usize) -> std::io::Result<Size> {
    Size::new(bytes).map_err(invalid)
}

fn invalid(why: gosched_context::stack::StackError) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidInput, why)
}

/// `goexit` was called in main: the others go on.
pub(crate) fn main_has_exited() {
    deadlock::MAIN_HAS_EXITED.store(true, Ordering::Relaxed);
}

/// See [`set_deadlock_ends`](super::set_deadlock_ends).
pub(crate) fn set_deadlock_ends(ends: bool) {
    deadlock::OTHERS_DO_NOT_COUNT.store(ends, Ordering::Relaxed);
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

/// Starts a timer: in the heap of the caller's P, if it has one.
///
/// # Safety
/// - **alive**: as for [`TimerHeap::insert`](crate::gmp::timer::TimerHeap::insert).
pub(crate) unsafe fn start_timer(timer: &Timer, when: u64) {
    loop {
        let m = current::is_fiber().then(enter);
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

/// See [`begin_call`](super::begin_call).
pub(crate) fn begin_call(g: &'static G, long: bool, registers: *const Registers) {
    if forked::is_child() {
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

/// Runs `f` without the calling goroutine being preempted.
pub(crate) fn without_preemption<R>(g: &'static G, f: impl FnOnce() -> R) -> R {
    no_preempt::without(g, f)
}

/// The runtime's threads.
pub(crate) fn num_threads() -> usize {
    Guarded::new(&SCHED.lock).ms as usize
        + thread_requests::OTHER_THREADS.load(Ordering::Relaxed) as usize
}

/// Runs `f` in a stopped world.
pub(crate) fn with_world_stopped<R>(f: impl FnOnce() -> R) -> R {
    world::with_world_stopped(world::StopReason::Test, |_| f())
}

/// Runs `f` with preemption off, in a goroutine.
pub(crate) fn with_preemption_off<R>(f: impl FnOnce() -> R) -> R {
    if !current::is_fiber() {
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
    let m = current::is_fiber().then(enter);
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
