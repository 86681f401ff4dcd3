//! Futures in plain code: a goroutine, or a thread, that waits for one.
//!
//! The word of a [`Signal`]: nothing; [`RUNG`]; or the G that waits. The waker puts `RUNG` there, and makes
//! ready whom it found. The one who waits puts its G there once its context is saved, unless it has rung.

use super::exit;
use super::may_wait;
use crate::gmp::g::G;
use crate::gmp::reason::WaitReason;
use crate::sched;
use std::future::IntoFuture;
use std::pin::pin;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

const SILENT: usize = 0;
const RUNG: usize = 1;

/// See the top of this file.
#[derive(Debug)]
struct Signal(AtomicUsize);

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
    let waker = Waker::from(signal.clone());
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

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // PAIR future-signal: publishes what was done; sees the parked G.
        match self.0.swap(RUNG, Ordering::AcqRel) {
            SILENT | RUNG => {}
            // SAFETY: nothing else is a G, and Gs are never freed.
            g => sched::ready(unsafe { &*(g as *const G) }),
        }
    }
}
