//! Who has the P of an M that blocks: the product's word (`protocol::syscall_state`), with one P.
//!
//! Two threads never use the P at once, and the M has a P again when it is inside the runtime. A P
//! that two threads use at once shows as two concurrent accesses to its data.

use crate::explore::{every_order, leak, most_orders};
use crate::protocol::syscall_state::{Retaking, Settled, SyscallState};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::cell::Cell;
use crate::sys::weakness::{Weakness, weaken};
use loom::sync::{Condvar, Mutex};
use loom::thread;

struct Machine {
    syscall_state: SyscallState,
    /// Whether preemption is off.
    off: AtomicU32,
    /// Stands for the data that belongs to the owner of the P.
    p: Cell<u32>,
    /// Stands for `M::old_p`: the number of times that the P was taken.
    old_p: Cell<u32>,
    /// Whether the P is idle.
    idle: Mutex<bool>,
    brought: Condvar,
}

impl Machine {
    fn new() -> &'static Machine {
        leak(Machine {
            syscall_state: SyscallState::new(),
            off: AtomicU32::new(0),
            p: Cell::new(0),
            old_p: Cell::new(0),
            idle: Mutex::new(false),
            brought: Condvar::new(),
        })
    }

    fn use_p(&self) {
        self.p.set(self.p.get() + 1);
    }

    /// Enters the runtime as a goroutine does. The M has its P, or another one, when this returns.
    fn enter(&self) {
        self.off.store(1, Ordering::Relaxed);
        if self.syscall_state.must_settle_after_barrier()
            && self.syscall_state.settle() == Settled::LostP
        {
            assert_ne!(self.old_p.get(), 0, "the M sees which P was taken");
            self.wait_for_p();
            self.syscall_state.clear();
        }
        self.use_p();
    }

    fn leave(&self) {
        // The real code is one instruction, on a machine that keeps the order of stores.
        // PAIR p-taken: publishes what the goroutine did with the P.
        self.off.store(0, Ordering::Release);
    }

    fn enter_and_leave(&self) {
        self.enter();
        self.leave();
    }

    /// Begins a marked call as a goroutine does.
    fn enter_syscall(&self) {
        self.enter();
        self.syscall_state.enter();
        self.leave();
    }

    fn wait_for_p(&self) {
        let mut idle = self.idle.lock().unwrap();
        while !*idle {
            idle = self.brought.wait(idle).unwrap();
        }
        *idle = false;
    }

    /// Takes the P in an unmarked call. Returns whether it did; the P is then idle.
    fn retake_unmarked(&self) -> bool {
        let retaking = self.syscall_state.retake_unmarked(|| {
            // PAIR p-taken: sees what the owner did.
            self.off.load(Ordering::Acquire) > 0
        });
        self.finish_retake(retaking)
    }

    /// Takes the P in a marked call. Returns whether it did; the P is then idle.
    fn retake_in_syscall(&self) -> bool {
        self.finish_retake(self.syscall_state.retake_in_syscall())
    }

    fn finish_retake(&self, retaking: Option<Retaking<'_>>) -> bool {
        let Some(retaking) = retaking else { return false };
        self.use_p();
        self.old_p.set(self.old_p.get() + 1);
        retaking.finish();
        self.use_p();
        *self.idle.lock().unwrap() = true;
        self.brought.notify_one();
        true
    }

    /// Checks that the P was used `own` times by the M, and twice by each retaker that took it.
    fn assert_used(&self, own: u32, retakes: impl IntoIterator<Item = bool>) {
        let retakes: u32 = retakes.into_iter().map(u32::from).sum();
        assert_eq!(self.p.get(), own + 2 * retakes);
    }
}

/// Runs a goroutine that enters the runtime twice against a retaker of its P.
fn retake_against_entry() {
    let machine = Machine::new();
    let retaker = thread::spawn(move || machine.retake_unmarked());
    (0..2).for_each(|_| machine.enter_and_leave());
    machine.assert_used(2, [retaker.join().unwrap()]);
}

/// Runs a marked call that ends against a retaker of the P.
fn retake_against_exit() {
    let machine = Machine::new();
    machine.enter_syscall();
    let retaker = thread::spawn(move || machine.retake_in_syscall());
    machine.enter_and_leave();
    machine.assert_used(2, [retaker.join().unwrap()]);
    assert!(!machine.syscall_state.must_settle());
}

/// Runs a marked call against a retaker that saw an earlier, unmarked call block.
fn retake_against_call() {
    let machine = Machine::new();
    let retaker = thread::spawn(move || machine.retake_unmarked());
    machine.enter_syscall();
    machine.enter_and_leave();
    let taken = retaker.join().unwrap();
    machine.assert_used(2, [taken]);
    // The P may have been taken after the call was over.
    assert!(taken || !machine.syscall_state.must_settle());
}

#[test]
fn a_marked_call_may_begin_while_its_p_is_being_taken() {
    every_order(retake_against_call);
}

#[test]
fn two_kinds_of_retakers_never_use_the_p_at_once() {
    most_orders(3, || {
        let machine = Machine::new();
        let unmarked = thread::spawn(move || machine.retake_unmarked());
        let marked = thread::spawn(move || machine.retake_in_syscall());
        machine.enter_syscall();
        machine.enter_and_leave();
        machine.assert_used(2, [unmarked.join().unwrap(), marked.join().unwrap()]);
    });
}

#[test]
fn a_p_is_used_by_one_thread_at_a_time_in_an_unmarked_call() {
    every_order(retake_against_entry);
}

#[test]
fn a_p_is_used_by_one_thread_at_a_time_when_it_is_retaken() {
    every_order(retake_against_exit);
}

#[test]
fn two_retakers_never_use_the_p_at_once() {
    most_orders(3, || {
        let machine = Machine::new();
        let retakers = [(); 2].map(|()| thread::spawn(move || machine.retake_unmarked()));
        machine.enter_and_leave();
        machine.enter_and_leave();
        machine.assert_used(2, retakers.map(|retaker| retaker.join().unwrap()));
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_an_entry_without_a_barrier() {
    let _weak = weaken(Weakness::Light);
    every_order(retake_against_entry);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_retaker_without_a_barrier() {
    let _weak = weaken(Weakness::Heavy);
    every_order(retake_against_entry);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_word_published_without_order() {
    let _weak = weaken(Weakness::Store);
    every_order(retake_against_exit);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_retaker_that_loads_and_then_stores() {
    let _weak = weaken(Weakness::ExchangeInTwoSteps);
    every_order(retake_against_exit);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_call_that_begins_by_a_load_and_a_store() {
    let _weak = weaken(Weakness::ExchangeInTwoSteps);
    every_order(retake_against_call);
}
