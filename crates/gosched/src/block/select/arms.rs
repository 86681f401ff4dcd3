//! The arms of a `select!`: what may stand in `recv(…)` and `send(…)`.

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

/// What has become of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not chosen; a value to be sent is still in its place.
    Waiting,
    /// Chosen: the value has been sent, or received.
    Done,
    /// Chosen: the channel is closed.
    Closed,
}

/// What may be received from: a receiver, a reference to one, an option of one.
pub trait ReceiveFrom {
    /// What is received.
    type Value;
    /// `None`: the arm is off.
    fn receiver(&self) -> Option<&Receiver<Self::Value>>;
}

/// What may be sent to: a sender, a reference to one, an option of one.
pub trait SendTo {
    /// What is sent.
    type Value;
    /// `None`: the arm is off.
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

/// A pointer to an end is as good as the end.
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

/// What all arms have: a channel, a direction, and how far they are.
struct ArmState<'a, T> {
    /// `None`: the arm is off.
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

/// An arm: its state, and where its value is, or is to be put.
///
/// # Safety
/// - **place**: good for the channel's values in that direction, unless the arm is off.
unsafe trait ArmSlot {
    type Value;
    fn state(&self) -> &ArmState<'_, Self::Value>;
    fn place(&self) -> *mut Self::Value;
}

// SAFETY: channel — the core it was made with; place — promised by the arm.
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
        // SAFETY: held — promised by the caller; slot — by the arm; the stage says when it is used up.
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

/// `recv(…)`.
pub struct ReceiveArm<'a, T> {
    state: ArmState<'a, T>,
    value: UnsafeCell<MaybeUninit<T>>,
}

impl<'a, T> ReceiveArm<'a, T> {
    /// An arm that receives.
    pub fn new<R: ReceiveFrom<Value = T> + ?Sized>(from: &'a R) -> ReceiveArm<'a, T> {
        ReceiveArm {
            state: ArmState::new(
                from.receiver().filter(|from| !from.is_nil()).map(Receiver::core),
                Direction::Receive,
            ),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// What was received, once it was chosen.
    pub(crate) fn result(&self) -> Result<T, RecvError> {
        match self.state.stage.replace(Stage::Waiting) {
            // SAFETY: done: a value was put there, and is taken out once.
            Stage::Done => Ok(unsafe { ArmSlot::place(self).read() }),
            Stage::Closed | Stage::Waiting => Err(RecvError),
        }
    }
}

// SAFETY: place — room for a value.
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
        // Nobody asked for the result.
        drop(self.result());
    }
}

impl<T> fmt::Debug for ReceiveArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReceiveArm").field(&self.state).finish()
    }
}

/// `send(…)`.
pub struct SendArm<'a, T> {
    state: ArmState<'a, T>,
    value: UnsafeCell<MaybeUninit<T>>,
}

impl<'a, T> SendArm<'a, T> {
    /// An arm that sends `value`: dropped if another arm is chosen.
    pub fn new<S: SendTo<Value = T> + ?Sized>(to: &'a S, value: T) -> SendArm<'a, T> {
        SendArm {
            state: ArmState::new(to.sender().map(Sender::core), Direction::Send),
            value: UnsafeCell::new(MaybeUninit::new(value)),
        }
    }

    /// How the send went, once it was chosen.
    pub(crate) fn result(&self) -> Result<(), SendError<T>> {
        match self.state.stage.replace(Stage::Done) {
            Stage::Done => Ok(()),
            Stage::Closed | Stage::Waiting => {
                // SAFETY: nobody took the value, and nobody will: the stage says so now.
                Err(SendError(unsafe { ArmSlot::place(self).read() }))
            }
        }
    }
}

// SAFETY: place — the value.
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
        // What was not sent comes back, and is dropped.
        drop(self.result());
    }
}

impl<T> fmt::Debug for SendArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendArm").field(&self.state).finish()
    }
}

/// `send(…, take …)`: the value stays where it is unless the arm is chosen.
pub struct TakeArm<'a, T> {
    state: ArmState<'a, T>,
    slot: *mut Option<T>,
    borrowed: PhantomData<&'a mut Option<T>>,
}

impl<'a, T> TakeArm<'a, T> {
    /// An arm that sends what is in `slot`; off while that is empty.
    pub fn new<S: SendTo<Value = T> + ?Sized>(
        to: &'a S,
        slot: &'a mut Option<T>,
    ) -> TakeArm<'a, T> {
        let full = slot.is_some();
        let core = to.sender().map(Sender::core).filter(|_| full);
        TakeArm { state: ArmState::new(core, Direction::Send), slot, borrowed: PhantomData }
    }

    /// How the send went, once it was chosen. The slot is empty then.
    pub(crate) fn result(&self) -> Result<(), SendError<T>> {
        if self.state.stage.replace(Stage::Waiting) == Stage::Done {
            // The value is somebody else's: it is overwritten, not moved.
            // SAFETY: borrowed for the arm's life.
            unsafe { self.slot.write(None) };
            return Ok(());
        }
        // SAFETY: borrowed for the arm's life; nobody has taken the value.
        match unsafe { &mut *self.slot }.take() {
            Some(value) => Err(SendError(value)),
            None => Ok(()),
        }
    }
}

// SAFETY: place — the value in the slot, which is there: else the arm is off.
unsafe impl<T> ArmSlot for TakeArm<'_, T> {
    type Value = T;

    fn state(&self) -> &ArmState<'_, T> {
        &self.state
    }

    fn place(&self) -> *mut T {
        // SAFETY: borrowed for the arm's life.
        match unsafe { &mut *self.slot } {
            Some(value) => value,
            None => std::ptr::null_mut(),
        }
    }
}

impl<T> Drop for TakeArm<'_, T> {
    fn drop(&mut self) {
        // Sent, and nobody asked. If another arm was chosen the value stays.
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
