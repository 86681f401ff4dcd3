//! Waiting for a number of goroutines.

use super::parking::{Guarded, WaitOptions, WaitOutcome};
use crate::block::before_wait;
use crate::block::goroutine;
use crate::block::waiter::WaitQueue;
use crate::gmp::reason::WaitReason;
use crate::sys::clock;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Counts what is still to be done, and lets goroutines and threads wait until nothing is. Clones share the
/// count.
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
    /// Those who were let go, and have not come back from their wait.
    leaving: usize,
}

impl Default for Guarded<State> {
    fn default() -> Self {
        Guarded::new(State::default())
    }
}

impl WaitGroup {
    /// With nothing to be done.
    pub fn new() -> WaitGroup {
        WaitGroup::default()
    }

    /// So much more is to be done. To be said before somebody waits for it.
    ///
    /// # Panics
    /// The count overflows. Or it was 0, and not all who waited for that have come back: the group is used
    /// for the next thing too early.
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
            "`WaitGroup::add` before all who wait have come back: use another group for the next thing"
        );
        panic!("`WaitGroup::add({count})`: the count overflows");
    }

    /// One thing is done.
    ///
    /// # Panics
    /// Nothing was to be done.
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
        panic!("`WaitGroup::done` more often than `add` said: call `add` for each");
    }

    /// Whether nothing is to be done now.
    pub(super) fn is_done(&self) -> bool {
        self.inner.lock().count == 0
    }

    /// Waits until nothing is to be done.
    pub fn wait(&self) {
        before_wait();
        self.wait_until(None);
    }

    /// As [`WaitGroup::wait`], for `duration` at most. False: something is still to be done.
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

    /// Starts a goroutine that this group waits for, however it ends.
    #[track_caller]
    pub fn go<F>(&self, f: F)
    where
        F: FnOnce() + Send + 'static,
    {
        /// Says so however the goroutine ends.
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
