//! A goroutine without a scheduler: the caller resumes it, and it suspends itself.
//!
//! A [`Routine`] is the smallest unit that has a stack and an identity. It is meant for tests, for
//! measurements, and for programs that bring their own scheduler. To the code inside, a routine is
//! a thread, so it may be resumed from any thread, and the interface is safe.
//!
//! A routine has no stack while it is [`State::New`]. While it runs, the thread inside
//! [`Routine::resume`] owns the stack; while it is suspended, the `Routine` does. A finished
//! routine has no stack.
//!
//! This module never decides which routine runs next, and never stops a running one: the caller
//! resumes routines, and a routine suspends itself.

use crate::arch::{self, SavedContext};
use crate::carrier::{Carrier, Role, is_attached, is_in_forked_child, role, set_role};
use crate::exit_guard;
use crate::identity;
use crate::stack::{Cache, DEFAULT_SPACING, Size, Stack, StackError};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A computation with its own stack and thread identity. See the [module documentation](self).
///
/// A `Routine` that is dropped while suspended is leaked, with its stack: its frames cannot be
/// unwound from outside.
pub struct Routine<T> {
    /// A leaked box. A pointer, because the routine also accesses the body while it runs.
    body: NonNull<Body<T>>,
}

/// The reason why [`Routine::resume`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The routine called [`suspend`].
    Suspended,
    /// The closure returned or panicked. [`Routine::into_result`] returns its result.
    Finished,
}

/// The state of a routine. Up to date only while the routine does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Suspended,
    Finished,
}

/// The heap allocation of a routine. `repr(C)`, so that a pointer to `core` is also a pointer to
/// the body.
#[repr(C)]
struct Body<T> {
    core: Core,
    f: Option<Box<dyn FnOnce() -> T + Send>>,
    result: Option<std::thread::Result<T>>,
}

/// The part of a [`Body`] that does not depend on the type of the result; its first field.
///
/// The resumer and the routine both access it, through a raw pointer: no reference may live across
/// a switch.
struct Core {
    saved: SavedContext,
    resumer: SavedContext,
    stack: Option<Stack>,
    size: Size,
    state: State,
    identity: bool,
    id: u64,
    /// Runs the closure of the body that contains this core.
    run: unsafe fn(*mut Core),
    /// The reason why the identity could not be built.
    error: Option<StackError>,
}

impl Core {
    /// # Safety
    /// - **alive**: `core` points to a live core.
    unsafe fn saved(core: *mut Core) -> *mut SavedContext {
        // SAFETY: alive — promised by the caller.
        unsafe { &raw mut (*core).saved }
    }

    /// # Safety
    /// - **alive**: `core` points to a live core.
    unsafe fn resumer(core: *mut Core) -> *mut SavedContext {
        // SAFETY: alive — promised by the caller.
        unsafe { &raw mut (*core).resumer }
    }

    /// Switches from the routine to its resumer, which receives `message`.
    ///
    /// # Safety
    /// - **inside**: the caller runs on the routine's stack, with the thread pointer that is stored
    ///   in `saved`; the resumer waits in `resume`.
    unsafe fn switch_to_resumer(core: *mut Core, message: usize) {
        // SAFETY: alive — inside: the core lives while its routine runs.
        let saved = unsafe { Core::saved(core) };
        // SAFETY: alive — as above.
        let resumer = unsafe { Core::resumer(core) };
        // SAFETY: to, from, fs — all follow from `inside`.
        unsafe { arch::switch(saved, resumer, message) };
    }
}

/// Messages that a routine passes to its resumer when it switches back.
const SUSPENDED: usize = 0;
const FINISHED: usize = 1;
const FAILED: usize = 2;

thread_local! {
    /// The routine that runs with these thread-locals, or null. A routine with an identity sets its
    /// own copy once. For a routine without one, [`resume`] sets the thread's copy and restores it
    /// afterwards.
    static CURRENT: Cell<*mut Core> = const { Cell::new(std::ptr::null_mut()) };
    /// The carrier and the stack cache of this thread, once it has resumed a routine.
    static CARRIER_THREAD: RefCell<Option<Box<CarrierThread>>> = const { RefCell::new(None) };
}

// SAFETY: the closure and its result are `Send`. The frames on the stack belong to code that always
// sees its own identity, whichever thread resumes it.
unsafe impl<T: Send> Send for Routine<T> {}

impl<T> std::fmt::Debug for Routine<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let core = self.core();
        f.debug_struct("Routine").field("id", &core.id).field("state", &core.state).finish()
    }
}

impl<T: Send + 'static> Routine<T> {
    /// Creates a routine that will run `f` on a stack of `size`. The stack is allocated by the
    /// first [`resume`](Routine::resume).
    pub fn new(size: Size, f: impl FnOnce() -> T + Send + 'static) -> Routine<T> {
        Routine::with_identity(size, f, true)
    }

    /// Like [`Routine::new`], but the routine uses the thread-locals of the thread that resumes it,
    /// as in other runtimes with stackful coroutines. Meant for tests that show the resulting
    /// errors, and for measuring the cost of an identity.
    ///
    /// # Safety
    /// - **no thread-locals**: no function that `f` calls uses a thread-local across a [`suspend`],
    ///   not even errno; or the routine is always resumed on the same thread.
    pub unsafe fn without_identity(
        size: Size,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Routine<T> {
        Routine::with_identity(size, f, false)
    }

    fn with_identity(
        size: Size,
        f: impl FnOnce() -> T + Send + 'static,
        identity: bool,
    ) -> Routine<T> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let core = Core {
            saved: SavedContext::empty(0),
            resumer: SavedContext::empty(0),
            stack: None,
            size,
            state: State::New,
            identity,
            id: IDS.fetch_add(1, Ordering::Relaxed),
            run: run_body::<T>,
            error: None,
        };
        let body = Box::new(Body { core, f: Some(Box::new(f)), result: None });
        Routine { body: NonNull::from(Box::leak(body)) }
    }

    /// Runs the routine until it suspends or finishes.
    ///
    /// # Errors
    /// The calling thread could not be prepared to run goroutines, or this is the first call and
    /// there was no memory for the stack or its thread-locals. The routine is unchanged, and
    /// `resume` can be called again.
    ///
    /// # Panics
    /// The routine has already finished: check the returned [`Status`], and call
    /// [`into_result`](Routine::into_result) instead. Also panics in a forked child, if the caller
    /// is the goroutine that forked.
    #[track_caller]
    pub fn resume(&mut self) -> Result<Status, StackError> {
        // SAFETY: ours — `&mut self` is exclusive; the core is the first field of the body.
        unsafe { resume(self.body.as_ptr().cast()) }
    }

    /// Returns the result of the closure, or the payload of its panic. Returns `None` if the
    /// routine has not finished.
    pub fn into_result(self) -> Option<std::thread::Result<T>> {
        // SAFETY: the body is alive, and the routine does not run: a `resume` in progress would
        // borrow `self`.
        let body = unsafe { &mut *self.body.as_ptr() };
        body.result.take()
    }
}

impl<T> Routine<T> {
    fn core(&self) -> &Core {
        // SAFETY: the body is alive, and the routine does not run: a `resume` in progress would
        // borrow `self`.
        unsafe { self.body.cast::<Core>().as_ref() }
    }

    /// Returns the number of this routine, unique in the process. Reports call the routine
    /// `goroutine N`.
    pub fn id(&self) -> u64 {
        self.core().id
    }

    /// Returns the return addresses of the routine's frames, innermost first. Empty if the routine
    /// is not suspended.
    pub fn backtrace(&self) -> Vec<usize> {
        let mut frames = Vec::new();
        if self.core().state == State::Suspended {
            let add = |ip| {
                frames.push(ip);
                true
            };
            // SAFETY: parked — the routine is suspended, and `&self` prevents a `resume`.
            unsafe { crate::unwind::walk(&self.core().saved, add) };
        }
        frames
    }
}

impl<T> Drop for Routine<T> {
    fn drop(&mut self) {
        if self.core().state != State::Suspended {
            // SAFETY: leaked by `with_identity` and freed once, here; no code runs on the routine's
            // stack.
            drop(unsafe { Box::from_raw(self.body.as_ptr()) });
        }
    }
}

/// Suspends the calling routine: its [`Routine::resume`] returns [`Status::Suspended`]. Returns
/// when the routine is resumed again.
///
/// # Panics
/// The caller is not a routine: it runs on an ordinary thread or inside [`host`](crate::host). Also
/// panics in a forked child, if the caller is the goroutine that forked.
#[inline(never)]
#[track_caller]
pub fn suspend() {
    let core = CURRENT.get();
    assert!(
        !is_in_forked_child(),
        "`suspend` called in a forked child by the goroutine that forked: {REMEDY}"
    );
    assert!(
        !core.is_null(),
        "`suspend` called outside a routine: call it from the closure given to `Routine::new`, \
         and not inside `host`"
    );
    // SAFETY: inside — `CURRENT` was set by this routine, or by `resume` on its behalf.
    unsafe { Core::switch_to_resumer(core, SUSPENDED) };
}

/// The remedy in panics of a forked child, where the thread to switch to does not exist.
const REMEDY: &str = "its thread is in the parent; call `exec`, exit, or fork outside a goroutine";

/// # Safety
/// - **ours**: during the call, only the caller and the routine itself use the core.
#[track_caller]
unsafe fn resume(core: *mut Core) -> Result<Status, StackError> {
    assert!(
        !is_in_forked_child(),
        "`resume` called in a forked child by the goroutine that forked: {REMEDY}"
    );
    attach()?;
    // SAFETY: ours — promised by the caller.
    let state = unsafe { (*core).state };
    assert!(
        state != State::Finished,
        "`resume` called on a finished routine: call `into_result` instead"
    );
    // SAFETY: ours — as above.
    unsafe { (*core).resumer = SavedContext::for_caller() };
    if state == State::New {
        // SAFETY: ours — as above.
        unsafe { prepare(core) }?;
    }
    let outer = CURRENT.get();
    // SAFETY: ours — as above.
    if !unsafe { (*core).identity } {
        // The routine runs with this thread's identity, so it reads this thread's `CURRENT`.
        CURRENT.set(core);
        // SAFETY: ours — as above.
        unsafe { (*core).saved.thread_pointer = arch::thread_pointer() };
    }
    // SAFETY: alive — ours: the core outlives the call.
    let resumer = unsafe { Core::resumer(core) };
    // SAFETY: alive — as above.
    let saved = unsafe { Core::saved(core) };
    // SAFETY: to — filled by `prepare` or by the routine's last switch; from — alive until the
    // routine switches back; fs — the routine's own identity, or this thread's.
    let message = unsafe { arch::switch(resumer, saved, 0) };
    CURRENT.set(outer);
    // SAFETY: ours — the routine has switched back.
    unsafe { after_switch(core, message) }
}

/// Updates the state of the routine after it switched back with `message`.
///
/// # Safety
/// - **ours**: as for `resume`.
unsafe fn after_switch(core: *mut Core, message: usize) -> Result<Status, StackError> {
    // SAFETY: ours — promised by the caller.
    let core = unsafe { &mut *core };
    match message {
        SUSPENDED => {
            core.state = State::Suspended;
            Ok(Status::Suspended)
        }
        FINISHED => {
            core.state = State::Finished;
            if let Some(stack) = core.stack.take() {
                if core.identity {
                    // SAFETY: quiet — the routine retired its identity and will not run again.
                    unsafe { identity::wipe(&stack) };
                }
                recycle_stack(stack);
            }
            Ok(Status::Finished)
        }
        _ => {
            core.stack = None;
            Err(core.error.take().unwrap_or(StackError::Size { asked: 0 }))
        }
    }
}

/// Allocates the routine's stack and writes its first frame.
///
/// # Safety
/// - **ours**: as for `resume`.
unsafe fn prepare(core: *mut Core) -> Result<(), StackError> {
    // SAFETY: ours — promised by the caller.
    let routine = unsafe { &mut *core };
    let stack = take_stack(routine.size)?;
    stack.set_owner(routine.id);
    let (entry, thread_pointer): (arch::Entry, usize) = if !routine.identity {
        (start_without_identity, 0) // `resume` sets the thread pointer
    } else if stack.has_identity() {
        (start_entry, stack.thread_pointer())
    } else {
        (build, routine.resumer.thread_pointer)
    };
    // SAFETY: mapped, quiet — a stack that was just allocated, on which no code runs.
    let sp = unsafe { arch::first_frame(stack.top(), entry, core as usize) };
    routine.saved = SavedContext { sp, thread_pointer };
    routine.stack = Some(stack);
    Ok(())
}

/// Entry of a stack without an identity. Runs with the resumer's thread pointer, builds the
/// identity, and restarts the stack with it.
///
/// # Safety
/// - **callback**: [`prepare`] wrote it into the first frame, with the core.
unsafe extern "C" fn build(_message: usize, core: usize) -> ! {
    /// # Safety
    /// - **callback**: called by `call_on_stack`, with the core.
    unsafe extern "C" fn create(core: *mut u8) {
        // SAFETY: the routine's own core.
        let core = unsafe { &mut *core.cast::<Core>() };
        if let Some(stack) = &core.stack {
            // SAFETY: quiet — the stack has no identity, and only this code runs on it.
            core.error = unsafe { identity::create(stack) }.err();
        }
    }
    let core = core as *mut Core;
    // `create` runs on the resumer's stack, below the resumer's frames. On the routine's own stack
    // it would touch a second page, which would stay committed.
    // SAFETY: the core is alive: the resumer waits in `resume`.
    let below = unsafe { (*core).resumer.sp - arch::RED_ZONE_BYTES } as *mut u8;
    // SAFETY: mapped, quiet — the resumer's stack, below everything the resumer uses; callback —
    // `create` does not unwind.
    unsafe { arch::call_on_stack(below, create, core.cast()) };
    // SAFETY: the routine's own core.
    let routine = unsafe { &mut *core };
    match &routine.stack {
        Some(stack) if routine.error.is_none() => {
            routine.saved.thread_pointer = stack.thread_pointer();
            // SAFETY: mapped — the stack that this function runs on; fs — built above. No local
            // variable needs a drop.
            unsafe {
                arch::restart_stack(stack.top(), stack.thread_pointer(), start, core as usize)
            }
        }
        _ => {
            // SAFETY: inside — with the resumer's thread pointer, which `saved` holds.
            unsafe { Core::switch_to_resumer(core, FAILED) };
            exit_guard::abort()
        }
    }
}

/// Entry of a stack with an identity.
///
/// # Safety
/// - **callback**: [`prepare`] wrote it into the first frame, with the core.
unsafe extern "C" fn start_entry(_message: usize, core: usize) -> ! {
    // SAFETY: callback — this function runs with the routine's identity.
    unsafe { start(core) }
}

/// Runs a routine with its own identity from beginning to end.
///
/// # Safety
/// - **callback**: called with the routine's identity, at the top of its stack, with the core.
unsafe extern "C" fn start(core: usize) -> ! {
    let core = core as *mut Core;
    // SAFETY: own — this runs with the routine's identity, which is newly created or wiped.
    unsafe { identity::begin() };
    // SAFETY: true — with an identity of its own, on a thread that `attach` made a carrier.
    unsafe { set_role(Role::Goroutine) };
    CURRENT.set(core);
    // SAFETY: the core is alive as long as the routine runs.
    let run = unsafe { (*core).run };
    // SAFETY: body — `run` was instantiated for this core's body.
    unsafe { run(core) };
    let lost = is_in_forked_child();
    // SAFETY: own — no later code needs this identity.
    unsafe { identity::retire() };
    if lost {
        // In a forked child this goroutine is the only thread, so the process ends with it.
        exit_guard::exit_forked_child();
    }
    // SAFETY: inside — as above; the routine is not resumed again.
    unsafe { Core::switch_to_resumer(core, FINISHED) };
    exit_guard::abort()
}

/// Runs a routine without an identity from beginning to end. This function reads no thread-local.
///
/// # Safety
/// - **callback**: [`prepare`] wrote it into the first frame, with the core.
unsafe extern "C" fn start_without_identity(_message: usize, core: usize) -> ! {
    let core = core as *mut Core;
    // SAFETY: as in `start`.
    let run = unsafe { (*core).run };
    // SAFETY: as in `start`.
    unsafe { run(core) };
    // SAFETY: inside — this is the routine's stack; the routine is not resumed again.
    unsafe { Core::switch_to_resumer(core, FINISHED) };
    exit_guard::abort()
}

/// # Safety
/// - **body**: `core` is the first field of a `Body<T>` that no other code uses.
unsafe fn run_body<T>(core: *mut Core) {
    let body = core.cast::<Body<T>>();
    // SAFETY: body — promised by the caller. No reference to the body lives while `f` runs.
    let f = unsafe { (*body).f.take() };
    if let Some(f) = f {
        let result = catch_unwind(AssertUnwindSafe(f));
        // SAFETY: body — as above.
        unsafe { (*body).result = Some(result) };
    }
}

/// A thread that runs routines: its carrier, and the stacks that it caches.
struct CarrierThread {
    carrier: Carrier,
    cache: Option<Cache>,
}

impl Drop for CarrierThread {
    fn drop(&mut self) {
        // SAFETY: attached — by `attach`, on this thread; no routine runs on it.
        unsafe { self.carrier.detach() };
    }
}

/// Makes the calling thread a carrier, unless it already is one or is a goroutine.
fn attach() -> Result<(), StackError> {
    if role() != Role::Foreign || is_attached() {
        return Ok(());
    }
    let refused = |error: std::io::Error| StackError::Memory {
        doing: "making a thread a carrier of goroutines",
        bytes: size_of::<CarrierThread>(),
        errno: error.raw_os_error().unwrap_or(libc::ENOMEM),
    };
    let attached = CARRIER_THREAD.try_with(|place| {
        let here = Box::new(CarrierThread { carrier: Carrier::new(), cache: None });
        // SAFETY: alive — stored in `CARRIER_THREAD` until the thread ends.
        unsafe { here.carrier.attach() }.map_err(refused)?;
        *place.borrow_mut() = Some(here);
        Ok(())
    });
    attached.unwrap_or(Err(StackError::ThreadEnds))
}

/// Takes a stack of `size` from the thread's cache or from the depot. Threads cache only stacks of
/// the default size: others are rare and may be large.
fn take_stack(size: Size) -> Result<Stack, StackError> {
    if role() != Role::Carrier || size.spacing() != default_spacing() {
        return Stack::new(size);
    }
    let taken = CARRIER_THREAD.try_with(|here| match &mut *here.borrow_mut() {
        Some(here) => here.cache.get_or_insert_with(|| Cache::new(size)).take(size),
        None => Stack::new(size),
    });
    taken.unwrap_or_else(|_| Stack::new(size))
}

/// Returns the spacing of stacks of the default size. Reads the environment on the first call;
/// concurrent first calls may each read it.
fn default_spacing() -> usize {
    static SPACING: AtomicUsize = AtomicUsize::new(0);
    let known = SPACING.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let spacing = Size::from_environment().map_or(DEFAULT_SPACING, |size| size.spacing());
    SPACING.store(spacing, Ordering::Relaxed);
    spacing
}

/// Returns the stacks in the calling thread's cache to the depot.
pub(crate) fn flush_stack_cache() {
    let _ = CARRIER_THREAD.try_with(|here| {
        if let Some(cache) = here.borrow_mut().as_mut().and_then(|here| here.cache.as_mut()) {
            cache.clear();
        }
    });
}

fn recycle_stack(stack: Stack) {
    if role() == Role::Carrier {
        // Without a cache the stack is dropped, which returns it to the depot.
        let _ = CARRIER_THREAD.try_with(|here| {
            if let Some(cache) = here.borrow_mut().as_mut().and_then(|here| here.cache.as_mut()) {
                cache.put(stack);
            }
        });
    }
}
