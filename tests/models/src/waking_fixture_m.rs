//! The Ms of the small scheduler: they follow `sched::run::find` and `sched::run::idle` step by
//! step.

use super::item::Item;
use super::waking_fixture::{LeftOut, NO_P, World};
use crate::protocol::run_queue::RunQueue;
use crate::protocol::waking;
use crate::sys::atomic::Ordering;
use loom::thread::{self, JoinHandle};

impl World {
    /// Starts the M `m` without a P; `p` is idle.
    pub(super) fn begin_asleep(&'static self, m: usize, p: usize) -> JoinHandle<()> {
        self.push_idle_p(&mut self.lists.lock().unwrap(), p);
        thread::spawn(move || self.run_m(m, None, false))
    }

    /// Starts the M `m` with `p`, as a spinner.
    pub(super) fn begin_spinning(&'static self, m: usize, p: usize) -> JoinHandle<()> {
        self.counts.start_spinning();
        thread::spawn(move || self.run_m(m, Some(p), true))
    }

    /// Starts the M `m` without a P; no P is idle.
    pub(super) fn begin_without_p(&'static self, m: usize) -> JoinHandle<()> {
        thread::spawn(move || self.run_m(m, None, false))
    }

    fn run_m(&self, m: usize, mut p: Option<usize>, mut spinning: bool) {
        loop {
            let Some(own) = p else {
                p = self.sleep(m);
                spinning = true;
                if p.is_none() {
                    return;
                }
                continue;
            };
            let found = self.find(own, &mut spinning);
            if let Some(g) = found {
                if spinning {
                    spinning = false;
                    self.counts.stop_spinning_with_work();
                    if self.left_out != LeftOut::WakeAnotherM {
                        self.wake_if_idle();
                    }
                }
                self.run(g);
                continue;
            }
            let mut lists = self.lists.lock().unwrap();
            if lists.over {
                return;
            }
            if !lists.queue.is_empty() {
                continue;
            }
            self.push_idle_p(&mut lists, own);
            if spinning {
                spinning = false;
                self.counts.stop_spinning_without_work();
            }
            drop(lists);
            p = self.recheck_for_work();
            spinning |= p.is_some();
        }
    }

    /// Takes a G from the M's own queue, from the global queue or, unless too many Ms spin, from
    /// another P.
    fn find(&self, own: usize, spinning: &mut bool) -> Option<&'static Item> {
        if let Some(g) = self.take(own) {
            return Some(g);
        }
        if self.queued.load(Ordering::Relaxed) > 0
            && let Some(g) = self.pop_global()
        {
            return Some(g);
        }
        if !*spinning {
            if !self.counts.may_spin(self.ps.len() as u32) {
                return None;
            }
            *spinning = true;
            self.counts.start_spinning();
        }
        let others = self.ps.iter().enumerate().filter(|(p, _)| *p != own);
        let pause = Some(crate::explore::pause as fn());
        let steal = |victim: &RunQueue<Item, 2>| {
            victim.steal_into(&self.ps[own], pause).map(|stolen| stolen.g)
        };
        others.into_iter().find_map(|(_, victim)| steal(victim))
    }

    fn pop_global(&self) -> Option<&'static Item> {
        let mut lists = self.lists.lock().unwrap();
        let g = lists.queue.pop();
        self.publish_length(&lists);
        g
    }

    fn recheck_for_work(&self) -> Option<usize> {
        if self.left_out == LeftOut::CheckAgain {
            return None;
        }
        waking::recheck_for_work(
            || self.is_work_anywhere(),
            || {
                let mut lists = self.lists.lock().unwrap();
                let p = self.pop_idle_p(&mut lists)?;
                self.counts.start_spinning();
                Some(p)
            },
        )
    }

    /// Sleeps until the M is given a P. Returns `None` if all Gs have run.
    fn sleep(&self, m: usize) -> Option<usize> {
        let mut lists = self.lists.lock().unwrap();
        if let Some(p) = lists.orphans.pop() {
            return Some(p);
        }
        if lists.over {
            return None;
        }
        lists.idle_ms.push(m);
        drop(lists);
        self.ms[m].note.sleep(None);
        let p = self.ms[m].given.load(Ordering::Relaxed);
        (p != NO_P).then_some(p as usize)
    }

    /// Runs `g`. After the last G, wakes all Ms, which then end.
    pub(super) fn run(&self, g: &'static Item) {
        g.run();
        if let Some(together) = &self.together {
            together[g.number].wake();
            together[1 - g.number].sleep(None);
        }
        if self.left.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        let mut lists = self.lists.lock().unwrap();
        lists.over = true;
        for m in std::mem::take(&mut lists.idle_ms) {
            self.ms[m].given.store(NO_P, Ordering::Relaxed);
            self.ms[m].note.wake();
        }
    }
}
