//! Waits of async code for a descriptor: the code leaves a callback in the poller's record.
//!
//! The thread that delivers an event must not run user code. It therefore notifies a waker of
//! `block_on` ([`Parker`]) directly. For any other waker it makes a prepared goroutine ready that
//! calls the waker, as channels do ([`async_waiter`](crate::block::chan::async_waiter)).
//!
//! An `AsyncWait` never waits for an event itself: it returns `Pending`, and the callback reports
//! the event.

use super::polled::{Polled, error};
use crate::block::chan::async_waiter::{AsyncWaiter as Called, Messenger};
use crate::block::future::{Parker, WAKER, clone_arc};
use crate::gmp::g::G;
use crate::gmp::poll_desc::AsyncCallback;
use crate::protocol::readiness::WaitDecision;
use crate::sched::{self, netpoll};
use crate::sys::poller::Direction;
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The state of async code that uses one direction of a descriptor. At most one task waits with it
/// at a time.
#[derive(Debug)]
pub(crate) struct AsyncWait {
    direction: Direction,
    registered: Option<Registered>,
    /// Generation of the poller's record when the callback was created.
    generation: u32,
    /// Whether the last attempt emptied the socket: whatever arrives later causes an event, so the
    /// next attempt waits before it tries.
    drained: bool,
}

/// The data of the callback, by the kind of waker.
#[derive(Debug)]
enum Registered {
    /// A waker of `block_on`.
    Ours(Arc<Parker>),
    /// Any other waker.
    Others(Box<Prepared>),
}

/// A waker of user code, and the prepared goroutine that calls it. [`notify_foreign`] takes the
/// goroutine.
struct Prepared {
    waiter: Arc<Called>,
    messenger: Cell<Option<Messenger>>,
}

// SAFETY: the cell is accessed only under the lock of the record's callback, or after the callback
// was cleared.
unsafe impl Send for Prepared {}
// SAFETY: as above.
unsafe impl Sync for Prepared {}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prepared")
    }
}

impl AsyncWait {
    pub(crate) const fn new(direction: Direction) -> AsyncWait {
        AsyncWait { direction, registered: None, generation: 0, drained: false }
    }

    /// Runs `f`, and returns its result unless it fails with `WouldBlock`. In that case arranges
    /// that the waker is woken when `f` may succeed, and returns `Pending`. `f` returns the number
    /// of bytes and whether the socket is empty after that.
    pub(crate) fn attempt<S: AsFd>(
        &mut self,
        polled: &Polled<S>,
        context: &mut Context<'_>,
        mut f: impl FnMut(&S) -> io::Result<(usize, bool)>,
    ) -> Poll<io::Result<usize>> {
        let _user = polled.enter()?;
        let side = polled.desc.side(self.direction);
        if self.registered.is_some() {
            side.cancel_async_wait();
        }
        loop {
            let drained = std::mem::take(&mut self.drained) && !polled.desc.is_exceptional();
            if !drained {
                side.readiness.reset().map_err(error)?;
                match f(polled.source()) {
                    Err(why) if why.kind() == ErrorKind::WouldBlock => {}
                    Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                    Err(why) => return Poll::Ready(Err(why)),
                    Ok((count, all)) => {
                        self.drained = all && count > 0 && !polled.desc.is_exceptional();
                        return Poll::Ready(Ok(count));
                    }
                }
            }
            let callback = self.callback(polled, context.waker());
            if side.readiness.prepare_wait().map_err(error)? == WaitDecision::Ready {
                continue;
            }
            netpoll::ensure_poll_thread();
            // SAFETY: alive — `self.registered` keeps the callback's data until `deregister` has
            // cleared the callback.
            if unsafe { side.set_callback(callback) } {
                // `arm_poller` may take the scheduler's lock, to wake an M.
                let inside = sched::enter_runtime();
                netpoll::arm_poller(polled.desc.key(), self.direction);
                drop(inside);
                return Poll::Pending;
            }
            side.readiness.finish_wait().map_err(error)?;
        }
    }

    /// Returns the callback that notifies `waker`. If `self` has a callback for another waker, that
    /// one is cleared first.
    fn callback<S: AsFd>(&mut self, polled: &Polled<S>, waker: &Waker) -> AsyncCallback {
        let ours = is_ours(waker);
        if ours
            && let Some(Registered::Ours(parker)) = &self.registered
            && ptr::eq(Arc::as_ptr(parker).cast(), waker.data())
        {
            return AsyncCallback {
                notify: notify_own,
                data: waker.data(),
                generation: self.generation,
            };
        }
        self.deregister(polled);
        self.generation = polled.desc.generation();
        if ours {
            // SAFETY: parker — the data of a waker of `block_on` is a strong count of a `Parker`.
            self.registered = Some(Registered::Ours(unsafe { clone_arc(waker.data()) }));
            return AsyncCallback {
                notify: notify_own,
                data: waker.data(),
                generation: self.generation,
            };
        }
        let called = Called::new(waker);
        let messenger = Cell::new(Some(called.messenger()));
        let prepared = Box::new(Prepared { waiter: called, messenger });
        let data = ptr::from_ref(&*prepared).cast();
        self.registered = Some(Registered::Others(prepared));
        AsyncCallback { notify: notify_foreign, data, generation: self.generation }
    }

    /// Clears the callback, which is not called after this. Must be called before the `AsyncWait`
    /// is dropped.
    pub(crate) fn deregister<S: AsFd>(&mut self, polled: &Polled<S>) {
        let Some(hung) = self.registered.take() else { return };
        let side = polled.desc.side(self.direction);
        if let Ok(_user) = polled.enter() {
            side.cancel_async_wait();
        }
        match &hung {
            Registered::Ours(parker) => {
                side.clear_callback(Arc::as_ptr(parker).cast(), self.generation)
            }
            Registered::Others(prepared) => {
                side.clear_callback(ptr::from_ref(&**prepared).cast(), self.generation)
            }
        }
        if let Registered::Others(prepared) = hung {
            drop(prepared.messenger.take());
            drop(prepared.waiter);
        }
    }
}

fn is_ours(waker: &Waker) -> bool {
    ptr::eq(waker.vtable(), &WAKER)
}

/// Notifies a waker of `block_on`.
///
/// # Safety
/// - **parker**: `data` is a `Parker`.
unsafe fn notify_own(data: *const ()) -> Option<&'static G> {
    // SAFETY: parker — promised by the caller.
    unsafe { &*data.cast::<Parker>() }.notify()
}

/// Returns the goroutine that calls a waker of user code.
///
/// # Safety
/// - **prepared**: `data` is a `Prepared`, and the lock of its record's callback is held.
unsafe fn notify_foreign(data: *const ()) -> Option<&'static G> {
    // SAFETY: prepared — promised by the caller.
    let prepared = unsafe { &*data.cast::<Prepared>() };
    prepared.messenger.take().and_then(|mut messenger| messenger.0.take())
}
