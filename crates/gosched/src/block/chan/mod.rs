//! Channels: values from goroutine to goroutine, or to and from ordinary threads.
//!
//! ```
//! use gosched::{chan, go};
//!
//! let (tx, rx) = chan::<u64>(0);
//! for i in 0..10 {
//!     let tx = tx.clone();
//!     go(move || tx.send(i).unwrap());
//! }
//! drop(tx); // the last sender gone closes it
//! assert_eq!(rx.iter().sum::<u64>(), 45);
//! ```
//!
//! `chan(0)` is unbuffered: a send waits for its receiver. `chan(n)` holds `n` values. Values arrive in
//! the order they were sent; those who wait are served in the order they came. Both ends can be cloned
//! and ends, and either can [`close`](Sender::close) it. After that what is in it can still be
//! received; a send gets its value back.

mod any_chan;
pub(crate) mod async_waiter;
mod core;
mod ends;
mod error;
mod iter;
mod receiver;
mod recv_future;
mod sender;
mod timer;
mod wait;

pub use error::{
    RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};
pub use iter::{IntoIter, Iter, TryIter};
pub use receiver::{Receiver, never};
pub use recv_future::RecvFuture;
pub use sender::Sender;

pub(crate) use self::core::{Chan, ChanError};
pub(crate) use any_chan::{AnyChan, Direction};

use ends::ChanRecord;
use std::any::Any;
use std::sync::{Arc, Weak};
pub(crate) use timer::ChanTimer;

/// A channel that holds `cap` values; 0: none, a send waits for its receiver.
///
/// # Panics
/// There is no memory for so many values.
#[doc(alias = "make")]
#[track_caller]
pub fn chan<T>(cap: usize) -> (Sender<T>, Receiver<T>) {
    let ends = Arc::new(ChanRecord { core: Chan::new(cap, 1), timer: None, seal: None });
    (Sender::new(ends.clone()), Receiver::new(ends))
}

/// A channel that never carries a value, and that only the runtime closes.
pub(crate) fn sealed<T>() -> Receiver<T> {
    sealed_for(None)
}

/// A channel that never carries a value, and that nobody closes.
fn nil<T>() -> Receiver<T> {
    sealed_with(Seal { _owner: None, is_nil: true })
}

/// As [`sealed`]; whoever can receive keeps `owner`.
pub(crate) fn sealed_for<T>(owner: Option<Arc<dyn Any + Send + Sync>>) -> Receiver<T> {
    sealed_with(Seal { _owner: owner, is_nil: false })
}

fn sealed_with<T>(seal: Seal) -> Receiver<T> {
    Receiver::new(Arc::new(ChanRecord { core: Chan::new(0, 0), timer: None, seal: Some(seal) }))
}

/// What a channel of the runtime's own has.
struct Seal {
    _owner: Option<Arc<dyn Any + Send + Sync>>,
    /// The runtime does not close it either.
    is_nil: bool,
}

/// A way to close a channel for who does not keep it.
pub(crate) struct Closer<T>(Weak<ChanRecord<T>>);

impl<T> Closer<T> {
    /// If anybody has it still.
    pub(crate) fn close(&self) {
        if let Some(ends) = self.0.upgrade() {
            ends.core.close();
        }
    }
}

/// A channel into which only the runtime sends; whoever can receive keeps `owner`.
pub(crate) fn with_weak_sender<T>(
    cap: usize,
    owner: Arc<dyn Any + Send + Sync>,
) -> (WeakSender<T>, Receiver<T>) {
    let seal = Some(Seal { _owner: Some(owner), is_nil: false });
    let ends = Arc::new(ChanRecord { core: Chan::new(cap, 0), timer: None, seal });
    (WeakSender(Arc::downgrade(&ends)), Receiver::new(ends))
}

/// A way to send for who does not keep the channel.
pub(crate) struct WeakSender<T>(Weak<ChanRecord<T>>);

impl<T> WeakSender<T> {
    /// If anybody has it still, and there is room.
    pub(crate) fn offer(&self, value: T) {
        if let Some(ends) = self.0.upgrade() {
            let _ = ends.core.try_send(value);
        }
    }
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> WeakSender<T> {
        WeakSender(self.0.clone())
    }
}

/// A channel whose sender is a timer, which makes its values of the time.
pub(crate) fn of_timer<T: Copy>(value: fn(u64) -> T) -> Receiver<T> {
    let timer = Some(ChanTimer::new(value));
    let ends = Arc::new(ChanRecord { core: Chan::new(1, 0), timer, seal: None });
    if let Some(timer) = &ends.timer {
        // SAFETY: core — in the same record, which stays where it is.
        unsafe { timer.sends_to(&ends.core) };
    }
    Receiver::new(ends)
}
