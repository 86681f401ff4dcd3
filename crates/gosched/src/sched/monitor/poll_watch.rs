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

/// What the watcher knows of those who poll.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Which turn it was on each P.
    turns: Vec<u32>,
    /// No busy P has passed the scheduler since the last look.
    stand: bool,
    /// So many looks are sooner than others: somebody has just had to make room, and may have to again.
    soon: u32,
    looks: u64,
    /// Since when nobody has looked.
    since: u64,
    /// It was in the poller last time, for nothing.
    in_vain: bool,
}

/// The watcher puts so many before all others at a time: it may be wrong about those who stand, and whoever makes
/// room looks for more.
const FIRST: usize = 8;

/// See [`Watched::is_urgent`].
const SOON: u32 = 20;

/// Nobody has looked for so long, where Ps do not stand still: the watcher does.
const OVERDUE: u64 = 1_000_000;

impl Watched {
    pub(crate) fn new() -> Watched {
        let turns = vec![0; MAX_PROCS];
        Watched { turns, stand: false, soon: 0, looks: 0, since: 0, in_vain: false }
    }

    /// Whether the watcher is to sleep in the poller: somebody waits, all Ps are busy, and none has passed the
    /// scheduler since the last time that this was asked. If one is idle, an M is told to.
    pub(crate) fn is_wanted(&mut self) -> bool {
        let (busy, standing) = self.count_standing();
        poller_role::STANDING.store(standing, Ordering::Relaxed);
        self.stand = busy > 0 && standing == busy;
        let in_vain = std::mem::take(&mut self.in_vain);
        if !poller_role::is_worth_a_look() || !(self.stand || is_alone()) {
            return false;
        }
        let others = SCHED.idle_ps.load(Ordering::Relaxed) > 0 && !thread_requests::is_refused();
        if others {
            wake::wake_if_idle();
        }
        !others && !in_vain
    }

    /// How many Ps are busy, and how many of them have not passed the scheduler since the last time.
    fn count_standing(&mut self) -> (u32, u32) {
        let (mut busy, mut standing) = (0, 0);
        for (p, turn) in SCHED.used_ps().zip(&mut self.turns) {
            let now = p.turn();
            let stands = std::mem::replace(turn, now) == now;
            if p.status() == PStatus::Running {
                busy += 1;
                standing += u32::from(stands);
            }
        }
        (busy, standing)
    }

    /// Whether the next look should be sooner.
    pub(crate) fn is_urgent(&mut self) -> bool {
        self.soon = self.soon.saturating_sub(1);
        self.soon > 0
    }

    /// Sleeps in the poller, unless `is_called` says that somebody wants the watcher; and takes care of those
    /// who are ready.
    pub(crate) fn sleep(&mut self, timeout: Duration, is_called: impl Fn() -> bool) {
        let (Some(poller), Some(stop)) = (poller::here(), poller::stop()) else { return };
        // PAIR watches: one order for this, the next, and who calls.
        sysmon_alarm::WATCHES.store(true, Ordering::SeqCst);
        let told = !is_called() && poller.watch(stop.as_raw_fd(), timeout);
        sysmon_alarm::WATCHES.store(false, Ordering::Relaxed);
        poller::unring(stop);
        // Those who pass the scheduler find it themselves, and in its turn.
        let (busy, standing) = self.count_standing();
        if standing < busy {
            self.in_vain = told;
            return;
        }
        let mut ready = GList::new();
        events::collect_some(FIRST, &mut ready, Some(Duration::ZERO));
        // Something is told that is not for us: it must not keep the watcher busy.
        self.in_vain = told && ready.is_empty();
        if self.in_vain {
            SCHED.lock.lock().poller.silence_if_free(|| poller.calm());
        }
        if !ready.is_empty() {
            self.soon = SOON;
        }
        poll::push_without_p(ready);
    }

    /// Looks, where others have not for too long: their goroutines take turns, but long ones.
    pub(crate) fn look_if_overdue(&mut self, now: u64) {
        let looks = poll::LOOKS.load(Ordering::Relaxed);
        let looked = std::mem::replace(&mut self.looks, looks) != looks;
        // Where many wait for a P already, what is ready may as well wait in the poller, in its order.
        let many = SCHED.queued.load(Ordering::Relaxed) > poll::MANY;
        if looked || many || self.stand || !poller_role::is_worth_a_look() || SCHED.is_idle() {
            self.since = now;
        } else if now - self.since >= OVERDUE {
            self.since = now;
            let mut ready = GList::new();
            events::collect_some(poll::AHEAD, &mut ready, Some(Duration::ZERO));
            poll::push_last(ready);
        }
    }
}

/// Whether nobody but the watcher can poll: all Ps are idle, and there is no thread for an M.
pub(crate) fn is_alone() -> bool {
    thread_requests::is_refused() && SCHED.is_idle() && poller_role::is_worth_a_look()
}
