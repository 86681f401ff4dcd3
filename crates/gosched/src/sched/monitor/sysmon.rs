//! Sysmon: a thread of its own, without a P, that takes Ps from Ms that are blocked.
//!
//! It looks at each running P every 20 µs to 10 ms: often after it had something to do, ever more seldom
//! while it has not. Where all Ps are idle it sleeps until one is not. It
//! allocates nothing and takes no lock that a goroutine can hold: a goroutine that was stopped with the lock gets
//! a P again only because of sysmon.
//!
//! What it does about each P is in `retake`.
//!
//! While all Ps are busy it is also the one that wakes for the next timer: nobody else sleeps. Who adds an
//! earlier one tells it, as with the timekeeper (`run::timers`): it says until when it will sleep, then looks at the
//! time of the first timer.

use crate::gmp::m::M;
use crate::gmp::p::PStatus;
use crate::gmp::poll_desc;
use crate::sched::inspect::schedtrace;
use crate::sched::monitor::poll_watch::{self, PollWatch};
use crate::sched::monitor::retake::{self, SysmonTick};
use crate::sched::run::timers;
use crate::sched::state::global::{MAX_PROCS, SCHED};
use crate::sched::state::{stopping, sysmon_alarm, thread_requests, timekeeper};
use crate::sched::wake::{self, hand_off};
use crate::sys::fatal::warning;
use crate::sys::thread_status;
use crate::sys::{barrier, clock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long it waits between two looks, in nanoseconds.
const MIN_DELAY_NANOS: u64 = 20_000;
const MAX_DELAY_NANOS: u64 = 10_000_000;
/// The longest while something waits for a P, or for I/O beside a P that is busy.
const MAX_DELAY_IN_DEMAND_NANOS: u64 = 1_000_000;
/// The first time when it was woken from a longer wait.
const WOKEN_DELAY_NANOS: u64 = 200_000;
/// So many looks in vain, then ever longer.
const IDLE_TICKS_BEFORE_BACKOFF: u32 = 50;
/// All Ps are idle for so long before it sleeps for good: waking it costs.
const IDLE_BEFORE_SLEEP_NANOS: u64 = 50_000_000;
/// How often the CPU limit is read again.
const CPU_LIMIT_INTERVAL_NANOS: u64 = 1_000_000_000;

/// Starts sysmon's thread. Returns whether the system grants it.
fn start() -> bool {
    let run = || {
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

/// Whether sysmon has a thread of its own.
pub(crate) fn has_thread() -> bool {
    STARTED.load(Ordering::Relaxed)
}

/// Says once that the system refuses a thread.
fn report_refusal(why: &std::io::Error) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !REPORTED.swap(true, Ordering::Relaxed) {
        warning!(
            "the system refuses a thread for sysmon ({why}): the thread that makes threads does its work, and tries again"
        );
    }
}

/// Sysmon's work, on the thread maker's thread, while the system refuses sysmon a thread of its own.
#[derive(Debug, Default)]
pub(crate) struct StandIn {
    sysmon: Option<Box<Sysmon>>,
    /// When the system refused last.
    refused: Option<Instant>,
}

impl StandIn {
    /// Starts sysmon's thread, unless it runs or was refused a short while ago. By the thread maker, when there is one M:
    /// where the system grants few threads, sysmon is worth more than a second M.
    pub(crate) fn start_sysmon(&mut self) {
        let is_refused = self.refused.is_some_and(|refused| refused.elapsed() < RETRY_AFTER);
        if has_thread() || is_refused {
            return;
        }
        self.refused = if start() { None } else { Some(Instant::now()) };
    }

    /// Waits and looks once: comes back after 10 ms at most.
    pub(crate) fn run_once(&mut self) {
        self.sysmon.get_or_insert_with(|| Box::new(Sysmon::new())).run_once(false);
        self.start_sysmon();
    }
}

/// How long the system is not asked again for sysmon's thread.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What sysmon knows from one look to the next.
/// Go: sysmon.
#[derive(Debug)]
struct Sysmon {
    seen: Vec<SysmonTick>,
    /// The M without a P that is looked at next.
    m_cursor: Option<&'static M>,
    polled: PollWatch,
    /// How long it waits before the next look, in nanoseconds.
    delay: u64,
    /// What was found asks for the next look to be sooner than that, this once.
    next_delay_limit: u64,
    /// How many looks in a row took no P.
    idle_ticks: u32,
    /// Since when all Ps are idle.
    idle_since: Option<u64>,
    /// When the CPU limit was read last.
    limit_read_at: u64,
}

impl Sysmon {
    /// On the thread that does the work.
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

    /// Waits until the next look is due, and looks. `may_sleep`: where all Ps are idle it may sleep until one is not.
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

    /// Returns whether it was woken.
    fn wait(&mut self) -> bool {
        if self.delay > MAX_DELAY_IN_DEMAND_NANOS {
            sysmon_alarm::IN_LONG_DELAY.store(true, Ordering::Relaxed);
            barrier::heavy();
            // The last one may have been taken just before it said so.
            if SCHED.idle_ps.load(Ordering::Relaxed) == 0 {
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

    /// Looks at everything, and says how long it waits then.
    fn check_all(&mut self, now: u64, woken: bool) {
        let found = retake::retake(&mut self.seen, &mut self.m_cursor, now);
        feed_idle_ps();
        timers::run_due_by_sysmon();
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

/// How long it may sleep so as to be there for the next timer, where nobody else is; `delay` at most.
fn cap_delay_by_timer(delay: u64) -> u64 {
    let now = clock::real_now();
    // PAIR timers: one order for this, the next, and who adds.
    sysmon_alarm::SLEEPS_UNTIL.store(now + delay, Ordering::SeqCst);
    if SCHED.idle_ps.load(Ordering::Relaxed) > 0 {
        return delay;
    }
    let next = timekeeper::until_next().unwrap_or(u64::MAX);
    // One that is due already was seen by the last look.
    if next == 0 { delay.min(retake::PREEMPT_RETRY_NANOS) } else { delay.min(next) }
}

/// Sleeps until a P is not idle. False: one is.
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

/// How long it may wait at most.
fn max_delay(now: u64) -> u64 {
    let waits = SCHED.queued.load(Ordering::Relaxed) > 0
        || SCHED.used_ps().any(|p| !p.queue.is_empty())
        || stopping::is_stopping()
        || (poll_desc::has_waiters() && !SCHED.is_idle());
    if waits { MAX_DELAY_IN_DEMAND_NANOS } else { MAX_DELAY_NANOS.min(schedtrace::until_due(now)) }
}

/// Gs of the global queue that no P has come for.
fn feed_idle_ps() {
    if SCHED.queued.load(Ordering::Relaxed) == 0 {
        return;
    }
    let idle = SCHED.idle_ps.load(Ordering::Relaxed) as usize;
    let running = SCHED.used_ps().filter(|p| p.status() == PStatus::Running).count();
    // Others are on their way to an M, which may have yet to be made.
    if idle + running < SCHED.procs() {
        hand_off::rescue_orphans();
    }
    if idle > 0 {
        wake::wake_if_idle();
    }
}
