//! Futures in plain code: a goroutine, or a thread, that waits for one.
//!
//! Whoever may not run a program's code, but finds that a waker is one of these, can ring it at once.
//!
//! The word of a [`Signal`]: nothing; [`RUNG`]; or the G that waits. The waker puts `RUNG` there, and makes
//! ready whom it found. The one who waits puts its G there once its context is saved, unless it has rung.

use super::exit;
use super::may_wait;
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

const SILENT: usize = 0;
const RUNG: usize = 1;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Signal(AtomicUsize);

/// Waits for a future, in plain code. The goroutine parks; whoever calls the waker, from anywhere, lets it
/// go on. On an ordinary thread the thread waits.
///
/// ```
/// let sum = gosched::block_on(async { std::future::ready(40).await + 2 });
/// assert_eq!(sum, 42);
/// ```
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    may_wait();
    let signal = Arc::new(Signal(AtomicUsize::new(SILENT)));
    // SAFETY: signal — a share of one.
    let waker = unsafe { Waker::new(Arc::into_raw(signal.clone()).cast(), &WAKER) };
    let mut future = pin!(future.into_future());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        exit::check();
        signal.wait();
    }
}

impl Signal {
    /// Lets the one who waits go on: whom to make ready.
    pub(crate) fn ring(&self) -> Option<&'static G> {
        // PAIR future-signal: publishes what was done; sees the parked G.
        match self.0.swap(RUNG, Ordering::AcqRel) {
            SILENT | RUNG => None,
            // SAFETY: nothing else is a G, and Gs are never freed.
            g => Some(unsafe { &*(g as *const G) }),
        }
    }

    fn wake(&self) {
        if let Some(g) = self.ring() {
            sched::ready(g);
        }
    }

    fn wait(&self) {
        // SAFETY: commit — it takes a `Signal`, which waits here.
        unsafe { sched::park(WaitReason::BlockOn, commit, ptr::from_ref(self).cast()) };
        // PAIR future-signal: sees what was done before it rang.
        self.0.swap(SILENT, Ordering::Acquire);
    }
}

/// The caller's context is saved: it may be made ready.
///
/// # Safety
/// - **signal**: `data` is a `Signal`, alive until the G is made ready.
unsafe fn commit(g: &'static G, data: *const ()) -> bool {
    // SAFETY: signal — promised by the caller.
    let Signal(word) = unsafe { &*data.cast::<Signal>() };
    let g = ptr::from_ref(g) as usize;
    // PAIR future-signal: publishes the parked G; or sees what was done before it rang.
    word.compare_exchange(SILENT, g, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// What a waker of ours does. Its data is a share of a [`Signal`].
pub(crate) static WAKER: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, forget);

/// A share for the caller, of what `data` is one of.
///
/// # Safety
/// - **signal**: `data` is a share of a `Signal`, which stays.
pub(crate) unsafe fn share(data: *const ()) -> Arc<Signal> {
    // SAFETY: signal — promised by the caller.
    let signal = ManuallyDrop::new(unsafe { Arc::from_raw(data.cast::<Signal>()) });
    Arc::clone(&signal)
}

/// # Safety
/// - **signal**: as for [`share`].
unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: signal — promised by the caller.
    RawWaker::new(Arc::into_raw(unsafe { share(data) }).cast(), &WAKER)
}

/// # Safety
/// - **signal**: `data` is a share of a `Signal`, and this is its end.
unsafe fn wake(data: *const ()) {
    // SAFETY: signal — promised by the caller.
    unsafe { Arc::from_raw(data.cast::<Signal>()) }.wake();
}

/// # Safety
/// - **signal**: as for [`share`].
unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: signal — promised by the caller.
    unsafe { &*data.cast::<Signal>() }.wake();
}

/// # Safety
/// - **signal**: `data` is a share of a `Signal`, and this is its end.
unsafe fn forget(data: *const ()) {
    // SAFETY: signal — promised by the caller.
    drop(unsafe { Arc::from_raw(data.cast::<Signal>()) });
}
