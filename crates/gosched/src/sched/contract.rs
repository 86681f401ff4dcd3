//! The trait that both backends implement.
//!
//! A function that one backend lacks fails to compile. On a system without a port `MultiThread` is
//! another name for `Threads`, so that every call goes to the only backend. This module never
//! chooses the backend of the process: `boot::choose` does.

use crate::gmp::commit::Commit;
use crate::gmp::frame::{Registers, Size};
use crate::gmp::g::G;
use crate::gmp::timer::PlacedTimer;
use crate::probe::wait_reason::WaitReason;
use crate::sched::state::spawn_request::{SpawnRequest, Spawned};
use gosched_fiber::NoPreempt;
use std::io;
use std::panic::PanicHookInfo;

/// A backend. Functions that take a G require a G of this backend.
pub(crate) trait Scheduler {
    /// The guard of a goroutine that is inside the runtime.
    type Inside;

    /// Checks a stack size for [`SpawnOptions`](crate::sched::SpawnOptions). Returns `None` if the
    /// system manages the stack.
    ///
    /// # Errors
    /// A stack cannot have this size.
    fn stack_size(bytes: usize) -> io::Result<Option<Size>>;

    /// Starts a goroutine.
    ///
    /// # Errors
    /// The system refuses a thread.
    fn spawn(request: SpawnRequest<'_>) -> io::Result<Spawned>;

    /// See [`prepare`](crate::sched::prepare).
    fn prepare(request: SpawnRequest<'_>) -> &'static G;

    /// See [`discard`](crate::sched::discard).
    fn discard(g: &'static G);

    /// See [`begin_prepared`](crate::sched::begin_prepared).
    fn begin_prepared(g: &'static G);

    /// Parks the caller: the goroutine `g`, or an ordinary thread.
    fn park(
        g: Option<&'static G>,
        no_preempt: Option<NoPreempt>,
        reason: WaitReason,
        commit: Commit,
    );

    /// As [`Scheduler::park`], for a goroutine that is inside the runtime. The goroutine is outside
    /// when this returns.
    fn park_in_runtime(inside: Self::Inside, g: &'static G, reason: WaitReason, commit: Commit);

    /// Makes a parked G ready.
    fn ready(g: &'static G);

    /// As [`Scheduler::ready`], for a caller that is inside the runtime.
    fn ready_in_runtime(inside: &mut Self::Inside, g: &'static G);

    /// Enters the runtime: the calling goroutine is neither stopped nor moved until the guard is
    /// dropped.
    fn enter() -> Self::Inside;

    /// Starts a timer.
    fn start_timer(timer: PlacedTimer<'_>, when: u64);

    /// See [`can_spin`](crate::sched::can_spin).
    fn can_spin() -> bool;

    /// See [`p_number`](crate::sched::p_number).
    fn p_number() -> Option<usize>;

    /// Lets other goroutines run.
    fn yield_now(g: Option<&'static G>);

    /// Lets the goroutine run that the caller has made ready last.
    fn yield_to_ready(g: Option<&'static G>);

    /// See [`lock_os_thread`](crate::lock_os_thread).
    fn lock_os_thread(g: &'static G);

    /// See [`unlock_os_thread`](crate::unlock_os_thread).
    fn unlock_os_thread(g: &'static G);

    /// Returns the number of Ps.
    fn procs() -> usize;

    /// Sets the number of Ps and returns the previous number.
    fn set_procs(procs: usize) -> usize;

    /// See [`set_deadlock_is_fatal`](crate::sched::set_deadlock_is_fatal).
    fn set_deadlock_is_fatal(ends: bool);

    /// Sets the maximum number of Ms and returns the previous maximum.
    fn set_max_threads(most: u32) -> usize;

    /// Returns the number of live goroutines.
    fn num_goroutines() -> usize;

    /// Returns the number of the runtime's threads.
    fn num_threads() -> usize;

    /// See [`enter_syscall`](crate::sched::enter_syscall).
    fn enter_syscall(g: &'static G, long: bool, registers: *const Registers);

    /// Runs `f` without preemption of the calling goroutine, `g`.
    fn no_preempt<R>(g: &'static G, f: impl FnOnce() -> R) -> R;

    /// Runs `f` with preemption off if the caller is a goroutine.
    fn with_preemption_off<R>(f: impl FnOnce() -> R) -> R;

    /// Runs `f` while the world is stopped.
    fn with_world_stopped<R>(f: impl FnOnce() -> R) -> R;

    /// Runs `f` on a new stack of at least `bytes` bytes, as the calling goroutine or thread. Runs
    /// `f` on the caller's stack on a system without a port.
    ///
    /// # Errors
    /// The size is invalid, or there is no memory for the stack.
    fn with_stack(bytes: usize, f: &mut dyn FnMut()) -> io::Result<()>;

    /// See [`call_on_thread_maker`](crate::sched::call_on_thread_maker).
    fn call_on_thread_maker(f: &'static fn()) -> bool;

    /// Makes sure that an M polls, after the caller has counted itself as a waiter.
    fn ensure_poller();

    /// Records that main has called `goexit`. The other goroutines continue.
    fn record_main_exit();

    /// Runs goroutines on the calling thread, the process's first, until the process ends. The
    /// goroutine that was started for this thread runs first, if there is one.
    fn serve_main_thread() -> !;

    /// Returns how often a P was retaken: in marked calls, and in unmarked calls.
    fn retake_counts() -> (u64, u64);

    /// See [`preemptions`](crate::sched::preemptions).
    fn preemptions() -> [u64; 4];

    /// Ends the process if the caller must not panic here. Called by the panic hook.
    fn check_panic(info: &PanicHookInfo<'_>);

    /// Prints all goroutines without their frames. Allocates nothing and takes no lock.
    fn list_goroutines();

    /// Sets the function that prints the other goroutines after a stack overflow.
    fn set_overflow_report(report: &'static fn());
}
