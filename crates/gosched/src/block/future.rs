//! [`block_on`]: a goroutine or an ordinary thread that waits for a future.
//!
//! Code that must not run user code can recognise a waker of [`block_on`] by its vtable, [`WAKER`],
//! and call [`Parker::notify`] instead of the waker.
//!
//! The word of a [`Parker`] is [`EMPTY`], [`NOTIFIED`], or the address of the waiting G. The waker
//! stores `NOTIFIED` and makes ready the G that it replaced. The waiting G stores its address once
//! its context is saved, unless the word is already `NOTIFIED`.
//!
//! A waker never polls the future: only the caller of [`block_on`] does.

use super::before_wait;
use super::exit;
use crate::gmp::commit::Commit;
use crate::gmp::g::G;
use crate::probe::wait_reason::WaitReason;
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

/// The state of one call of [`block_on`]: see the top of this file.
#[derive(Debug)]
pub(crate) struct Parker(AtomicUsize);

/// Runs a future to completion and returns its output.
///
/// While the future is pending, the calling goroutine is parked, or the calling thread sleeps. The
/// waker may be called from any thread.
///
/// ```
/// let sum = gosched::block_on(async { std::future::ready(40).await + 2 });
/// assert_eq!(sum, 42);
/// ```
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    before_wait();
    let parker = Arc::new(Parker(AtomicUsize::new(EMPTY)));
    // SAFETY: parker — a raw `Arc`, which the waker owns.
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
    /// Stores the notification. Returns the G that waits, if any; the caller must make it ready.
    pub(crate) fn notify(&self) -> Option<&'static G> {
        // PAIR future-signal: publishes what was done before the notification; sees the parked G.
        match self.0.swap(NOTIFIED, Ordering::AcqRel) {
            EMPTY | NOTIFIED => None,
            // SAFETY: every other value is the address of a G, and Gs are never freed.
            g => Some(unsafe { &*(g as *const G) }),
        }
    }

    fn wake(&self) {
        if let Some(g) = self.notify() {
            sched::ready(g);
        }
    }

    fn wait(&self) {
        // SAFETY: commit — it takes a `Parker`, and `self` outlives this call.
        let commit = unsafe { Commit::new(commit, ptr::from_ref(self).cast()) };
        sched::park(WaitReason::BlockOn, commit);
        // PAIR future-signal: sees what was done before the notification.
        self.0.swap(EMPTY, Ordering::Acquire);
    }
}

/// Publishes the parked G, whose context is saved. Returns false if the notification came first.
///
/// # Safety
/// - **parker**: `data` is a `Parker`, alive until the G is made ready.
unsafe fn commit(g: &'static G, data: *const ()) -> bool {
    // SAFETY: parker — promised by the caller.
    let Parker(word) = unsafe { &*data.cast::<Parker>() };
    let g = ptr::from_ref(g) as usize;
    // PAIR future-signal: publishes the parked G; or sees what was done before the notification.
    word.compare_exchange(EMPTY, g, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// The vtable of the wakers of [`block_on`]. The data of such a waker is a raw `Arc` of a
/// [`Parker`].
pub(crate) static WAKER: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, forget);

/// Clones the `Arc` of which `data` is the raw pointer.
///
/// # Safety
/// - **parker**: `data` is a raw `Arc<Parker>`, which remains valid.
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
/// - **parker**: `data` is a raw `Arc<Parker>`, which this call consumes.
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
/// - **parker**: `data` is a raw `Arc<Parker>`, which this call consumes.
unsafe fn forget(data: *const ()) {
    // SAFETY: parker — promised by the caller.
    drop(unsafe { Arc::from_raw(data.cast::<Parker>()) });
}
