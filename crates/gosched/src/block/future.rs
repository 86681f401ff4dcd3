//! Futures in plain code: a goroutine, or a thread, that waits for one.
//!
//! Whoever may not run a program's code, but finds that a waker is one of these, can ring it at once.
//!
//! The word of a [`Parker`]: nothing; [`NOTIFIED`]; or the G that waits. The waker puts `NOTIFIED` there, and makes
//! ready whom it found. The one who waits puts its G there once its context is saved, unless it has rung.

use super::before_wait;
use super::exit;
use crate::gmp::g::G;
use crate::gmp::reason::WaitReason;
use crate::sched;
use std::future::IntoFuture;
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

const EMPTY: usize = 0;
const NOTIFIED: usize = 1;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Parker(AtomicUsize);

/// Waits for a future, in plain code. The goroutine parks; whoever calls the waker, from anywhere, lets it
/// go on. On an ordinary thread the thread waits.
///
/// ```
/// let sum = gosched::block_on(async { std::future::ready(40).await + 2 });
/// assert_eq!(sum, 42);
/// ```
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    before_wait();
    let parker = Arc::new(Parker(AtomicUsize::new(EMPTY)));
    // SAFETY: parker — a share of one.
    let waker = unsafe { Waker::new(Arc::into_raw(parker.clone()).cast(), &WAKER) };
    let mut future = pin!(future.into_future());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        exit::resume_if_exiting();
        parker.wait();
    }
}

impl Parker {
    /// Lets the one who waits go on: whom to make ready.
    pub(crate) fn notify(&self) -> Option<&'static G> {
        // PAIR future-signal: publishes what was done; sees the parked G.
        match self.0.swap(NOTIFIED, Ordering::AcqRel) {
            EMPTY | NOTIFIED => None,
            // SAFETY: nothing else is a G, and Gs are never freed.
            g => Some(unsafe { &*(g as *const G) }),
        }
    }

    fn wake(&self) {
        if let Some(g) = self.notify() {
            sched::ready(g);
        }
    }

    fn wait(&self) {
        // SAFETY: commit — it takes a `Parker`, which waits here.
        unsafe { sched::park(WaitReason::BlockOn, commit, ptr::from_ref(self).cast()) };
        // PAIR future-signal: sees what was done before it rang.
        self.0.swap(EMPTY, Ordering::Acquire);
    }
}

/// The caller's context is saved: it may be made ready.
///
/// # Safety
/// - **parker**: `data` is a `Parker`, alive until the G is made ready.
unsafe fn commit(g: &'static G, data: *const ()) -> bool {
    // SAFETY: parker — promised by the caller.
    let Parker(word) = unsafe { &*data.cast::<Parker>() };
    let g = ptr::from_ref(g) as usize;
    // PAIR future-signal: publishes the parked G; or sees what was done before it rang.
    word.compare_exchange(EMPTY, g, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// What a waker of ours does. Its data is a share of a [`Parker`].
pub(crate) static WAKER: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, forget);

/// A share for the caller, of what `data` is one of.
///
/// # Safety
/// - **parker**: `data` is a share of a `Parker`, which stays.
pub(crate) unsafe fn clone_arc(data: *const ()) -> Arc<Parker> {
    // SAFETY: parker — promised by the caller.
    let parker = ManuallyDrop::new(unsafe { Arc::from_raw(data.cast::<Parker>()) });
    Arc::clone(&parker)
}

/// # Safety
/// - **parker**: as for [`clone_arc`].
unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: parker — promised by the caller.
    RawWaker::new(Arc::into_raw(unsafe { clone_arc(data) }).cast(), &WAKER)
}

/// # Safety
/// - **parker**: `data` is a share of a `Parker`, and this is its end.
unsafe fn wake(data: *const ()) {
    // SAFETY: parker — promised by the caller.
    unsafe { Arc::from_raw(data.cast::<Parker>()) }.wake();
}

/// # Safety
/// - **parker**: as for [`clone_arc`].
unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: parker — promised by the caller.
    unsafe { &*data.cast::<Parker>() }.wake();
}

/// # Safety
/// - **parker**: `data` is a share of a `Parker`, and this is its end.
unsafe fn forget(data: *const ()) {
    // SAFETY: parker — promised by the caller.
    drop(unsafe { Arc::from_raw(data.cast::<Parker>()) });
}
