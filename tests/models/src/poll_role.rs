//! Ms that sleep, one of them in the poller, against wakers that give them Ps, the wake descriptor,
//! events and sysmon: every P reaches an M.
//!
//! The role, the sleep and the wake-up are the product's (`protocol::poll_role`). The lists are
//! plain lists under loom's mutex, and the kernel's poller is a stand-in (`kernel`). A lost P
//! leaves its M asleep, which loom reports as a deadlock. The wake descriptor is called a bell
//! here: a signal *rings* it, draining *silences* it.

use crate::explore::{exactly_these_orders, leak, most_orders};
use crate::kernel::Kernel;
use crate::poll_role_sleeper::{Awake, Sleeper};
use crate::protocol::poll_role::PollRole;
use loom::sync::Mutex;
use loom::thread::{self, JoinHandle};

/// A step that is done wrongly, to check that the model then fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The waker ends the role of the M that it takes out of the list.
    RoleEndsOnWake,
    /// Sysmon silences the bell while an M holds the role.
    SysmonSilencesAnyBell,
    /// The waker rings before it sets the note.
    BellBeforeNote,
}

struct World {
    lists: Mutex<Lists>,
    ms: [&'static Sleeper; 2],
    kernel: Kernel,
    broken: Broken,
}

struct Lists {
    idle_ms: Vec<&'static Sleeper>,
    /// Ps for which there was no idle M. An M takes one before it sleeps.
    orphans: Vec<u32>,
    role: PollRole<Sleeper>,
}

impl World {
    fn new(broken: Broken) -> &'static World {
        leak(World {
            lists: Mutex::new(Lists {
                idle_ms: Vec::new(),
                orphans: Vec::new(),
                role: PollRole::new(),
            }),
            ms: [Sleeper::new(), Sleeper::new()],
            kernel: Kernel::new(),
            broken,
        })
    }

    fn begin(&'static self, m: usize) -> JoinHandle<()> {
        thread::spawn(move || self.stop_m(self.ms[m]))
    }

    /// Stops an M as `sched::run::idle` does, without timers.
    fn stop_m(&self, m: &'static Sleeper) {
        loop {
            let mut lists = self.lists.lock().unwrap();
            if lists.orphans.pop().is_some() {
                return;
            }
            lists.idle_ms.push(m);
            let polls = lists.role.is_free();
            if polls {
                lists.role.take(m, &m.in_poller);
            }
            drop(lists);
            let Awake { woken, .. } = m.sleep(polls, &self.kernel);
            let mut lists = self.lists.lock().unwrap();
            lists.role.give_up(m, &m.in_poller);
            if !woken {
                let place = lists.idle_ms.iter().position(|other| std::ptr::eq(*other, m));
                if let Some(place) = place {
                    // The real M would run what the event made ready, and sleep again.
                    lists.idle_ms.remove(place);
                    continue;
                }
                drop(lists);
                m.note.sleep(None);
            }
            assert!(m.take_next_p());
            return;
        }
    }

    /// Gives a P to an M as `sched::wake::give::start_m` does.
    fn give_a_p(&self) {
        let mut lists = self.lists.lock().unwrap();
        let Some(m) = lists.idle_ms.pop() else {
            lists.orphans.push(1);
            return;
        };
        if self.broken == Broken::RoleEndsOnWake {
            lists.role.give_up(m, &m.in_poller);
            drop(lists);
            m.set_next_p(1);
            m.note.wake();
            return self.kernel.ring();
        }
        drop(lists);
        m.set_next_p(1);
        if self.broken == Broken::BellBeforeNote {
            self.kernel.ring();
            return m.note.wake();
        }
        m.wake(&self.kernel);
    }

    /// Silences the bell as `sched::monitor::poll_watch` does at the end of `PollWatch::sleep`.
    fn sysmon(&self) {
        if self.broken == Broken::SysmonSilencesAnyBell {
            return self.kernel.silence();
        }
        self.lists.lock().unwrap().role.silence_if_free(|| self.kernel.silence());
    }
}

/// Runs two Ms that go to sleep against two wakers with one P each.
fn two_ms_and_two_wakers(broken: Broken) {
    let world = World::new(broken);
    let ms = [0, 1].map(|m| world.begin(m));
    let waker = thread::spawn(move || world.give_a_p());
    world.give_a_p();
    waker.join().unwrap();
    ms.into_iter().for_each(|m| m.join().unwrap());
}

/// Runs two Ms that go to sleep against one waker with two Ps, while sysmon finds that the bell
/// rings.
fn two_ms_and_sysmon(broken: Broken) {
    let world = World::new(broken);
    let ms = [0, 1].map(|m| world.begin(m));
    let sysmon = thread::spawn(move || world.sysmon());
    world.give_a_p();
    world.give_a_p();
    sysmon.join().unwrap();
    ms.into_iter().for_each(|m| m.join().unwrap());
}

/// Like [`two_ms_and_two_wakers`], with an event: the M in the poller leaves for the event while a
/// waker takes it out of the list, so the bell may ring late, for the next holder.
fn two_ms_and_an_event(broken: Broken) {
    let world = World::new(broken);
    let ms = [0, 1].map(|m| world.begin(m));
    let waker = thread::spawn(move || world.give_a_p());
    world.kernel.happen();
    world.give_a_p();
    waker.join().unwrap();
    ms.into_iter().for_each(|m| m.join().unwrap());
}

#[test]
fn every_p_reaches_an_m() {
    most_orders(3, || two_ms_and_two_wakers(Broken::Nothing));
}

#[test]
fn sysmon_silences_no_bell_that_an_m_needs() {
    most_orders(3, || two_ms_and_sysmon(Broken::Nothing));
}

#[test]
fn a_bell_that_rings_late_loses_no_p() {
    most_orders(3, || two_ms_and_an_event(Broken::Nothing));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_role_that_ends_before_its_holder_has_left() {
    exactly_these_orders(3, || two_ms_and_two_wakers(Broken::RoleEndsOnWake));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_sysmon_that_silences_any_bell() {
    exactly_these_orders(3, || two_ms_and_sysmon(Broken::SysmonSilencesAnyBell));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_bell_that_rings_before_the_note_is_set() {
    exactly_these_orders(3, || two_ms_and_two_wakers(Broken::BellBeforeNote));
}
