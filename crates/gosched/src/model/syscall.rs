//! Who has the P of an M that blocks: a twin of `sched::calls`, whose records are the scheduler's.
//!
//! Step for step the same, with one P. Never two use it, and the M has one again when it is inside.

use super::{every_order, leak, most_orders};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::barrier;
use crate::sys::cell::Cell;
use crate::sys::weakness::{Weakness, weaken};
use loom::sync::{Condvar, Mutex};
use loom::thread;

const RETAKING: u32 = 1;
const RETAKEN: u32 = 2;
const IN_SYSCALL: u32 = 3;

/// What the taker does in a marked call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retake {
    ByExchange,
    /// Broken: looks, then writes.
    ByStore,
}

/// How a marked call begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    ByExchange,
    /// Broken: whatever the word says.
    ByStore,
}

struct Machine {
    syscall_state: AtomicU32,
    /// Preemption is off.
    off: AtomicU32,
    /// Stands for what is the P's owner's.
    p: Cell<u32>,
    /// The P is idle.
    idle: Mutex<bool>,
    brought: Condvar,
    retake: Retake,
}

impl Machine {
    fn new(retake: Retake) -> &'static Machine {
        leak(Machine {
            syscall_state: AtomicU32::new(0),
            off: AtomicU32::new(0),
            p: Cell::new(0),
            idle: Mutex::new(false),
            brought: Condvar::new(),
            retake,
        })
    }

    fn change(&self, from: u32, to: u32) -> bool {
        // PAIR p-taken: as the real one.
        self.syscall_state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn use_p(&self) {
        self.p.set(self.p.get() + 1);
    }

    /// The goroutine comes into the runtime, does something with its P, and leaves.
    fn enter_and_leave(&self) {
        self.off.store(1, Ordering::Relaxed);
        barrier::light();
        if self.syscall_state.load(Ordering::Relaxed) != 0 && self.settle_retake() {
            self.wait_for_p();
        }
        self.use_p();
        // The real one is an instruction of a machine that keeps the order of stores.
        // PAIR p-taken: publishes what it did with the P.
        self.off.store(0, Ordering::Release);
    }

    fn wait_for_p(&self) {
        let mut idle = self.idle.lock().unwrap();
        while !*idle {
            idle = self.brought.wait(idle).unwrap();
        }
        *idle = false;
        self.syscall_state.store(0, Ordering::Relaxed);
    }

    fn settle_retake(&self) -> bool {
        loop {
            // PAIR p-taken: as the real one.
            match self.syscall_state.load(Ordering::Acquire) {
                RETAKING => thread::yield_now(),
                IN_SYSCALL if !self.change(IN_SYSCALL, 0) => {}
                word => return word == RETAKEN,
            }
        }
    }

    /// A marked call begins, inside the runtime.
    fn enter_syscall(&self, begin: Begin) {
        self.off.store(1, Ordering::Relaxed);
        barrier::light();
        if self.syscall_state.load(Ordering::Relaxed) != 0 && self.settle_retake() {
            self.wait_for_p();
        }
        self.use_p();
        match begin {
            Begin::ByExchange => {
                while !self.change(0, IN_SYSCALL) {
                    thread::yield_now();
                }
            }
            // PAIR p-taken: as an exchange would.
            Begin::ByStore => self.syscall_state.store(IN_SYSCALL, Ordering::Release),
        }
        // PAIR p-taken: publishes what it did with the P.
        self.off.store(0, Ordering::Release);
    }

    /// True if it had the P, which is idle then.
    fn take_p(&self) -> bool {
        if !self.change(0, RETAKING) {
            return false;
        }
        barrier::heavy();
        // PAIR p-taken: what the owner did is seen.
        if self.off.load(Ordering::Acquire) > 0 {
            self.syscall_state.store(0, Ordering::Relaxed);
            return false;
        }
        self.take();
        true
    }

    fn retake_in_syscall(&self) -> bool {
        let first = match self.retake {
            Retake::ByExchange => self.change(IN_SYSCALL, RETAKING),
            Retake::ByStore => {
                // PAIR p-taken: as an exchange would.
                let in_call = self.syscall_state.load(Ordering::Acquire) == IN_SYSCALL;
                if in_call {
                    self.syscall_state.store(RETAKING, Ordering::Relaxed);
                }
                in_call
            }
        };
        if first {
            self.take();
        }
        first
    }

    fn take(&self) {
        self.use_p();
        // PAIR p-taken: as the real one.
        self.syscall_state.store(RETAKEN, Ordering::Release);
        self.use_p();
        *self.idle.lock().unwrap() = true;
        self.brought.notify_one();
    }
}

/// A goroutine that comes in twice, against one who takes its P.
fn steal_against_entry() {
    let machine = Machine::new(Retake::ByExchange);
    let taker = thread::spawn(move || machine.take_p());
    (0..2).for_each(|_| machine.enter_and_leave());
    let taken = taker.join().unwrap();
    assert_eq!(machine.p.get(), 2 + 2 * u32::from(taken));
}

/// A marked call that ends, against one who takes the P.
fn retake_against_exit(retake: Retake) {
    let machine = Machine::new(retake);
    let taker = thread::spawn(move || machine.retake_in_syscall());
    machine.use_p();
    // PAIR p-taken: as the real one.
    machine.syscall_state.store(IN_SYSCALL, Ordering::Release);
    machine.enter_and_leave();
    let taken = taker.join().unwrap();
    assert_eq!(machine.p.get(), 2 + 2 * u32::from(taken));
    assert_eq!(machine.syscall_state.load(Ordering::Relaxed), 0);
}

/// A marked call begins and ends against one who takes the P because it saw another call block.
fn steal_against_call(begin: Begin) {
    let machine = Machine::new(Retake::ByExchange);
    let taker = thread::spawn(move || machine.take_p());
    machine.enter_syscall(begin);
    machine.enter_and_leave();
    let taken = taker.join().unwrap();
    assert_eq!(machine.p.get(), 2 + 2 * u32::from(taken));
    // It may have been taken after all was over.
    assert!(taken || machine.syscall_state.load(Ordering::Relaxed) == 0);
}

#[test]
fn a_call_may_begin_while_somebody_takes_the_p() {
    every_order(|| steal_against_call(Begin::ByExchange));
}

#[test]
fn of_two_kinds_of_takers_one_takes_the_p() {
    most_orders(3, || {
        let machine = Machine::new(Retake::ByExchange);
        let one = thread::spawn(move || machine.take_p());
        let other = thread::spawn(move || machine.retake_in_syscall());
        machine.enter_syscall(Begin::ByExchange);
        machine.enter_and_leave();
        let syscall_state = u32::from(one.join().unwrap()) + u32::from(other.join().unwrap());
        assert_eq!(machine.p.get(), 2 + 2 * syscall_state);
    });
}

#[test]
#[should_panic]
fn broken_by_a_call_that_begins_whatever_the_word_says() {
    every_order(|| steal_against_call(Begin::ByStore));
}

#[test]
fn a_p_is_used_by_one_at_a_time_in_an_unmarked_call() {
    every_order(steal_against_entry);
}

#[test]
fn a_p_is_used_by_one_at_a_time_when_it_is_retaken() {
    every_order(|| retake_against_exit(Retake::ByExchange));
}

#[test]
fn two_takers_do_not_both_take_it() {
    most_orders(3, || {
        let machine = Machine::new(Retake::ByExchange);
        let takers = [(); 2].map(|()| thread::spawn(move || machine.take_p()));
        machine.enter_and_leave();
        machine.enter_and_leave();
        let syscall_state = takers.map(|taker| u32::from(taker.join().unwrap()));
        let syscall_state: u32 = syscall_state.iter().sum();
        assert_eq!(machine.p.get(), 2 + 2 * syscall_state);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_an_entry_without_a_barrier() {
    let _weak = weaken(Weakness::Light);
    every_order(steal_against_entry);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_taker_without_a_barrier() {
    let _weak = weaken(Weakness::Heavy);
    every_order(steal_against_entry);
}

#[test]
#[should_panic]
fn broken_by_a_taker_that_looks_and_then_writes() {
    every_order(|| retake_against_exit(Retake::ByStore));
}
