//! The packet of a goroutine: one allocation for its closure, its result, and the G or future that
//! waits for its end.
//!
//! The state word determines which side may use the packet:
//!
//! - [`EMPTY`]: the goroutine is not done, and nothing waits for it.
//! - the address of a G: that G waits in `join`.
//! - [`LOCKED`]: a thread stores the waker or takes it out.
//! - [`WAKER`]: a future waits, and its waker is stored.
//! - [`TIMED_OUT`]: the time limit of a join was reached before the joining G was published.
//! - [`DETACHED`]: the handle was dropped, so the goroutine frees the packet.
//! - [`DONE`]: the result is available to the handle, and the goroutine no longer accesses the
//!   packet.
//!
//! The goroutine:
//! 1. writes the result;
//! 2. sets the word to `DONE`;
//! 3. makes ready the G whose address was in the word.
//!
//! The handle:
//! 1. parks; after the switch, `commit` changes the word from `EMPTY` to the address of the G;
//! 2. reads the result.
//!
//! A waker is never called, cloned or dropped while the word is `LOCKED`.

use super::host::host;
use super::scope::ScopeData;
use crate::block::exit::{self, GoExit};
use crate::block::limit::{Alarm, AlarmEffect};
use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::reason::WaitReason;
use crate::gmp::task::{Task, TaskKind, TaskOffsets};
use crate::sched;
use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::{MaybeUninit, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

const EMPTY: usize = 0;
const DONE: usize = 1;
const DETACHED: usize = 2;
const WAKER: usize = 3;
const LOCKED: usize = 4;
const TIMED_OUT: usize = 5;

/// A packet: see the top of this file. `repr(C)`: a pointer to the task is a pointer to the packet.
#[repr(C)]
pub(crate) struct Packet<T> {
    task: Task,
    state: AtomicUsize,
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
        state: AtomicUsize::new(EMPTY),
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
    // PAIR packet: sees what the handle did before it was dropped.
    if packet.state.load(Ordering::Acquire) != DETACHED {
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
    let Packet { scope, free, state: word, .. } = unsafe { &*packet };
    let (scope, free) = (*scope, *free);
    loop {
        // PAIR packet: sees what the waiter did before it waited.
        let found = word.load(Ordering::Acquire);
        if found == LOCKED {
            std::hint::spin_loop();
            continue;
        }
        let to = if found == WAKER { LOCKED } else { DONE };
        // PAIR packet: publishes the result.
        if word.compare_exchange(found, to, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            continue;
        }
        match found {
            EMPTY | TIMED_OUT => {}
            DETACHED => return free_elsewhere(Leftover { task, free, scope }),
            // SAFETY: packet — this goroutine has set the word to `LOCKED`.
            WAKER => unsafe { wake_future(packet) },
            // SAFETY: every other value is the address of a G, and Gs are never freed.
            g => sched::ready(unsafe { &*(g as *const G) }),
        }
        break;
    }
    if let Some(scope) = scope {
        ScopeData::leave(scope);
    }
}

/// Sets the word to `DONE`, and calls the waker.
///
/// # Safety
/// - **locked**: the caller has set the packet's word to `LOCKED`.
unsafe fn wake_future<T>(packet: *mut Packet<T>) {
    // SAFETY: locked — promised by the caller; alive until the word is `DONE`.
    let Packet { waker, state, .. } = unsafe { &*packet };
    // SAFETY: locked — as above.
    let waker = unsafe { &mut *waker.get() }.take();
    // PAIR packet: publishes the result.
    state.store(DONE, Ordering::Release);
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
        // PAIR packet: sees the result.
        self.packet().state.load(Ordering::Acquire) == DONE
    }

    /// Drops the packet of a goroutine that could not be started.
    pub(crate) fn never_started(self) {
        self.packet().state.store(DONE, Ordering::Relaxed);
    }

    /// Waits for the goroutine to end.
    pub(crate) fn wait(&self, reason: WaitReason) {
        if !self.is_done() {
            let data = ptr::from_ref(&self.packet().state).cast::<()>();
            // SAFETY: commit — `commit_join` takes the packet's word, which is alive during this
            // call.
            unsafe { sched::park(reason, commit_join, data) };
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
            // The lowest bit of the address shows `wait_record` that this wait has a time limit.
            let with = data.wrapping_byte_add(1);
            // SAFETY: commit — it takes the address of the packet's word plus 1; the word is alive
            // during this call.
            unsafe { sched::park(reason, commit_timed_join, with) };
            alarm.stop();
            let _ = word.compare_exchange(TIMED_OUT, EMPTY, Ordering::Relaxed, Ordering::Relaxed);
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
        // Cloning a waker runs user code, so this is not done under `LOCKED`.
        let mut waker = Some(context.waker().clone());
        loop {
            // PAIR packet: sees the result, or the waker that was stored before.
            let found = packet.state.load(Ordering::Acquire);
            match found {
                DONE => return Poll::Ready(()),
                EMPTY | WAKER => {}
                _ => {
                    std::hint::spin_loop();
                    continue;
                }
            }
            // PAIR packet: sees the waker that was stored before.
            let locked =
                packet.state.compare_exchange(found, LOCKED, Ordering::Acquire, Ordering::Relaxed);
            if locked.is_err() {
                continue;
            }
            // SAFETY: this thread has set the word to `LOCKED`.
            let before = std::mem::replace(unsafe { &mut *packet.waker.get() }, waker.take());
            // PAIR packet: publishes the waker.
            packet.state.store(WAKER, Ordering::Release);
            drop(before);
            return Poll::Pending;
        }
    }
}

/// Publishes that `g` waits for the packet whose state word is at `data`. Returns false if `g` need
/// not wait: the word is not `EMPTY`.
///
/// # Safety
/// - **word**: `data` is a packet's state word, alive.
unsafe fn commit_join(g: &'static G, data: *const ()) -> bool {
    // SAFETY: word — promised by the caller.
    let word = unsafe { &*data.cast::<AtomicUsize>() };
    let g = ptr::from_ref(g) as usize;
    // PAIR packet: publishes the parked G; or sees the result.
    word.compare_exchange(EMPTY, g, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Like [`commit_join`], for a wait with a time limit.
///
/// # Safety
/// - **word**: `data` is the address that [`commit_join`] takes, plus 1.
unsafe fn commit_timed_join(g: &'static G, data: *const ()) -> bool {
    // SAFETY: word — promised by the caller.
    unsafe { commit_join(g, data.wrapping_byte_sub(1)) }
}

/// Ends the wait of a join whose time limit was reached, or prevents it if it has not begun.
///
/// # Safety
/// - **data**: a packet's state word, alive; only the goroutine that ends and the one that waits
///   with a time limit change it.
unsafe fn time_out(data: *const ()) -> AlarmEffect {
    // SAFETY: data — promised by the caller.
    let word = unsafe { &*data.cast::<AtomicUsize>() };
    loop {
        let found = word.load(Ordering::Relaxed);
        let to = match found {
            EMPTY => TIMED_OUT,
            DONE | DETACHED | WAKER | LOCKED | TIMED_OUT => return AlarmEffect::Nothing,
            _ => EMPTY,
        };
        // PAIR packet: sees the parked G.
        if word.compare_exchange(found, to, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            if to == TIMED_OUT {
                return AlarmEffect::Nothing;
            }
            // SAFETY: every other value is the address of a G, and Gs are never freed.
            return AlarmEffect::Ready(unsafe { &*(found as *const G) });
        }
    }
}

impl<T> Drop for PacketHandle<T> {
    fn drop(&mut self) {
        let packet = self.packet();
        // Dropped last, because the destructor of a waker is user code.
        let mut waker = None;
        let mut from = EMPTY;
        // After a join the word is `DONE`, and no longer changes.
        while !self.is_done() {
            // PAIR packet: publishes what the handle did; or sees the result.
            let changed = packet.state.compare_exchange(
                from,
                if from == WAKER { LOCKED } else { DETACHED },
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match changed {
                Ok(WAKER) => {
                    // SAFETY: this thread has set the word to `LOCKED`.
                    waker = unsafe { (*packet.waker.get()).take() };
                    // PAIR packet: publishes that the waker was taken out.
                    packet.state.store(EMPTY, Ordering::Release);
                    from = EMPTY;
                }
                Ok(_) => return,
                Err(DONE) => {}
                Err(WAKER) => from = WAKER,
                Err(_) => {
                    from = EMPTY;
                    std::hint::spin_loop();
                }
            }
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
