//! Sysmon: a thread without a P that retakes Ps from blocked Ms.
//!
//! In each tick sysmon checks every running P. Ticks come every 20 µs to 10 ms: often after a tick
//! that found work, ever less often otherwise. While all Ps are idle, sysmon sleeps until one is
//! acquired. Sysmon allocates nothing in its ticks, and takes no lock with which a goroutine can be
//! stopped: that goroutine may get a P again only through sysmon.
//!
//! `retake` describes what sysmon does about each P.
//!
//! While all Ps are busy, no sleeping M could get a P to fire a timer, so sysmon also wakes for the
//! next timer. A thread that adds an earlier timer wakes sysmon, as it wakes the timekeeper
//! (`protocol::timekeeping`): sysmon publishes how long it will sleep, and then reads when the
//! first timer is due, so that one of the two sees the other. Sysmon does the same while a P is
//! idle and there is no timekeeper: the timekeeper may have taken a P to run a goroutine while the
//! other Ms sleep without a time limit.
//!
//! This module never decides that a P is retaken or a G preempted: `retake` does.

use crate::gmp::m::M;
use crate::gmp::p::PStatus;
use crate::gmp::poll_desc;
use crate::probe::recorder::{self, EventThread};
use crate::sched::inspect::schedtrace;
use crate::sched::monitor::poll_watch::{self, PollWatch};
use crate::sched::monitor::retake::{self, SysmonTick};
use crate::sched::run::timers;
use crate::sched::state::global::{MAX_PROCS, SCHED};
use crate::sched::state::timekeeper::{self, TIMEKEEPING};
use crate::sched::state::{stopping, sysmon_alarm, thread_requests};
use crate::sched::wake::{self, hand_off};
use crate::sys::fatal::warning;
use crate::sys::thread_status;
use crate::sys::{barrier, clock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Shortest and longest delay between two ticks, in nanoseconds.
const MIN_DELAY_NANOS: u64 = 20_000;
const MAX_DELAY_NANOS: u64 = 10_000_000;
/// Longest delay while a G waits for a P, while the world stops, or while a P is busy and a waiter
/// needs polling.
const MAX_DELAY_IN_DEMAND_NANOS: u64 = 1_000_000;
/// Longest delay after sysmon was woken.
const WOKEN_DELAY_NANOS: u64 = 200_000;
/// Number of ticks in a row that retake no P before the delay doubles with each tick.
const IDLE_TICKS_BEFORE_BACKOFF: u32 = 50;
/// How long all Ps are idle before sysmon sleeps without a timeout: waking it is expensive.
const IDLE_BEFORE_SLEEP_NANOS: u64 = 50_000_000;
/// How often the CPU limit is read again.
const CPU_LIMIT_INTERVAL_NANOS: u64 = 1_000_000_000;

/// Starts sysmon's thread. Returns whether the system granted it.
fn start() -> bool {
    let run = || {
        recorder::set_this_thread(EventThread::Sysmon);
        let mut sysmon = Sysmon::new();
        loop {
            sysmon.run_once(true);
        }
    };
    let started = thread_requests::start_helper("gosched-sysmon", run);
    STARTED.store(started.is_ok(), Ordering::Relaxed);
    started.inspect_err(report_refusal).is_ok()
}

static STARTED: AtomicBool = AtomicBool::new(false);

/// Returns whether sysmon has a thread of its own.
pub(crate) fn has_thread() -> bool {
    STARTED.load(Ordering::Relaxed)
}

/// Warns once that the system refuses sysmon a thread.
fn report_refusal(why: &std::io::Error) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !REPORTED.swap(true, Ordering::Relaxed) {
        warning!(
            "the system refuses a thread for sysmon ({why}): the thread maker does sysmon's work, and retries"
        );
    }
}

/// Sysmon's work, done by the thread maker while the system refuses sysmon a thread of its own.
#[derive(Debug, Default)]
pub(crate) struct StandIn {
    sysmon: Option<Box<Sysmon>>,
    /// When the system last refused the thread.
    refused: Option<Instant>,
}

impl StandIn {
    /// Starts sysmon's thread, unless it runs or was refused a short time ago. Called by the thread
    /// maker when there is at least one M: if the system grants few threads, sysmon is worth more
    /// than a second M.
    pub(crate) fn start_sysmon(&mut self) {
        let is_refused = self.refused.is_some_and(|refused| refused.elapsed() < RETRY_AFTER);
        if has_thread() || is_refused {
            return;
        }
        self.refused = if start() { None } else { Some(Instant::now()) };
    }

    /// Waits and runs one tick. Returns after at most 10 ms.
    pub(crate) fn run_once(&mut self) {
        self.sysmon.get_or_insert_with(|| Box::new(Sysmon::new())).run_once(false);
        self.start_sysmon();
    }
}

/// How long the thread maker waits after a refusal before it asks the system again for sysmon's
/// thread.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What sysmon keeps from one tick to the next.
/// Go: sysmon.
#[derive(Debug)]
struct Sysmon {
    seen: Vec<SysmonTick>,
    /// The next M to check for running without a P.
    m_cursor: Option<&'static M>,
    polled: PollWatch,
    /// Delay before the next tick, in nanoseconds.
    delay: u64,
    /// Upper limit of the next delay only, in nanoseconds: the last tick found a reason for an
    /// earlier one.
    next_delay_limit: u64,
    /// Number of ticks in a row that retook no P.
    idle_ticks: u32,
    /// Since when all Ps are idle.
    idle_since: Option<u64>,
    /// When the CPU limit was last read.
    limit_read_at: u64,
}

impl Sysmon {
    /// Creates the state. Must be called on the thread that runs sysmon.
    fn new() -> Sysmon {
        thread_status::minimize_timer_slack();
        Sysmon {
            seen: vec![SysmonTick::default(); MAX_PROCS],
            m_cursor: None,
            polled: PollWatch::new(),
            delay: MIN_DELAY_NANOS,
            next_delay_limit: u64::MAX,
            idle_ticks: 0,
            idle_since: None,
            limit_read_at: clock::real_now(),
        }
    }

    /// Waits until the next tick is due, and runs it. If `may_sleep`, sleeps until a P is acquired
    /// once all Ps have been idle for a while.
    /// Go: sysmon, one iteration.
    fn run_once(&mut self, may_sleep: bool) {
        let woken = self.wait();
        let now = clock::real_now();
        clock::update_coarse_now(now);
        schedtrace::print_if_due(now);
        if SCHED.is_idle() {
            let since = *self.idle_since.get_or_insert(now);
            if may_sleep && now - since >= IDLE_BEFORE_SLEEP_NANOS && sleep_while_all_idle() {
                (self.delay, self.idle_ticks, self.idle_since) = (MIN_DELAY_NANOS, 0, None);
                return;
            }
        } else {
            self.idle_since = None;
        }
        self.check_all(now, woken);
    }

    /// Waits until the next tick is due. Returns whether sysmon was woken earlier.
    fn wait(&mut self) -> bool {
        if self.delay > MAX_DELAY_IN_DEMAND_NANOS {
            sysmon_alarm::IN_LONG_DELAY.store(true, Ordering::Relaxed);
            barrier::heavy();
            // The last idle P may have been acquired before the store.
            if SCHED.counts.idle_ps() == 0 {
                self.delay = self.delay.min(max_delay(clock::real_now()));
            }
        }
        let delay = Duration::from_nanos(cap_delay_by_timer(self.delay.min(self.next_delay_limit)));
        if self.polled.decide_to_sleep_in_poller() {
            self.polled.sleep(delay, || sysmon_alarm::WAKE_WORD.get() != 0)
        } else {
            sysmon_alarm::WAKE_WORD.wait(0, Some(delay));
        }
        let woken = sysmon_alarm::WAKE_WORD.get() != 0;
        sysmon_alarm::WAKE_WORD.set(0);
        sysmon_alarm::SLEEPS_UNTIL.store(0, Ordering::Relaxed);
        sysmon_alarm::IN_LONG_DELAY.store(false, Ordering::Relaxed);
        woken
    }

    /// Runs one tick, and sets the delay before the next.
    fn check_all(&mut self, now: u64, woken: bool) {
        let found = retake::retake(&mut self.seen, &mut self.m_cursor, now);
        feed_idle_ps();
        timers::run_due_by_sysmon();
        timers::wake_m_if_overdue();
        self.polled.poll_if_overdue(now);
        if now - self.limit_read_at >= CPU_LIMIT_INTERVAL_NANOS && !SCHED.is_idle() {
            self.limit_read_at = now;
            thread_requests::request_cpu_limit();
        }
        self.idle_ticks = if found.took { 0 } else { self.idle_ticks.saturating_add(1) };
        self.delay = match self.idle_ticks {
            0 => MIN_DELAY_NANOS,
            _ if woken => WOKEN_DELAY_NANOS.min(self.delay),
            1..=IDLE_TICKS_BEFORE_BACKOFF => self.delay,
            _ => self.delay * 2,
        };
        self.delay = self.delay.min(max_delay(now));
        self.next_delay_limit = found.slice_ends.max(MIN_DELAY_NANOS);
        if found.asked || self.polled.tick_urgency() {
            self.next_delay_limit = self.next_delay_limit.min(retake::PREEMPT_RETRY_NANOS);
        }
    }
}

/// Returns how long sysmon may sleep, at most `delay`: only until the next timer if no P is idle,
/// since a sleeping M would get no P to fire it, or if there is no timekeeper.
fn cap_delay_by_timer(delay: u64) -> u64 {
    let now = clock::real_now();
    // PAIR timers: in one SeqCst order with the load of `earliest` below, and with a thread that
    // adds a timer.
    sysmon_alarm::SLEEPS_UNTIL.store(now + delay, Ordering::SeqCst);
    if SCHED.counts.idle_ps() > 0 && !TIMEKEEPING.is_timekeeper_missing() {
        return delay;
    }
    let next = timekeeper::until_next().unwrap_or(u64::MAX);
    // A timer that is due was handled by the last tick.
    if next == 0 { delay.min(retake::PREEMPT_RETRY_NANOS) } else { delay.min(next) }
}

/// Sleeps until a P is acquired. Returns false without sleeping if a P is in use, or if sysmon is
/// needed.
fn sleep_while_all_idle() -> bool {
    let locked = SCHED.lock.lock();
    let is_needed = poll_watch::can_only_sysmon_poll() || timers::is_sysmon_needed(&locked);
    if !SCHED.is_idle() || stopping::is_stopping() || schedtrace::is_on() || is_needed {
        return false;
    }
    sysmon_alarm::ASLEEP.store(true, Ordering::Relaxed);
    drop(locked);
    while sysmon_alarm::WAKE_WORD.get() == 0 {
        sysmon_alarm::WAKE_WORD.wait(0, None);
    }
    sysmon_alarm::WAKE_WORD.set(0);
    true
}

/// Returns the longest permitted delay before the next tick.
fn max_delay(now: u64) -> u64 {
    let waits = SCHED.queued.load(Ordering::Relaxed) > 0
        || SCHED.used_ps().any(|p| !p.is_queue_empty())
        || stopping::is_stopping()
        || (poll_desc::has_waiters() && !SCHED.is_idle());
    if waits { MAX_DELAY_IN_DEMAND_NANOS } else { MAX_DELAY_NANOS.min(schedtrace::until_due(now)) }
}

/// Finds Ms for the Gs of the global queue that no M has taken.
fn feed_idle_ps() {
    if SCHED.queued.load(Ordering::Relaxed) == 0 {
        return;
    }
    let idle = SCHED.counts.idle_ps() as usize;
    let running = SCHED.used_ps().filter(|p| p.status() == PStatus::Running).count();
    // The remaining Ps are in flight, or wait for an M that has yet to be created.
    if idle + running < SCHED.procs() {
        hand_off::rescue_orphans();
    }
    if idle > 0 {
        wake::wake_if_idle();
    }
}
