//! Sysmon polls where no M does: all Ps are busy and none has passed the scheduler for a while, or none has looked for long.

use crate::gmp::list::GList;
use crate::gmp::p::PStatus;
use crate::sched::run::poll;
use crate::sched::state::global::{MAX_PROCS, SCHED};
use crate::sched::state::{poller_role, sysmon_alarm, thread_requests};
use crate::sched::{events, wake};
use crate::sys::poller;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What sysmon knows of those who poll.
#[derive(Debug)]
pub(crate) struct PollWatch {
    /// Which turn it was on each P.
    turns: Vec<u32>,
    /// No busy P has passed the scheduler since the last look.
    all_stalled: bool,
    /// So many looks are sooner than others: somebody has just had to make room, and may have to again.
    urgent_ticks: u32,
    looks: u64,
    /// Since when nobody has looked.
    since: u64,
    /// It was in the poller last time, for nothing.
    false_alarm: bool,
}

/// Sysmon puts so many before all others at a time: it may be wrong about those who stand, and whoever makes
/// room looks for more.
const SYSMON_POLL_BATCH: usize = 8;

/// See [`PollWatch::tick_urgency`].
const URGENT_TICKS: u32 = 20;

/// Nobody has looked for so long, where Ps do not stand still: sysmon does.
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

    /// Whether sysmon is to sleep in the poller: somebody waits, all Ps are busy, and none has passed the
    /// scheduler since the last time that this was asked. If one is idle, an M is told to.
    pub(crate) fn decide_to_sleep_in_poller(&mut self) -> bool {
        let (busy, stalled) = self.count_stalled();
        poller_role::STALLED_PS.store(stalled, Ordering::Relaxed);
        self.all_stalled = busy > 0 && stalled == busy;
        let in_vain = std::mem::take(&mut self.false_alarm);
        if !poller_role::should_poll() || !(self.all_stalled || can_only_sysmon_poll()) {
            return false;
        }
        let others = SCHED.idle_ps.load(Ordering::Relaxed) > 0 && !thread_requests::is_refused();
        if others {
            wake::wake_if_idle();
        }
        !others && !in_vain
    }

    /// How many Ps are busy, and how many of them have not passed the scheduler since the last time.
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

    /// Whether the next look should be sooner.
    pub(crate) fn tick_urgency(&mut self) -> bool {
        self.urgent_ticks = self.urgent_ticks.saturating_sub(1);
        self.urgent_ticks > 0
    }

    /// Sleeps in the poller, unless `is_called` says that somebody wants sysmon; and takes care of those
    /// who are ready.
    pub(crate) fn sleep(&mut self, timeout: Duration, is_called: impl Fn() -> bool) {
        let (Some(poller), Some(stop)) = (poller::existing(), poller::sysmon_wake_fd()) else {
            return;
        };
        // PAIR watches: one order for this, the next, and who calls.
        sysmon_alarm::SYSMON_IN_POLLER.store(true, Ordering::SeqCst);
        let is_ready = !is_called() && poller.wait_for_events(stop.as_raw_fd(), timeout);
        sysmon_alarm::SYSMON_IN_POLLER.store(false, Ordering::Relaxed);
        poller::drain_eventfd(stop);
        // Those who pass the scheduler find it themselves, and in its turn.
        let (busy, stalled) = self.count_stalled();
        if stalled < busy {
            self.false_alarm = is_ready;
            return;
        }
        let mut ready = GList::new();
        events::poll_ready_up_to(SYSMON_POLL_BATCH, &mut ready, Some(Duration::ZERO));
        // Something is told that is not for us: it must not keep sysmon busy.
        self.false_alarm = is_ready && ready.is_empty();
        if self.false_alarm {
            SCHED.lock.lock().poller.silence_if_free(|| poller.clear_interrupt());
        }
        if !ready.is_empty() {
            self.urgent_ticks = URGENT_TICKS;
        }
        poll::inject_first(ready);
    }

    /// Looks, where others have not for too long: their goroutines take turns, but long ones.
    /// Go: sysmon, "poll network if not polled for more than 10ms".
    pub(crate) fn poll_if_overdue(&mut self, now: u64) {
        let looks = poll::POLL_COUNT.load(Ordering::Relaxed);
        let looked = std::mem::replace(&mut self.looks, looks) != looks;
        // Where many wait for a P already, what is ready may as well wait in the poller, in its order.
        let many = SCHED.queued.load(Ordering::Relaxed) > poll::LONG_GLOBAL_QUEUE;
        if looked || many || self.all_stalled || !poller_role::should_poll() || SCHED.is_idle() {
            self.since = now;
        } else if now - self.since >= POLL_OVERDUE_NANOS {
            self.since = now;
            let mut ready = GList::new();
            events::poll_ready_up_to(poll::BUSY_POLL_BATCH, &mut ready, Some(Duration::ZERO));
            poll::inject_last(ready);
        }
    }
}

/// Whether nobody but sysmon can poll: all Ps are idle, and there is no thread for an M.
pub(crate) fn can_only_sysmon_poll() -> bool {
    thread_requests::is_refused() && SCHED.is_idle() && poller_role::should_poll()
}
