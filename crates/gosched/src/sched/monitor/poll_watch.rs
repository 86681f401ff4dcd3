//! Polls on sysmon's thread if no M does: all Ps are busy and none has passed through the scheduler
//! for a while, or no M has polled for too long, or all Ps are idle and the system refuses the
//! thread of an M that could poll. Sysmon never takes the role of poller: only an M can hold it.

use crate::gmp::list::GList;
use crate::gmp::p::PStatus;
use crate::sched::run::poll;
use crate::sched::state::global::{MAX_PROCS, SCHED};
use crate::sched::state::{poller_role, sysmon_alarm, thread_requests};
use crate::sched::switch::submit::Submission;
use crate::sched::{events, wake};
use crate::sys::poller;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What sysmon has seen of the Ps' progress and of polls by Ms.
#[derive(Debug)]
pub(crate) struct PollWatch {
    /// The turn of each P when it was last checked.
    turns: Vec<u32>,
    /// Whether no busy P had passed through the scheduler at the last check.
    all_stalled: bool,
    /// Number of upcoming ticks that come sooner: a goroutine had to make room for I/O, and may
    /// have to again.
    urgent_ticks: u32,
    /// [`poll::POLL_COUNT`] at the last tick.
    looks: u64,
    /// The time since which no M has polled.
    since: u64,
    /// Whether sysmon last left the poller for an event that it did not have to handle.
    false_alarm: bool,
}

/// Maximum number of Gs that sysmon puts before all others at a time. Sysmon may be wrong about the
/// Ps being stalled, and the M whose goroutine makes room polls for more.
const SYSMON_POLL_BATCH: usize = 8;

/// Initial value of [`PollWatch::urgent_ticks`].
const URGENT_TICKS: u32 = 20;

/// Time without a poll after which sysmon polls, if Ps pass through the scheduler.
const POLL_OVERDUE_NANOS: u64 = 1_000_000;

impl PollWatch {
    pub(crate) fn new() -> PollWatch {
        let turns = vec![0; MAX_PROCS];
        PollWatch {
            turns,
            all_stalled: false,
            urgent_ticks: 0,
            looks: 0,
            since: 0,
            false_alarm: false,
        }
    }

    /// Returns whether sysmon should sleep in the poller: a waiter exists, all Ps are busy, and
    /// none has passed through the scheduler since the last call. If a P is idle, wakes an M to
    /// poll instead.
    pub(crate) fn decide_to_sleep_in_poller(&mut self) -> bool {
        let (busy, stalled) = self.count_stalled();
        poller_role::STALLED_PS.store(stalled, Ordering::Relaxed);
        self.all_stalled = busy > 0 && stalled == busy;
        let was_false_alarm = std::mem::take(&mut self.false_alarm);
        if !poller_role::should_poll() || !(self.all_stalled || can_only_sysmon_poll()) {
            return false;
        }
        let others = SCHED.counts.idle_ps() > 0 && !thread_requests::is_refused();
        if others {
            wake::wake_if_idle();
        }
        !others && !was_false_alarm
    }

    /// Returns the number of busy Ps, and how many of them have not passed through the scheduler
    /// since the last call.
    fn count_stalled(&mut self) -> (u32, u32) {
        let (mut busy, mut stalled) = (0, 0);
        for (p, turn) in SCHED.used_ps().zip(&mut self.turns) {
            let now = p.turn();
            let is_stalled = std::mem::replace(turn, now) == now;
            if p.status() == PStatus::Running {
                busy += 1;
                stalled += u32::from(is_stalled);
            }
        }
        (busy, stalled)
    }

    /// Returns whether the next tick should come sooner. Called once in each tick.
    pub(crate) fn tick_urgency(&mut self) -> bool {
        self.urgent_ticks = self.urgent_ticks.saturating_sub(1);
        self.urgent_ticks > 0
    }

    /// Sleeps in the poller for at most `timeout`, and queues the Gs that are ready. Returns at
    /// once if `is_called` returns true: sysmon was woken meanwhile.
    pub(crate) fn sleep(&mut self, timeout: Duration, is_called: impl Fn() -> bool) {
        let (Some(poller), Some(stop)) = (poller::existing(), poller::sysmon_wake_fd()) else {
            return;
        };
        // PAIR watches: set before `is_called` reads sysmon's word; a waker sets the word before it
        // reads this flag.
        sysmon_alarm::SYSMON_IN_POLLER.store(true, Ordering::SeqCst);
        let is_ready = !is_called() && poller.wait_for_events(stop.as_raw_fd(), timeout);
        sysmon_alarm::SYSMON_IN_POLLER.store(false, Ordering::Relaxed);
        poller::drain_eventfd(stop);
        // Ps that pass through the scheduler poll by themselves, and run the ready Gs in their
        // turn.
        let (busy, stalled) = self.count_stalled();
        if stalled < busy {
            self.false_alarm = is_ready;
            return;
        }
        let mut ready = GList::new();
        events::poll_ready_up_to(SYSMON_POLL_BATCH, &mut ready, Some(Duration::ZERO));
        // An event that makes no G ready, such as an interrupt meant for an M, must not keep sysmon
        // busy.
        self.false_alarm = is_ready && ready.is_empty();
        if self.false_alarm {
            SCHED.lock.lock().poller.silence_if_free(|| poller.clear_interrupt());
        }
        if !ready.is_empty() {
            self.urgent_ticks = URGENT_TICKS;
        }
        poll::inject_first(ready);
    }

    /// Polls if no M has for [`POLL_OVERDUE_NANOS`], although Ps pass through the scheduler: their
    /// goroutines run for long.
    /// Go: sysmon, "poll network if not polled for more than 10ms".
    pub(crate) fn poll_if_overdue(&mut self, now: u64) {
        let looks = poll::POLL_COUNT.load(Ordering::Relaxed);
        let looked = std::mem::replace(&mut self.looks, looks) != looks;
        // If many Gs already wait for a P, ready Gs can wait in the poller as well, in their order.
        let many = SCHED.queued.load(Ordering::Relaxed) > poll::LONG_GLOBAL_QUEUE;
        if looked || many || self.all_stalled || !poller_role::should_poll() || SCHED.is_idle() {
            self.since = now;
        } else if now - self.since >= POLL_OVERDUE_NANOS {
            self.since = now;
            let mut ready = GList::new();
            events::poll_ready_up_to(poll::BUSY_POLL_BATCH, &mut ready, Some(Duration::ZERO));
            poll::inject_last(ready, Submission::Io);
        }
    }
}

/// Returns whether only sysmon can poll: all Ps are idle, and the system refuses a thread for an M.
pub(crate) fn can_only_sysmon_poll() -> bool {
    thread_requests::is_refused() && SCHED.is_idle() && poller_role::should_poll()
}
