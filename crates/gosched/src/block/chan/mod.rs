//! Channels: values sent between goroutines, and to and from ordinary threads.
//!
//! ```
//! use gosched::{chan, go};
//!
//! let (tx, rx) = chan::<u64>(0);
//! for i in 0..10 {
//!     let tx = tx.clone();
//!     go(move || tx.send(i).unwrap());
//! }
//! drop(tx); // dropping the last sender closes the channel
//! assert_eq!(rx.iter().sum::<u64>(), 45);
//! ```
//!
//! `chan(0)` creates an unbuffered channel: a send blocks until a receiver takes the value.
//! `chan(n)` creates a channel that buffers up to `n` values. Values arrive in the order in which
//! they were sent. Waiting senders and receivers are served in the order in which they began to
//! wait.
//!
//! Both ends can be cloned, and either end can [`close`](Sender::close) the channel. After that,
//! the values in the buffer can still be received; a send fails and returns its value.
//!
//! An operation never panics because the channel is closed, unlike in Go.

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

/// Creates a channel that buffers up to `cap` values, and returns its sending and receiving ends.
///
/// With a `cap` of 0 the channel is unbuffered: a send blocks until a receiver takes the value. The
/// channel is closed when its last sender or its last receiver is dropped.
///
/// # Panics
/// There is not enough memory for `cap` values: use a smaller capacity.
#[doc(alias = "make")]
#[track_caller]
pub fn chan<T>(cap: usize) -> (Sender<T>, Receiver<T>) {
    let ends = Arc::new(ChanRecord { core: Chan::new(cap, 1), timer: None, seal: None });
    (Sender::new(ends.clone()), Receiver::new(ends))
}

/// Creates a channel that never carries a value and that only the runtime closes.
pub(crate) fn sealed<T>() -> Receiver<T> {
    sealed_for(None)
}

/// Creates a channel that never carries a value and is never closed.
fn nil<T>() -> Receiver<T> {
    sealed_with(Seal { _owner: None, is_nil: true })
}

/// Like [`sealed`], for a channel that keeps `owner` alive as long as a receiver exists.
pub(crate) fn sealed_for<T>(owner: Option<Arc<dyn Any + Send + Sync>>) -> Receiver<T> {
    sealed_with(Seal { _owner: owner, is_nil: false })
}

fn sealed_with<T>(seal: Seal) -> Receiver<T> {
    Receiver::new(Arc::new(ChanRecord { core: Chan::new(0, 0), timer: None, seal: Some(seal) }))
}

/// Marks a channel of the runtime, which user code cannot close.
struct Seal {
    _owner: Option<Arc<dyn Any + Send + Sync>>,
    /// The runtime does not close the channel either.
    is_nil: bool,
}

/// A weak reference to a channel that can close it.
pub(crate) struct Closer<T>(Weak<ChanRecord<T>>);

impl<T> Closer<T> {
    /// Closes the channel if it still exists.
    pub(crate) fn close(&self) {
        if let Some(ends) = self.0.upgrade() {
            ends.core.close();
        }
    }
}

/// Creates a channel into which only the runtime sends. The channel keeps `owner` alive as long as
/// a receiver exists.
pub(crate) fn with_weak_sender<T>(
    cap: usize,
    owner: Arc<dyn Any + Send + Sync>,
) -> (WeakSender<T>, Receiver<T>) {
    let seal = Some(Seal { _owner: Some(owner), is_nil: false });
    let ends = Arc::new(ChanRecord { core: Chan::new(cap, 0), timer: None, seal });
    (WeakSender(Arc::downgrade(&ends)), Receiver::new(ends))
}

/// A weak reference to a channel that can send into it.
pub(crate) struct WeakSender<T>(Weak<ChanRecord<T>>);

impl<T> WeakSender<T> {
    /// Sends `value` if the channel still exists and the send does not block. Otherwise drops it.
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

/// Creates a channel whose only sender is a timer. `value` converts the time, in nanoseconds, into
/// the value to send.
pub(crate) fn of_timer<T: Copy>(value: fn(u64) -> T) -> Receiver<T> {
    let timer = Some(ChanTimer::new(value));
    let ends = Arc::new(ChanRecord { core: Chan::new(1, 0), timer, seal: None });
    if let Some(timer) = &ends.timer {
        // SAFETY: core — in the same record as the timer, and the record does not move.
        unsafe { timer.sends_to(&ends.core) };
    }
    Receiver::new(ends)
}
