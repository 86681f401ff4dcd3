//! Stops the world: every P is stopped, and the stopper may change state that is otherwise shared.
//!
//! `protocol::world_stop` describes how the stopper and the Ms agree on which Ps have stopped. An M
//! sees the stop when it next searches for work, when it leaves the runtime, or when it is
//! interrupted. It releases its P, and sleeps as an idle M, or in place with its G.
//!
//! A stop has a time limit, at first [`FIRST_TIMEOUT`]. If a P has not stopped by then, the stopper
//! cancels the stop, lets the Gs run for [`REST_FACTOR`] times as long, and tries again with a
//! longer limit. So a P that does not stop delays the stopper, and costs the other Gs at most a
//! tenth of their time. After [`REPORT_AFTER`], the stopper reports the Ps that do not stop.
//!
//! There is one stopper at a time. While the world is stopped, the stopper must not allocate: a
//! stopped G may hold the allocator's lock.
//!
//! A stop never waits for the end of a marked call: the stopper takes the P.

pub(crate) mod procs;
pub(crate) mod stall;

use crate::gmp::current;
use crate::gmp::list::GList;
use crate::gmp::m::M;
use crate::gmp::p::PStatus;
use crate::gmp::record::record;
use crate::gmp::token::OnM;
use crate::probe::event::EventKind;
use crate::probe::field::{Place, PreemptReason, StopReason};
use crate::probe::times;
use crate::protocol::world_stop;
use crate::sched::state::global::{Locked, SCHED, STOP_NOTE};
use crate::sched::state::{poller_role, stopping, sysmon_alarm};
use crate::sched::switch::boundary::{InRuntime, enter};
use crate::sched::switch::preempt;
use crate::sched::switch::{park, stacks, syscall};
use crate::sched::wake;
use crate::sched::wake::give;
use crate::sched::world::stall::UnstoppedPs;
use crate::sys::clock;
use gosched_fiber::arch;
use gosched_fiber::lock::LockGuard as Guard;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Whether there is a stopper. The thread that sets this flag is the only stopper until it clears
/// the flag.
/// Go: worldsema.
static STOPPER_ACTIVE: AtomicBool = AtomicBool::new(false);

/// The [`StopReason`] of the last stop, for reports; 0 if the world was never stopped.
static REASON: AtomicU8 = AtomicU8::new(0);

/// Returns the reason of the last stop as text. Returns an empty string if the world was never
/// stopped.
pub(crate) fn last_reason() -> &'static str {
    let reason = REASON.load(Ordering::Relaxed);
    let all = [StopReason::SetProcs, StopReason::Test, StopReason::Dump, StopReason::Recording];
    all.into_iter().find(|each| *each as u8 == reason).map_or("", StopReason::words)
}

/// Stops the world, runs `f`, and starts the world again. `f` must not allocate, block or panic.
/// Go: stopTheWorld … startTheWorld.
///
/// If the caller is a goroutine, it keeps its M and, unless `f` changes that, its P. An ordinary
/// thread has neither.
pub(crate) fn with_world_stopped<R>(
    reason: StopReason,
    f: impl FnOnce(WorldStopped<'_>) -> R,
) -> R {
    let (begin, mut report_after, mut f) = (Instant::now(), REPORT_AFTER, f);
    let (mut limit, mut unstopped) = (FIRST_TIMEOUT, UnstoppedPs::default());
    loop {
        f = match try_once(reason, limit, &mut unstopped, f) {
            Ok(result) => return result,
            Err(f) => f,
        };
        if begin.elapsed() >= report_after && !unstopped.is_empty() {
            unstopped.report(reason.words(), begin.elapsed());
            report_after *= 4;
        }
        // If the caller is a goroutine, its P is retaken during this sleep.
        std::thread::sleep(REST_FACTOR * limit);
        limit = MAX_TIMEOUT.min(2 * limit);
    }
}

/// How long the first attempt to stop the world may take. Each further attempt may take twice as
/// long, up to [`MAX_TIMEOUT`].
const FIRST_TIMEOUT: Duration = Duration::from_millis(20);
const MAX_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the Gs run between two attempts, as a multiple of the failed attempt's timeout. With 9,
/// they lose at most a tenth of their time.
const REST_FACTOR: u32 = 9;

/// Waits while another thread stops the world, or is about to: yields at first, then sleeps.
/// `tries` counts the calls.
pub(crate) fn wait_for_another_stopper(tries: &mut u32) {
    *tries += 1;
    if *tries < 100 { let_others_run() } else { std::thread::sleep(Duration::from_millis(1)) }
}

fn let_others_run() {
    match current::goroutine() {
        Some(g) if !g.is_thread() => park::yield_now(g),
        _ => std::thread::yield_now(),
    }
}

/// How long the stopper tries before it reports the Ps that do not stop. Each further report comes
/// after four times as long.
const REPORT_AFTER: Duration = Duration::from_secs(10);

/// Like [`with_world_stopped`], but tries only once. If the world does not stop within `limit`,
/// returns `f` without running it.
pub(crate) fn try_with_world_stopped<R, F: FnOnce(WorldStopped<'_>) -> R>(
    reason: StopReason,
    limit: Duration,
    f: F,
) -> Result<R, F> {
    try_once(reason, limit, &mut UnstoppedPs::default(), f)
}

/// Like [`try_with_world_stopped`]. On failure, stores the Ps that did not stop in `unstopped`,
/// unless another stopper was active all the time.
fn try_once<R, F: FnOnce(WorldStopped<'_>) -> R>(
    reason: StopReason,
    limit: Duration,
    unstopped: &mut UnstoppedPs,
    f: F,
) -> Result<R, F> {
    let (deadline, mut tries) = (Instant::now() + limit, 0);
    // PAIR world: sees what the previous stopper did.
    while STOPPER_ACTIVE
        .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        if Instant::now() >= deadline {
            return Err(f);
        }
        wait_for_another_stopper(&mut tries);
    }
    REASON.store(reason as u8, Ordering::Relaxed);
    let mut stopper = Stopper::enter();
    let m = stopper.on_m().map(|on| on.m());
    let began = clock::real_now();
    record(|| EventKind::StopWorld { reason });
    let result = match stop_the_world(m, deadline) {
        Ok(()) => {
            let stopping = clock::real_now() - began;
            record(|| EventKind::WorldStopped {});
            current::set_has_stopped_the_world(true);
            let result = f(WorldStopped { stopper: stopper.on_m() });
            current::set_has_stopped_the_world(false);
            record(|| EventKind::StartWorld { stopped: true });
            start_the_world(SCHED.lock.lock(), m);
            times::record_world_stop(stopping, clock::real_now() - began);
            Ok(result)
        }
        Err(locked) => {
            // The failed attempt has delayed the other Gs, so it is recorded too.
            let stopping = clock::real_now() - began;
            *unstopped = UnstoppedPs::collect();
            record(|| EventKind::StartWorld { stopped: false });
            start_the_world(locked, m);
            times::record_world_stop(stopping, clock::real_now() - began);
            Err(f)
        }
    };
    // PAIR world: publishes what this stopper did.
    STOPPER_ACTIVE.store(false, Ordering::Release);
    drop(stopper);
    result
}

/// The caller that stops the world.
enum Stopper {
    Goroutine(InRuntime),
    /// Code inside `host`: the thread is that of an M, which cannot be left. The M runs no other
    /// code now, so its P counts as stopped.
    Host(&'static M),
    /// An ordinary thread.
    Thread,
}

impl Stopper {
    /// Turns preemption off for the caller.
    fn enter() -> Stopper {
        if current::is_fiber() {
            return Stopper::Goroutine(enter());
        }
        let Some(m) = M::of_this_thread() else { return Stopper::Thread };
        // SAFETY: carried — this is the thread of the M `m`.
        unsafe { arch::preempt_disable() };
        let mut stopper = Stopper::Host(m);
        if let Some(on) = stopper.on_m()
            && on.syscall_state.must_settle_after_barrier()
        {
            syscall::exit_syscall_in_place(on);
        }
        stopper
    }

    /// Returns the token of the M that the caller runs on, if any.
    fn on_m(&mut self) -> Option<OnM<'_>> {
        match self {
            Stopper::Goroutine(inside) => Some(inside.on_m()),
            // SAFETY: own — this is the thread of the M, and preemption is off; only — the token
            // borrows the stopper, and g0 waits while `host` runs.
            Stopper::Host(m) => Some(unsafe { OnM::of(m) }),
            Stopper::Thread => None,
        }
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        if let Stopper::Host(_) = self {
            // SAFETY: carried, counted — by `enter`.
            unsafe { arch::preempt_enable() };
        }
    }
}

/// Proof that the world is stopped.
/// Go: worldStop.
#[derive(Debug)]
pub(crate) struct WorldStopped<'r> {
    /// The token of the M that the stopper runs on; `None` if the stopper is an ordinary thread.
    pub(crate) stopper: Option<OnM<'r>>,
}

/// Stops the world. `own` is the caller's M; its P counts as stopped. If a P has not stopped by
/// `deadline`, returns the scheduler's lock as an error: under that lock, the caller can cancel the
/// stop.
/// Go: stopTheWorldWithSema.
fn stop_the_world(
    own: Option<&'static M>,
    deadline: Instant,
) -> Result<(), Guard<'static, Locked>> {
    let mut locked = SCHED.lock.lock();
    locked.stop_count.announce(&SCHED.attention, SCHED.procs() as u32);
    if let Some(p) = own.and_then(M::p) {
        stopping::count_stopped(&mut locked, p);
    }
    while let Some(p) = locked.pop_idle_p() {
        stopping::count_stopped(&mut locked, p);
    }
    while let Some(p) = locked.orphans.pop_front() {
        p.for_spinner.stop_without_work(&SCHED.counts);
        stopping::count_stopped(&mut locked, p);
    }
    drop(locked);
    preempt_all(own);
    world_stop::wait_for_ps(
        &STOP_NOTE,
        PREEMPT_INTERVAL,
        || SCHED.lock.lock(),
        |locked| &locked.stop_count,
        || Instant::now() >= deadline,
        || preempt_all(own),
    )
}

/// How long the stopper waits before it repeats its requests.
const PREEMPT_INTERVAL: Duration = Duration::from_millis(1);

/// Requests that every M with a P stops, except `own`.
/// Go: preemptall.
fn preempt_all(own: Option<&'static M>) {
    for m in SCHED.all_ms() {
        if m.p().is_some() && !own.is_some_and(|own| ptr::eq(own, m)) {
            // An M in a marked call does not serve requests, so its P is taken.
            if !syscall::retake_in_syscall(m) {
                preempt::preempt_one(m, PreemptReason::World, 0);
            }
        }
    }
    sysmon_alarm::wake_sysmon();
}

/// Starts the world again: hands every P with work to an M, and makes the other Ps idle.
/// Go: startTheWorldWithSema.
fn start_the_world(mut locked: Guard<'static, Locked>, own: Option<&'static M>) {
    locked.stop_count.end(&SCHED.attention);
    let own_p = own.and_then(M::p);
    // `proc_resize` may have given the caller's M another P, which is running.
    if let Some(p) = own_p.filter(|p| p.status() == PStatus::Stopped) {
        p.change_status(PStatus::Running);
    }
    let mut with_work = [const { None }; START_BATCH];
    let mut left = true;
    while left {
        let mut count = 0;
        left = false;
        for p in SCHED.used_ps().filter(|p| p.status() == PStatus::Stopped) {
            if p.is_queue_empty() {
                p.change_status(PStatus::Idle);
                locked.push_idle_p(p);
            } else if count < START_BATCH {
                p.change_status(PStatus::Idle);
                with_work[count] = Some(p);
                count += 1;
            } else {
                left = true;
            }
        }
        drop(locked);
        for p in with_work[..count].iter().copied().flatten() {
            give::start_m(SCHED.lock.lock(), p, false);
        }
        locked = SCHED.lock.lock();
    }
    drop(locked);
    if wake::is_m_wanted_after_idling() {
        wake::wake_if_idle();
    }
}

/// How many Ps are handed to Ms between two scans of all Ps.
const START_BATCH: usize = 64;

/// Changes the number of Ps while the world is stopped. The caller has already made the new Ps. Gs
/// that were queued on removed Ps go to the head of the global queue.
/// Go: procresize.
pub(crate) fn proc_resize(mut stopped: WorldStopped<'_>, procs: usize) {
    let before = SCHED.procs();
    SCHED.procs.store(procs as u32, Ordering::Relaxed);
    for index in before..procs {
        if let Some(p) = SCHED.p(index) {
            p.change_status(PStatus::Stopped);
        }
    }
    if let Some(own) = stopped.stopper.as_mut().and_then(OnM::own_p)
        && own.id as usize >= procs
        && let Some(first) = SCHED.p(0)
    {
        let (own, on) = own.release();
        own.change_status(PStatus::Stopped);
        on.acquire_p(first);
    }
    let mut locked = SCHED.lock.lock();
    let mut rescued = GList::new();
    for p in (procs..before).filter_map(|index| SCHED.p(index)) {
        while let Some(g) = p.drain() {
            record(|| EventKind::Enqueue { g: g.id(), to: Place::Global });
            rescued.push_back(g);
        }
        // SAFETY: owner — the world is stopped, so the stopper owns all Ps.
        let caches = unsafe { p.caches.get() };
        stacks::give_up_stacks(caches);
        while let Some(g) = caches.free.pop_front() {
            locked.free.push_front(g);
        }
        p.change_status(PStatus::Dead);
    }
    locked.queue.prepend(rescued);
    locked.publish_length();
    // With fewer Ps, fewer Ms are needed. Idle Ms may sleep without a time limit: wake them, so
    // that they check again whether they can exit.
    while procs < before
        && let Some(m) = locked.pop_idle_m()
    {
        poller_role::wake_m(m);
    }
}
