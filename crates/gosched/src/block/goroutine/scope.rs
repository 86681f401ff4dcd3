//! Goroutines that borrow from the code that started them, which waits for all of them. `scope`
//! never returns, and never unwinds, while the closure of one of its goroutines runs.

use super::builder::start;
use super::join::ScopedJoinHandle;
use super::packet;
use crate::block::exit;
use crate::gmp::commit::Commit;
use crate::gmp::g::G;
use crate::probe::wait_reason::WaitReason;
use crate::sched;
use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The state that a scope and its goroutines share, on the stack of the scope.
///
/// `running` counts the goroutines, plus one for the scope itself until it waits. The goroutine
/// that decrements it to 0 makes the scope ready. If the scope itself decrements it to 0, the scope
/// does not park.
pub(crate) struct ScopeData {
    running: AtomicUsize,
    waiter: AtomicPtr<G>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl ScopeData {
    /// Records that a goroutine of the scope is done.
    pub(crate) fn leave(scope: NonNull<ScopeData>) {
        // SAFETY: the scope waits for this goroutine, so its data is alive.
        let data = unsafe { scope.as_ref() };
        // PAIR scope: publishes what the goroutine did; the last goroutine sees the waiting G.
        if data.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            let waiter = data.waiter.load(Ordering::Relaxed);
            // SAFETY: the scope stored its G before it gave up its own count, and it waits for this
            // call.
            sched::ready(unsafe { &*waiter });
        }
    }

    /// Stores the payload of a panic that no `join` returned, if it is the first.
    pub(crate) fn keep_panic(&self, payload: Box<dyn Any + Send>) {
        let mut place = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_none() {
            *place = Some(payload);
        }
    }

    fn wait(&self) {
        let data = ptr::from_ref(self).cast::<()>();
        // SAFETY: commit — `commit_wait` takes the scope's data, which is alive during this call.
        let commit = unsafe { Commit::new(commit_wait, data) };
        sched::park(WaitReason::Join, commit);
    }
}

/// Publishes the G of the scope. Returns false if all goroutines are done.
///
/// # Safety
/// - **scope**: `data` is a `ScopeData`, alive.
unsafe fn commit_wait(g: &'static G, data: *const ()) -> bool {
    // SAFETY: scope — promised by the caller.
    let data = unsafe { &*data.cast::<ScopeData>() };
    data.waiter.store(ptr::from_ref(g).cast_mut(), Ordering::Relaxed);
    // PAIR scope: publishes the waiting G; or sees what the goroutines did.
    data.running.fetch_sub(1, Ordering::AcqRel) != 1
}

/// A scope for goroutines that borrow variables of the caller, created by [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    data: ScopeData,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl std::fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let running = self.data.running.load(Ordering::Relaxed);
        f.debug_struct("Scope").field("running", &running.saturating_sub(1)).finish()
    }
}

/// Calls `f` with a scope whose goroutines may borrow variables of the caller, and waits for all of
/// these goroutines.
///
/// ```
/// let mut numbers = vec![1, 2, 3];
/// gosched::scope(|s| {
///     for number in &mut numbers {
///         s.go(move || *number *= 2);
///     }
/// });
/// assert_eq!(numbers, [2, 4, 6]);
/// ```
///
/// # Panics
/// `f` panics: then `scope` panics with the same payload. Or a goroutine that was not joined
/// panics: then `scope` panics with the payload of the first such goroutine.
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    exit::resume_if_exiting();
    let scope = Scope {
        data: ScopeData {
            running: AtomicUsize::new(1),
            waiter: AtomicPtr::new(ptr::null_mut()),
            panic: Mutex::new(None),
        },
        scope: PhantomData,
        env: PhantomData,
    };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    scope.data.wait();
    let panic = scope.data.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (result, panic) {
        (Err(payload), _) | (Ok(_), Some(payload)) => resume_unwind(payload),
        (Ok(result), None) => result,
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a goroutine that may borrow. [`scope`] does not return before the goroutine has
    /// ended.
    ///
    /// # Panics
    /// As for [`go`](crate::go).
    #[track_caller]
    pub fn go<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let data = NonNull::from(&self.data);
        self.data.running.fetch_add(1, Ordering::Relaxed);
        let packet = packet::new(f, Some(data));
        // SAFETY: borrows — the scope waits for the goroutine, and so outlives it.
        match unsafe { start(packet, None, Location::caller()) } {
            Ok(handle) => ScopedJoinHandle::new(handle),
            Err(why) => {
                self.data.running.fetch_sub(1, Ordering::Relaxed);
                panic!("`Scope::go`: the system cannot create a thread: {why}")
            }
        }
    }
}
