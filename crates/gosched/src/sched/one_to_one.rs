//! The threads backend, which works on every system: each goroutine is an OS thread. This backend
//! never limits how many goroutines run at the same time: the system schedules them.

use crate::gmp::commit::Commit;
use crate::gmp::current;
use crate::gmp::frame::{Registers, Size};
use crate::gmp::g::G;
use crate::gmp::timer::PlacedTimer;
use crate::probe::wait_reason::WaitReason;
use crate::sched::contract::Scheduler;
use crate::sched::state::available_cpu;
use crate::sched::state::backend::Threads;
use crate::sched::state::spawn_request::{SpawnRequest, Spawned};
use crate::sched::threads::{activity, goroutine, thread_spawn, timer_thread, wait};
use crate::sched::upcalls::UPCALLS;
use gosched_fiber::NoPreempt;
use std::io;
use std::panic::PanicHookInfo;
use std::sync::atomic::Ordering;

/// Largest stack that can be requested, as on the M:N backend.
const MAX_STACK_BYTES: usize = 64 << 30;

impl Scheduler for Threads {
    type Inside = ();

    fn stack_size(bytes: usize) -> io::Result<Option<Size>> {
        if bytes == 0 || bytes > MAX_STACK_BYTES {
            let message =
                format!("invalid stack size {bytes}: it must be between 1 byte and 64 GiB");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(None)
    }

    fn spawn(request: SpawnRequest<'_>) -> io::Result<Spawned> {
        let (g, id, thread) = thread_spawn::spawn(request, &UPCALLS)?;
        Ok(Spawned { g, id, thread: Some(Box::new(thread)) })
    }

    fn prepare(request: SpawnRequest<'_>) -> &'static G {
        thread_spawn::prepare(request, &UPCALLS)
    }

    fn discard(g: &'static G) {
        goroutine::discard(g);
    }

    fn begin_prepared(_g: &'static G) {}

    fn park(
        _g: Option<&'static G>,
        no_preempt: Option<NoPreempt>,
        reason: WaitReason,
        commit: Commit,
    ) {
        wait::park(reason, commit, no_preempt, &UPCALLS);
    }

    fn park_in_runtime(_inside: (), g: &'static G, reason: WaitReason, commit: Commit) {
        Self::park(Some(g), None, reason, commit);
    }

    fn ready(g: &'static G) {
        wait::ready(g);
    }

    fn ready_in_runtime(_inside: &mut (), g: &'static G) {
        wait::ready(g);
    }

    fn enter() {}

    fn start_timer(timer: PlacedTimer<'_>, when: u64) {
        timer_thread::start_timer(timer, when, &UPCALLS);
    }

    fn can_spin() -> bool {
        true
    }

    fn p_number() -> Option<usize> {
        None
    }

    fn yield_now(_g: Option<&'static G>) {
        std::thread::yield_now();
    }

    fn yield_to_ready(_g: Option<&'static G>) {
        std::thread::yield_now();
    }

    fn lock_os_thread(g: &'static G) {
        g.os_thread_lock_count.fetch_add(1, Ordering::Relaxed);
    }

    fn unlock_os_thread(g: &'static G) {
        let locks = g.os_thread_lock_count.load(Ordering::Relaxed);
        g.os_thread_lock_count.store(locks.saturating_sub(1), Ordering::Relaxed);
    }

    fn procs() -> usize {
        activity::procs()
    }

    fn set_procs(procs: usize) -> usize {
        available_cpu::record_procs(procs);
        activity::set_procs(procs)
    }

    fn set_deadlock_is_fatal(ends: bool) {
        activity::set_deadlock_is_fatal(ends);
    }

    fn set_max_threads(_most: u32) -> usize {
        usize::MAX
    }

    fn num_goroutines() -> usize {
        activity::num_goroutines()
    }

    fn num_threads() -> usize {
        activity::num_goroutines()
    }

    fn enter_syscall(_g: &'static G, _long: bool, _registers: *const Registers) {}

    fn no_preempt<R>(_g: &'static G, f: impl FnOnce() -> R) -> R {
        f()
    }

    fn with_preemption_off<R>(f: impl FnOnce() -> R) -> R {
        f()
    }

    fn with_world_stopped<R>(f: impl FnOnce() -> R) -> R {
        f()
    }

    /// Runs `f` on the caller's stack. Called only on a system without a port, where no thread can
    /// switch to another stack.
    fn with_stack(_bytes: usize, f: &mut dyn FnMut()) -> io::Result<()> {
        f();
        Ok(())
    }

    fn call_on_thread_maker(_f: &'static fn()) -> bool {
        false
    }

    fn ensure_poller() {}

    fn record_main_exit() {}

    fn serve_main_thread() -> ! {
        thread_spawn::wait_for_last_goroutine()
    }

    fn retake_counts() -> (u64, u64) {
        (0, 0)
    }

    fn preemptions() -> [u64; 4] {
        [0; 4]
    }

    fn check_panic(_: &PanicHookInfo<'_>) {}

    fn list_goroutines() {}

    fn set_overflow_report(_report: &'static fn()) {}
}

/// Runs a goroutine on the calling thread until it ends.
pub(crate) fn run_on_calling_thread(request: SpawnRequest<'_>) {
    thread_spawn::run_on_calling_thread(request, &UPCALLS);
}

/// Turns preemption off for code inside `host`, so that it is not stopped while it holds a lock of
/// the runtime. Such code runs as an M's thread. Returns `None` on an ordinary thread, which is
/// never preempted.
pub(crate) fn no_preempt_in_host() -> Option<NoPreempt> {
    current::is_m().then(|| {
        wait::ensure_thread_g();
        // SAFETY: here — the callers neither wait nor switch while they hold it.
        unsafe { NoPreempt::new() }
    })
}
