//! Goroutines that work on parts of one task: `wait` returns the first error. A group never stops a
//! goroutine: the first error only cancels the context of the group.

use super::{Mutex, Semaphore, WaitGroup};
use crate::block::context::{CancelGuard, Context};
use crate::block::exit::GoExit;
use crate::block::goroutine;
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Starts goroutines that may fail, waits for all of them, and returns the first error.
///
/// Clones refer to the same group.
///
/// ```
/// use gosched::sync::Group;
///
/// let group = Group::<std::num::ParseIntError>::new();
/// for text in ["1", "2", "three"] {
///     group.go(move || text.parse::<u32>().map(drop));
/// }
/// assert!(group.wait().is_err());
/// ```
#[doc(alias = "errgroup")]
pub struct Group<E = Box<dyn Error + Send + Sync>> {
    inner: Arc<Members<E>>,
}

struct Members<E> {
    all: WaitGroup,
    limit: Mutex<Option<Arc<Semaphore>>>,
    first: Mutex<Option<Failure<E>>>,
    /// Cancels the group's context.
    guard: Option<CancelGuard>,
}

/// How a goroutine of the group failed.
enum Failure<E> {
    Error(E),
    Panic(Box<dyn Any + Send>),
}

impl<E: Send + 'static> Group<E> {
    /// Creates a group without goroutines.
    pub fn new() -> Group<E> {
        Group::with_guard(None)
    }

    /// Creates a group and a context for its goroutines. The context is cancelled at the first
    /// error or panic, when [`Group::wait`] returns, or when the group, all its clones and all its
    /// goroutines are gone.
    #[doc(alias = "WithContext")]
    pub fn with_context(parent: &Context) -> (Group<E>, Context) {
        let (ctx, guard) = parent.with_cancel();
        (Group::with_guard(Some(guard)), ctx)
    }

    fn with_guard(guard: Option<CancelGuard>) -> Group<E> {
        let (limit, first) = (Mutex::new(None), Mutex::new(None));
        let inner = Members { all: WaitGroup::new(), limit, first, guard };
        Group { inner: Arc::new(inner) }
    }

    /// Limits the group to `most` goroutines at a time. When that many have been started and have
    /// not ended, [`Group::go`] blocks.
    ///
    /// # Panics
    /// `most` is 0. Or goroutines of the group are running: set the limit before the first `go`.
    #[doc(alias = "SetLimit")]
    #[track_caller]
    pub fn limit(self, most: usize) -> Group<E> {
        assert!(
            most > 0,
            "`Group::limit(0)`: no goroutine could ever run: use a limit of 1 or more"
        );
        let idle = self.inner.all.is_done();
        assert!(
            idle,
            "`Group::limit` called while goroutines of the group are running: set the limit before `go`"
        );
        *self.inner.limit.lock_no_unwind() = Some(Arc::new(Semaphore::new(most)));
        self
    }

    /// Starts a goroutine of the group. If the limit of the group is reached, first blocks until a
    /// goroutine of the group ends.
    ///
    /// # Panics
    /// The last goroutine of the group has ended, and a call of [`Group::wait`] has not returned
    /// yet: call `go` before `wait`, or in a goroutine of the group. Or [`go`](crate::go) panics.
    #[track_caller]
    pub fn go<F>(&self, f: F)
    where
        F: FnOnce() -> Result<(), E> + Send + 'static,
    {
        let limit = self.inner.limit.lock_no_unwind().clone();
        if let Some(limit) = &limit {
            // The goroutine releases the permit when it ends.
            std::mem::forget(limit.acquire(1));
        }
        self.start(f, limit);
    }

    /// Starts a goroutine of the group and returns `true`. If the limit of the group is reached,
    /// drops `f` and returns `false`.
    ///
    /// # Panics
    /// As for [`Group::go`].
    #[track_caller]
    pub fn try_go<F>(&self, f: F) -> bool
    where
        F: FnOnce() -> Result<(), E> + Send + 'static,
    {
        let limit = self.inner.limit.lock_no_unwind().clone();
        if let Some(limit) = &limit {
            match limit.try_acquire(1) {
                Some(permit) => std::mem::forget(permit),
                None => return false,
            }
        }
        self.start(f, limit);
        true
    }

    #[track_caller]
    fn start<F>(&self, f: F, limit: Option<Arc<Semaphore>>)
    where
        F: FnOnce() -> Result<(), E> + Send + 'static,
    {
        self.inner.all.add(1);
        let place = Place { group: self.inner.clone(), limit };
        goroutine::go(move || {
            let place = place;
            match catch_unwind(AssertUnwindSafe(f)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => place.group.fail(Failure::Error(error)),
                Err(payload) if payload.is::<GoExit>() => resume_unwind(payload),
                Err(payload) => {
                    place.group.fail(Failure::Panic(payload));
                    // This goroutine ends as one that panicked; `wait` passes on the original
                    // payload.
                    resume_unwind(Box::new("`Group::wait` returns this panic"));
                }
            }
        });
    }

    /// Waits for all goroutines of the group, including those that are started meanwhile. For a
    /// time limit, call `wait` in a goroutine and
    /// [`join_timeout`](crate::JoinHandle::join_timeout) that goroutine.
    ///
    /// # Errors
    /// A goroutine returned an error. `wait` returns the first error since the previous call of
    /// `wait`.
    ///
    /// # Panics
    /// The first failure of a goroutine was a panic: `wait` panics with the same payload.
    pub fn wait(&self) -> Result<(), E> {
        self.inner.all.wait();
        if let Some(guard) = &self.inner.guard {
            guard.cancel();
        }
        let first = self.inner.first.lock_no_unwind().take();
        match first {
            None => Ok(()),
            Some(Failure::Error(error)) => Err(error),
            Some(Failure::Panic(payload)) => resume_unwind(payload),
        }
    }
}

impl<E> Members<E> {
    fn fail(&self, failure: Failure<E>) {
        let mut first = self.first.lock_no_unwind();
        if first.is_some() {
            return drop(first);
        }
        *first = Some(failure);
        drop(first);
        if let Some(guard) = &self.guard {
            guard.cancel();
        }
    }
}

/// What a goroutine of the group releases when it ends, however it ends.
struct Place<E> {
    group: Arc<Members<E>>,
    limit: Option<Arc<Semaphore>>,
}

impl<E> Drop for Place<E> {
    fn drop(&mut self) {
        if let Some(limit) = &self.limit {
            limit.release(1);
        }
        self.group.all.done();
    }
}

impl<E: Send + 'static> Default for Group<E> {
    fn default() -> Group<E> {
        Group::new()
    }
}

impl<E> Clone for Group<E> {
    fn clone(&self) -> Group<E> {
        Group { inner: self.inner.clone() }
    }
}

impl<E> fmt::Debug for Group<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({:?})", self.inner.all)
    }
}
