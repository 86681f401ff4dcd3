//! How the world stops, goes on, and is not waited for: a twin of `sched::world`, whose records are the scheduler's.
//!
//! Two Ms with a P each use what is their P's and look whether the world stops, some times; a stopper waits for both,
//! changes what is theirs, and lets them go on; or it has no patience, and takes the stop back.

use super::{leak, most_orders};
use crate::gmp::note::Note;
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::cell::Cell;
use loom::sync::{Mutex, MutexGuard};
use loom::thread;

const MS: usize = 2;

/// A step that is left out, to see the model fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeftOut {
    Nothing,
    /// An M that has seen that the world stops does not look again with the lock held.
    LookAgain,
    /// An M that has stopped, and is about to sleep, does not look for a P that was left for it.
    TakeOrphan,
    /// The stopper does not wait for all.
    Wait,
}

/// What the scheduler's lock guards.
#[derive(Default)]
struct Lists {
    /// So many Ps have not stopped yet.
    stop_wait: u32,
    stopped: Vec<usize>,
    /// Ps that nobody was there for.
    orphans: Vec<usize>,
    idle_ms: Vec<usize>,
}

struct World {
    lists: Mutex<Lists>,
    is_stopping: AtomicU32,
    all_stopped: Note,
    /// Stands for what is the P's owner's.
    ps: [Cell<u32>; MS],
    notes: [Note; MS],
    /// The P that an M is woken with.
    given: [AtomicU32; MS],
    left_out: LeftOut,
}

impl World {
    fn new(left_out: LeftOut) -> &'static World {
        leak(World {
            lists: Mutex::new(Lists::default()),
            is_stopping: AtomicU32::new(0),
            all_stopped: Note::new(),
            ps: [const { () }; MS].map(|()| Cell::new(0)),
            notes: [const { () }; MS].map(|()| Note::new()),
            given: [const { () }; MS].map(|()| AtomicU32::new(0)),
            left_out,
        })
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed) != 0
    }

    /// An M: it has the P of its number at first, and ends with the P that it has then.
    fn run(&self, m: usize, turns: usize) {
        let mut p = m;
        for _ in 0..turns {
            let count = self.ps[p].get();
            self.ps[p].set(count + 1);
            if self.is_stopping()
                && let Some(other) = self.release_p_for_stop(m, p)
            {
                p = other;
            }
        }
        // Whoever ends is in the kernel for good: its P is taken.
        let mut lists = self.lists.lock().unwrap();
        if self.is_stopping() {
            self.count_stopped(&mut lists, p);
        } else {
            lists.orphans.push(p);
        }
    }

    /// `None`: it has kept its P.
    fn release_p_for_stop(&self, m: usize, p: usize) -> Option<usize> {
        let mut lists = self.lists.lock().unwrap();
        if !self.is_stopping() && self.left_out != LeftOut::LookAgain {
            return None;
        }
        self.count_stopped(&mut lists, p);
        // The lock is not held all the time from there to its sleep.
        drop(lists);
        let mut lists = self.lists.lock().unwrap();
        if self.left_out != LeftOut::TakeOrphan
            && !self.is_stopping()
            && let Some(p) = lists.orphans.pop()
        {
            return Some(p);
        }
        lists.idle_ms.push(m);
        drop(lists);
        self.notes[m].sleep(None);
        Some(self.given[m].load(Ordering::Relaxed) as usize)
    }

    fn count_stopped(&self, lists: &mut Lists, p: usize) {
        lists.stopped.push(p);
        lists.stop_wait -= 1;
        if lists.stop_wait == 0 {
            self.all_stopped.wake();
        }
    }

    /// Stops the world, and changes what is everybody's; unless it has to be `patient` for that, and is not. Whether it
    /// did.
    fn stop(&self, patient: bool) -> bool {
        let mut lists = self.lists.lock().unwrap();
        self.is_stopping.store(1, Ordering::Relaxed);
        lists.stop_wait = MS as u32;
        while let Some(p) = lists.orphans.pop() {
            self.count_stopped(&mut lists, p);
        }
        drop(lists);
        loop {
            let lists = self.lists.lock().unwrap();
            match lists.stop_wait {
                0 => break,
                _ if self.left_out == LeftOut::Wait => break,
                _ if !patient => {
                    self.start(lists);
                    return false;
                }
                _ => drop(lists),
            }
            self.all_stopped.sleep(None);
        }
        self.ps.iter().for_each(|p| p.set(p.get() + 100));
        self.start(self.lists.lock().unwrap());
        true
    }

    fn start(&self, mut lists: MutexGuard<'_, Lists>) {
        self.is_stopping.store(0, Ordering::Relaxed);
        lists.stop_wait = 0;
        let stopped = std::mem::take(&mut lists.stopped);
        drop(lists);
        for p in stopped {
            let mut lists = self.lists.lock().unwrap();
            match lists.idle_ms.pop() {
                Some(m) => {
                    drop(lists);
                    self.given[m].store(p as u32, Ordering::Relaxed);
                    self.notes[m].wake();
                }
                None => lists.orphans.push(p),
            }
        }
    }
}

/// Two Ms, and a stopper for each that is told whether it waits.
fn stops(left_out: LeftOut, turns: usize, patient: &[bool]) {
    let world = World::new(left_out);
    let ms = [0, 1].map(|m| thread::spawn(move || world.run(m, turns)));
    let mut changes = 0;
    for &patient in patient {
        let stopped = world.stop(patient);
        assert!(stopped || !patient);
        changes += u32::from(stopped);
    }
    ms.into_iter().for_each(|m| m.join().unwrap());
    let lists = world.lists.lock().unwrap();
    assert_eq!(lists.orphans.len(), MS, "every P is there again");
    let sum: u32 = world.ps.iter().map(Cell::get).sum();
    assert_eq!(sum, MS as u32 * (turns as u32 + 100 * changes));
}

#[test]
fn a_stopped_world_is_the_stoppers_and_goes_on() {
    most_orders(3, || stops(LeftOut::Nothing, 2, &[true]));
}

#[test]
fn a_stop_that_is_taken_back_stops_nobody_for_good() {
    most_orders(3, || stops(LeftOut::Nothing, 2, &[false]));
}

#[test]
fn a_stop_after_one_that_was_taken_back_is_whole() {
    most_orders(2, || stops(LeftOut::Nothing, 2, &[false, true]));
}

#[test]
#[should_panic]
fn broken_by_an_m_that_does_not_look_again() {
    most_orders(3, || stops(LeftOut::LookAgain, 2, &[false]));
}

#[test]
#[should_panic]
fn broken_by_an_m_that_sleeps_beside_its_p() {
    most_orders(3, || stops(LeftOut::TakeOrphan, 2, &[true]));
}

#[test]
#[should_panic]
fn broken_by_a_stopper_that_does_not_wait() {
    most_orders(3, || stops(LeftOut::Wait, 1, &[true]));
}
