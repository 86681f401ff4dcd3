//! The verbs: find, steal, wake, park, hand off, stop the world; the only code that decides who runs
//! where.
//!
//! Two backends answer the same questions. `moving`: goroutines with stacks of their own that any M
//! may run. `threads`: each goroutine is an OS thread, where the first cannot be had. Which one it is
//! is decided when the runtime starts, and never changes; ordinary threads wait by `threads` always.

mod events;
mod inspect;
mod poll_thread;
mod state;
mod timer_thread;

pub(crate) mod netpoll;
pub(crate) mod threads;

#[cfg(ported)]
mod boot;
#[cfg(ported)]
mod monitor;
#[cfg(ported)]
mod moving;
#[cfg(ported)]
mod run;
#[cfg(ported)]
mod switch;
#[cfg(ported)]
mod wake;
#[cfg(ported)]
mod world;

#[cfg(all(test, ported, not(feature = "threads")))]
mod runtime_tests;

#[cfg(not(ported))]
#[path = "moving_none.rs"]
mod moving;

use crate::gmp::current;
use crate::gmp::frame::Registers;
use crate::gmp::g::G;
use crate::gmp::reason::WaitReason;
use crate::gmp::timer::Timer;
use crate::sys::fatal::warning;
use crate::sys::{clock, cpu_limit};
use gosched_context::Still;
use std::sync::atomic::Ordering;

pub(crate) use moving::{
    become_main_m, check_panic, hand_offs, list_goroutines, main_has_exited, preemptions,
    set_overflow_report, with_preemption_off, with_stack, with_world_stopped,
};

pub(crate) use crate::gmp::frame::registers_here;
pub(crate) use crate::sys::forked::refuse_in_child;
pub(crate) use inspect::inspector as viewer;
pub(crate) use inspect::types::Numbers;

pub use state::backend::Backend;
pub(crate) use state::report::{End, begin as begin_report, report, set_report, set_show};
pub(crate) use state::spawn_request::{Order, Spawned, Wishes};

/// The seed that this run can be replayed with, if one was given.
pub(crate) use crate::sys::random::given as seed;

/// Starts the runtime, if nobody did yet.
#[inline]
pub(crate) fn backend() -> Backend {
    *state::backend::BACKEND.get_or_init(choose)
}

#[cold]
fn choose() -> Backend {
    threads::set_procs(cpu_limit::start_procs());
    if !cfg!(feature = "threads") {
        match moving::start() {
            Ok(()) => {
                state::available_cpu::procs_changed(moving::procs());
                return Backend::MultiThread;
            }
            Err(why) if cfg!(ported) => warn_of_threads(&why),
            // Without a port a program is built for threads: there is nothing to warn of.
            Err(_) => {}
        }
    }
    threads::start();
    state::available_cpu::procs_changed(threads::procs());
    Backend::Threads
}

/// Says on standard error why goroutines are threads, and what that costs.
fn warn_of_threads(why: &str) {
    warning!(
        "goroutines are OS threads in this process: {why}; each takes a thread's memory and kernel switches, and \
         GOMAXPROCS, stack dumps and deadlock reports do not apply"
    );
}

/// Checks a stack size.
///
/// # Errors
/// It cannot be had.
pub(crate) fn size(bytes: usize) -> std::io::Result<Option<moving::Size>> {
    match backend() {
        Backend::MultiThread => moving::size(bytes).map(Some),
        Backend::Threads if bytes == 0 || bytes > MAX_THREAD_STACK => {
            let message = format!("a goroutine's stack cannot have {bytes} bytes");
            Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, message))
        }
        Backend::Threads => Ok(None),
    }
}

/// More cannot be asked for, as with goroutines that move.
const MAX_THREAD_STACK: usize = 64 << 30;

/// Starts a goroutine. Returns its id.
///
/// # Errors
/// Only where goroutines are threads: the system refuses one.
#[inline]
pub(crate) fn spawn(order: Order<'_>) -> std::io::Result<Spawned> {
    // A goroutine that moves shows which backend it is.
    if current::is_fiber() || backend() == Backend::MultiThread {
        let (g, id) = moving::spawn(order);
        return Ok(Spawned { g, id, thread: None });
    }
    let (g, id, thread) = threads::spawn(order)?;
    Ok(Spawned { g, id, thread: Some(Box::new(thread)) })
}

/// A goroutine that is not started yet: whoever may not allocate makes it [`ready`] when the time has come.
/// Its task calls [`live`] first. Nobody sees it until then.
pub(crate) fn prepare(order: Order<'_>) -> &'static G {
    match backend() {
        Backend::MultiThread => moving::prepare(order),
        Backend::Threads => threads::prepare(order),
    }
}

/// It is not needed: nobody will make it ready. Its task is the caller's again.
pub(crate) fn discard(g: &'static G) {
    match g.is_thread() {
        true => threads::discard(g),
        false => moving::discard(g),
    }
}

/// The calling goroutine was prepared, and counts from here on.
pub(crate) fn live() {
    match current::goroutine() {
        Some(g) if !g.is_thread() => moving::live(g),
        _ => {}
    }
}

/// Waits until the G given to `commit` is made [`ready`]: a goroutine parks, a thread sleeps.
///
/// `commit` runs when the caller may be made ready, perhaps on another stack: no allocation, no
/// panic, no thread-local. It tells others of the G, and returns false if there is nothing to wait
/// for any more.
///
/// # Safety
/// - **commit**: it may be called once with `data`, before this returns.
#[inline]
pub(crate) unsafe fn park(
    reason: WaitReason,
    commit: unsafe fn(&'static G, *const ()) -> bool,
    data: *const (),
) {
    match current::goroutine() {
        // SAFETY: commit — promised by the caller.
        Some(g) if !g.is_thread() => unsafe { moving::park(g, reason, commit, data) },
        // SAFETY: commit — promised by the caller.
        _ => unsafe { threads::park(reason, commit, data, still_in_host()) },
    }
}

/// What code inside `host` needs so as not to be stopped with a lock of ours: a thread, but one that can be.
pub(crate) fn still_in_host() -> Option<Still> {
    current::is_m().then(|| {
        threads::get_ready_to_wait();
        // SAFETY: here — whoever asks for it neither waits nor switches while it has it.
        unsafe { Still::new() }
    })
}

/// Lets the G go on that a [`park`] has given away. Once for each.
#[inline]
pub(crate) fn ready(g: &'static G) {
    match g.is_thread() {
        true => threads::ready(g),
        false => moving::ready(g),
    }
}

/// Inside the runtime: while it lives a goroutine is neither stopped nor moved, and may hold a lock that
/// others wait for. A thread has nothing to fear.
#[must_use]
#[derive(Debug)]
pub(crate) struct Inside {
    /// A goroutine that moves.
    moving: Option<&'static G>,
    /// Code inside `host`: a thread, but one that can be stopped.
    still: Option<Still>,
}

/// Goes inside. Until it ends nothing may be allocated, nothing may panic.
#[inline]
pub(crate) fn inside() -> Inside {
    let moving = current::goroutine().filter(|g| !g.is_thread());
    let mut still = None;
    match moving {
        Some(_) => moving::go_inside(),
        None => still = still_in_host(),
    }
    Inside { moving, still }
}

impl Inside {
    /// As [`park`]. Returns outside.
    ///
    /// # Safety
    /// - **commit**: as there.
    #[inline]
    pub(crate) unsafe fn park(
        self,
        reason: WaitReason,
        commit: unsafe fn(&'static G, *const ()) -> bool,
        data: *const (),
    ) {
        let mut this = std::mem::ManuallyDrop::new(self);
        match this.moving {
            // SAFETY: commit — promised by the caller.
            Some(g) => unsafe { moving::park_inside(g, reason, commit, data) },
            // SAFETY: commit — promised by the caller.
            None => unsafe { threads::park(reason, commit, data, this.still.take()) },
        }
    }

    /// As [`ready`].
    #[inline]
    pub(crate) fn ready(&self, g: &'static G) {
        match (g.is_thread(), self.moving) {
            (true, _) => threads::ready(g),
            (false, Some(_)) => moving::ready_inside(g),
            (false, None) => moving::ready(g),
        }
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        if self.moving.is_some() {
            moving::go_outside();
        }
    }
}

/// Whether the caller is a goroutine that moves.
pub(crate) fn is_moving() -> bool {
    current::is_fiber()
}

/// Whether one who finds a lock taken should look again before it waits: its holder may run, and nobody
/// here could run instead.
pub(crate) fn is_spinning_worth_it() -> bool {
    match current::is_fiber() {
        true => moving::is_spinning_worth_it(),
        false => true,
    }
}

/// The number of the P the caller is on, a moment ago; `None`: it has none.
#[inline]
pub(crate) fn p_number() -> Option<usize> {
    current::is_fiber().then(moving::p_number)
}

pub(crate) use threads::{ThreadLimit, limit_thread};

/// Starts a timer, which is fired at `when`.
///
/// # Safety
/// - **alive**: it stays where it is until it was fired or stopped; it is not started now.
pub(crate) unsafe fn start_timer(timer: &Timer, when: u64) {
    match backend() {
        // SAFETY: alive — promised by the caller.
        Backend::MultiThread => unsafe { moving::start_timer(timer, when) },
        // SAFETY: alive — promised by the caller.
        Backend::Threads => unsafe { timer_thread::start_timer(timer, when) },
    }
}

/// Lets others run.
#[inline]
pub(crate) fn yield_now() {
    match current::goroutine() {
        Some(g) if !g.is_thread() => moving::yield_now(g),
        _ => std::thread::yield_now(),
    }
}

/// Lets the one run that the caller has made ready last.
pub(crate) fn yield_to_ready() {
    match current::goroutine() {
        Some(g) if !g.is_thread() => moving::yield_locally(g),
        _ => std::thread::yield_now(),
    }
}

/// See the public face.
pub(crate) fn lock_os_thread(g: &'static G) {
    match !g.is_thread() {
        true => moving::lock_os_thread(g),
        false => drop(g.locks.fetch_add(1, Ordering::Relaxed)),
    }
}

/// See the public face.
pub(crate) fn unlock_os_thread(g: &'static G) {
    match !g.is_thread() {
        true => moving::unlock_os_thread(g),
        false => {
            let locks = g.locks.load(Ordering::Relaxed);
            g.locks.store(locks.saturating_sub(1), Ordering::Relaxed);
        }
    }
}

pub(crate) fn procs() -> usize {
    match backend() {
        Backend::MultiThread => moving::procs(),
        Backend::Threads => threads::procs(),
    }
}

/// Returns how many there were.
pub(crate) fn set_procs(procs: usize) -> usize {
    match backend() {
        Backend::MultiThread => moving::set_procs(procs),
        Backend::Threads => {
            state::available_cpu::procs_changed(procs);
            threads::set_procs(procs)
        }
    }
}

/// Whether it is the end when all goroutines wait, whatever other threads may do.
pub(crate) fn set_deadlock_ends(ends: bool) {
    match backend() {
        Backend::MultiThread => moving::set_deadlock_ends(ends),
        Backend::Threads => threads::set_deadlock_ends(ends),
    }
}

/// Returns how many there might be.
pub(crate) fn set_max_threads(most: usize) -> usize {
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    match backend() {
        Backend::MultiThread => moving::set_max_threads(most) as usize,
        Backend::Threads => usize::MAX,
    }
}

/// A marked call of the calling goroutine begins: it is over when the goroutine next comes into the
/// runtime. `long`: its P goes to somebody else at once. `registers`: of the frame that the call is made in, which
/// is there until it is over; or null.
pub(crate) fn begin_call(long: bool, registers: *const Registers) {
    match current::goroutine() {
        Some(g) if !g.is_thread() => moving::begin_call(g, long, registers),
        _ => {}
    }
}

/// It is over, if it was not already.
pub(crate) fn end_call() {
    drop(inside());
}

/// Runs `f` without the calling goroutine being preempted.
pub(crate) fn without_preemption<R>(f: impl FnOnce() -> R) -> R {
    match current::goroutine() {
        Some(g) if !g.is_thread() => moving::without_preemption(g, f),
        _ => f(),
    }
}

/// Lets the thread that makes threads call `f`, soon. In signal handlers too. False: there is none.
pub(crate) fn call_from_spawner(f: fn()) -> bool {
    state::backend::BACKEND.get() == Some(&Backend::MultiThread) && moving::call_from_spawner(f)
}

/// In virtual time: a thread has begun to wait, perhaps for a timer that nobody waited for. If all others sleep, time
/// passes from here on.
pub(crate) fn look_at_virtual_time() {
    if !clock::is_virtual() {
        return;
    }
    match backend() {
        Backend::MultiThread => moving::look_at_timers(),
        Backend::Threads => timer_thread::look(),
    }
}

pub(crate) fn num_goroutines() -> usize {
    match state::backend::BACKEND.get() {
        None => 0,
        Some(Backend::MultiThread) => moving::num_goroutines(),
        Some(Backend::Threads) => threads::num_goroutines(),
    }
}

/// The runtime's own threads.
pub(crate) fn num_threads() -> usize {
    match state::backend::BACKEND.get() {
        None => 0,
        Some(Backend::MultiThread) => moving::num_threads(),
        Some(Backend::Threads) => threads::num_goroutines(),
    }
}

/// All that can be counted.
pub(crate) fn numbers() -> Numbers {
    backend();
    inspect::stats::numbers()
}

/// The scheduler in Go's words: the plain line of `schedtrace`, then every P, M and G.
pub(crate) fn write_trace(out: &mut dyn std::fmt::Write) -> std::fmt::Result {
    backend();
    inspect::schedtrace::all(out)
}
