//! Waiting for several channels at once: the first that is ready.

pub(crate) mod arms;
mod dynamic;
pub(crate) mod machine;
mod macros;

pub use dynamic::Select;

use crate::block::may_wait;
use crate::sys::clock;
use arms::{ReceiveArm, SendArm, TakeArm};
pub(crate) use machine::wait_for_ever;
use machine::{Patience, Port, Scratch, choose};
use std::mem::MaybeUninit;
use std::time::Duration;

/// One arm of a `select!`, with its result's type.
pub trait Arm: Port {
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
    fn ports<'a>(&'a self, into: &mut [MaybeUninit<&'a dyn Port>]);
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
    fn ports<'a>(&'a self, _into: &mut [MaybeUninit<&'a dyn Port>]) {}
    fn chosen(&self, _index: usize) -> Never {
        unreachable!("there is no such arm")
    }
}

impl<A: Arm, R: Arms> Arms for (A, R) {
    type Chosen = Either<A::Output, R::Chosen>;
    const COUNT: usize = 1 + R::COUNT;

    fn ports<'a>(&'a self, into: &mut [MaybeUninit<&'a dyn Port>]) {
        if let Some((first, rest)) = into.split_first_mut() {
            first.write(&self.0);
            self.1.ports(rest);
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
const FEW: usize = 8;

/// Waits for one of the arms.
pub fn select<R: Arms>(arms: R) -> R::Chosen {
    may_wait();
    match run(arms, Patience::Endless) {
        Some(chosen) => chosen,
        None => unreachable!("it waits"),
    }
}

/// One of the arms, if one is ready.
pub fn select_or_default<R: Arms>(arms: R) -> Option<R::Chosen> {
    run(arms, Patience::None)
}

/// One of the arms, if one is ready within `duration`.
pub fn select_for<R: Arms>(arms: R, duration: Duration) -> Option<R::Chosen> {
    may_wait();
    run(arms, Patience::Until(clock::after(duration)))
}

fn run<R: Arms>(arms: R, patience: Patience) -> Option<R::Chosen> {
    let index = if R::COUNT <= FEW {
        let mut ports = [const { MaybeUninit::uninit() }; FEW];
        arms.ports(&mut ports);
        let scratch = Scratch {
            order: &mut [0; FEW],
            locks: &mut [0; FEW],
            waiters: &mut [const { MaybeUninit::uninit() }; FEW],
        };
        choose(filled(&ports[..R::COUNT]), scratch, patience)
    } else {
        let mut ports = vec![MaybeUninit::uninit(); R::COUNT];
        arms.ports(&mut ports);
        choose_among(filled(&ports), patience)
    };
    let chosen = index.map(|index| arms.chosen(index));
    // What the others were to send is dropped while the result is a local: if that panics, it is dropped
    // too.
    drop(arms);
    chosen
}

/// Any number of arms.
pub(crate) fn choose_among(ports: &[&dyn Port], patience: Patience) -> Option<usize> {
    let mut waiters: Vec<_> = ports.iter().map(|_| MaybeUninit::uninit()).collect();
    let scratch = Scratch {
        order: &mut vec![0; ports.len()],
        locks: &mut vec![0; ports.len()],
        waiters: &mut waiters,
    };
    choose(ports, scratch, patience)
}

fn filled<'a, 'b>(ports: &'b [MaybeUninit<&'a dyn Port>]) -> &'b [&'a dyn Port] {
    // SAFETY: `Arms::ports` has written as many as there are arms.
    unsafe { ports.assume_init_ref() }
}
