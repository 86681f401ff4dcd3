//! The packet of a goroutine: one allocation for its closure, its result, and the G or future that
//! waits for its end.
//!
//! The packet belongs to the goroutine and to its handle. The side that needs the packet last frees
//! it: the goroutine if the handle was dropped before, otherwise the handle. `protocol::join_word`
//! describes the state word, which determines which side may use the packet.
//!
//! Code here never runs code of the program (a waker, the destructor of a result) as a goroutine
//! whose thread-locals are gone.

use super::host::host;
use super::scope::ScopeData;
use crate::block::exit::{self, GoExit};
use crate::block::limit::{Alarm, AlarmEffect};
use crate::gmp::commit::Commit;
use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::task::{Task, TaskKind, TaskOffsets};
use crate::probe::wait_reason::WaitReason;
use crate::protocol::join_word::{Completed, JoinWord, LIMIT_MARK};
use crate::sched;
use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::{MaybeUninit, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

/// A packet: see the top of this file. `repr(C)`: a pointer to the task is a pointer to the packet.
#[repr(C)]
pub(crate) struct Packet<T> {
    task: Task,
    state: JoinWord<G>,
    /// Frees the packet: [`free`] with the types of its closure and its result.
    free: unsafe fn(*mut Task),
    /// The scope that waits for the goroutine, if it was started in one.
    scope: Option<NonNull<ScopeData>>,
    waker: UnsafeCell<Option<Waker>>,
    result: UnsafeCell<Option<Outcome<T>>>,
}

/// A packet, followed by its closure.
#[repr(C)]
struct Work<F, T> {
    packet: Packet<T>,
    /// The closure was moved out. Its bytes stay in place: see [`TaskOffsets::closure`].
    is_taken: AtomicBool,
    f: UnsafeCell<MaybeUninit<F>>,
}

impl<F: FnOnce() -> T, T> Work<F, T> {
    const KIND: &'static TaskKind = &TaskKind {
        run: run::<F, T>,
        complete: complete::<T>,
        name: std::any::type_name::<F>,
        offsets: Some(TaskOffsets {
            state: offset_of!(Packet<T>, state),
            scope: offset_of!(Packet<T>, scope),
            closure: offset_of!(Self, f)..offset_of!(Self, f) + size_of::<F>(),
        }),
    };
}

impl<F, T> Work<F, T> {
    /// Moves the closure out. Returns `None` if that was done before.
    ///
    /// # Safety
    /// - **alone**: no other thread calls this function at the same time.
    unsafe fn take_closure(&self) -> Option<F> {
        if self.is_taken.load(Ordering::Relaxed) {
            return None;
        }
        self.is_taken.store(true, Ordering::Relaxed);
        // SAFETY: `new` wrote the closure, and it is moved out once: alone — promised by the
        // caller.
        Some(unsafe { self.f.get().cast::<F>().read() })
    }
}

/// How a goroutine ended.
pub(crate) type Outcome<T> = Result<T, JoinError>;

/// Why a goroutine ended without a result: it panicked, or it called [`goexit`](crate::goexit).
pub struct JoinError(Reason);

enum Reason {
    Panic(Box<dyn Any + Send>),
    Exit,
}

impl JoinError {
    /// Returns whether the goroutine panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Reason::Panic(_))
    }

    /// Returns whether the goroutine called [`goexit`](crate::goexit).
    #[doc(alias = "Goexit")]
    pub fn is_goexit(&self) -> bool {
        matches!(self.0, Reason::Exit)
    }

    /// Returns the payload of the goroutine's panic, for [`std::panic::resume_unwind`].
    ///
    /// # Panics
    /// The goroutine did not panic: check [`JoinError::is_panic`] first.
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self.0 {
            Reason::Panic(payload) => payload,
            Reason::Exit => {
                panic!(
                    "`into_panic` called for a goroutine that called `goexit`: check `is_panic` first"
                )
            }
        }
    }

    /// Returns the payload of the goroutine's panic.
    ///
    /// # Errors
    /// The goroutine did not panic. The error is `self`.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, JoinError> {
        match self.0 {
            Reason::Panic(payload) => Ok(payload),
            Reason::Exit => Err(self),
        }
    }

    fn new(payload: Box<dyn Any + Send>) -> JoinError {
        if payload.is::<GoExit>() {
            JoinError(Reason::Exit)
        } else {
            JoinError(Reason::Panic(payload))
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reason::Exit => f.write_str("the goroutine called goexit"),
            Reason::Panic(payload) => match exit::panic_message(&**payload) {
                Some(message) => write!(f, "the goroutine panicked: {message}"),
                None => f.write_str("the goroutine panicked"),
            },
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl std::error::Error for JoinError {}

/// Allocates a packet for `f`.
pub(crate) fn new<F, T>(f: F, scope: Option<NonNull<ScopeData>>) -> NonNull<Packet<T>>
where
    F: FnOnce() -> T,
{
    let packet = Packet::<T> {
        task: Task { kind: Work::<F, T>::KIND },
        state: JoinWord::new(),
        free: free::<F, T>,
        scope,
        waker: UnsafeCell::new(None),
        result: UnsafeCell::new(None),
    };
    let f = UnsafeCell::new(MaybeUninit::new(f));
    let work = Box::new(Work::<F, T> { packet, is_taken: AtomicBool::new(false), f });
    NonNull::from(Box::leak(work)).cast()
}

/// Runs the closure and stores its result. See [`TaskKind::run`].
///
/// # Safety
/// - **work**: `task` is the head of a `Work<F, T>` whose closure has not run.
unsafe fn run<F: FnOnce() -> T, T>(task: *mut Task) -> bool {
    // SAFETY: work — promised by the caller.
    let work = unsafe { &*task.cast::<Work<F, T>>() };
    // SAFETY: alone — only the goroutine accesses the closure.
    let Some(f) = (unsafe { work.take_closure() }) else { return false };
    let outcome = exit::catch_panic_or_goexit(f).map_err(JoinError::new);
    let packet = &work.packet;
    // SAFETY: the result belongs to the goroutine until the word is `DONE`.
    unsafe { *packet.result.get() = Some(outcome) };
    let scope = packet.scope;
    if !packet.state.is_detached() {
        return true;
    }
    // From here on the leak hints must not read the packet through the G: its memory is freed next.
    if let Some(g) = current::goroutine() {
        g.forget_task();
    }
    // SAFETY: detached: no other thread uses the packet.
    unsafe { free::<F, T>(task) };
    if let Some(scope) = scope {
        ScopeData::leave(scope);
    }
    false
}

/// Frees a packet, and drops its closure and its result.
///
/// # Safety
/// - **work**: `task` is the head of a `Work<F, T>` that no other thread uses.
unsafe fn free<F, T>(task: *mut Task) {
    // SAFETY: work — promised by the caller; `new` leaked it.
    let work = unsafe { Box::from_raw(task.cast::<Work<F, T>>()) };
    // SAFETY: alone — no other thread uses the packet: promised by the caller.
    let f = unsafe { work.take_closure() };
    let packet = work.packet;
    let scope = packet.scope;
    let dropped = catch_unwind(AssertUnwindSafe(|| {
        drop(f);
        match packet.result.into_inner() {
            Some(Err(JoinError(Reason::Panic(payload)))) => Some(payload),
            _ => None,
        }
    }));
    // A panic in the destructor of the result counts as a panic of the goroutine.
    let payload = dropped.unwrap_or_else(Some);
    match (scope, payload) {
        // SAFETY: the scope waits for its goroutines, and this goroutine has not left the scope.
        (Some(scope), Some(payload)) => unsafe { scope.as_ref() }.keep_panic(payload),
        // A panic in the payload's destructor is ignored.
        (None, Some(payload)) => drop(catch_unwind(AssertUnwindSafe(|| drop(payload)))),
        _ => {}
    }
}

/// Publishes that the goroutine is done. See [`TaskKind::complete`].
///
/// # Safety
/// - **packet**: `task` is the head of a `Packet<T>` whose result has been written.
unsafe fn complete<T>(task: *mut Task) {
    let packet = task.cast::<Packet<T>>();
    // SAFETY: packet — promised by the caller; alive until this function has changed the word.
    let Packet { scope, free, state, waker, .. } = unsafe { &*packet };
    let (scope, free) = (*scope, *free);
    // SAFETY: the state is `LOCKED` while this closure runs, so the waker belongs to this thread.
    let completed = state.complete(|| unsafe { &mut *waker.get() }.take());
    match completed {
        Completed::Detached => return free_elsewhere(Leftover { task, free, scope }),
        Completed::Unawaited => {}
        Completed::Waiter(g) => sched::ready(g),
        Completed::Waker(waker) => wake_future(waker),
    }
    if let Some(scope) = scope {
        ScopeData::leave(scope);
    }
}

/// Calls the waker of the future that waits for the goroutine.
fn wake_future(waker: Option<Waker>) {
    if let Some(waker) = waker {
        // A waker is user code, and the goroutine's thread-locals are gone: it runs as the host
        // thread.
        host(move || drop(catch_unwind(AssertUnwindSafe(|| waker.wake()))));
    }
}

/// A detached packet that its goroutine has to free after its thread-locals were destroyed.
struct Leftover {
    task: *mut Task,
    free: unsafe fn(*mut Task),
    scope: Option<NonNull<ScopeData>>,
}

// SAFETY: no other thread uses the packet; results are `Send`, and a scope may be left from any
// thread.
unsafe impl Send for Leftover {}

impl Leftover {
    fn free(self) {
        // SAFETY: detached: no other thread uses the packet.
        unsafe { (self.free)(self.task) };
        if let Some(scope) = self.scope {
            ScopeData::leave(scope);
        }
    }
}

/// Frees the packet. If the caller is a goroutine, a new goroutine does it: the destructor of the
/// result is user code, and the caller's thread-locals are gone.
#[cold]
fn free_elsewhere(leftover: Leftover) {
    match current::goroutine() {
        Some(g) if !g.is_thread() => host(move || drop(crate::go(move || leftover.free()))),
        _ => leftover.free(),
    }
}

/// The handle's reference to a packet: one per packet.
pub(crate) struct PacketHandle<T>(NonNull<Packet<T>>);

// SAFETY: the result is `Send`, and everything else in the packet may be used from any thread.
unsafe impl<T: Send> Send for PacketHandle<T> {}
// SAFETY: a shared reference gives access only to the state word, to constant fields and, under
// `LOCKED`, to the waker.
unsafe impl<T: Send> Sync for PacketHandle<T> {}

impl<T> PacketHandle<T> {
    /// Creates the handle of a packet.
    ///
    /// # Safety
    /// - **one**: this is the only handle of a packet made by [`new`].
    pub(crate) unsafe fn from_raw(packet: NonNull<Packet<T>>) -> PacketHandle<T> {
        PacketHandle(packet)
    }

    fn packet(&self) -> &Packet<T> {
        // SAFETY: the packet is alive as long as its handle.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.packet().state.is_done()
    }

    /// Drops the packet of a goroutine that could not be started.
    pub(crate) fn never_started(self) {
        self.packet().state.never_started();
    }

    /// Waits for the goroutine to end.
    pub(crate) fn wait(&self, reason: WaitReason) {
        if !self.is_done() {
            let data = ptr::from_ref(&self.packet().state).cast::<()>();
            // SAFETY: commit — `commit_join` takes the packet's word, which is alive during this
            // call.
            let commit = unsafe { Commit::new(commit_join, data) };
            sched::park(reason, commit);
        }
    }

    /// Waits for the goroutine to end, until `when` at most. Returns whether it has ended.
    pub(crate) fn wait_until(&self, reason: WaitReason, when: u64) -> bool {
        if !self.is_done() {
            let word = &self.packet().state;
            let data = ptr::from_ref(word).cast::<()>();
            // SAFETY: data — the packet's word, which is alive during this call.
            let alarm = unsafe { Alarm::new(time_out, data) };
            alarm.start(when);
            // The mark shows `wait_record` that this wait has a time limit.
            let with = data.wrapping_byte_add(LIMIT_MARK);
            // SAFETY: commit — it takes the marked address of the packet's word, which is alive
            // during this call.
            let commit = unsafe { Commit::new(commit_timed_join, with) };
            sched::park(reason, commit);
            alarm.stop();
            word.clear_timed_out();
        }
        self.is_done()
    }

    /// Returns the result, or `None` if the goroutine has not ended.
    pub(crate) fn take(self) -> Option<Outcome<T>> {
        if !self.is_done() {
            return None;
        }
        // SAFETY: done: the goroutine no longer accesses the result, and this is the only handle.
        unsafe { (*self.packet().result.get()).take() }
    }

    /// Returns whether the goroutine has ended. If it has not, stores the waker of `context`.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let packet = self.packet();
        // Cloning and dropping a waker run user code, so neither is done under `LOCKED`.
        let waker = context.waker().clone();
        // SAFETY: the state is `LOCKED` while this closure runs, so the waker belongs to this
        // thread.
        let stored =
            packet.state.store_waker(|| unsafe { &mut *packet.waker.get() }.replace(waker));
        match stored {
            None => Poll::Ready(()),
            Some(before) => {
                drop(before);
                Poll::Pending
            }
        }
    }
}

/// Publishes that `g` waits for the packet whose state word is at `data`. Returns false if `g` need
/// not wait.
///
/// # Safety
/// - **word**: `data` is a packet's state word, alive.
unsafe fn commit_join(g: &'static G, data: *const ()) -> bool {
    // SAFETY: word — promised by the caller.
    unsafe { &*data.cast::<JoinWord<G>>() }.commit(g)
}

/// Like [`commit_join`], for a wait with a time limit.
///
/// # Safety
/// - **word**: `data` is the address that [`commit_join`] takes, plus [`LIMIT_MARK`].
unsafe fn commit_timed_join(g: &'static G, data: *const ()) -> bool {
    // SAFETY: word — promised by the caller.
    unsafe { commit_join(g, data.wrapping_byte_sub(LIMIT_MARK)) }
}

/// Ends the wait of a join whose time limit was reached, or prevents it if it has not begun.
///
/// # Safety
/// - **data**: a packet's state word, alive; only the goroutine that ends and the one that waits
///   with a time limit change it.
unsafe fn time_out(data: *const ()) -> AlarmEffect {
    // SAFETY: data — promised by the caller.
    let word = unsafe { &*data.cast::<JoinWord<G>>() };
    word.time_out().map_or(AlarmEffect::Nothing, AlarmEffect::Ready)
}

impl<T> Drop for PacketHandle<T> {
    fn drop(&mut self) {
        let packet = self.packet();
        // Dropped last, because the destructor of a waker is user code.
        let mut waker = None;
        // SAFETY: the state is `LOCKED` while this closure runs, so the waker belongs to this
        // thread.
        let take_waker = || waker = unsafe { &mut *packet.waker.get() }.take();
        if packet.state.detach(take_waker) {
            return;
        }
        let free = packet.free;
        // SAFETY: done, and this is the only handle: no other thread uses the packet.
        unsafe { free(self.0.as_ptr().cast()) };
        drop(waker);
    }
}

impl<T> fmt::Debug for PacketHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketHandle").field("done", &self.is_done()).finish()
    }
}
