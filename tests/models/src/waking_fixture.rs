//! A small scheduler for the models of waking: its Ms do what `sched::run::find` and
//! `sched::run::idle` do, with the product's queues, notes and counts.
//!
//! The scheduler's lock is loom's mutex here (`lock` models the real lock). There is no thread
//! maker: as in the real scheduler, a P for which no M sleeps waits for the next M that goes to
//! sleep.

use super::item::Item;
use crate::protocol::note::Note;
use crate::protocol::run_queue::RunQueue;
use crate::protocol::waking::{self, WakeCounts};
use crate::sys::atomic::{AtomicU32, Ordering};
use loom::sync::Mutex;
use std::sync::atomic::AtomicUsize;

/// A step that is left out, to check that the model then fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftOut {
    Nothing,
    /// An M without work sleeps without checking the queues again.
    CheckAgain,
    /// An M that found work does not wake another M.
    WakeAnotherM,
    /// A thread that hands off a P does not check the queues afterwards.
    CheckAfterHandOff,
}

/// No P: the M is woken because all Gs have run.
pub(super) const NO_P: u32 = u32::MAX;

pub(super) struct World {
    pub(super) lists: Mutex<Lists>,
    pub(super) queued: AtomicU32,
    pub(super) counts: WakeCounts,
    pub(super) ps: Vec<RunQueue<Item, 2>>,
    pub(super) ms: Vec<Sleeper>,
    pub(super) left_out: LeftOut,
    /// If present, Gs 0 and 1 each run until the other runs too.
    pub(super) together: Option<[Note; 2]>,
    /// Number of Gs that have not run. Not modelled by loom.
    pub(super) left: AtomicUsize,
}

#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) queue: Vec<&'static Item>,
    pub(super) idle_ps: Vec<usize>,
    pub(super) orphans: Vec<usize>,
    pub(super) idle_ms: Vec<usize>,
    pub(super) over: bool,
}

pub(super) struct Sleeper {
    pub(super) note: Note,
    pub(super) given: AtomicU32,
}

impl World {
    /// Creates a world with `ps` Ps and `ms` Ms, none of them idle. It ends when `gs` Gs have run.
    pub(super) fn new(ps: usize, ms: usize, gs: usize, left_out: LeftOut) -> World {
        let sleeper = |_| Sleeper { note: Note::new(), given: AtomicU32::new(NO_P) };
        World {
            lists: Mutex::default(),
            queued: AtomicU32::new(0),
            counts: WakeCounts::new(),
            ps: (0..ps).map(|_| RunQueue::new()).collect(),
            ms: (0..ms).map(sleeper).collect(),
            left_out,
            together: None,
            left: AtomicUsize::new(gs),
        }
    }

    /// Makes Gs 0 and 1 end only together, which takes two Ms.
    pub(super) fn run_together(mut self) -> World {
        self.together = Some([Note::new(), Note::new()]);
        self
    }

    /// Submits `g` to the queue of `p`, which the caller holds: to the ring, or to `run_next`.
    pub(super) fn submit_to(&self, p: usize, g: &'static Item, next: bool) {
        self.push_to(p, g, next);
        self.wake_if_idle();
    }

    /// Like [`World::submit_to`], but wakes no M.
    pub(super) fn push_to(&self, p: usize, g: &'static Item, next: bool) {
        let kicked = if next { self.ps[p].push_next(g) } else { Some(g) };
        if let Some(g) = kicked {
            assert!(self.ps[p].push(g));
        }
    }

    /// Takes the next G of `p`, which the caller holds.
    pub(super) fn take(&self, p: usize) -> Option<&'static Item> {
        self.ps[p].take().map(|(g, _)| g)
    }

    /// Submits `g` to the global queue, as an ordinary thread does.
    pub(super) fn submit(&self, g: &'static Item) {
        let mut lists = self.lists.lock().unwrap();
        lists.queue.push(g);
        self.publish_length(&lists);
        drop(lists);
        self.wake_if_idle();
    }

    pub(super) fn wake_if_idle(&self) {
        if self.counts.is_spinner_wanted_after_submit() {
            self.wake();
        }
    }

    fn wake(&self) {
        let mut lists = self.lists.lock().unwrap();
        let p = self.counts.acquire_p_for_spinner(|| self.pop_idle_p(&mut lists));
        let Some(p) = p else { return };
        match lists.idle_ms.pop() {
            Some(m) => {
                drop(lists);
                self.ms[m].given.store(p as u32, Ordering::Relaxed);
                self.ms[m].note.wake();
            }
            None => lists.orphans.push(p),
        }
    }

    /// Hands off `p`, whose queue is empty, as `sched::wake::hand_off` does while no G is in the
    /// global queue.
    pub(super) fn hand_off(&self, p: usize) {
        let mut lists = self.lists.lock().unwrap();
        assert!(lists.queue.is_empty() && self.ps[p].is_empty(), "the P has work");
        self.push_idle_p(&mut lists, p);
        drop(lists);
        if self.left_out != LeftOut::CheckAfterHandOff
            && waking::is_spinner_wanted_after_idling(|| self.is_work_anywhere())
        {
            self.wake();
        }
    }

    /// Returns whether any queue holds a G.
    pub(super) fn is_work_anywhere(&self) -> bool {
        self.queued.load(Ordering::Relaxed) > 0 || self.ps.iter().any(|p| !p.is_empty())
    }

    pub(super) fn push_idle_p(&self, lists: &mut Lists, p: usize) {
        lists.idle_ps.push(p);
        self.counts.count_idle_p();
    }

    pub(super) fn pop_idle_p(&self, lists: &mut Lists) -> Option<usize> {
        let p = lists.idle_ps.pop()?;
        self.counts.count_acquired_p();
        Some(p)
    }

    pub(super) fn publish_length(&self, lists: &Lists) {
        self.queued.store(lists.queue.len() as u32, Ordering::Relaxed);
    }
}
