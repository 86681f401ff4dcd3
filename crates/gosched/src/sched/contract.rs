//! What the scheduler's verbs ask of a backend.
//!
//! Both backends implement [`Scheduler`], so a function that one of them lacks fails to compile. On a system without a port
//! `MultiThread` is another name for `Threads`: every call goes to the one backend there is.

use crate::gmp::frame::{Registers, Size};
use crate::gmp::g::G;
use crate::gmp::reason::WaitReason;
use crate::gmp::timer::Timer;
use crate::sched::state::spawn_request::{SpawnRequest, Spawned};
use gosched_fiber::NoPreempt;
use std::io;

/// Tells others of a G that waits; see [`park`](crate::sched::park).
pub(crate) type Commit = unsafe fn(&'static G, *const ()) -> bool;

/// A backend. The functions that take a G take one of this backend.
pub(crate) trait Scheduler {
    /// Checks a stack size, for [`SpawnOptions`](crate::sched::SpawnOptions). `None`: the system cares for it.
    ///
    /// # Errors
    /// It cannot be had.
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

    /// Parks the caller, which is `g`, or an ordinary thread.
    ///
    /// # Safety
    /// - **commit**: it may be called once with the G and `data`, perhaps on another stack, before this returns.
    unsafe fn park(
        g: Option<&'static G>,
        no_preempt: Option<NoPreempt>,
        reason: WaitReason,
        commit: Commit,
        data: *const (),
    );

    /// As [`Scheduler::park`], for a caller that is inside the runtime. Returns outside.
    ///
    /// # Safety
    /// - **commit**: as there.
    unsafe fn park_in_runtime(
        g: Option<&'static G>,
        no_preempt: Option<NoPreempt>,
        reason: WaitReason,
        commit: Commit,
        data: *const (),
    );

    /// Lets a parked G go on.
    fn ready(g: &'static G);

    /// As [`Scheduler::ready`], by a caller that is inside the runtime.
    fn ready_in_runtime(g: &'static G);

    /// The calling goroutine is neither stopped nor moved until [`Scheduler::leave`].
    fn enter();

    /// Ends [`Scheduler::enter`].
    fn leave();

    /// Starts a timer.
    ///
    /// # Safety
    /// - **alive**: as for [`start_timer`](crate::sched::start_timer).
    unsafe fn start_timer(timer: &Timer, when: u64);

    /// See [`can_spin`](crate::sched::can_spin).
    fn can_spin() -> bool;

    /// See [`p_number`](crate::sched::p_number).
    fn p_number() -> Option<usize>;

    /// Lets others run.
    fn yield_now(g: Option<&'static G>);

    /// Lets the one run that the caller has made ready last.
    fn yield_to_ready(g: Option<&'static G>);

    /// See the public face.
    fn lock_os_thread(g: &'static G);

    /// See the public face.
    fn unlock_os_thread(g: &'static G);

    /// How many Ps there are.
    fn procs() -> usize;

    /// Changes how many there are. Returns how many there were.
    fn set_procs(procs: usize) -> usize;

    /// See [`set_deadlock_is_fatal`](crate::sched::set_deadlock_is_fatal).
    fn set_deadlock_is_fatal(ends: bool);

    /// Returns how many there might be.
    fn set_max_threads(most: u32) -> usize;

    /// Goroutines that live.
    fn num_goroutines() -> usize;

    /// The runtime's own threads.
    fn num_threads() -> usize;

    /// See [`enter_syscall`](crate::sched::enter_syscall).
    fn enter_syscall(g: &'static G, long: bool, registers: *const Registers);

    /// Runs `f` without the calling goroutine, `g`, being preempted.
    fn no_preempt<R>(g: &'static G, f: impl FnOnce() -> R) -> R;

    /// Runs `f` with preemption off, in a goroutine.
    fn with_preemption_off<R>(f: impl FnOnce() -> R) -> R;

    /// Runs `f` in a stopped world.
    fn with_world_stopped<R>(f: impl FnOnce() -> R) -> R;

    /// Runs `f` on a stack of its own, of at least `bytes`, as the caller.
    ///
    /// # Errors
    /// There is no such stack.
    fn with_stack(bytes: usize, f: &mut dyn FnMut()) -> io::Result<()>;

    /// See [`call_on_thread_maker`](crate::sched::call_on_thread_maker).
    fn call_on_thread_maker(f: fn()) -> bool;

    /// Somebody waits for I/O from here on.
    fn ensure_poller();

    /// `goexit` was called in main: the others go on.
    fn record_main_exit();

    /// The calling thread, the process's first, serves goroutines for as long as the process lives. One that was started for
    /// it runs first.
    fn serve_main_thread() -> !;

    /// How often a P was taken: in marked calls, and in others.
    fn retake_counts() -> (u64, u64);

    /// See [`preemptions`](crate::sched::preemptions).
    fn preemptions() -> [u64; 4];

    /// A panic where none may be is the end.
    fn check_panic();

    /// Shows all goroutines without their frames: allocates nothing, and takes no lock.
    fn list_goroutines();

    /// What shows the others when a stack has overflowed.
    fn set_overflow_report(report: fn());
}
