//! The arms of a `select!`: the operands of `recv(…)` and `send(…)`. An arm never takes a lock and
//! never waits: `machine` does both.

use super::machine::Case;
use crate::block::chan::{
    AnyChan, Chan, ChanError, Direction, Receiver, RecvError, SendError, Sender,
};
use crate::block::waiter::ToReady;
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::sync::Arc;

/// The state of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The arm was not chosen; a value to send is still in place.
    Waiting,
    /// The arm was chosen, and the value was sent or received.
    Done,
    /// The arm was chosen, and the channel is closed.
    Closed,
}

/// An operand of `recv(…)`: a receiver, a pointer to one, or an `Option` of one.
pub trait ReceiveFrom {
    /// The type of the values.
    type Value;
    /// Returns the receiver, or `None` if the arm is disabled.
    fn receiver(&self) -> Option<&Receiver<Self::Value>>;
}

/// An operand of `send(…)`: a sender, a pointer to one, or an `Option` of one.
pub trait SendTo {
    /// The type of the values.
    type Value;
    /// Returns the sender, or `None` if the arm is disabled.
    fn sender(&self) -> Option<&Sender<Self::Value>>;
}

impl<T> ReceiveFrom for Receiver<T> {
    type Value = T;
    fn receiver(&self) -> Option<&Receiver<T>> {
        Some(self)
    }
}

impl<T> SendTo for Sender<T> {
    type Value = T;
    fn sender(&self) -> Option<&Sender<T>> {
        Some(self)
    }
}

/// Implements both traits for pointers to an end.
macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<E: ReceiveFrom + ?Sized> ReceiveFrom for $pointer {
            type Value = E::Value;
            fn receiver(&self) -> Option<&Receiver<E::Value>> {
                (**self).receiver()
            }
        }

        impl<E: SendTo + ?Sized> SendTo for $pointer {
            type Value = E::Value;
            fn sender(&self) -> Option<&Sender<E::Value>> {
                (**self).sender()
            }
        }
    )*};
}

forward!(&E, &mut E, Box<E>, Rc<E>, Arc<E>);

impl<R: ReceiveFrom> ReceiveFrom for Option<R> {
    type Value = R::Value;
    fn receiver(&self) -> Option<&Receiver<R::Value>> {
        self.as_ref().and_then(ReceiveFrom::receiver)
    }
}

impl<S: SendTo> SendTo for Option<S> {
    type Value = S::Value;
    fn sender(&self) -> Option<&Sender<S::Value>> {
        self.as_ref().and_then(SendTo::sender)
    }
}

/// The state that all arms have.
struct ArmState<'a, T> {
    /// The channel; `None` if the arm is disabled.
    core: Option<&'a Chan<T>>,
    direction: Direction,
    stage: Cell<Stage>,
}

impl<'a, T> ArmState<'a, T> {
    fn new(core: Option<&'a Chan<T>>, direction: Direction) -> ArmState<'a, T> {
        ArmState { core, direction, stage: Cell::new(Stage::Waiting) }
    }
}

impl<T> fmt::Debug for ArmState<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}", self.direction, self.stage.get())
    }
}

/// An arm: its state, and the place of the value to send or of the received value.
///
/// # Safety
/// - **place**: valid for the channel's values in the direction of the arm, unless the arm is
///   disabled.
unsafe trait ArmSlot {
    type Value;
    fn state(&self) -> &ArmState<'_, Self::Value>;
    fn place(&self) -> *mut Self::Value;
}

// SAFETY: channel — always the core that the arm was created with; place — promised by the arm.
unsafe impl<A: ArmSlot> Case for A {
    fn channel(&self) -> Option<&dyn AnyChan> {
        self.state().core.map(|core| core as &dyn AnyChan)
    }

    fn direction(&self) -> Direction {
        self.state().direction
    }

    fn seems_ready(&self) -> bool {
        let ArmState { core, direction, .. } = self.state();
        core.is_some_and(|core| core.seems_ready(*direction))
    }

    unsafe fn try_now(&self) -> Option<ToReady> {
        let ArmState { core, direction, stage } = self.state();
        // SAFETY: held — promised by the caller; slot — promised by the arm; `stage` records that
        // the value was moved.
        let (now, woken) = match unsafe { (*core)?.transfer_now(*direction, ArmSlot::place(self)) }
        {
            Ok(g) => (Stage::Done, ToReady(g)),
            Err(ChanError::Closed) => (Stage::Closed, ToReady(None)),
            Err(ChanError::WouldBlock) => return None,
        };
        stage.set(now);
        Some(woken)
    }

    fn place(&self) -> *mut () {
        ArmSlot::place(self).cast()
    }

    fn complete(&self, closed: bool) {
        self.state().stage.set(if closed { Stage::Closed } else { Stage::Done });
    }
}

/// The arm `recv(…)`.
pub struct ReceiveArm<'a, T> {
    state: ArmState<'a, T>,
    value: UnsafeCell<MaybeUninit<T>>,
}

impl<'a, T> ReceiveArm<'a, T> {
    /// Creates an arm that receives.
    pub fn new<R: ReceiveFrom<Value = T> + ?Sized>(from: &'a R) -> ReceiveArm<'a, T> {
        ReceiveArm {
            state: ArmState::new(
                from.receiver().filter(|from| !from.is_nil()).map(Receiver::core),
                Direction::Receive,
            ),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Returns the result of the receive. Called after the arm was chosen.
    pub(crate) fn result(&self) -> Result<T, RecvError> {
        match self.state.stage.replace(Stage::Waiting) {
            // SAFETY: done: the place holds a value, which is moved out once because the stage was
            // changed.
            Stage::Done => Ok(unsafe { ArmSlot::place(self).read() }),
            Stage::Closed | Stage::Waiting => Err(RecvError),
        }
    }
}

// SAFETY: place — room for one value.
unsafe impl<T> ArmSlot for ReceiveArm<'_, T> {
    type Value = T;

    fn state(&self) -> &ArmState<'_, T> {
        &self.state
    }

    fn place(&self) -> *mut T {
        self.value.get().cast()
    }
}

impl<T> Drop for ReceiveArm<'_, T> {
    fn drop(&mut self) {
        // Drops a received value that `result` did not return.
        drop(self.result());
    }
}

impl<T> fmt::Debug for ReceiveArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReceiveArm").field(&self.state).finish()
    }
}

/// The arm `send(…)`.
pub struct SendArm<'a, T> {
    state: ArmState<'a, T>,
    value: UnsafeCell<MaybeUninit<T>>,
}

impl<'a, T> SendArm<'a, T> {
    /// Creates an arm that sends `value`. The value is dropped if another arm is chosen.
    pub fn new<S: SendTo<Value = T> + ?Sized>(to: &'a S, value: T) -> SendArm<'a, T> {
        SendArm {
            state: ArmState::new(to.sender().map(Sender::core), Direction::Send),
            value: UnsafeCell::new(MaybeUninit::new(value)),
        }
    }

    /// Returns the result of the send. Called after the arm was chosen.
    pub(crate) fn result(&self) -> Result<(), SendError<T>> {
        match self.state.stage.replace(Stage::Done) {
            Stage::Done => Ok(()),
            Stage::Closed | Stage::Waiting => {
                // SAFETY: the value was not sent, and is moved out once because the stage was
                // changed.
                Err(SendError(unsafe { ArmSlot::place(self).read() }))
            }
        }
    }
}

// SAFETY: place — holds the value.
unsafe impl<T> ArmSlot for SendArm<'_, T> {
    type Value = T;

    fn state(&self) -> &ArmState<'_, T> {
        &self.state
    }

    fn place(&self) -> *mut T {
        self.value.get().cast()
    }
}

impl<T> Drop for SendArm<'_, T> {
    fn drop(&mut self) {
        // Drops a value that was not sent.
        drop(self.result());
    }
}

impl<T> fmt::Debug for SendArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendArm").field(&self.state).finish()
    }
}

/// The arm `send(…, take …)`: the value stays in place unless the arm is chosen.
pub struct TakeArm<'a, T> {
    state: ArmState<'a, T>,
    slot: *mut Option<T>,
    borrowed: PhantomData<&'a mut Option<T>>,
}

impl<'a, T> TakeArm<'a, T> {
    /// Creates an arm that sends the value in `slot`. The arm is disabled if `slot` is empty.
    pub fn new<S: SendTo<Value = T> + ?Sized>(
        to: &'a S,
        slot: &'a mut Option<T>,
    ) -> TakeArm<'a, T> {
        let full = slot.is_some();
        let core = to.sender().map(Sender::core).filter(|_| full);
        TakeArm { state: ArmState::new(core, Direction::Send), slot, borrowed: PhantomData }
    }

    /// Returns the result of the send, and leaves the slot empty. Called after the arm was chosen.
    pub(crate) fn result(&self) -> Result<(), SendError<T>> {
        if self.state.stage.replace(Stage::Waiting) == Stage::Done {
            // The value was moved to the receiver or the ring, so it is overwritten without being
            // dropped.
            // SAFETY: `slot` is borrowed for the arm's lifetime.
            unsafe { self.slot.write(None) };
            return Ok(());
        }
        // SAFETY: `slot` is borrowed for the arm's lifetime; the value was not sent.
        match unsafe { &mut *self.slot }.take() {
            Some(value) => Err(SendError(value)),
            None => Ok(()),
        }
    }
}

// SAFETY: place — the value in the slot; if the slot is empty, the arm is disabled.
unsafe impl<T> ArmSlot for TakeArm<'_, T> {
    type Value = T;

    fn state(&self) -> &ArmState<'_, T> {
        &self.state
    }

    fn place(&self) -> *mut T {
        // SAFETY: `slot` is borrowed for the arm's lifetime.
        match unsafe { &mut *self.slot } {
            Some(value) => value,
            None => std::ptr::null_mut(),
        }
    }
}

impl<T> Drop for TakeArm<'_, T> {
    fn drop(&mut self) {
        // If the value was sent and `result` was not called, the slot must be emptied here. If
        // another arm was chosen, the value stays.
        if self.state.stage.get() == Stage::Done {
            drop(self.result());
        }
    }
}

impl<T> fmt::Debug for TakeArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TakeArm").field(&self.state).finish()
    }
}
