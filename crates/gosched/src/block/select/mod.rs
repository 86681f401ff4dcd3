//! Waiting for several channels at once: the first that is ready.

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

/// One arm of a `select!`, with its result's type.
pub trait Arm: Case {
    /// What its pattern is matched with.
    type Output;
    /// How it went, once it was chosen.
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

/// The arms of a `select!`: a list of pairs.
pub trait Arms {
    /// The result of the one that was chosen.
    type Chosen;
    /// How many there are.
    const COUNT: usize;
    /// Puts them all into `into`, from `at` on.
    fn cases<'a>(&'a self, into: &mut [MaybeUninit<&'a dyn Case>]);
    /// The result of arm `index`.
    fn chosen(&self, index: usize) -> Self::Chosen;
}

/// One of two.
#[derive(Debug)]
pub enum Either<A, B> {
    /// The first arm was chosen.
    First(A),
    /// One of the others.
    Rest(B),
}

/// There is none.
#[derive(Debug)]
pub enum Never {}

impl Arms for () {
    type Chosen = Never;
    const COUNT: usize = 0;
    fn cases<'a>(&'a self, _into: &mut [MaybeUninit<&'a dyn Case>]) {}
    fn chosen(&self, _index: usize) -> Never {
        unreachable!("there is no such arm")
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

/// So many arms need no memory but the frame.
const MAX_ARMS_ON_STACK: usize = 8;

/// Waits for one of the arms.
pub fn select<R: Arms>(arms: R) -> R::Chosen {
    before_wait();
    match run(arms, WaitMode::Forever) {
        Some(chosen) => chosen,
        None => unreachable!("it waits"),
    }
}

/// One of the arms, if one is ready.
pub fn select_or_default<R: Arms>(arms: R) -> Option<R::Chosen> {
    run(arms, WaitMode::NoWait)
}

/// One of the arms, if one is ready within `duration`.
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
    // What the others were to send is dropped while the result is a local: if that panics, it is dropped
    // too.
    drop(arms);
    chosen
}

/// Any number of arms.
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
    // SAFETY: `Arms::cases` has written as many as there are arms.
    unsafe { ports.assume_init_ref() }
}
