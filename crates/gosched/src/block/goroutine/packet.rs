//! One allocation for a goroutine's closure, its result, and whoever waits for it.
//!
//! The state word says who uses the record:
//!
//! - [`EMPTY`]: the goroutine is not done, and nobody waits.
//! - a G: that one waits in `join`.
//! - [`LOCKED`]: somebody puts a waker in, or takes it out.
//! - [`WAKER`]: a future waits.
//! - [`TIMED_OUT`]: a time limit was over before its G was there.
//! - [`DETACHED`]: the handle is gone; the goroutine frees the record.
//! - [`DONE`]: the result is there, for the handle; the goroutine does not touch the record any more.
//!
//! Goroutine: 1. writes the result; 2. moves the word to `DONE`; 3. makes ready whom it found there.
//! Handle: 1. moves the word from `EMPTY` to its own G, and parks; 2. reads the result.

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

/// See the top of this file. `repr(C)`: a pointer to the task is a pointer to the packet.
#[repr(C)]
pub(crate) struct Packet<T> {
    task: Task,
    state: AtomicUsize,
    free: unsafe fn(*mut Task),
    /// The scope that waits for it.
    scope: Option<NonNull<ScopeData>>,
    waker: UnsafeCell<Option<Waker>>,
    result: UnsafeCell<Option<Outcome<T>>>,
}

/// A packet with the closure behind it.
#[repr(C)]
struct Work<F, T> {
    packet: Packet<T>,
    /// The closure was taken out. Its bytes stay: see [`TaskOffsets::closure`].
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
    /// # Safety
    /// - **alone**: nobody else calls this meanwhile.
    unsafe fn take_closure(&self) -> Option<F> {
        if self.is_taken.load(Ordering::Relaxed) {
            return None;
        }
        self.is_taken.store(true, Ordering::Relaxed);
        // SAFETY: `new` wrote it, and it is taken out once: alone — promised by the caller.
        Some(unsafe { self.f.get().cast::<F>().read() })
    }
}

/// How a goroutine ended.
pub(crate) type Outcome<T> = Result<T, JoinError>;

/// How a goroutine ended without a result.
pub struct JoinError(Reason);

enum Reason {
    Panic(Box<dyn Any + Send>),
    Exit,
}

impl JoinError {
    /// Whether it panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Reason::Panic(_))
    }

    /// Whether it called [`goexit`](crate::goexit).
    #[doc(alias = "Goexit")]
    pub fn is_goexit(&self) -> bool {
        matches!(self.0, Reason::Exit)
    }

    /// The payload of its panic, for [`std::panic::resume_unwind`].
    ///
    /// # Panics
    /// It did not panic: ask [`JoinError::is_panic`] first.
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self.0 {
            Reason::Panic(payload) => payload,
            Reason::Exit => {
                panic!("`into_panic` of a goroutine that called `goexit`: ask `is_panic` first")
            }
        }
    }

    /// The payload of its panic, or the error itself.
    ///
    /// # Errors
    /// It did not panic.
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

/// Lays out a packet for `f`.
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

/// Runs the closure and keeps its result. See [`TaskKind::run`].
///
/// # Safety
/// - **work**: `task` is the head of a `Work<F, T>` whose closure was not run.
unsafe fn run<F: FnOnce() -> T, T>(task: *mut Task) -> bool {
    // SAFETY: work — promised by the caller.
    let work = unsafe { &*task.cast::<Work<F, T>>() };
    // SAFETY: alone — only the goroutine touches the closure.
    let Some(f) = (unsafe { work.take_closure() }) else { return false };
    let outcome = exit::catch_panic_or_goexit(f).map_err(JoinError::new);
    let packet = &work.packet;
    // SAFETY: the goroutine's, until the word says `DONE`.
    unsafe { *packet.result.get() = Some(outcome) };
    let scope = packet.scope;
    // PAIR packet: what the handle did before it went is done.
    if packet.state.load(Ordering::Acquire) != DETACHED {
        return true;
    }
    // Whoever looks at the goroutine from here on must not find what is there next.
    if let Some(g) = current::goroutine() {
        g.forget_task();
    }
    // SAFETY: detached: nobody else uses it.
    unsafe { free::<F, T>(task) };
    if let Some(scope) = scope {
        ScopeData::leave(scope);
    }
    false
}

/// Frees a packet that nobody else uses, and what is in it.
///
/// # Safety
/// - **work**: `task` is the head of a `Work<F, T>` that nobody else uses.
unsafe fn free<F, T>(task: *mut Task) {
    // SAFETY: work — promised by the caller; `new` leaked it.
    let work = unsafe { Box::from_raw(task.cast::<Work<F, T>>()) };
    // SAFETY: alone — work: promised by the caller.
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
    // A result that panics when it is dropped is a panic like any other.
    let payload = dropped.unwrap_or_else(Some);
    match (scope, payload) {
        // SAFETY: a scope waits for its goroutines, and this one has not left it.
        (Some(scope), Some(payload)) => unsafe { scope.as_ref() }.keep_panic(payload),
        // What a payload does when it is dropped is nobody's business any more.
        (None, Some(payload)) => drop(catch_unwind(AssertUnwindSafe(|| drop(payload)))),
        _ => {}
    }
}

/// Says that the goroutine is done. See [`TaskKind::complete`].
///
/// # Safety
/// - **packet**: `task` is the head of a `Packet<T>` whose result was written.
unsafe fn complete<T>(task: *mut Task) {
    let packet = task.cast::<Packet<T>>();
    // SAFETY: packet — promised by the caller; good until this goroutine has changed the word.
    let Packet { scope, free, state: word, .. } = unsafe { &*packet };
    let (scope, free) = (*scope, *free);
    loop {
        // PAIR packet: what the waiter did before is done.
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
            // SAFETY: packet — the waker's place is locked by this goroutine.
            WAKER => unsafe { wake_future(packet) },
            // SAFETY: nothing else is a G, and Gs are never freed.
            g => sched::ready(unsafe { &*(g as *const G) }),
        }
        break;
    }
    if let Some(scope) = scope {
        ScopeData::leave(scope);
    }
}

/// # Safety
/// - **locked**: the packet's word is `LOCKED`, by the caller.
unsafe fn wake_future<T>(packet: *mut Packet<T>) {
    // SAFETY: locked — promised by the caller; good until the word says `DONE`.
    let Packet { waker, state, .. } = unsafe { &*packet };
    // SAFETY: locked — as above.
    let waker = unsafe { &mut *waker.get() }.take();
    // PAIR packet: publishes the result.
    state.store(DONE, Ordering::Release);
    if let Some(waker) = waker {
        // Code of whoever waits: not with thread-locals that are gone.
        host(move || drop(catch_unwind(AssertUnwindSafe(|| waker.wake()))));
    }
}

/// A packet that its goroutine is left with when its thread-locals are gone.
struct Leftover {
    task: *mut Task,
    free: unsafe fn(*mut Task),
    scope: Option<NonNull<ScopeData>>,
}

// SAFETY: what it points at is used by nobody else; results are `Send`, and a scope may be left from
// anywhere.
unsafe impl Send for Leftover {}

impl Leftover {
    fn free(self) {
        // SAFETY: detached: nobody else uses it.
        unsafe { (self.free)(self.task) };
        if let Some(scope) = self.scope {
            ScopeData::leave(scope);
        }
    }
}

/// The result's destructor is code of the program: it gets a goroutine to run in.
#[cold]
fn free_elsewhere(leftover: Leftover) {
    match current::goroutine() {
        Some(g) if !g.is_thread() => host(move || drop(crate::go(move || leftover.free()))),
        _ => leftover.free(),
    }
}

/// The handle's end of a packet: one per packet.
pub(crate) struct PacketHandle<T>(NonNull<Packet<T>>);

// SAFETY: the result is `Send`, and everything else in the packet may be used from anywhere.
unsafe impl<T: Send> Send for PacketHandle<T> {}
// SAFETY: by reference only the state is looked at, and what never changes.
unsafe impl<T: Send> Sync for PacketHandle<T> {}

impl<T> PacketHandle<T> {
    /// # Safety
    /// - **one**: this is the only handle of a packet made by [`new`].
    pub(crate) unsafe fn from_raw(packet: NonNull<Packet<T>>) -> PacketHandle<T> {
        PacketHandle(packet)
    }

    fn packet(&self) -> &Packet<T> {
        // SAFETY: alive while its handle is.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn is_done(&self) -> bool {
        // PAIR packet: the result is there.
        self.packet().state.load(Ordering::Acquire) == DONE
    }

    /// There is no goroutine after all.
    pub(crate) fn never_started(self) {
        self.packet().state.store(DONE, Ordering::Relaxed);
    }

    /// Waits for the goroutine's end.
    pub(crate) fn wait(&self, reason: WaitReason) {
        if !self.is_done() {
            let data = ptr::from_ref(&self.packet().state).cast::<()>();
            // SAFETY: commit — `commit_join` takes the packet's word, which is alive while this waits.
            unsafe { sched::park(reason, commit_join, data) };
        }
    }

    /// Waits for the goroutine's end, until `when`. False: it has not ended.
    pub(crate) fn wait_until(&self, reason: WaitReason, when: u64) -> bool {
        if !self.is_done() {
            let word = &self.packet().state;
            let data = ptr::from_ref(word).cast::<()>();
            // SAFETY: data — a packet's word, alive while this waits.
            let alarm = unsafe { Alarm::new(time_out, data) };
            alarm.start(when);
            // Not the word itself: who looks knows by that that there is a time limit.
            let with = data.wrapping_byte_add(1);
            // SAFETY: commit — it takes what is one more than the packet's word, which is alive while this waits.
            unsafe { sched::park(reason, commit_timed_join, with) };
            alarm.stop();
            let _ = word.compare_exchange(TIMED_OUT, EMPTY, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.is_done()
    }

    /// The result, once it is done.
    pub(crate) fn take(self) -> Option<Outcome<T>> {
        if !self.is_done() {
            return None;
        }
        // SAFETY: done: the goroutine does not touch it any more, and this is the only handle.
        unsafe { (*self.packet().result.get()).take() }
    }

    /// Asks as a future does.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let packet = self.packet();
        // Code of others: not while the waker's place is locked.
        let mut waker = Some(context.waker().clone());
        loop {
            // PAIR packet: the result is there, or the waker's place was left whole.
            let found = packet.state.load(Ordering::Acquire);
            match found {
                DONE => return Poll::Ready(()),
                EMPTY | WAKER => {}
                _ => {
                    std::hint::spin_loop();
                    continue;
                }
            }
            // PAIR packet: the waker's place is ours.
            let locked =
                packet.state.compare_exchange(found, LOCKED, Ordering::Acquire, Ordering::Relaxed);
            if locked.is_err() {
                continue;
            }
            // SAFETY: locked above.
            let before = std::mem::replace(unsafe { &mut *packet.waker.get() }, waker.take());
            // PAIR packet: publishes the waker.
            packet.state.store(WAKER, Ordering::Release);
            drop(before);
            return Poll::Pending;
        }
    }
}

/// Tells the packet whose word `data` points at that `g` waits.
///
/// # Safety
/// - **word**: `data` is a packet's state word, alive.
unsafe fn commit_join(g: &'static G, data: *const ()) -> bool {
    // SAFETY: word — promised by the caller.
    let word = unsafe { &*data.cast::<AtomicUsize>() };
    let g = ptr::from_ref(g) as usize;
    // PAIR packet: publishes the parked G; or the result is there.
    word.compare_exchange(EMPTY, g, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// As [`commit_join`].
///
/// # Safety
/// - **word**: `data` is one more than what [`commit_join`] takes.
unsafe fn commit_timed_join(g: &'static G, data: *const ()) -> bool {
    // SAFETY: word — promised by the caller.
    unsafe { commit_join(g, data.wrapping_byte_sub(1)) }
}

/// Nobody waits any more, or is to begin.
///
/// # Safety
/// - **data**: a packet's state word, alive, of which only a goroutine that ends and one that waits with
///   a time limit know.
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
            // SAFETY: nothing else is a G, and Gs are never freed.
            return AlarmEffect::Ready(unsafe { &*(found as *const G) });
        }
    }
}

impl<T> Drop for PacketHandle<T> {
    fn drop(&mut self) {
        let packet = self.packet();
        // Dropped last: it is code of others.
        let mut waker = None;
        let mut from = EMPTY;
        // After a join it is done: nobody else changes the word any more.
        while !self.is_done() {
            // PAIR packet: what the handle did is done; or the result is there.
            let changed = packet.state.compare_exchange(
                from,
                if from == WAKER { LOCKED } else { DETACHED },
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match changed {
                Ok(WAKER) => {
                    // SAFETY: locked above.
                    waker = unsafe { (*packet.waker.get()).take() };
                    // PAIR packet: gives the place back.
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
        // SAFETY: done, and this is the only handle: nobody else uses it.
        unsafe { free(self.0.as_ptr().cast()) };
        drop(waker);
    }
}

impl<T> fmt::Debug for PacketHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketHandle").field("done", &self.is_done()).finish()
    }
}
