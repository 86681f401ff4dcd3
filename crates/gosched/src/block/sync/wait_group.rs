//! Waiting for a number of goroutines to finish. A `WaitGroup` never reports how a goroutine ended:
//! `Group` does.

use super::parking::{Guarded, WaitOptions, WaitOutcome};
use crate::block::before_wait;
use crate::block::goroutine;
use crate::block::waiter::WaitQueue;
use crate::probe::wait_reason::WaitReason;
use crate::sys::clock;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A counter of unfinished tasks. Goroutines and threads can wait until it is 0.
///
/// Clones share the counter.
///
/// ```
/// use gosched::sync::WaitGroup;
///
/// let all = WaitGroup::new();
/// for i in 0..10 {
///     all.go(move || assert!(i < 10));
/// }
/// all.wait();
/// ```
#[derive(Clone, Default)]
pub struct WaitGroup {
    inner: Arc<Guarded<State>>,
}

#[derive(Debug, Default)]
struct State {
    count: usize,
    queue: WaitQueue,
    /// Number of waiters that were made ready but have not yet returned from `wait`.
    leaving: usize,
}

impl Default for Guarded<State> {
    fn default() -> Self {
        Guarded::new(State::default())
    }
}

impl WaitGroup {
    /// Creates a group whose counter is 0.
    pub fn new() -> WaitGroup {
        WaitGroup::default()
    }

    /// Adds `count` to the counter.
    ///
    /// While the counter is not 0, `add` may be called at any time, for example by a goroutine of
    /// the group. If the counter is 0, call `add` before `wait`.
    ///
    /// # Panics
    /// The counter overflows. Or the counter is 0, and not all previous calls of `wait` have
    /// returned: use another group for the next round.
    #[doc(alias = "Add")]
    #[track_caller]
    pub fn add(&self, count: usize) {
        let mut state = self.inner.lock();
        let sum = state.count.checked_add(count);
        let early = state.count == 0 && state.leaving > 0 && count > 0;
        if let Some(sum) = sum.filter(|_| !early) {
            state.count = sum;
            return;
        }
        drop(state);
        assert!(
            !early,
            "`WaitGroup::add` called before all previous calls of `wait` have returned: use another group for the next round"
        );
        panic!("`WaitGroup::add({count})`: the counter overflows: call `done` for each `add`");
    }

    /// Decrements the counter. When the counter reaches 0, all calls of [`WaitGroup::wait`] return.
    ///
    /// # Panics
    /// The counter is 0: call [`WaitGroup::add`] for each `done`.
    #[track_caller]
    pub fn done(&self) {
        let mut state = self.inner.lock();
        if state.count > 0 {
            state.count -= 1;
            if state.count == 0 {
                while let Some(taken) = state.queue.fire_next() {
                    state.leaving += 1;
                    state.ready(taken.g());
                }
            }
            return;
        }
        drop(state);
        panic!("`WaitGroup::done` called when the counter is 0: call `add` for each `done`");
    }

    /// Returns whether the counter is 0.
    pub(super) fn is_done(&self) -> bool {
        self.inner.lock().count == 0
    }

    /// Blocks until the counter is 0.
    pub fn wait(&self) {
        before_wait();
        self.wait_until(None);
    }

    /// Like [`WaitGroup::wait`], but waits at most `duration`. Returns `false` if the counter did
    /// not reach 0 in time.
    pub fn wait_timeout(&self, duration: Duration) -> bool {
        before_wait();
        self.inner.lock().count == 0 || self.wait_until(Some(clock::after(duration)))
    }

    fn wait_until(&self, until: Option<u64>) -> bool {
        let wait = WaitOptions {
            reason: WaitReason::WaitGroup,
            holders: std::ptr::null(),
            queue: |state: &mut State| &mut state.queue,
            first: false,
            ticket: std::ptr::null_mut(),
            until,
            gave_up: None,
        };
        let waited = self.inner.wait(&wait, |state| (state.count == 0).then_some(()));
        if waited == Err(WaitOutcome::Woken) {
            self.inner.lock().leaving -= 1;
        }
        waited != Err(WaitOutcome::TimedOut)
    }

    /// Starts a goroutine and counts it as an unfinished task until it ends.
    ///
    /// Adds 1 to the counter, and decrements the counter when `f` returns, panics or calls
    /// [`goexit`](crate::goexit). `wait` does not report a panic: use [`Group`](super::Group) for
    /// that.
    ///
    /// # Panics
    /// As for [`WaitGroup::add`] and [`go`](crate::go).
    #[track_caller]
    pub fn go<F>(&self, f: F)
    where
        F: FnOnce() + Send + 'static,
    {
        /// Decrements the counter when dropped, however the goroutine ends.
        struct Done(WaitGroup);
        impl Drop for Done {
            fn drop(&mut self) {
                self.0.done();
            }
        }
        self.add(1);
        let done = Done(self.clone());
        goroutine::go(move || {
            let _done = done;
            f();
        });
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.inner.lock().count;
        write!(f, "WaitGroup({count})")
    }
}
