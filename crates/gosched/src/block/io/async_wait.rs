//! Async code that waits for a descriptor: it leaves a callback with the poller's record.
//!
//! Those who ring it may not run a program's code. A waker of ours ([`Parker`]) is rung at once; for others
//! there is a goroutine prepared that calls it, as with channels ([`async_waiter`](crate::block::chan::async_waiter)).

use super::polled::{Polled, error};
use crate::block::chan::async_waiter::{AsyncWaiter as Called, Messenger};
use crate::block::future::{Parker, WAKER, clone_arc};
use crate::gmp::g::G;
use crate::gmp::poll_desc::AsyncCallback;
use crate::gmp::readiness::WaitDecision;
use crate::sched::{self, netpoll};
use crate::sys::poller::Direction;
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// How one direction of a descriptor is waited for. By one at a time.
#[derive(Debug)]
pub(crate) struct AsyncWait {
    direction: Direction,
    registered: Option<Registered>,
    /// In which life of the record.
    generation: u32,
    /// There was no more the last time, and nothing has happened since that was not told.
    drained: bool,
}

/// What is rung.
#[derive(Debug)]
enum Registered {
    Ours(Arc<Parker>),
    Others(Box<Prepared>),
}

/// A waker that is not ours, and who calls it; the latter is taken by who rings.
struct Prepared {
    waiter: Arc<Called>,
    messenger: Cell<Option<Messenger>>,
}

// SAFETY: the cell is used under the lock of the record, or by who has taken the callback back.
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

    /// Does `f` if it would not block; else the waker is woken when it may not any more. `f` also says whether
    /// that was all there was.
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
            // SAFETY: alive — `self` keeps it, until it was taken back.
            if unsafe { side.set_callback(callback) } {
                // It may take the scheduler's lock, to wake an M.
                let inside = sched::enter_runtime();
                netpoll::arm_poller(polled.desc.key(), self.direction);
                drop(inside);
                return Poll::Pending;
            }
            side.readiness.finish_wait().map_err(error)?;
        }
    }

    /// What to ring for `waker`; whatever was rung before is not any more.
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
            // SAFETY: parker — the data of a waker of ours.
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

    /// The callback is not called any more. Before this goes.
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

/// # Safety
/// - **parker**: `data` is a `Parker`.
unsafe fn notify_own(data: *const ()) -> Option<&'static G> {
    // SAFETY: parker — promised by the caller.
    unsafe { &*data.cast::<Parker>() }.notify()
}

/// # Safety
/// - **prepared**: `data` is a `Prepared`, and its record's lock is held.
unsafe fn notify_foreign(data: *const ()) -> Option<&'static G> {
    // SAFETY: prepared — promised by the caller.
    let prepared = unsafe { &*data.cast::<Prepared>() };
    prepared.messenger.take().and_then(|mut messenger| messenger.0.take())
}
