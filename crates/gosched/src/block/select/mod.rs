//! Choosing among several channel operations: the first that is ready is performed. This file never
//! locks a channel and never parks: `machine` does both.

pub(crate) mod arms;
mod dynamic;
pub(crate) mod machine;
mod macros;

pub use dynamic::Select;

use crate::block::before_wait;
use crate::sys::clock;
use arms::{ReceiveArm, SendArm, TakeArm};
pub(crate) use machine::block_forever;
use machine::{Case, Scratch, WaitMode, choose};
use std::mem::MaybeUninit;
use std::time::Duration;

/// One arm of a `select!`, with the type of its result.
pub trait Arm: Case {
    /// The type that the arm's pattern is matched against.
    type Output;
    /// Returns the result of the operation. Called once, after the arm was chosen.
    fn output(&self) -> Self::Output;
}

impl<T> Arm for ReceiveArm<'_, T> {
    type Output = Result<T, crate::chan::RecvError>;
    fn output(&self) -> Self::Output {
        self.result()
    }
}

impl<T> Arm for SendArm<'_, T> {
    type Output = Result<(), crate::chan::SendError<T>>;
    fn output(&self) -> Self::Output {
        self.result()
    }
}

impl<T> Arm for TakeArm<'_, T> {
    type Output = Result<(), crate::chan::SendError<T>>;
    fn output(&self) -> Self::Output {
        self.result()
    }
}

/// The arms of a `select!`, as a nested list of pairs.
pub trait Arms {
    /// The result of the chosen arm.
    type Chosen;
    /// The number of arms.
    const COUNT: usize;
    /// Writes a reference to each arm into `into`, in order.
    fn cases<'a>(&'a self, into: &mut [MaybeUninit<&'a dyn Case>]);
    /// Returns the result of arm `index`, which was chosen.
    fn chosen(&self, index: usize) -> Self::Chosen;
}

/// The result of the first arm, or of one of the others.
#[derive(Debug)]
pub enum Either<A, B> {
    /// The first arm was chosen.
    First(A),
    /// One of the other arms was chosen.
    Rest(B),
}

/// The result of an empty list of arms: there is no such value.
#[derive(Debug)]
pub enum Never {}

impl Arms for () {
    type Chosen = Never;
    const COUNT: usize = 0;
    fn cases<'a>(&'a self, _into: &mut [MaybeUninit<&'a dyn Case>]) {}
    fn chosen(&self, _index: usize) -> Never {
        unreachable!("the list of arms is empty")
    }
}

impl<A: Arm, R: Arms> Arms for (A, R) {
    type Chosen = Either<A::Output, R::Chosen>;
    const COUNT: usize = 1 + R::COUNT;

    fn cases<'a>(&'a self, into: &mut [MaybeUninit<&'a dyn Case>]) {
        if let Some((first, rest)) = into.split_first_mut() {
            first.write(&self.0);
            self.1.cases(rest);
        }
    }

    fn chosen(&self, index: usize) -> Self::Chosen {
        match index.checked_sub(1) {
            None => Either::First(self.0.output()),
            Some(index) => Either::Rest(self.1.chosen(index)),
        }
    }
}

/// Up to this number of arms, a choice needs no memory besides its stack frame.
const MAX_ARMS_ON_STACK: usize = 8;

/// Waits until one of the arms is ready, and performs it.
pub fn select<R: Arms>(arms: R) -> R::Chosen {
    before_wait();
    match run(arms, WaitMode::Forever) {
        Some(chosen) => chosen,
        None => unreachable!("`select` without a default waits until an arm is chosen"),
    }
}

/// Performs one of the arms if one is ready. Returns `None` otherwise.
pub fn select_or_default<R: Arms>(arms: R) -> Option<R::Chosen> {
    run(arms, WaitMode::NoWait)
}

/// Waits until one of the arms is ready, and performs it. Returns `None` if none is ready within
/// `duration`.
pub fn select_for<R: Arms>(arms: R, duration: Duration) -> Option<R::Chosen> {
    before_wait();
    run(arms, WaitMode::Until(clock::after(duration)))
}

fn run<R: Arms>(arms: R, mode: WaitMode) -> Option<R::Chosen> {
    let index = if R::COUNT <= MAX_ARMS_ON_STACK {
        let mut ports = [const { MaybeUninit::uninit() }; MAX_ARMS_ON_STACK];
        arms.cases(&mut ports);
        let scratch = Scratch {
            poll_order: &mut [0; MAX_ARMS_ON_STACK],
            lock_order: &mut [0; MAX_ARMS_ON_STACK],
            waiters: &mut [const { MaybeUninit::uninit() }; MAX_ARMS_ON_STACK],
        };
        choose(filled(&ports[..R::COUNT]), scratch, mode)
    } else {
        let mut ports = vec![MaybeUninit::uninit(); R::COUNT];
        arms.cases(&mut ports);
        choose_among(filled(&ports), mode)
    };
    let chosen = index.map(|index| arms.chosen(index));
    // The values that the other arms did not send are dropped while the result is a local variable:
    // if a destructor panics, the result is dropped too.
    drop(arms);
    chosen
}

/// Chooses among any number of arms, with scratch memory from the heap.
pub(crate) fn choose_among(ports: &[&dyn Case], mode: WaitMode) -> Option<usize> {
    let mut waiters: Vec<_> = ports.iter().map(|_| MaybeUninit::uninit()).collect();
    let scratch = Scratch {
        poll_order: &mut vec![0; ports.len()],
        lock_order: &mut vec![0; ports.len()],
        waiters: &mut waiters,
    };
    choose(ports, scratch, mode)
}

fn filled<'a, 'b>(ports: &'b [MaybeUninit<&'a dyn Case>]) -> &'b [&'a dyn Case] {
    // SAFETY: `Arms::cases` has written one entry for each arm.
    unsafe { ports.assume_init_ref() }
}
