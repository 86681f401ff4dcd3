//! A choice among channels that are known only at run time. The closure of an arm never runs under
//! the lock of a channel.

use super::arms::{ReceiveArm, ReceiveFrom, SendArm, SendTo};
use super::machine::{Case, WaitMode};
use super::{Arm, choose_among};
use crate::block::before_wait;
use crate::block::chan::{RecvError, SendError};
use crate::sys::clock;
use std::fmt;
use std::time::Duration;

/// A list of channel operations, one of which is performed: [`select!`](crate::select) for channels
/// that are known only at run time.
///
/// Each arm has a closure, which is called with the result of the operation if the arm is chosen.
/// If several arms are ready, one of them is chosen at random.
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

/// An arm and its closure, with their types erased.
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
    /// Creates a `Select` without arms.
    pub fn new() -> Select<'a, R> {
        Select { arms: Vec::new() }
    }

    /// Adds an arm that receives from `from` and then calls `then` with the result.
    ///
    /// `from` is a [`Receiver`](crate::chan::Receiver), a pointer to one, or an `Option` of these;
    /// `None` disables the arm.
    ///
    /// # Panics
    /// The `Select` already has 65535 arms.
    pub fn recv<C, F>(&mut self, from: &'a C, then: F) -> &mut Select<'a, R>
    where
        C: ReceiveFrom + ?Sized,
        C::Value: 'a,
        F: FnOnce(Result<C::Value, RecvError>) -> R + 'a,
    {
        self.add(ReceiveArm::new(from), then)
    }

    /// Adds an arm that sends `value` to `to` and then calls `then` with the result.
    ///
    /// The value is dropped if another arm is chosen. `to` is a [`Sender`](crate::chan::Sender), a
    /// pointer to one, or an `Option` of these; `None` disables the arm.
    ///
    /// # Panics
    /// The `Select` already has 65535 arms.
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
        assert!(self.arms.len() < u16::MAX.into(), "`Select` supports at most 65535 arms");
        self.arms.push(Box::new(ArmWithHandler { arm, then }));
        self
    }

    /// Waits until one of the arms is ready, performs it, and returns the result of its closure.
    /// Blocks forever if there are no arms or all arms are disabled.
    pub fn wait(self) -> R {
        before_wait();
        match self.run(WaitMode::Forever) {
            Some(result) => result,
            None => unreachable!("`Select::wait` waits until an arm is chosen"),
        }
    }

    /// Like [`Select::wait`], but waits at most `duration`. Returns `None` if no arm was ready in
    /// time.
    pub fn wait_timeout(self, duration: Duration) -> Option<R> {
        before_wait();
        self.run(WaitMode::Until(clock::after(duration)))
    }

    /// Performs an arm that is ready, and returns the result of its closure. Returns `None` if no
    /// arm is ready.
    pub fn poll(self) -> Option<R> {
        self.run(WaitMode::NoWait)
    }

    fn run(mut self, mode: WaitMode) -> Option<R> {
        let ports: Vec<&dyn Case> = self.arms.iter().map(|arm| arm.case()).collect();
        let index = choose_among(&ports, mode)?;
        drop(ports);
        let chosen = self.arms.swap_remove(index);
        // The values that the other arms did not send are dropped before the closure runs.
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
