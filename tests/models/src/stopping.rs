//! How the world stops and starts again, and how a stop is cancelled: the product's flag, count and
//! wait (`protocol::world_stop`). The lists of Ms and Ps are plain lists under loom's mutex.
//!
//! Two Ms with a P each use the data of their P and check whether the world stops, several times. A
//! stopper waits for both Ps, changes their data, and starts the world again; or it does not wait,
//! and cancels the stop.

use crate::explore::{leak, most_orders};
use crate::protocol::attention::Attention;
use crate::protocol::note::Note;
use crate::protocol::world_stop::{self, StopCount};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::cell::Cell;
use loom::sync::{Mutex, MutexGuard};
use loom::thread;
use std::time::Duration;

const MS: usize = 2;

/// A step that is left out, to check that the model then fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeftOut {
    Nothing,
    /// An M that has seen the stop does not check again with the lock held.
    CheckAgain,
    /// An M that has stopped does not check for an orphaned P before it sleeps.
    TakeOrphan,
    /// The stopper does not wait for all Ps.
    Wait,
}

/// The data that the scheduler's lock protects.
struct Lists {
    stop_count: StopCount,
    stopped: Vec<usize>,
    /// Ps for which there was no idle M.
    orphans: Vec<usize>,
    idle_ms: Vec<usize>,
}

struct World {
    lists: Mutex<Lists>,
    attention: Attention,
    all_stopped: Note,
    /// Stands for the data that belongs to the owner of each P.
    ps: [Cell<u32>; MS],
    notes: [Note; MS],
    /// The P that each M is woken with.
    given: [AtomicU32; MS],
    left_out: LeftOut,
}

impl World {
    fn new(left_out: LeftOut) -> &'static World {
        leak(World {
            lists: Mutex::new(Lists {
                stop_count: StopCount::new(),
                stopped: Vec::new(),
                orphans: Vec::new(),
                idle_ms: Vec::new(),
            }),
            attention: Attention::new(),
            all_stopped: Note::new(),
            ps: [(); MS].map(|()| Cell::new(0)),
            notes: [(); MS].map(|()| Note::new()),
            given: [(); MS].map(|()| AtomicU32::new(0)),
            left_out,
        })
    }

    /// Runs an M, which starts with the P of its number and ends with the P that it then holds.
    fn run(&self, m: usize, turns: usize) {
        let mut p = m;
        for _ in 0..turns {
            let count = self.ps[p].get();
            self.ps[p].set(count + 1);
            if self.attention.is_stopping()
                && let Some(other) = self.release_p_for_stop(m, p)
            {
                p = other;
            }
        }
        // An M that ends stands for an M that is blocked in the kernel: its P is taken.
        let mut lists = self.lists.lock().unwrap();
        if self.attention.is_stopping() {
            self.count_stopped(&mut lists, p);
        } else {
            lists.orphans.push(p);
        }
    }

    /// Releases the P because the world stops. Returns the P that the M is given afterwards, or
    /// `None` if the M has kept its P.
    fn release_p_for_stop(&self, m: usize, p: usize) -> Option<usize> {
        let mut lists = self.lists.lock().unwrap();
        if !self.attention.is_stopping() && self.left_out != LeftOut::CheckAgain {
            return None;
        }
        self.count_stopped(&mut lists, p);
        // The M releases the lock between its stop and its sleep.
        drop(lists);
        let mut lists = self.lists.lock().unwrap();
        if self.left_out != LeftOut::TakeOrphan
            && !self.attention.is_stopping()
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
        lists.stop_count.count_stopped(&self.attention, &self.all_stopped);
    }

    /// Stops the world and changes the data of all Ps. If a P has not stopped and `patient` is
    /// false, cancels the stop instead. Returns whether the world stopped.
    fn stop(&self, patient: bool) -> bool {
        let mut lists = self.lists.lock().unwrap();
        lists.stop_count.announce(&self.attention, MS as u32);
        while let Some(p) = lists.orphans.pop() {
            self.count_stopped(&mut lists, p);
        }
        drop(lists);
        if self.left_out != LeftOut::Wait {
            let stopped = world_stop::wait_for_ps(
                &self.all_stopped,
                Duration::ZERO,
                || self.lists.lock().unwrap(),
                |lists| &lists.stop_count,
                || !patient,
                || {},
            );
            if let Err(lists) = stopped {
                self.start(lists);
                return false;
            }
        }
        self.ps.iter().for_each(|p| p.set(p.get() + 100));
        self.start(self.lists.lock().unwrap());
        true
    }

    fn start(&self, mut lists: MutexGuard<'_, Lists>) {
        lists.stop_count.end(&self.attention);
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

/// Runs two Ms against a series of stops. Each entry of `patient` is one stop: true if the stopper
/// waits.
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
    assert_eq!(lists.orphans.len(), MS, "every P is released at the end");
    let sum: u32 = world.ps.iter().map(Cell::get).sum();
    assert_eq!(sum, MS as u32 * (turns as u32 + 100 * changes));
}

#[test]
fn a_stopped_world_belongs_to_the_stopper_and_starts_again() {
    most_orders(3, || stops(LeftOut::Nothing, 2, &[true]));
}

#[test]
fn no_m_stays_stopped_after_a_stop_is_taken_back() {
    most_orders(3, || stops(LeftOut::Nothing, 2, &[false]));
}

#[test]
fn a_stop_after_a_stop_that_was_taken_back_stops_every_p() {
    most_orders(2, || stops(LeftOut::Nothing, 2, &[false, true]));
}

#[test]
#[should_panic(expected = "no stop waits for it")]
fn broken_by_an_m_that_does_not_check_again() {
    most_orders(3, || stops(LeftOut::CheckAgain, 2, &[false]));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_an_m_that_sleeps_while_a_p_is_orphaned() {
    most_orders(3, || stops(LeftOut::TakeOrphan, 2, &[true]));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_stopper_that_does_not_wait() {
    most_orders(3, || stops(LeftOut::Wait, 1, &[true]));
}
