//! The world stops: every P is at rest, and whoever stopped it may change what is otherwise shared.
//!
//! Stopper: 1. says that the world stops, and takes all idle Ps; 2. asks every running M; 3. waits
//! until the last P has stopped. Then, later: 4. says that the world goes on; 5. gives every P with
//! work to an M, and the rest to the idle ones.
//! M: 1. sees that the world stops, at its next look for work, at its next way out of the runtime, or when
//! it is interrupted; 2. gives its P up, counted; 3. sleeps as an idle M.
//!
//! A stopper waits for [`FIRST_TIMEOUT`] at most. If some P has not stopped by then, the stopper takes the stop back instead
//! of step 3: with the lock held it does 4, then 5. After [`REST_FACTOR`] times as long it tries once more, for longer. So a P
//! that does not stop holds up the stopper, and costs the others a tenth of their time; [`REPORT_AFTER`] later the
//! stopper says which P that is. An M that has seen that the world stops, and has its P, looks again with the lock held
//! before it gives the P up, counted; so it keeps it, or gives it to somebody else as ever.
//!
//! One stopper at a time. While the world is stopped nothing may be allocated: whoever holds the
//! allocator's lock may be stopped.

pub(crate) mod procs;
pub(crate) mod stall;

use crate::gmp::current;
use crate::gmp::list::GList;
use crate::gmp::m::M;
use crate::gmp::p::PStatus;
use crate::probe::times;
use crate::sched::state::global::{Locked, SCHED, STOP_NOTE, STOPPING};
use crate::sched::state::{poller_role, stopping, sysmon_alarm};
use crate::sched::switch::boundary::{enter, leave};
use crate::sched::switch::preempt::{self, PreemptReason};
use crate::sched::switch::{park, stacks, syscall};
use crate::sched::wake;
use crate::sched::wake::give;
use crate::sched::world::stall::UnstoppedPs;
use crate::sys::{barrier, clock};
use gosched_fiber::arch;
use gosched_fiber::lock::LockGuard as Guard;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Why the world stops.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// `set_procs`.
    SetProcs = 1,
    /// A test.
    Test = 2,
    /// A goroutine is looked at.
    Dump = 3,
}

impl StopReason {
    fn words(self) -> &'static str {
        match self {
            StopReason::SetProcs => "set_procs",
            StopReason::Test => "test",
            StopReason::Dump => "dump",
        }
    }
}

/// One stopper at a time.
/// Go: worldsema.
static STOPPER_ACTIVE: AtomicBool = AtomicBool::new(false);

/// The reason of the last stop; for reports.
static REASON: AtomicU8 = AtomicU8::new(0);

/// Why the world stopped last, in words; empty if it never did.
pub(crate) fn last_reason() -> &'static str {
    let reason = REASON.load(Ordering::Relaxed);
    let all = [StopReason::SetProcs, StopReason::Test, StopReason::Dump];
    all.into_iter().find(|each| *each as u8 == reason).map_or("", StopReason::words)
}

/// Stops the world, runs `f` in it, and lets it go on. `f` must not allocate, block or panic.
/// Go: stopTheWorld … startTheWorld.
///
/// A goroutine keeps its M and, unless `f` changes that, its P. An ordinary thread has none.
pub(crate) fn with_world_stopped<R>(reason: StopReason, f: impl FnOnce(WorldStopped) -> R) -> R {
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
        // A goroutine that sleeps like this loses its P meanwhile.
        std::thread::sleep(REST_FACTOR * limit);
        limit = MAX_TIMEOUT.min(2 * limit);
    }
}

/// A stop that takes longer is taken back. The stopper tries once more later, for twice as long.
const FIRST_TIMEOUT: Duration = Duration::from_millis(20);
const MAX_TIMEOUT: Duration = Duration::from_secs(1);

/// How many times as long the other goroutines run before the next try: they lose a tenth of their time at most.
const REST_FACTOR: u32 = 9;

/// What to do while another thread stops the world, or is about to: yields at first, then sleeps.
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

/// How long the stopper tries before it says which Ps do not stop; then four times as long, and so on.
const REPORT_AFTER: Duration = Duration::from_secs(10);

/// As [`with_world_stopped`], but it tries once: where some P does not stop in time, `f` is not run, and comes back.
pub(crate) fn try_with_world_stopped<R, F: FnOnce(WorldStopped) -> R>(
    reason: StopReason,
    limit: Duration,
    f: F,
) -> Result<R, F> {
    try_once(reason, limit, &mut UnstoppedPs::default(), f)
}

/// As [`try_with_world_stopped`]; `unstopped` is set to the Ps that did not stop, unless another stopper was at work
/// all the time.
fn try_once<R, F: FnOnce(WorldStopped) -> R>(
    reason: StopReason,
    limit: Duration,
    unstopped: &mut UnstoppedPs,
    f: F,
) -> Result<R, F> {
    let (deadline, mut tries) = (Instant::now() + limit, 0);
    // PAIR world: sees what the last stopper did.
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
    let goroutine = current::is_fiber();
    // Inside `host` the thread is an M's, and its P is as good as stopped.
    let m = if goroutine { Some(enter()) } else { M::of_this_thread().map(enter_from_host) };
    let began = clock::real_now();
    let result = match stop_the_world(m, deadline) {
        Ok(()) => {
            let stopping = clock::real_now() - began;
            current::set_has_stopped_the_world(true);
            let result = f(WorldStopped { m });
            current::set_has_stopped_the_world(false);
            start_the_world(SCHED.lock.lock(), m);
            times::record_world_stop(stopping, clock::real_now() - began);
            Ok(result)
        }
        Err(locked) => {
            // The others were held up all the same.
            let stopping = clock::real_now() - began;
            *unstopped = UnstoppedPs::collect();
            start_the_world(locked, m);
            times::record_world_stop(stopping, clock::real_now() - began);
            Err(f)
        }
    };
    // PAIR world: publishes what this one did.
    STOPPER_ACTIVE.store(false, Ordering::Release);
    match m {
        Some(_) if goroutine => leave(),
        // SAFETY: carried, counted — by `enter_from_host`.
        Some(_) => drop(unsafe { arch::preempt_enable() }),
        None => {}
    }
    result
}

/// As [`enter`], for code inside `host`: its goroutine stays where it is, and so does the P.
fn enter_from_host(m: &'static M) -> &'static M {
    // SAFETY: carried — by this M, whose thread this is.
    unsafe { arch::preempt_disable() };
    barrier::light();
    if m.syscall_state.load(Ordering::Relaxed) != 0 {
        syscall::exit_syscall_in_place(m);
    }
    m
}

/// Proof that the world is stopped.
/// Go: worldStop.
#[derive(Debug)]
pub(crate) struct WorldStopped {
    /// The M of a goroutine that stopped it.
    pub(crate) m: Option<&'static M>,
}

/// An error is the lock, if some P has not stopped by then: whoever has that may take all back.
/// Go: stopTheWorldWithSema.
fn stop_the_world(
    own: Option<&'static M>,
    deadline: Instant,
) -> Result<(), Guard<'static, Locked>> {
    let mut locked = SCHED.lock.lock();
    locked.set_attention(STOPPING, true);
    locked.stop_wait = SCHED.procs() as u32;
    if let Some(p) = own.and_then(M::p) {
        stopping::count_stopped(&mut locked, p);
    }
    while let Some(p) = locked.pop_idle_p() {
        stopping::count_stopped(&mut locked, p);
    }
    while let Some(p) = locked.orphans.pop() {
        if p.for_spinner.load(Ordering::Relaxed) {
            SCHED.spinning.fetch_sub(1, Ordering::Relaxed);
        }
        stopping::count_stopped(&mut locked, p);
    }
    drop(locked);
    preempt_all(own);
    loop {
        let locked = SCHED.lock.lock();
        match locked.stop_wait {
            0 => return Ok(()),
            _ if Instant::now() >= deadline => return Err(locked),
            _ => drop(locked),
        }
        // A P may have been on its way to an M that took it only now.
        if !STOP_NOTE.sleep(Some(PREEMPT_INTERVAL)) {
            preempt_all(own);
        }
    }
}

/// How long the stopper waits before it asks again.
const PREEMPT_INTERVAL: Duration = Duration::from_millis(1);

/// Go: preemptall.
fn preempt_all(own: Option<&'static M>) {
    for m in SCHED.all_ms() {
        if m.p().is_some() && !own.is_some_and(|own| ptr::eq(own, m)) {
            // One in a marked call would not hear.
            if !syscall::retake_in_syscall(m) {
                preempt::preempt_one(m, PreemptReason::World, 0);
            }
        }
    }
    sysmon_alarm::wake_sysmon();
}

/// Go: startTheWorldWithSema.
fn start_the_world(mut locked: Guard<'static, Locked>, own: Option<&'static M>) {
    locked.set_attention(STOPPING, false);
    locked.stop_wait = 0;
    let own_p = own.and_then(M::p);
    if let Some(p) = own_p {
        p.set_status(PStatus::Running);
    }
    let mut with_work = [const { None }; START_BATCH];
    let mut left = true;
    while left {
        let mut count = 0;
        left = false;
        for p in SCHED.used_ps().filter(|p| p.status() == PStatus::Stopped) {
            if p.queue.is_empty() {
                p.set_status(PStatus::Idle);
                locked.push_idle_p(p);
            } else if count < START_BATCH {
                p.set_status(PStatus::Idle);
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
    barrier::heavy();
    if wake::is_m_wanted() {
        wake::wake_if_idle();
    }
}

/// How many Ps are given to Ms at a time.
const START_BATCH: usize = 64;

/// Changes the number of Ps: in a stopped world. `ps` has those that were never made, and `table`
/// the order of stealing.
/// Go: procresize.
pub(crate) fn proc_resize(stopped: &WorldStopped, procs: usize) {
    let before = SCHED.procs();
    SCHED.procs.store(procs as u32, Ordering::Relaxed);
    for index in before..procs {
        if let Some(p) = SCHED.p(index) {
            p.set_status(PStatus::Stopped);
        }
    }
    if let Some(m) = stopped.m
        && m.p().is_some_and(|p| p.id as usize >= procs)
        && let Some(first) = SCHED.p(0)
    {
        m.release_p();
        m.acquire_p(first);
    }
    let mut locked = SCHED.lock.lock();
    let mut rescued = GList::new();
    for p in (procs..before).filter_map(|index| SCHED.p(index)) {
        while let Some((g, _)) = p.queue.take() {
            rescued.push_back(g);
        }
        // SAFETY: owner — the world is stopped.
        let caches = unsafe { p.caches.get() };
        stacks::give_up_stacks(caches);
        while let Some(g) = caches.free.pop_front() {
            locked.free.push_front(g);
        }
        p.set_m(None);
        p.set_status(PStatus::Dead);
    }
    locked.queue.prepend(rescued);
    locked.publish_length();
    // Ms that sleep for good because they were needed look again whether they are.
    while procs < before
        && let Some(m) = locked.pop_idle_m()
    {
        poller_role::wake_m(m);
    }
}
