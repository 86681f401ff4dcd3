//! A small scheduler for the models of waking: its Ms do what `sched::run::find` and `sched::run::idle` do,
//! with the queues, notes and counts of `gmp` themselves.
//!
//! The scheduler's lock is loom's mutex here (`lock` models the real one), and there is no thread maker: a
//! P for which no M sleeps waits, as there, for the next M that goes to sleep.

use super::item::Item;
use crate::gmp::note::Note;
use crate::gmp::run_queue::RunQueue;
use crate::gmp::waking;
use crate::sys::atomic::{AtomicU32, Ordering};
use loom::sync::Mutex;
use std::sync::atomic::AtomicUsize;

/// A step that is left out, to see the model fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftOut {
    Nothing,
    /// An M without work sleeps at once.
    LookAgain,
    /// An M that found work wakes nobody.
    WakeTheNext,
}

/// No P: an M is woken because all is over.
pub(super) const NO_P: u32 = u32::MAX;

pub(super) struct World {
    pub(super) lists: Mutex<Lists>,
    pub(super) queued: AtomicU32,
    pub(super) idle_ps: AtomicU32,
    pub(super) spinning: AtomicU32,
    pub(super) ps: Vec<RunQueue<Item, 2>>,
    pub(super) ms: Vec<Sleeper>,
    pub(super) left_out: LeftOut,
    /// Gs 0 and 1 each run until the other runs too, if they do so.
    pub(super) together: Option<[Note; 2]>,
    /// How many Gs have not run. Not modelled: it only counts.
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
    /// So many Ps and Ms, none idle; `gs` are to be run before all is over.
    pub(super) fn new(ps: usize, ms: usize, gs: usize, left_out: LeftOut) -> World {
        let sleeper = |_| Sleeper { note: Note::new(), given: AtomicU32::new(NO_P) };
        World {
            lists: Mutex::default(),
            queued: AtomicU32::new(0),
            idle_ps: AtomicU32::new(0),
            spinning: AtomicU32::new(0),
            ps: (0..ps).map(|_| RunQueue::new()).collect(),
            ms: (0..ms).map(sleeper).collect(),
            left_out,
            together: None,
            left: AtomicUsize::new(gs),
        }
    }

    /// Gs 0 and 1 can only end together: it takes two Ms.
    pub(super) fn run_together(mut self) -> World {
        self.together = Some([Note::new(), Note::new()]);
        self
    }

    /// Submits to the queue of a P that the caller has: to the ring, or as the next.
    pub(super) fn submit_to(&self, p: usize, g: &'static Item, next: bool) {
        self.push_to(p, g, next);
        self.wake_if_idle();
    }

    /// As [`World::submit_to`], but nobody is told.
    pub(super) fn push_to(&self, p: usize, g: &'static Item, next: bool) {
        let kicked = if next { self.ps[p].push_next(g) } else { Some(g) };
        if let Some(g) = kicked {
            assert!(self.ps[p].push(g));
        }
    }

    /// The next G of a P that the caller has.
    pub(super) fn take(&self, p: usize) -> Option<&'static Item> {
        self.ps[p].take().map(|(g, _)| g)
    }

    /// Submits as an ordinary thread does.
    pub(super) fn submit(&self, g: &'static Item) {
        let mut lists = self.lists.lock().unwrap();
        lists.queue.push(g);
        self.publish_length(&lists);
        drop(lists);
        self.wake_if_idle();
    }

    pub(super) fn wake_if_idle(&self) {
        if waking::is_spinner_wanted_after_submit(&self.idle_ps, &self.spinning) {
            self.wake();
        }
    }

    fn wake(&self) {
        let mut lists = self.lists.lock().unwrap();
        let p = waking::acquire_p_for_spinner(&self.idle_ps, &self.spinning, || {
            self.pop_idle_p(&mut lists)
        });
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

    pub(super) fn push_idle_p(&self, lists: &mut Lists, p: usize) {
        lists.idle_ps.push(p);
        waking::count_idle_p(&self.idle_ps);
    }

    pub(super) fn pop_idle_p(&self, lists: &mut Lists) -> Option<usize> {
        let p = lists.idle_ps.pop()?;
        waking::count_acquired_p(&self.idle_ps);
        Some(p)
    }

    pub(super) fn publish_length(&self, lists: &Lists) {
        self.queued.store(lists.queue.len() as u32, Ordering::Relaxed);
    }
}
