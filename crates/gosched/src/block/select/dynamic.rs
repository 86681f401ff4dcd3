//! A choice among channels that are known at run time only.

use super::arms::{ReceiveArm, ReceiveFrom, SendArm, SendTo};
use super::machine::{Case, WaitMode};
use super::{Arm, choose_among};
use crate::block::before_wait;
use crate::block::chan::{RecvError, SendError};
use crate::sys::clock;
use std::fmt;
use std::time::Duration;

/// Waits for one of a list of channels: [`select!`](crate::select) for a list that is made at run time.
///
/// ```
/// use gosched::{Select, chan};
///
/// let channels: Vec<_> = (0..5).map(|_| chan::<u32>(1)).collect();
/// channels[3].0.send(30).unwrap();
/// let mut select = Select::new();
/// for (index, (_, rx)) in channels.iter().enumerate() {
///     select.recv(rx, move |value| (index, value.unwrap()));
/// }
/// assert_eq!(select.wait(), (3, 30));
/// ```
pub struct Select<'a, R> {
    arms: Vec<Box<dyn ErasedArm<R> + 'a>>,
}

/// An arm, and what to do when it was chosen.
trait ErasedArm<R> {
    fn case(&self) -> &dyn Case;
    fn run_handler(self: Box<Self>) -> R;
}

struct ArmWithHandler<A, F> {
    arm: A,
    then: F,
}

impl<A: Arm, R, F: FnOnce(A::Output) -> R> ErasedArm<R> for ArmWithHandler<A, F> {
    fn case(&self) -> &dyn Case {
        &self.arm
    }

    fn run_handler(self: Box<Self>) -> R {
        let output = self.arm.output();
        (self.then)(output)
    }
}

impl<'a, R> Select<'a, R> {
    /// Without arms.
    pub fn new() -> Select<'a, R> {
        Select { arms: Vec::new() }
    }

    /// Adds an arm that receives.
    pub fn recv<C, F>(&mut self, from: &'a C, then: F) -> &mut Select<'a, R>
    where
        C: ReceiveFrom + ?Sized,
        C::Value: 'a,
        F: FnOnce(Result<C::Value, RecvError>) -> R + 'a,
    {
        self.add(ReceiveArm::new(from), then)
    }

    /// Adds an arm that sends `value`, which is dropped if another arm is chosen.
    pub fn send<C, F>(&mut self, to: &'a C, value: C::Value, then: F) -> &mut Select<'a, R>
    where
        C: SendTo + ?Sized,
        C::Value: 'a,
        F: FnOnce(Result<(), SendError<C::Value>>) -> R + 'a,
    {
        self.add(SendArm::new(to, value), then)
    }

    fn add<A, F>(&mut self, arm: A, then: F) -> &mut Select<'a, R>
    where
        A: Arm + 'a,
        F: FnOnce(A::Output) -> R + 'a,
    {
        assert!(self.arms.len() < u16::MAX.into(), "`Select` has 65535 arms at most");
        self.arms.push(Box::new(ArmWithHandler { arm, then }));
        self
    }

    /// Waits for one of the arms, and goes on with it. Without arms, for ever.
    pub fn wait(self) -> R {
        before_wait();
        match self.run(WaitMode::Forever) {
            Some(result) => result,
            None => unreachable!("it waits"),
        }
    }

    /// As [`Select::wait`], but for `duration` at most.
    pub fn wait_timeout(self, duration: Duration) -> Option<R> {
        before_wait();
        self.run(WaitMode::Until(clock::after(duration)))
    }

    /// Goes on with an arm that is ready, if one is.
    pub fn poll(self) -> Option<R> {
        self.run(WaitMode::NoWait)
    }

    fn run(mut self, mode: WaitMode) -> Option<R> {
        let ports: Vec<&dyn Case> = self.arms.iter().map(|arm| arm.case()).collect();
        let index = choose_among(&ports, mode)?;
        drop(ports);
        let chosen = self.arms.swap_remove(index);
        // What the others were to send is dropped before the program goes on.
        drop(self);
        Some(chosen.run_handler())
    }
}

impl<R> Default for Select<'_, R> {
    fn default() -> Self {
        Select::new()
    }
}

impl<R> fmt::Debug for Select<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Select({} arms)", self.arms.len())
    }
}
