//! The lists of idle Ms and Ps, and the Gs that run before others. Taking an entry also updates the
//! roles that depend on it: timekeeper, poller and sysmon's sleep. Code here never wakes an M and
//! never changes the status of a P: its callers do both.

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::p::{Caches, P};
use crate::protocol::attention::AttentionFlag;
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::state::{poller_role, sysmon_alarm, timekeeper};

impl Locked {
    /// Takes a G that runs before others, if there is one: an interrupted G, or a G that was
    /// stopped with its M if too many Ms are stopped.
    pub(crate) fn pop_priority(&mut self) -> Option<&'static G> {
        poller_role::mark_io_claimed();
        let mut g = self.queue.pop_interrupted();
        if g.is_none() && SCHED.attention.is_set(AttentionFlag::TooManyStopped) {
            g = self.queue.pop_stopped();
        }
        self.publish_take(g)
    }

    /// Takes an M from the list of idle Ms. Takes the timekeeper or the M in the poller only if
    /// there is no other.
    /// Go: mget.
    pub(crate) fn pop_idle_m(&mut self) -> Option<&'static M> {
        let timekeeper = self.timekeeper;
        let is_timekeeper =
            |m: &M| timekeeper.is_some_and(|timekeeper| std::ptr::eq(timekeeper, m));
        let mut aside = [None; 2];
        let mut m = self.idle_ms.pop_front();
        for place in &mut aside {
            let Some(special) = m.filter(|m| is_timekeeper(m) || self.poller.is_held_by(m)) else {
                break;
            };
            *place = Some(special);
            m = self.idle_ms.pop_front();
        }
        let m = m.or_else(|| aside.iter_mut().find_map(Option::take));
        aside.into_iter().flatten().for_each(|m| self.idle_ms.push_front(m));
        let m = m?;
        timekeeper::resign_timekeeper_with_p(self, m);
        poller_role::mark_poller_leaving(self, m);
        Some(m)
    }

    /// Puts `p` into the list of idle Ps.
    /// Go: pidleput.
    pub(crate) fn push_idle_p(&mut self, p: &'static P) {
        p.check_unowned();
        self.idle_ps.push_front(p);
        SCHED.counts.count_idle_p();
    }

    /// Takes a P from the list of idle Ps.
    /// Go: pidleget.
    pub(crate) fn pop_idle_p(&mut self) -> Option<&'static P> {
        let p = self.idle_ps.pop_front()?;
        p.check_unowned();
        SCHED.counts.count_acquired_p();
        sysmon_alarm::on_idle_p_acquired();
        Some(p)
    }

    /// Calls `f` with the caches of each idle P.
    pub(crate) fn for_each_idle_cache(&mut self, f: impl Fn(&mut Caches)) {
        for p in self.idle_ps.iter() {
            // SAFETY: owner — the P is in the list of idle Ps, and the lock of that list is held.
            f(unsafe { p.caches.get() });
        }
    }

    /// Takes `p` from the list of idle Ps. Returns `None` if `p` is not idle.
    pub(crate) fn take_idle_p(&mut self, p: &'static P) -> Option<&'static P> {
        if !self.idle_ps.remove(p) {
            return None;
        }
        p.check_unowned();
        SCHED.counts.count_acquired_p();
        sysmon_alarm::on_idle_p_acquired();
        Some(p)
    }
}
