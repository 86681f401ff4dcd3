//! Waiters for I/O against Ms that go to sleep, a hand-off of a P, and wakers of the M in the
//! poller: the event of every waiter is delivered.
//!
//! The count of waiters and the flag are the product's (`protocol::io_waiters`). So are the role of
//! poller and the counts that decide when an M is woken. The Ms follow `sched::run::find` and
//! `sched::run::idle`, without Gs and timers. The waiter is an ordinary thread. Its event happens
//! after all its steps, so only an M that is in the poller, or polls later, finds the event. An
//! event that is missed leaves all threads asleep, which loom reports as a deadlock.

use crate::explore::{every_order, leak, most_orders};
use crate::kernel::Kernel;
use crate::poll_role_sleeper::{Awake, Sleeper};
use crate::protocol::io_waiters::IoWaiters;
use crate::protocol::note::Note;
use crate::protocol::poll_role::PollRole;
use crate::protocol::waking::{self, WakeCounts};
use crate::sys::weakness::{Weakness, weaken};
use loom::sync::{Mutex, MutexGuard};
use loom::thread::{self, JoinHandle};

/// A step that is done wrongly, to check that the model then fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The waiter counts itself after it has checked whether an M must be woken.
    WaiterChecksFirst,
    /// An M checks for waiters before it makes its P idle.
    MChecksFirst,
    /// A thread that makes a P idle does not check for waiters afterwards.
    HandOffWithoutCheck,
    /// The flag stays set when an M leaves the poller.
    FlagStays,
}

struct World {
    lists: Mutex<Lists>,
    counts: WakeCounts,
    io: IoWaiters,
    kernel: Kernel,
    ms: [&'static Sleeper; 2],
    /// On which the waiter sleeps until its event is delivered.
    waiter: Note,
    procs: u32,
    broken: Broken,
}

struct Lists {
    /// Number of idle Ps.
    idle_ps: u32,
    /// Number of Ps for which there was no idle M. An M takes one before it sleeps.
    orphans: u32,
    idle_ms: Vec<&'static Sleeper>,
    role: PollRole<Sleeper>,
    /// The event has been delivered.
    over: bool,
}

/// The waiter and the threads that make a P idle or wake an M.
impl World {
    fn new(procs: u32, broken: Broken) -> &'static World {
        leak(World {
            lists: Mutex::new(Lists {
                idle_ps: 0,
                orphans: 0,
                idle_ms: Vec::new(),
                role: PollRole::new(),
                over: false,
            }),
            counts: WakeCounts::new(),
            io: IoWaiters::new(),
            kernel: Kernel::new(),
            ms: [Sleeper::new(), Sleeper::new()],
            waiter: Note::new(),
            procs,
            broken,
        })
    }

    /// Waits for an event as an ordinary thread does.
    fn wait_for_event(&self) {
        if self.broken != Broken::WaiterChecksFirst {
            self.io.add();
        }
        let is_wanted = self.io.is_poller_wanted_after_count(|| self.are_ps_idle());
        if self.broken == Broken::WaiterChecksFirst {
            self.io.add();
        }
        if is_wanted {
            self.wake_if_idle();
        }
        self.kernel.happen();
        self.waiter.sleep(None);
    }

    /// Makes a P idle without going to sleep, as `sched::wake::hand_off` does.
    fn hand_off(&self) {
        self.push_idle_p(&mut self.lists.lock().unwrap());
        if self.broken != Broken::HandOffWithoutCheck
            && waking::is_spinner_wanted_after_idling(|| {
                self.io.is_poller_wanted(|| self.are_ps_idle())
            })
        {
            self.start_spinner();
        }
    }

    fn are_ps_idle(&self) -> bool {
        self.counts.idle_ps() >= self.procs
    }

    fn push_idle_p(&self, lists: &mut Lists) {
        lists.idle_ps += 1;
        self.counts.count_idle_p();
    }

    fn wake_if_idle(&self) {
        if self.counts.is_spinner_wanted_after_submit() {
            self.start_spinner();
        }
    }

    fn start_spinner(&self) {
        let mut lists = self.lists.lock().unwrap();
        let p = self.counts.acquire_p_for_spinner(|| {
            lists.idle_ps = lists.idle_ps.checked_sub(1)?;
            self.counts.count_acquired_p();
            Some(())
        });
        if p.is_none() {
            return;
        }
        let aside = lists.idle_ms.iter().position(|m| !lists.role.is_held_by(m));
        match aside.or(lists.idle_ms.len().checked_sub(1)) {
            Some(place) => self.wake_m(lists, place, 1),
            None => lists.orphans += 1,
        }
    }

    /// Takes the M at `place` out of the list of idle Ms, and wakes it with `p`: 1 for a P, 0 for
    /// none.
    fn wake_m(&self, mut lists: MutexGuard<'_, Lists>, place: usize, p: u32) {
        let m = lists.idle_ms.remove(place);
        if lists.role.is_held_by(m) {
            self.unblock_m();
        }
        drop(lists);
        m.set_next_p(p);
        m.wake(&self.kernel);
    }

    /// Wakes the M in the poller without a P, as `sched::run::timers` does for a timer that is
    /// earlier than all others.
    fn wake_m_in_poller(&self) {
        let lists = self.lists.lock().unwrap();
        let place = lists.idle_ms.iter().position(|m| lists.role.is_held_by(m));
        if let Some(place) = place {
            self.wake_m(lists, place, 0);
        }
    }

    fn unblock_m(&self) {
        if self.broken != Broken::FlagStays {
            self.io.unblock_m();
        }
    }

    /// Ends the world: the event has been found.
    fn deliver(&self) {
        self.io.remove();
        let mut lists = self.lists.lock().unwrap();
        lists.over = true;
        let asleep = std::mem::take(&mut lists.idle_ms);
        drop(lists);
        for m in asleep {
            m.wake(&self.kernel);
        }
        self.waiter.wake();
    }
}

/// The Ms.
impl World {
    /// Starts an M with a P, as a spinner.
    fn begin_spinning(&'static self, m: usize) -> JoinHandle<()> {
        self.counts.start_spinning();
        thread::spawn(move || self.run_m(self.ms[m], true))
    }

    /// Starts an M that has no P.
    fn begin_without_p(&'static self, m: usize) -> JoinHandle<()> {
        thread::spawn(move || self.run_m(self.ms[m], false))
    }

    /// Starts an M that sleeps in the poller, while its P is idle. There was a waiter when the M
    /// took the role, and there is none now. If `times_out` is set, the M leaves the poller at
    /// once.
    fn begin_in_poller(&'static self, m: usize, times_out: bool) -> JoinHandle<()> {
        let m = self.ms[m];
        self.io.add();
        let mut lists = self.lists.lock().unwrap();
        self.push_idle_p(&mut lists);
        assert!(self.take_role_if_wanted(&mut lists, m));
        lists.idle_ms.push(m);
        drop(lists);
        self.io.remove();
        thread::spawn(move || {
            let has_p = self.sleep(m, true, times_out);
            self.run_m(m, has_p == Some(true));
        })
    }

    /// Runs an M until the event has been delivered. An M that has a P spins.
    fn run_m(&self, m: &'static Sleeper, mut has_p: bool) {
        let mut ignores_waiters = false;
        loop {
            if !has_p {
                match self.stop_m(m, ignores_waiters) {
                    Some(p) => has_p = p,
                    None => return,
                }
                continue;
            }
            if self.io.should_poll() && self.kernel.poll() {
                return self.deliver();
            }
            ignores_waiters = self.broken == Broken::MChecksFirst && !self.io.has_any();
            let mut lists = self.lists.lock().unwrap();
            self.push_idle_p(&mut lists);
            self.counts.stop_spinning_without_work();
            drop(lists);
            waking::recheck_for_work(|| false, || Some(()));
            has_p = false;
        }
    }

    /// Sleeps in the list of idle Ms. Returns whether the M was given a P. Returns `None` if the
    /// event has been delivered.
    fn stop_m(&self, m: &'static Sleeper, ignores_waiters: bool) -> Option<bool> {
        loop {
            let mut lists = self.lists.lock().unwrap();
            if lists.over {
                return None;
            }
            if lists.orphans > 0 {
                lists.orphans -= 1;
                return Some(true);
            }
            let polls = !ignores_waiters && self.take_role_if_wanted(&mut lists, m);
            lists.idle_ms.push(m);
            drop(lists);
            if let Some(has_p) = self.sleep(m, polls, false) {
                return Some(has_p);
            }
        }
    }

    /// As `sched::state::poller_role::take_poll_role`.
    fn take_role_if_wanted(&self, lists: &mut Lists, m: &'static Sleeper) -> bool {
        let takes = lists.role.is_free() && self.io.block_m_if_wanted(|| self.are_ps_idle());
        if takes {
            lists.role.take(m, &m.in_poller);
        }
        takes
    }

    /// Sleeps until the M is woken. Returns whether the M was given a P, or `None` if the sleep has
    /// timed out. If the M finds the event, delivers it.
    fn sleep(&self, m: &'static Sleeper, polls: bool, times_out: bool) -> Option<bool> {
        let Awake { woken, event } = if times_out {
            Awake { woken: false, event: false }
        } else {
            m.sleep(polls, &self.kernel)
        };
        let mut lists = self.lists.lock().unwrap();
        if polls && lists.role.give_up(m, &m.in_poller) {
            self.unblock_m();
        }
        if event {
            lists.idle_ms.retain(|other| !std::ptr::eq(*other, m));
            drop(lists);
            self.deliver();
            return Some(false);
        }
        if !woken {
            let place = lists.idle_ms.iter().position(|other| std::ptr::eq(*other, m));
            if let Some(place) = place {
                lists.idle_ms.remove(place);
                return None;
            }
            drop(lists);
            m.note.sleep(None);
        }
        Some(m.take_next_p())
    }
}

/// Runs a waiter against the M with the only P, which makes its P idle and sleeps.
fn against_the_last_m(broken: Broken) {
    let world = World::new(1, broken);
    let m = world.begin_spinning(0);
    world.wait_for_event();
    m.join().unwrap();
}

/// Runs a waiter against two Ms that make their Ps idle at the same time.
fn against_two_ms(broken: Broken) {
    let world = World::new(2, broken);
    let ms = [0, 1].map(|m| world.begin_spinning(m));
    world.wait_for_event();
    ms.into_iter().for_each(|m| m.join().unwrap());
}

/// Runs a waiter against a thread that makes the last P idle and does not go to sleep. The only M
/// sleeps.
fn against_a_hand_off(broken: Broken) {
    let world = World::new(1, broken);
    let m = world.begin_without_p(0);
    let hand_off = thread::spawn(move || world.hand_off());
    world.wait_for_event();
    hand_off.join().unwrap();
    m.join().unwrap();
}

/// Runs a waiter against the M in the poller, which leaves the poller because its sleep times out,
/// and sleeps again.
fn against_a_timeout(broken: Broken) {
    let world = World::new(1, broken);
    let m = world.begin_in_poller(0, true);
    world.wait_for_event();
    m.join().unwrap();
}

/// Runs a waiter against the M in the poller, which another thread wakes without a P.
fn against_a_waker(broken: Broken) {
    let world = World::new(1, broken);
    let m = world.begin_in_poller(0, false);
    let waker = thread::spawn(move || world.wake_m_in_poller());
    world.wait_for_event();
    waker.join().unwrap();
    m.join().unwrap();
}

/// Runs a waiter against the M in the poller, which another thread wakes without a P, and a second
/// M without a P, which may get the role then.
fn against_a_waker_and_a_second_m(broken: Broken) {
    let world = World::new(1, broken);
    let ms = [world.begin_in_poller(0, false), world.begin_without_p(1)];
    let waker = thread::spawn(move || world.wake_m_in_poller());
    world.wait_for_event();
    waker.join().unwrap();
    ms.into_iter().for_each(|m| m.join().unwrap());
}

/// Runs a waiter against the M in the poller, to which another thread gives the P for a search.
fn against_a_submitter(broken: Broken) {
    let world = World::new(1, broken);
    let m = world.begin_in_poller(0, false);
    let submitter = thread::spawn(move || world.wake_if_idle());
    world.wait_for_event();
    submitter.join().unwrap();
    m.join().unwrap();
}

#[test]
fn a_waiter_that_counts_itself_while_the_last_m_becomes_idle_is_polled_for() {
    most_orders(4, || against_the_last_m(Broken::Nothing));
}

#[test]
fn a_waiter_that_counts_itself_while_two_ms_become_idle_is_polled_for() {
    most_orders(2, || against_two_ms(Broken::Nothing));
}

#[test]
fn a_waiter_that_counts_itself_while_the_last_p_is_handed_off_is_polled_for() {
    most_orders(3, || against_a_hand_off(Broken::Nothing));
}

#[test]
fn a_waiter_that_counts_itself_while_the_m_in_the_poller_leaves_is_polled_for() {
    most_orders(5, || against_a_timeout(Broken::Nothing));
}

#[test]
fn a_waiter_that_counts_itself_while_the_m_in_the_poller_is_woken_is_polled_for() {
    most_orders(3, || against_a_waker(Broken::Nothing));
}

#[test]
fn a_waiter_that_counts_itself_while_the_role_of_poller_is_passed_on_is_polled_for() {
    most_orders(2, || against_a_waker_and_a_second_m(Broken::Nothing));
}

#[test]
fn a_waiter_that_counts_itself_while_the_m_in_the_poller_gets_a_p_is_polled_for() {
    most_orders(3, || against_a_submitter(Broken::Nothing));
}

/// `SeqCst` accesses do not order the number of idle Ps, so the barriers must suffice.
#[test]
fn barriers_alone_order_a_waiter_and_the_last_m() {
    let _weak = weaken(Weakness::TotalOrder);
    most_orders(3, || against_the_last_m(Broken::Nothing));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_waiter_that_checks_before_it_counts_itself() {
    every_order(|| against_the_last_m(Broken::WaiterChecksFirst));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_an_m_that_checks_for_waiters_before_its_p_is_idle() {
    every_order(|| against_the_last_m(Broken::MChecksFirst));
}

/// The fence of the M's `SeqCst` load stands where the heavy barrier does, so it is left out as
/// well.
#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_an_m_without_a_barrier() {
    let _weak = [weaken(Weakness::Heavy), weaken(Weakness::TotalOrder)];
    every_order(|| against_the_last_m(Broken::Nothing));
}

/// The fence of the waiter's `SeqCst` load stands where the light barrier does, so it is left out
/// as well.
#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_waiter_without_a_barrier() {
    let _weak = [weaken(Weakness::Light), weaken(Weakness::TotalOrder)];
    every_order(|| against_the_last_m(Broken::Nothing));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_hand_off_that_does_not_check_for_waiters() {
    every_order(|| against_a_hand_off(Broken::HandOffWithoutCheck));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_hand_off_without_a_barrier() {
    let _weak = weaken(Weakness::Heavy);
    every_order(|| against_a_hand_off(Broken::Nothing));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_an_m_that_leaves_the_poller_without_a_total_order() {
    let _weak = weaken(Weakness::TotalOrder);
    every_order(|| against_a_timeout(Broken::Nothing));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_waker_without_a_total_order() {
    let _weak = weaken(Weakness::TotalOrder);
    most_orders(3, || against_a_waker(Broken::Nothing));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_flag_that_stays_set() {
    every_order(|| against_a_timeout(Broken::FlagStays));
}
