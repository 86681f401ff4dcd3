//! The scheduler: the only code that decides which G runs on which M. It finds and steals Gs, parks
//! them and makes them ready, wakes Ms, hands off Ps, and stops the world.
//!
//! Two backends implement the same trait ([`contract`]). `multi_thread`: goroutines have their own
//! stacks, and any M may run them. `one_to_one`: each goroutine is an OS thread, if the first
//! backend is not supported. The backend is chosen when the runtime starts, and never changes.
//! Ordinary threads always wait through `threads`.

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

use crate::gmp::commit::Commit;
use crate::gmp::current;
use crate::gmp::frame::{Registers, Size};
use crate::gmp::g::G;
use crate::gmp::timer::PlacedTimer;
use crate::probe::wait_reason::WaitReason;
use contract::Scheduler;
use gosched_fiber::NoPreempt;
use inspect::recordings;
use one_to_one::no_preempt_in_host;
use state::backend::{MultiThread, Threads};

pub(crate) use crate::gmp::frame::capture_registers;
pub(crate) use crate::sys::forked::refuse_in_child;
pub(crate) use inspect::inspector;
pub(crate) use inspect::types::SchedStats;
pub(crate) use one_to_one::run_on_calling_thread;
pub use state::backend::Backend;
pub(crate) use state::report::{ExitReason, begin as begin_report, report, set_report, set_show};
pub(crate) use state::spawn_request::{SpawnOptions, SpawnRequest, Spawned};

/// The seed with which this run can be replayed, if one was given.
pub(crate) use crate::sys::random::explicit_seed as seed;

/// Calls a function of this process's backend. Starts the runtime first, if it has not started yet.
macro_rules! by_backend {
    ($function:ident($($argument:expr),*)) => {
        match backend() {
            Backend::MultiThread => MultiThread::$function($($argument),*),
            Backend::Threads => Threads::$function($($argument),*),
        }
    };
}

/// Returns the backend of this process. Starts the runtime, if it has not started yet.
#[inline]
pub(crate) fn backend() -> Backend {
    *state::backend::BACKEND.get_or_init(boot::choose::choose)
}

/// Checks a stack size. Returns `None` if the system manages the stack.
///
/// # Errors
/// A stack cannot have this size.
pub(crate) fn stack_size(bytes: usize) -> std::io::Result<Option<Size>> {
    by_backend!(stack_size(bytes))
}

/// Starts a goroutine.
/// Go: newproc.
///
/// # Errors
/// The system refuses a thread. This happens only if goroutines are threads.
#[inline]
pub(crate) fn spawn(request: SpawnRequest<'_>) -> std::io::Result<Spawned> {
    // A caller that is a fiber implies the M:N backend.
    if current::is_fiber() { MultiThread::spawn(request) } else { by_backend!(spawn(request)) }
}

/// Creates a goroutine without starting it, for code that must not allocate: that code later makes
/// the goroutine [`ready`]. The goroutine's task must first call [`begin_prepared`]; the goroutine
/// is not counted before.
pub(crate) fn prepare(request: SpawnRequest<'_>) -> &'static G {
    by_backend!(prepare(request))
}

/// Frees a prepared goroutine that no code will make ready. Its task belongs to the caller again.
pub(crate) fn discard(g: &'static G) {
    if g.is_thread() { Threads::discard(g) } else { MultiThread::discard(g) }
}

/// Counts the calling goroutine, which was prepared, as started.
pub(crate) fn begin_prepared() {
    match current::goroutine() {
        Some(g) if !g.is_thread() => MultiThread::begin_prepared(g),
        _ => {}
    }
}

/// Waits until the G given to `commit` is made [`ready`]: a goroutine parks, a thread sleeps.
/// Go: gopark.
///
/// `commit` runs once the caller may be made ready, perhaps on another stack.
#[inline]
pub(crate) fn park(reason: WaitReason, commit: Commit) {
    match current::goroutine() {
        Some(g) if !g.is_thread() => MultiThread::park(Some(g), None, reason, commit),
        g => Threads::park(g, no_preempt_in_host(), reason, commit),
    }
}

/// Makes a G ready that waits in [`park`]. Call once for each `park`.
/// Go: goready.
#[inline]
pub(crate) fn ready(g: &'static G) {
    if g.is_thread() { Threads::ready(g) } else { MultiThread::ready(g) }
}

/// A guard of a caller that is inside the runtime. Until the guard is dropped, a goroutine is
/// neither stopped nor moved, so it may hold a lock that others wait for. The guard of an ordinary
/// thread does nothing.
#[must_use]
#[derive(Debug)]
pub(crate) enum RuntimeGuard {
    /// A goroutine of the M:N backend.
    Goroutine(&'static G, <MultiThread as Scheduler>::Inside),
    /// An ordinary thread, or a goroutine that is a thread. The guard keeps code inside `host` from
    /// being preempted: it runs as an M's thread.
    Thread(Option<NoPreempt>),
}

/// Enters the runtime. Until the guard is dropped, the caller must not allocate or panic.
#[inline]
pub(crate) fn enter_runtime() -> RuntimeGuard {
    match current::goroutine().filter(|g| !g.is_thread()) {
        Some(g) => RuntimeGuard::Goroutine(g, MultiThread::enter()),
        None => RuntimeGuard::Thread(no_preempt_in_host()),
    }
}

impl RuntimeGuard {
    /// As [`park`]. The caller is outside the runtime when this returns.
    #[inline]
    pub(crate) fn park(self, reason: WaitReason, commit: Commit) {
        match self {
            RuntimeGuard::Goroutine(g, inside) => {
                MultiThread::park_in_runtime(inside, g, reason, commit);
            }
            RuntimeGuard::Thread(no_preempt) => Threads::park(None, no_preempt, reason, commit),
        }
    }

    /// As [`ready`].
    #[inline(always)]
    pub(crate) fn ready(&mut self, g: &'static G) {
        match (g.is_thread(), self) {
            (true, _) => Threads::ready(g),
            (false, RuntimeGuard::Goroutine(_, inside)) => MultiThread::ready_in_runtime(inside, g),
            (false, RuntimeGuard::Thread(_)) => MultiThread::ready(g),
        }
    }
}

/// Returns whether a caller that finds a lock taken should spin before it waits: the lock's holder
/// may be running, and no other G waits for the caller's P.
/// Go: sync_runtime_canSpin.
pub(crate) fn can_spin() -> bool {
    if current::is_fiber() { MultiThread::can_spin() } else { Threads::can_spin() }
}

/// Returns the number of the caller's P, or `None` if the caller has none. The caller may be on
/// another P by the time this returns.
#[inline]
pub(crate) fn p_number() -> Option<usize> {
    if current::is_fiber() { MultiThread::p_number() } else { None }
}

pub(crate) use threads::wait::{ThreadDeadline, set_thread_deadline};

/// Starts a timer that fires at `when`.
pub(crate) fn start_timer(timer: PlacedTimer<'_>, when: u64) {
    by_backend!(start_timer(timer, when))
}

/// Lets other goroutines run.
/// Go: Gosched.
#[inline]
pub(crate) fn yield_now() {
    match current::goroutine() {
        Some(g) if !g.is_thread() => MultiThread::yield_now(Some(g)),
        g => Threads::yield_now(g),
    }
}

/// Lets the goroutine run that the caller has made ready last.
pub(crate) fn yield_to_ready() {
    match current::goroutine() {
        Some(g) if !g.is_thread() => MultiThread::yield_to_ready(Some(g)),
        g => Threads::yield_to_ready(g),
    }
}

/// See [`lock_os_thread`](crate::lock_os_thread).
/// Go: LockOSThread.
pub(crate) fn lock_os_thread(g: &'static G) {
    if g.is_thread() { Threads::lock_os_thread(g) } else { MultiThread::lock_os_thread(g) }
}

/// See [`unlock_os_thread`](crate::unlock_os_thread).
/// Go: UnlockOSThread.
pub(crate) fn unlock_os_thread(g: &'static G) {
    if g.is_thread() { Threads::unlock_os_thread(g) } else { MultiThread::unlock_os_thread(g) }
}

pub(crate) fn procs() -> usize {
    by_backend!(procs())
}

/// Sets the number of Ps and returns the previous number.
/// Go: GOMAXPROCS.
pub(crate) fn set_procs(procs: usize) -> usize {
    by_backend!(set_procs(procs))
}

/// Sets whether the process ends when all goroutines wait, even if other threads could wake one.
pub(crate) fn set_deadlock_is_fatal(ends: bool) {
    by_backend!(set_deadlock_is_fatal(ends))
}

/// Sets the maximum number of Ms and returns the previous maximum.
/// Go: setMaxThreads.
pub(crate) fn set_max_threads(most: usize) -> usize {
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    by_backend!(set_max_threads(most))
}

/// Begins a marked call of the calling goroutine. The call ends when the goroutine next enters the
/// runtime. If `long`, the P is handed off at once. `registers` are those of the frame that makes
/// the call, which must exist until the call ends; or null.
/// Go: entersyscall.
pub(crate) fn enter_syscall(long: bool, registers: *const Registers) {
    match current::goroutine() {
        Some(g) if !g.is_thread() => MultiThread::enter_syscall(g, long, registers),
        _ => {}
    }
}

/// Ends a marked call, if it has not ended yet.
/// Go: exitsyscall.
pub(crate) fn exit_syscall() {
    drop(enter_runtime());
}

/// Runs `f` without preemption of the calling goroutine.
pub(crate) fn no_preempt<R>(f: impl FnOnce() -> R) -> R {
    match current::goroutine() {
        Some(g) if !g.is_thread() => MultiThread::no_preempt(g, f),
        _ => f(),
    }
}

/// Requests that the thread maker call `f`. May be called in a signal handler. Returns false if
/// there is no thread maker.
pub(crate) fn call_on_thread_maker(f: &'static fn()) -> bool {
    state::backend::chosen() == Some(Backend::MultiThread) && MultiThread::call_on_thread_maker(f)
}

/// Lets virtual time advance if all goroutines are asleep. Called after a waiter was added, perhaps
/// for a timer that had no waiter before.
pub(crate) fn recheck_virtual_time() {
    (upcalls::UPCALLS.recheck_virtual_time)();
}

/// Returns the number of live goroutines.
/// Go: gcount.
pub(crate) fn num_goroutines() -> usize {
    match state::backend::chosen() {
        None => 0,
        Some(Backend::MultiThread) => MultiThread::num_goroutines(),
        Some(Backend::Threads) => Threads::num_goroutines(),
    }
}

/// Returns the number of the runtime's threads.
/// Go: mcount.
pub(crate) fn num_threads() -> usize {
    match state::backend::chosen() {
        None => 0,
        Some(Backend::MultiThread) => MultiThread::num_threads(),
        Some(Backend::Threads) => Threads::num_threads(),
    }
}

/// Reads all counts and totals of the scheduler.
pub(crate) fn read_stats() -> SchedStats {
    backend();
    inspect::stats::read_stats()
}

/// Begins a recording of events: returns its first tick. [`end_recording`] and [`close_recording`]
/// must follow, once each. One caller at a time. Stops the world.
///
/// # Errors
/// Goroutines are threads, this process is a forked child, or there is no memory.
pub(crate) fn begin_recording() -> std::io::Result<u64> {
    backend();
    recordings::begin()
}

pub(crate) use inspect::recordings::{
    close as close_recording, end as end_recording, rings as event_rings,
};

/// Writes the state of the scheduler in Go's format: the plain line of `schedtrace`, then every P,
/// M and G.
pub(crate) fn write_trace(out: &mut dyn std::fmt::Write) -> std::fmt::Result {
    backend();
    inspect::schedtrace::write_all(out)
}

/// Runs `f` with preemption off if the caller is a goroutine.
pub(crate) fn with_preemption_off<R>(f: impl FnOnce() -> R) -> R {
    MultiThread::with_preemption_off(f)
}

/// Runs `f` while the world is stopped.
pub(crate) fn with_world_stopped<R>(f: impl FnOnce() -> R) -> R {
    MultiThread::with_world_stopped(f)
}

/// Runs `f` on a new stack of at least `bytes` bytes, as the calling goroutine or thread.
///
/// # Errors
/// The size is invalid, or there is no memory for the stack.
pub(crate) fn with_stack(bytes: usize, f: &mut dyn FnMut()) -> std::io::Result<()> {
    MultiThread::with_stack(bytes, f)
}

/// Records that main has called `goexit`. The other goroutines continue.
pub(crate) fn record_main_exit() {
    MultiThread::record_main_exit();
}

/// Runs goroutines on the calling thread, the process's first, until the process ends.
pub(crate) fn serve_main_thread() -> ! {
    by_backend!(serve_main_thread())
}

/// Returns how often a P was retaken: in marked calls, and in unmarked calls.
pub(crate) fn retake_counts() -> (u64, u64) {
    MultiThread::retake_counts()
}

/// Returns how often goroutines were moved, how often stopped in place, how many of these stops
/// were outside the program's text, and how often a request was deferred.
pub(crate) fn preemptions() -> [u64; 4] {
    MultiThread::preemptions()
}

/// Ends the process if the caller must not panic here. Called by the panic hook.
pub(crate) fn check_panic(info: &std::panic::PanicHookInfo<'_>) {
    MultiThread::check_panic(info);
}

/// Prints all goroutines without their frames. Allocates nothing and takes no lock.
pub(crate) fn list_goroutines() {
    MultiThread::list_goroutines();
}

/// Sets the function that prints the other goroutines after a stack overflow.
pub(crate) fn set_overflow_report(report: &'static fn()) {
    MultiThread::set_overflow_report(report);
}
