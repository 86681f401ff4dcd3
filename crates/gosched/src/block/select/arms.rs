//! The arms of a `select!`: what may stand in `recv(…)` and `send(…)`.

use super::machine::Port;
use crate::block::chan::{Channel, Core, Direction, Not, Receiver, RecvError, SendError, Sender};
use crate::block::waiter::Woken;
use crate::gmp::g::G;
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
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

impl<R: ReceiveFrom + ?Sized> ReceiveFrom for &R {
    type Value = R::Value;
    fn receiver(&self) -> Option<&Receiver<R::Value>> {
        (**self).receiver()
    }
}

impl<S: SendTo + ?Sized> SendTo for &S {
    type Value = S::Value;
    fn sender(&self) -> Option<&Sender<S::Value>> {
        (**self).sender()
    }
}

impl<R: ReceiveFrom + ?Sized> ReceiveFrom for &mut R {
    type Value = R::Value;
    fn receiver(&self) -> Option<&Receiver<R::Value>> {
        (**self).receiver()
    }
}

impl<S: SendTo + ?Sized> SendTo for &mut S {
    type Value = S::Value;
    fn sender(&self) -> Option<&Sender<S::Value>> {
        (**self).sender()
    }
}

impl<R: ReceiveFrom + ?Sized> ReceiveFrom for Box<R> {
    type Value = R::Value;
    fn receiver(&self) -> Option<&Receiver<R::Value>> {
        (**self).receiver()
    }
}

impl<S: SendTo + ?Sized> SendTo for Box<S> {
    type Value = S::Value;
    fn sender(&self) -> Option<&Sender<S::Value>> {
        (**self).sender()
    }
}

impl<R: ReceiveFrom + ?Sized> ReceiveFrom for Arc<R> {
    type Value = R::Value;
    fn receiver(&self) -> Option<&Receiver<R::Value>> {
        (**self).receiver()
    }
}

impl<S: SendTo + ?Sized> SendTo for Arc<S> {
    type Value = S::Value;
    fn sender(&self) -> Option<&Sender<S::Value>> {
        (**self).sender()
    }
}

impl<R: ReceiveFrom + ?Sized> ReceiveFrom for Rc<R> {
    type Value = R::Value;
    fn receiver(&self) -> Option<&Receiver<R::Value>> {
        (**self).receiver()
    }
}

impl<S: SendTo + ?Sized> SendTo for Rc<S> {
    type Value = S::Value;
    fn sender(&self) -> Option<&Sender<S::Value>> {
        (**self).sender()
    }
}

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

/// `recv(…)`.
pub struct ReceiveArm<'a, T> {
    core: Option<&'a Core<T>>,
    value: UnsafeCell<MaybeUninit<T>>,
    stage: Cell<Stage>,
}

impl<'a, T> ReceiveArm<'a, T> {
    /// An arm that receives.
    pub fn new<R: ReceiveFrom<Value = T> + ?Sized>(from: &'a R) -> ReceiveArm<'a, T> {
        ReceiveArm {
            core: from.receiver().map(Receiver::core),
            value: UnsafeCell::new(MaybeUninit::uninit()),
            stage: Cell::new(Stage::Waiting),
        }
    }

    /// What was received, once it was chosen.
    pub(crate) fn result(&self) -> Result<T, RecvError> {
        match self.stage.replace(Stage::Waiting) {
            Stage::Done => {
                let value = self.value.get().cast::<T>();
                // SAFETY: done: a value was put there, and is taken out once.
                Ok(unsafe { value.read() })
            }
            Stage::Closed | Stage::Waiting => Err(RecvError),
        }
    }
}

impl<T> fmt::Debug for ReceiveArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiveArm({:?})", self.stage)
    }
}

impl<T> Drop for ReceiveArm<'_, T> {
    fn drop(&mut self) {
        // Nobody asked for the result.
        drop(self.result());
    }
}

// SAFETY: channel — the core it was made with; place — a place for its values.
unsafe impl<T> Port for ReceiveArm<'_, T> {
    fn channel(&self) -> Option<&dyn Channel> {
        self.core.map(|core| core as &dyn Channel)
    }

    fn direction(&self) -> Direction {
        Direction::Receive
    }

    fn seems_ready(&self) -> bool {
        self.core.is_some_and(|core| !core.seems_empty() || core.is_closed())
    }

    unsafe fn try_now(&self) -> Option<Woken> {
        // SAFETY: held — promised by the caller; slot — a place for a `T`.
        let received = unsafe { self.core?.receive_now(self.value.get().cast()) };
        stage_of(&self.stage, received)
    }

    fn place(&self) -> *mut () {
        self.value.get().cast()
    }

    fn was_fired(&self, refused: bool) {
        self.stage.set(if refused { Stage::Closed } else { Stage::Done });
    }
}

/// `send(…)`.
pub struct SendArm<'a, T> {
    core: Option<&'a Core<T>>,
    value: UnsafeCell<ManuallyDrop<T>>,
    stage: Cell<Stage>,
}

impl<'a, T> SendArm<'a, T> {
    /// An arm that sends `value`: dropped if another arm is chosen.
    pub fn new<S: SendTo<Value = T> + ?Sized>(to: &'a S, value: T) -> SendArm<'a, T> {
        SendArm {
            core: to.sender().map(Sender::core),
            value: UnsafeCell::new(ManuallyDrop::new(value)),
            stage: Cell::new(Stage::Waiting),
        }
    }

    /// How the send went, once it was chosen.
    pub(crate) fn result(&self) -> Result<(), SendError<T>> {
        match self.stage.replace(Stage::Done) {
            Stage::Done => Ok(()),
            // SAFETY: nobody took the value, and nobody will: the stage says so now.
            Stage::Closed | Stage::Waiting => Err(SendError(unsafe { self.take() })),
        }
    }

    /// # Safety
    /// - **there**: the value is in its place, and is not used again.
    unsafe fn take(&self) -> T {
        let value = self.value.get().cast::<T>();
        // SAFETY: there — promised by the caller.
        unsafe { value.read() }
    }
}

impl<T> fmt::Debug for SendArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendArm({:?})", self.stage)
    }
}

impl<T> Drop for SendArm<'_, T> {
    fn drop(&mut self) {
        if self.stage.replace(Stage::Done) != Stage::Done {
            // SAFETY: there — nobody took it.
            drop(unsafe { self.take() });
        }
    }
}

// SAFETY: channel — the core it was made with; place — one of its values.
unsafe impl<T> Port for SendArm<'_, T> {
    fn channel(&self) -> Option<&dyn Channel> {
        self.core.map(|core| core as &dyn Channel)
    }

    fn direction(&self) -> Direction {
        Direction::Send
    }

    fn seems_ready(&self) -> bool {
        self.core.is_some_and(|core| !core.seems_full() || core.is_closed())
    }

    unsafe fn try_now(&self) -> Option<Woken> {
        // SAFETY: held — promised by the caller; value — the stage says when it is gone.
        let sent = unsafe { self.core?.send_now(self.value.get().cast()) };
        stage_of(&self.stage, sent)
    }

    fn place(&self) -> *mut () {
        self.value.get().cast()
    }

    fn was_fired(&self, refused: bool) {
        self.stage.set(if refused { Stage::Closed } else { Stage::Done });
    }
}

/// `send(…, take …)`: the value stays where it is unless the arm is chosen.
pub struct TakeArm<'a, T> {
    core: Option<&'a Core<T>>,
    slot: *mut Option<T>,
    stage: Cell<Stage>,
    borrowed: PhantomData<&'a mut Option<T>>,
}

impl<'a, T> TakeArm<'a, T> {
    /// An arm that sends what is in `slot`; off while that is empty.
    pub fn new<S: SendTo<Value = T> + ?Sized>(
        to: &'a S,
        slot: &'a mut Option<T>,
    ) -> TakeArm<'a, T> {
        let full = slot.is_some();
        TakeArm {
            core: to.sender().map(Sender::core).filter(|_| full),
            slot,
            stage: Cell::new(Stage::Waiting),
            borrowed: PhantomData,
        }
    }

    /// Where the value is.
    fn value(&self) -> *mut T {
        // SAFETY: borrowed for the arm's life.
        match unsafe { &mut *self.slot } {
            Some(value) => value,
            None => std::ptr::null_mut(),
        }
    }

    pub(crate) fn result(&self) -> Result<(), SendError<T>> {
        // SAFETY: borrowed for the arm's life; the value of `value` is not used any more.
        let slot = unsafe { &mut *self.slot };
        match self.stage.replace(Stage::Waiting) {
            Stage::Done => {
                // The value is somebody else's: it is overwritten, not moved.
                // SAFETY: borrowed for the arm's life.
                unsafe { self.slot.write(None) };
                Ok(())
            }
            Stage::Closed | Stage::Waiting => match slot.take() {
                Some(value) => Err(SendError(value)),
                None => Ok(()),
            },
        }
    }
}

impl<T> fmt::Debug for TakeArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TakeArm({:?})", self.stage)
    }
}

impl<T> Drop for TakeArm<'_, T> {
    fn drop(&mut self) {
        if self.stage.get() == Stage::Done {
            drop(self.result());
        }
    }
}

// SAFETY: channel — the core it was made with; place — the value in the slot, which is there: else the
// arm is off.
unsafe impl<T> Port for TakeArm<'_, T> {
    fn channel(&self) -> Option<&dyn Channel> {
        self.core.map(|core| core as &dyn Channel)
    }

    fn direction(&self) -> Direction {
        Direction::Send
    }

    fn seems_ready(&self) -> bool {
        self.core.is_some_and(|core| !core.seems_full() || core.is_closed())
    }

    unsafe fn try_now(&self) -> Option<Woken> {
        // SAFETY: held — promised by the caller; value — the stage says when it is gone.
        let sent = unsafe { self.core?.send_now(self.value()) };
        stage_of(&self.stage, sent)
    }

    fn place(&self) -> *mut () {
        self.value().cast()
    }

    fn was_fired(&self, refused: bool) {
        self.stage.set(if refused { Stage::Closed } else { Stage::Done });
    }
}

/// What is left of an arm that was tried.
fn stage_of(stage: &Cell<Stage>, tried: Result<Option<&'static G>, Not>) -> Option<Woken> {
    match tried {
        Ok(g) => {
            stage.set(Stage::Done);
            Some(Woken(g))
        }
        Err(Not::Ever) => {
            stage.set(Stage::Closed);
            Some(Woken(None))
        }
        Err(Not::Now) => None,
    }
}
