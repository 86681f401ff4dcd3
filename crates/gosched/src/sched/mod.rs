//! The verbs: find, steal, wake, park, hand off, stop the world; the only code that decides who runs
//! where.
//!
//! Two backends answer the same questions ([`contract`]). `multi_thread`: goroutines with stacks of their own that any M
//! may run. `one_to_one`: each goroutine is an OS thread, where the first cannot be had. Which one it is
//! is decided when the runtime starts, and never changes; ordinary threads wait by `threads` always.

pub(crate) mod netpoll;

mod boot;
mod contract;
mod events;
mod inspect;
mod one_to_one;
mod state;
mod threads;

#[cfg(ported)]
mod monitor;
#[cfg(ported)]
mod multi_thread;
#[cfg(ported)]
mod run;
#[cfg(ported)]
mod switch;
#[cfg(ported)]
mod upcalls;
#[cfg(ported)]
mod wake;
#[cfg(ported)]
mod world;

#[cfg(not(ported))]
#[path = "upcalls_none.rs"]
mod upcalls;

#[cfg(all(test, ported, not(feature = "threads")))]
mod runtime_tests;

use crate::gmp::current;
use crate::gmp::frame::{Registers, Size};
use crate::gmp::g::G;
use crate::gmp::reason::WaitReason;
use crate::gmp::timer::Timer;
use contract::Scheduler;
use gosched_fiber::NoPreempt;
use one_to_one::no_preempt_in_host;
use state::backend::{MultiThread, Threads};

pub(crate) use crate::gmp::frame::capture_registers;
pub(crate) use crate::sys::forked::refuse_in_child;
pub(crate) use inspect::inspector;
pub(crate) use inspect::types::SchedStats;
pub(crate) use one_to_one::run_here;
pub use state::backend::Backend;
pub(crate) use state::report::{ExitReason, begin as begin_report, report, set_report, set_show};
pub(crate) use state::spawn_request::{SpawnOptions, SpawnRequest, Spawned};

/// The seed that this run can be replayed with, if one was given.
pub(crate) use crate::sys::random::explicit_seed as seed;

/// Calls a function of the backend of this process, and starts the runtime before, if nobody did yet.
macro_rules! by_backend {
    ($function:ident($($argument:expr),*)) => {
        match backend() {
            Backend::MultiThread => MultiThread::$function($($argument),*),
            Backend::Threads => Threads::$function($($argument),*),
        }
    };
}

/// Starts the runtime, if nobody did yet.
#[inline]
pub(crate) fn backend() -> Backend {
    *state::backend::BACKEND.get_or_init(boot::choose::choose)
}

/// Checks a stack size.
///
/// # Errors
/// It cannot be had.
pub(crate) fn stack_size(bytes: usize) -> std::io::Result<Option<Size>> {
    by_backend!(stack_size(bytes))
}

/// Starts a goroutine.
/// Go: newproc.
///
/// # Errors
/// Only where goroutines are threads: the system refuses one.
#[inline]
pub(crate) fn spawn(request: SpawnRequest<'_>) -> std::io::Result<Spawned> {
    // A goroutine that moves shows which backend it is.
    if current::is_fiber() { MultiThread::spawn(request) } else { by_backend!(spawn(request)) }
}

/// A goroutine that is not started yet: whoever may not allocate makes it [`ready`] when the time has come.
/// Its task calls [`begin_prepared`] first. Nobody sees it until then.
pub(crate) fn prepare(request: SpawnRequest<'_>) -> &'static G {
    by_backend!(prepare(request))
}

/// It is not needed: nobody will make it ready. Its task is the caller's again.
pub(crate) fn discard(g: &'static G) {
    if g.is_thread() { Threads::discard(g) } else { MultiThread::discard(g) }
}

/// The calling goroutine was prepared, and counts from here on.
pub(crate) fn begin_prepared() {
    match current::goroutine() {
        Some(g) if !g.is_thread() => MultiThread::begin_prepared(g),
        _ => {}
    }
}

/// Waits until the G given to `commit` is made [`ready`]: a goroutine parks, a thread sleeps.
/// Go: gopark.
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
        Some(g) if !g.is_thread() => unsafe {
            MultiThread::park(Some(g), None, reason, commit, data)
        },
        // SAFETY: commit — promised by the caller.
        g => unsafe { Threads::park(g, no_preempt_in_host(), reason, commit, data) },
    }
}

/// Lets the G go on that a [`park`] has given away. Once for each.
/// Go: goready.
#[inline]
pub(crate) fn ready(g: &'static G) {
    if g.is_thread() { Threads::ready(g) } else { MultiThread::ready(g) }
}

/// Inside the runtime: while it lives a goroutine is neither stopped nor moved, and may hold a lock that
/// others wait for. A thread has nothing to fear.
#[must_use]
#[derive(Debug)]
pub(crate) struct RuntimeGuard {
    /// A goroutine that moves.
    goroutine: Option<&'static G>,
    /// Code inside `host`: a thread, but one that can be stopped.
    no_preempt: Option<NoPreempt>,
}

/// Goes inside. Until it ends nothing may be allocated, nothing may panic.
#[inline]
pub(crate) fn enter_runtime() -> RuntimeGuard {
    let goroutine = current::goroutine().filter(|g| !g.is_thread());
    let mut no_preempt = None;
    match goroutine {
        Some(_) => MultiThread::enter(),
        None => no_preempt = no_preempt_in_host(),
    }
    RuntimeGuard { goroutine, no_preempt }
}

impl RuntimeGuard {
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
        match this.goroutine {
            // SAFETY: commit — promised by the caller.
            Some(g) => unsafe { MultiThread::park_in_runtime(Some(g), None, reason, commit, data) },
            // SAFETY: commit — promised by the caller.
            None => unsafe { Threads::park(None, this.no_preempt.take(), reason, commit, data) },
        }
    }

    /// As [`ready`].
    #[inline]
    pub(crate) fn ready(&self, g: &'static G) {
        match (g.is_thread(), self.goroutine) {
            (true, _) => Threads::ready(g),
            (false, Some(_)) => MultiThread::ready_in_runtime(g),
            (false, None) => MultiThread::ready(g),
        }
    }
}

impl Drop for RuntimeGuard {
    #[inline]
    fn drop(&mut self) {
        if self.goroutine.is_some() {
            MultiThread::leave();
        }
    }
}

/// Whether one who finds a lock taken should look again before it waits: its holder may run, and nobody
/// here could run instead.
/// Go: sync_runtime_canSpin.
pub(crate) fn can_spin() -> bool {
    if current::is_fiber() { MultiThread::can_spin() } else { Threads::can_spin() }
}

/// The number of the P the caller is on, a moment ago; `None`: it has none.
#[inline]
pub(crate) fn p_number() -> Option<usize> {
    if current::is_fiber() { MultiThread::p_number() } else { None }
}

pub(crate) use threads::wait::{ThreadDeadline, set_thread_deadline};

/// Starts a timer, which is fired at `when`.
///
/// # Safety
/// - **alive**: it stays where it is until it was fired or stopped; it is not started now.
pub(crate) unsafe fn start_timer(timer: &Timer, when: u64) {
    match backend() {
        // SAFETY: alive — promised by the caller.
        Backend::MultiThread => unsafe { MultiThread::start_timer(timer, when) },
        // SAFETY: alive — promised by the caller.
        Backend::Threads => unsafe { Threads::start_timer(timer, when) },
    }
}

/// Lets others run.
/// Go: Gosched.
#[inline]
pub(crate) fn yield_now() {
    match current::goroutine() {
        Some(g) if !g.is_thread() => MultiThread::yield_now(Some(g)),
        g => Threads::yield_now(g),
    }
}

/// Lets the one run that the caller has made ready last.
pub(crate) fn yield_to_ready() {
    match current::goroutine() {
        Some(g) if !g.is_thread() => MultiThread::yield_to_ready(Some(g)),
        g => Threads::yield_to_ready(g),
    }
}

/// See the public face.
/// Go: LockOSThread.
pub(crate) fn lock_os_thread(g: &'static G) {
    if g.is_thread() { Threads::lock_os_thread(g) } else { MultiThread::lock_os_thread(g) }
}

/// See the public face.
/// Go: UnlockOSThread.
pub(crate) fn unlock_os_thread(g: &'static G) {
    if g.is_thread() { Threads::unlock_os_thread(g) } else { MultiThread::unlock_os_thread(g) }
}

pub(crate) fn procs() -> usize {
    by_backend!(procs())
}

/// Returns how many there were.
/// Go: GOMAXPROCS.
pub(crate) fn set_procs(procs: usize) -> usize {
    by_backend!(set_procs(procs))
}

/// Whether it is the end when all goroutines wait, whatever other threads may do.
pub(crate) fn set_deadlock_is_fatal(ends: bool) {
    by_backend!(set_deadlock_is_fatal(ends))
}

/// Returns how many there might be.
/// Go: setMaxThreads.
pub(crate) fn set_max_threads(most: usize) -> usize {
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    by_backend!(set_max_threads(most))
}

/// A marked call of the calling goroutine begins: it is over when the goroutine next comes into the
/// runtime. `long`: its P goes to somebody else at once. `registers`: of the frame that the call is made in, which
/// is there until it is over; or null.
/// Go: entersyscall.
pub(crate) fn enter_syscall(long: bool, registers: *const Registers) {
    match current::goroutine() {
        Some(g) if !g.is_thread() => MultiThread::enter_syscall(g, long, registers),
        _ => {}
    }
}

/// It is over, if it was not already.
/// Go: exitsyscall.
pub(crate) fn exit_syscall() {
    drop(enter_runtime());
}

/// Runs `f` without the calling goroutine being preempted.
pub(crate) fn no_preempt<R>(f: impl FnOnce() -> R) -> R {
    match current::goroutine() {
        Some(g) if !g.is_thread() => MultiThread::no_preempt(g, f),
        _ => f(),
    }
}

/// Lets the thread that makes threads call `f`, soon. In signal handlers too. False: there is none.
pub(crate) fn call_on_thread_maker(f: fn()) -> bool {
    state::backend::chosen() == Some(Backend::MultiThread) && MultiThread::call_on_thread_maker(f)
}

/// In virtual time: a thread has begun to wait, perhaps for a timer that nobody waited for. If all others sleep, time
/// passes from here on.
pub(crate) fn recheck_virtual_time() {
    (upcalls::UPCALLS.recheck_virtual_time)();
}

/// Go: gcount.
pub(crate) fn num_goroutines() -> usize {
    match state::backend::chosen() {
        None => 0,
        Some(Backend::MultiThread) => MultiThread::num_goroutines(),
        Some(Backend::Threads) => Threads::num_goroutines(),
    }
}

/// The runtime's own threads.
/// Go: mcount.
pub(crate) fn num_threads() -> usize {
    match state::backend::chosen() {
        None => 0,
        Some(Backend::MultiThread) => MultiThread::num_threads(),
        Some(Backend::Threads) => Threads::num_threads(),
    }
}

/// All that can be counted.
pub(crate) fn read_stats() -> SchedStats {
    backend();
    inspect::stats::read_stats()
}

/// The scheduler in Go's words: the plain line of `schedtrace`, then every P, M and G.
pub(crate) fn write_trace(out: &mut dyn std::fmt::Write) -> std::fmt::Result {
    backend();
    inspect::schedtrace::write_all(out)
}

/// Runs `f` with preemption off, in a goroutine.
pub(crate) fn with_preemption_off<R>(f: impl FnOnce() -> R) -> R {
    MultiThread::with_preemption_off(f)
}

/// Runs `f` in a stopped world.
pub(crate) fn with_world_stopped<R>(f: impl FnOnce() -> R) -> R {
    MultiThread::with_world_stopped(f)
}

/// Runs `f` on a stack of its own, of at least `bytes`, as the caller.
///
/// # Errors
/// There is no such stack.
pub(crate) fn with_stack(bytes: usize, f: &mut dyn FnMut()) -> std::io::Result<()> {
    MultiThread::with_stack(bytes, f)
}

/// `goexit` was called in main: the others go on.
pub(crate) fn record_main_exit() {
    MultiThread::record_main_exit();
}

/// The calling thread, the process's first, serves goroutines for as long as the process lives.
pub(crate) fn serve_main_thread() -> ! {
    by_backend!(serve_main_thread())
}

/// How often a P was taken: in marked calls, and in others.
pub(crate) fn retake_counts() -> (u64, u64) {
    MultiThread::retake_counts()
}

/// How often goroutines were moved, stopped in place, of these outside the program's text, and put off.
pub(crate) fn preemptions() -> [u64; 4] {
    MultiThread::preemptions()
}

/// A panic where none may be is the end.
pub(crate) fn check_panic() {
    MultiThread::check_panic();
}

/// Shows all goroutines without their frames: allocates nothing, and takes no lock.
pub(crate) fn list_goroutines() {
    MultiThread::list_goroutines();
}

/// What shows the others when a stack has overflowed.
pub(crate) fn set_overflow_report(report: fn()) {
    MultiThread::set_overflow_report(report);
}
