//! Who holds the P of an M that blocks: a copy of the protocol of `sched::switch::syscall`, which
//! works on the scheduler's own records.
//!
//! The steps are the same, with one P. Two threads never use the P at once, and the M has a P again
//! when it is inside the runtime.

use crate::explore::{every_order, leak, most_orders};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::barrier;
use crate::sys::cell::Cell;
use crate::sys::weakness::{Weakness, weaken};
use loom::sync::{Condvar, Mutex};
use loom::thread;

const RETAKING: u32 = 1;
const RETAKEN: u32 = 2;
const IN_SYSCALL: u32 = 3;

/// How the taker takes the P in a marked call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retake {
    ByExchange,
    /// Broken: by a load and a store.
    ByStore,
}

/// How a marked call begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    ByExchange,
    /// Broken: by a store, whatever the word contains.
    ByStore,
}

struct Machine {
    syscall_state: AtomicU32,
    /// Whether preemption is off.
    off: AtomicU32,
    /// Stands for the data that belongs to the owner of the P.
    p: Cell<u32>,
    /// Whether the P is idle.
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
        // PAIR p-taken: as in `sched::switch::syscall`.
        self.syscall_state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn use_p(&self) {
        self.p.set(self.p.get() + 1);
    }

    /// Enters the runtime as a goroutine does, uses the P, and leaves.
    fn enter_and_leave(&self) {
        self.off.store(1, Ordering::Relaxed);
        barrier::light();
        if self.syscall_state.load(Ordering::Relaxed) != 0 && self.settle_retake() {
            self.wait_for_p();
        }
        self.use_p();
        // The real code is one instruction, on a machine that keeps the order of stores.
        // PAIR p-taken: publishes what the goroutine did with the P.
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
            // PAIR p-taken: as in `sched::switch::syscall`.
            match self.syscall_state.load(Ordering::Acquire) {
                RETAKING => thread::yield_now(),
                IN_SYSCALL if !self.change(IN_SYSCALL, 0) => {}
                word => return word == RETAKEN,
            }
        }
    }

    /// Begins a marked call, inside the runtime.
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
            // PAIR p-taken: with the order of an exchange.
            Begin::ByStore => self.syscall_state.store(IN_SYSCALL, Ordering::Release),
        }
        // PAIR p-taken: publishes what the goroutine did with the P.
        self.off.store(0, Ordering::Release);
    }

    /// Takes the P in a call that is not marked. Returns whether it did; the P is then idle.
    fn take_p(&self) -> bool {
        if !self.change(0, RETAKING) {
            return false;
        }
        barrier::heavy();
        // PAIR p-taken: sees what the owner did.
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
                // PAIR p-taken: with the order of an exchange.
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
        // PAIR p-taken: as in `sched::switch::syscall`.
        self.syscall_state.store(RETAKEN, Ordering::Release);
        self.use_p();
        *self.idle.lock().unwrap() = true;
        self.brought.notify_one();
    }
}

/// Runs a goroutine that enters the runtime twice against a taker of its P.
fn steal_against_entry() {
    let machine = Machine::new(Retake::ByExchange);
    let taker = thread::spawn(move || machine.take_p());
    (0..2).for_each(|_| machine.enter_and_leave());
    let taken = taker.join().unwrap();
    assert_eq!(machine.p.get(), 2 + 2 * u32::from(taken));
}

/// Runs a marked call that ends against a taker of the P.
fn retake_against_exit(retake: Retake) {
    let machine = Machine::new(retake);
    let taker = thread::spawn(move || machine.retake_in_syscall());
    machine.use_p();
    // PAIR p-taken: as in `sched::switch::syscall`.
    machine.syscall_state.store(IN_SYSCALL, Ordering::Release);
    machine.enter_and_leave();
    let taken = taker.join().unwrap();
    assert_eq!(machine.p.get(), 2 + 2 * u32::from(taken));
    assert_eq!(machine.syscall_state.load(Ordering::Relaxed), 0);
}

/// Runs a marked call against a taker that saw an earlier call, which was not marked, block.
fn steal_against_call(begin: Begin) {
    let machine = Machine::new(Retake::ByExchange);
    let taker = thread::spawn(move || machine.take_p());
    machine.enter_syscall(begin);
    machine.enter_and_leave();
    let taken = taker.join().unwrap();
    assert_eq!(machine.p.get(), 2 + 2 * u32::from(taken));
    // The P may have been taken after the call was over.
    assert!(taken || machine.syscall_state.load(Ordering::Relaxed) == 0);
}

#[test]
fn a_marked_call_may_begin_while_its_p_is_being_taken() {
    every_order(|| steal_against_call(Begin::ByExchange));
}

#[test]
fn two_kinds_of_takers_never_use_the_p_at_once() {
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
fn broken_by_a_call_that_begins_by_a_plain_store() {
    every_order(|| steal_against_call(Begin::ByStore));
}

#[test]
fn a_p_is_used_by_one_thread_at_a_time_in_an_unmarked_call() {
    every_order(steal_against_entry);
}

#[test]
fn a_p_is_used_by_one_thread_at_a_time_when_it_is_retaken() {
    every_order(|| retake_against_exit(Retake::ByExchange));
}

#[test]
fn two_takers_never_use_the_p_at_once() {
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
fn broken_by_a_taker_that_loads_and_then_stores() {
    every_order(|| retake_against_exit(Retake::ByStore));
}
