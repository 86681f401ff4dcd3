//! The M:N backend, for systems with a port: goroutines move between threads.
//!
//! A goroutine uses its M and P. An ordinary thread has neither, and uses the global queue; so does
//! code inside `host`, which runs as the M's thread. This backend never parks an ordinary thread:
//! `one_to_one` does.

use crate::gmp::commit::Commit;
use crate::gmp::current;
use crate::gmp::frame::{Registers, Size};
use crate::gmp::g::G;
use crate::gmp::timer::PlacedTimer;
use crate::probe::field::StopReason;
use crate::probe::wait_reason::WaitReason;
use crate::sched::boot::{main_m, thread_maker};
use crate::sched::contract::Scheduler;
use crate::sched::inspect::dump;
use crate::sched::run::{deadlock, poll, timers};
use crate::sched::state::global::SCHED;
use crate::sched::state::multi_thread::MultiThread;
use crate::sched::state::spawn_request::{SpawnRequest, Spawned};
use crate::sched::state::{counts, thread_requests};
use crate::sched::switch::boundary::{InRuntime, enter, while_inside};
use crate::sched::switch::{checks, no_preempt, park, preempt, prepared, spawn, syscall};
use crate::sched::world::{self, procs};
use crate::sys::fatal::fatal;
use crate::sys::forked;
use gosched_fiber::NoPreempt;
use gosched_fiber::fault;
use gosched_fiber::lock::NoPreemptLockGuard;
use std::panic::PanicHookInfo;
use std::sync::atomic::Ordering;

impl Scheduler for MultiThread {
    type Inside = InRuntime;

    fn stack_size(bytes: usize) -> std::io::Result<Option<Size>> {
        Size::new(bytes).map(Some).map_err(invalid)
    }

    #[inline]
    fn spawn(request: SpawnRequest<'_>) -> std::io::Result<Spawned> {
        let (g, id) = spawn::spawn(request);
        Ok(Spawned { g, id, thread: None })
    }

    fn prepare(request: SpawnRequest<'_>) -> &'static G {
        prepared::prepare(request)
    }

    fn discard(g: &'static G) {
        prepared::discard(g);
    }

    fn begin_prepared(g: &'static G) {
        prepared::begin_prepared(g);
    }

    #[inline]
    fn park(
        g: Option<&'static G>,
        _no_preempt: Option<NoPreempt>,
        reason: WaitReason,
        commit: Commit,
    ) {
        park::park(goroutine(g), reason, commit);
    }

    #[inline]
    fn park_in_runtime(inside: InRuntime, g: &'static G, reason: WaitReason, commit: Commit) {
        park::park_in_runtime(inside, g, reason, commit);
    }

    #[inline]
    fn ready(g: &'static G) {
        park::ready(g);
    }

    #[inline(always)]
    fn ready_in_runtime(inside: &mut InRuntime, g: &'static G) {
        park::ready_in_runtime(inside.on_m(), g);
    }

    #[inline]
    fn enter() -> InRuntime {
        enter()
    }

    fn start_timer(mut timer: PlacedTimer<'_>, when: u64) {
        loop {
            let mut inside = current::is_fiber().then(enter);
            let m = inside.as_mut().map(|inside| inside.on_m().m());
            // SAFETY: here — nothing below waits or switches.
            let no_preempt = unsafe { NoPreempt::new() };
            let inserted = timers::insert(m, timer, when);
            drop(no_preempt);
            drop(inside);
            match inserted {
                Ok(()) => return,
                Err((heap, same)) => {
                    timer = same;
                    heap.grow();
                }
            }
        }
    }

    fn can_spin() -> bool {
        let alone = while_inside(|on| on.p().is_some_and(|p| p.is_queue_empty()));
        alone && SCHED.counts.idle_ps() as usize + 1 < SCHED.procs()
    }

    #[inline]
    fn p_number() -> Option<usize> {
        while_inside(|on| on.p().map(|p| p.id as usize))
    }

    #[inline]
    fn yield_now(g: Option<&'static G>) {
        park::yield_now(goroutine(g));
    }

    fn yield_to_ready(g: Option<&'static G>) {
        park::yield_locally(goroutine(g));
    }

    fn lock_os_thread(g: &'static G) {
        let mut inside = enter();
        let m = inside.on_m().m();
        g.os_thread_lock_count.fetch_add(1, Ordering::Relaxed);
        g.pinned.replace(Some(m));
        m.set_locked_g(Some(g));
    }

    fn unlock_os_thread(g: &'static G) {
        let locks = g.os_thread_lock_count.load(Ordering::Relaxed);
        if locks == 0 {
            return;
        }
        let mut inside = enter();
        g.os_thread_lock_count.store(locks - 1, Ordering::Relaxed);
        if locks == 1 {
            g.pinned.replace(None);
            inside.on_m().set_locked_g(None);
        }
    }

    fn procs() -> usize {
        SCHED.procs()
    }

    fn set_procs(procs: usize) -> usize {
        procs::set_procs(procs)
    }

    fn set_deadlock_is_fatal(ends: bool) {
        deadlock::IGNORE_OTHER_THREADS.store(ends, Ordering::Relaxed);
    }

    fn set_max_threads(most: u32) -> usize {
        thread_maker::set_max_threads(most) as usize
    }

    fn num_goroutines() -> usize {
        counts::num_goroutines()
    }

    fn num_threads() -> usize {
        NoPreemptLockGuard::new(&SCHED.lock).ms as usize
            + thread_requests::HELPER_THREADS.load(Ordering::Relaxed) as usize
    }

    fn enter_syscall(g: &'static G, long: bool, registers: *const Registers) {
        if forked::is_child() {
            return;
        }
        let mut inside = enter();
        if inside.on_m().carrier.is_preempt_pending() {
            // A preemption request that is already pending would end the call as soon as it begins,
            // so it is served first.
            drop(inside);
            inside = enter();
        }
        if long {
            syscall::enter_syscall_block(inside.may_move(), g, registers);
        } else {
            syscall::enter_syscall(inside.may_move(), g, registers);
        }
        // A request that arrived meanwhile must not end the call either.
        inside.leave_without_serving();
    }

    fn no_preempt<R>(g: &'static G, f: impl FnOnce() -> R) -> R {
        no_preempt::without(g, f)
    }

    fn with_preemption_off<R>(f: impl FnOnce() -> R) -> R {
        if !current::is_fiber() {
            return f();
        }
        let _inside = enter();
        f()
    }

    fn with_world_stopped<R>(f: impl FnOnce() -> R) -> R {
        world::with_world_stopped(StopReason::Test, |_| f())
    }

    fn with_stack(bytes: usize, f: &mut dyn FnMut()) -> std::io::Result<()> {
        let size = if cfg!(feature = "threads") {
            // The `threads` feature has no identities, and this stack needs none.
            Size::without_identity(bytes).map_err(invalid)?
        } else {
            Size::new(bytes).map_err(invalid)?
        };
        let stack = Self::with_preemption_off(|| gosched_fiber::Stack::new(size));
        let stack = stack.map_err(std::io::Error::other)?;
        stack.set_owner(current::goroutine().map_or(0, G::id));
        /// # Safety
        /// - **callback**: called by `call_on_stack`, with a closure that does not unwind.
        unsafe extern "C" fn call(f: *mut u8) {
            // SAFETY: callback — as above; the owner of the closure waits.
            let f = unsafe { &mut *f.cast::<&mut dyn FnMut()>() };
            f();
        }
        let mut f = f;
        // SAFETY: mapped, quiet — the stack is new and used only here; callback — the caller's
        // closure does not unwind.
        unsafe { gosched_fiber::arch::call_on_stack(stack.top(), call, (&raw mut f).cast()) };
        Self::with_preemption_off(|| drop(stack));
        Ok(())
    }

    fn call_on_thread_maker(f: &'static fn()) -> bool {
        thread_requests::call_on_thread_maker(f)
    }

    fn ensure_poller() {
        poll::ensure_poller();
    }

    fn record_main_exit() {
        deadlock::MAIN_HAS_EXITED.store(true, Ordering::Relaxed);
    }

    fn serve_main_thread() -> ! {
        main_m::become_main_m()
    }

    fn retake_counts() -> (u64, u64) {
        syscall::retake_counts()
    }

    fn preemptions() -> [u64; 4] {
        preempt::counts()
    }

    fn check_panic(info: &PanicHookInfo<'_>) {
        checks::check_panic(info);
    }

    fn list_goroutines() {
        dump::print_goroutines();
    }

    fn set_overflow_report(report: &'static fn()) {
        fault::set_dump_hooks(report, &(dump::print_goroutines as fn()));
    }
}

/// Returns `g`, which must be a goroutine: ordinary threads wait and yield through the threads
/// backend.
#[inline(always)]
fn goroutine(g: Option<&'static G>) -> &'static G {
    match g {
        Some(g) => g,
        None => {
            fatal!("the M:N scheduler was asked to park or yield a thread that is not a goroutine")
        }
    }
}

fn invalid(why: gosched_fiber::stack::StackError) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidInput, why)
}
