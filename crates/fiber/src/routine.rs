//! A goroutine without a scheduler: somebody resumes it, it suspends itself.
//!
//! The smallest thing that has a stack, an identity and a life, for tests, measurements, and
//! programs that bring their own scheduling. Since the code inside cannot tell it from a thread, it
//! may be resumed from any thread, and all of this is safe to use.
//!
//! Who owns the stack: nobody while [`State::New`]; the thread inside [`Routine::resume`] while it
//! runs; the `Routine` while suspended; nobody again once finished.

use crate::arch::{self, SavedContext};
use crate::carrier::{Carrier, Role, is_attached, is_in_forked_child, role, set_role};
use crate::identity;
use crate::stack::{Cache, DEFAULT_SPACING, Size, Stack, StackError};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A computation with its own stack and thread identity: see the top of this file.
///
/// Dropped while suspended, it is leaked, stack and all: its frames cannot be undone from outside.
pub struct Routine<T> {
    /// A box, as a pointer: its routine uses it too.
    body: NonNull<Body<T>>,
}

/// Whether a resumed [`Routine`] is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It called [`suspend`].
    Suspended,
    /// Its closure returned or panicked: [`Routine::into_result`] tells.
    Finished,
}

/// Where a routine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Suspended,
    Finished,
}

/// `repr(C)`: a pointer to the core is a pointer to the body.
#[repr(C)]
struct Body<T> {
    core: Core,
    f: Option<Box<dyn FnOnce() -> T + Send>>,
    result: Option<std::thread::Result<T>>,
}

/// What does not depend on the result's type. The first field of [`Body`].
///
/// Both sides of a switch use it, each through this pointer: no reference lives across one.
struct Core {
    saved: SavedContext,
    resumer: SavedContext,
    stack: Option<Stack>,
    size: Size,
    state: State,
    identity: bool,
    id: u64,
    /// Runs the closure of the body around it.
    run: unsafe fn(*mut Core),
    /// Why the identity could not be built.
    error: Option<StackError>,
}

impl Core {
    /// # Safety
    /// - **alive**: `core` points to one.
    unsafe fn saved(core: *mut Core) -> *mut SavedContext {
        // SAFETY: alive — promised by the caller.
        unsafe { &raw mut (*core).saved }
    }

    /// # Safety
    /// - **alive**: `core` points to one.
    unsafe fn resumer(core: *mut Core) -> *mut SavedContext {
        // SAFETY: alive — promised by the caller.
        unsafe { &raw mut (*core).resumer }
    }

    /// Switches from the routine to whoever resumed it.
    ///
    /// # Safety
    /// - **inside**: the caller runs on the routine's stack, with the thread pointer that `saved`
    ///   has; its resumer waits in `resume`.
    unsafe fn switch_to_resumer(core: *mut Core, message: usize) {
        // SAFETY: alive — inside: a routine that runs is.
        let saved = unsafe { Core::saved(core) };
        // SAFETY: alive — as above.
        let resumer = unsafe { Core::resumer(core) };
        // SAFETY: to, from, fs — inside.
        unsafe { arch::switch(saved, resumer, message) };
    }
}

/// What a routine says when it switches back.
const SUSPENDED: usize = 0;
const FINISHED: usize = 1;
const FAILED: usize = 2;

thread_local! {
    /// The routine that runs with these thread-locals: constant for its life.
    static CURRENT: Cell<*mut Core> = const { Cell::new(std::ptr::null_mut()) };
    /// What makes a thread able to carry routines.
    static CARRIER_THREAD: RefCell<Option<Box<CarrierThread>>> = const { RefCell::new(None) };
}

// SAFETY: closure and result are `Send`; frames on the stack belong to code that sees one thread,
// its own, wherever it is resumed.
unsafe impl<T: Send> Send for Routine<T> {}

impl<T> std::fmt::Debug for Routine<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let core = self.core();
        f.debug_struct("Routine").field("id", &core.id).field("state", &core.state).finish()
    }
}

impl<T: Send + 'static> Routine<T> {
    /// A routine that will run `f` on a stack of `size`. It has no stack until it is first resumed.
    pub fn new(size: Size, f: impl FnOnce() -> T + Send + 'static) -> Routine<T> {
        Routine::with_identity(size, f, true)
    }

    /// As [`Routine::new`], but with the thread-locals of whatever thread resumes it: what every
    /// other runtime does. For tests that show the harm, and to measure what an identity costs.
    ///
    /// # Safety
    /// - **no thread-locals**: `f` uses none across a [`suspend`], in any function, not even errno;
    ///   or it is always resumed on one thread.
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

    /// Runs it until it suspends or finishes.
    ///
    /// # Errors
    /// The first time: no stack, or no memory for thread-locals. It can be tried again.
    ///
    /// # Panics
    /// It is finished. Or the caller is a goroutine that forked, and this is the child.
    #[track_caller]
    pub fn resume(&mut self) -> Result<Status, StackError> {
        // SAFETY: ours — `&mut self`; the core is the first field of the body.
        unsafe { resume(self.body.as_ptr().cast()) }
    }

    /// What the closure returned, or the payload of its panic; `None` unless finished.
    pub fn into_result(self) -> Option<std::thread::Result<T>> {
        // SAFETY: the body is alive; it does not run, since nobody resumes it.
        let body = unsafe { &mut *self.body.as_ptr() };
        body.result.take()
    }
}

impl<T> Routine<T> {
    fn core(&self) -> &Core {
        // SAFETY: the body is alive; the routine does not run, since nobody resumes it.
        unsafe { self.body.cast::<Core>().as_ref() }
    }

    /// A number that no other routine of this process has; reports call it `goroutine N`.
    pub fn id(&self) -> u64 {
        self.core().id
    }

    /// Return addresses of the frames it is suspended in, innermost first; empty unless it is
    /// suspended.
    pub fn backtrace(&self) -> Vec<usize> {
        let mut frames = Vec::new();
        if self.core().state == State::Suspended {
            let add = |ip| {
                frames.push(ip);
                true
            };
            // SAFETY: parked — it is suspended, and `&self` keeps it so.
            unsafe { crate::unwind::walk(&self.core().saved, add) };
        }
        frames
    }
}

impl<T> Drop for Routine<T> {
    fn drop(&mut self) {
        if self.core().state != State::Suspended {
            // SAFETY: leaked by `new`, freed once, here; nothing runs on its stack.
            drop(unsafe { Box::from_raw(self.body.as_ptr()) });
        }
    }
}

/// Gives control back to whoever resumed the calling routine, until it is resumed again.
///
/// # Panics
/// The caller is not a routine: on an ordinary thread, or inside [`host`](crate::host). Or it forked,
/// and this is the child.
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
    // SAFETY: inside — the routine set `CURRENT`, or its resumer did for it.
    unsafe { Core::switch_to_resumer(core, SUSPENDED) };
}

/// What to do where there is no thread to go back to.
const REMEDY: &str = "its thread is in the parent; call `exec`, exit, or fork outside a goroutine";

/// # Safety
/// - **ours**: nobody else uses the core during the call, except the routine itself.
#[track_caller]
unsafe fn resume(core: *mut Core) -> Result<Status, StackError> {
    assert!(
        !is_in_forked_child(),
        "`resume` called in a forked child by the goroutine that forked: {REMEDY}"
    );
    attach()?;
    // SAFETY: ours — promised by the caller.
    let state = unsafe { (*core).state };
    assert!(state != State::Finished, "`resume` of a finished routine: ask `into_result`");
    // SAFETY: ours — as above.
    unsafe { (*core).resumer = SavedContext::for_caller() };
    if state == State::New {
        // SAFETY: ours — as above.
        unsafe { prepare(core) }?;
    }
    let outer = CURRENT.get();
    // SAFETY: ours — as above.
    if !unsafe { (*core).identity } {
        // It borrows this thread's identity: the thread's variables are its own, for now.
        CURRENT.set(core);
        // SAFETY: ours — as above.
        unsafe { (*core).saved.thread_pointer = arch::thread_pointer() };
    }
    // SAFETY: alive — ours.
    let resumer = unsafe { Core::resumer(core) };
    // SAFETY: alive — ours.
    let saved = unsafe { Core::saved(core) };
    // SAFETY: to — filled by `prepare` or by the routine's last switch; from — alive until control is
    // back; fs — the routine's own, or this thread's.
    let message = unsafe { arch::switch(resumer, saved, 0) };
    CURRENT.set(outer);
    // SAFETY: ours — control is back.
    unsafe { after_switch(core, message) }
}

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
                    // SAFETY: quiet — the routine retired it and switched away for good.
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

/// Gives the routine a stack, and the stack a first frame.
///
/// # Safety
/// - **ours**: as for `resume`.
unsafe fn prepare(core: *mut Core) -> Result<(), StackError> {
    // SAFETY: ours — promised by the caller.
    let routine = unsafe { &mut *core };
    let stack = take_stack(routine.size)?;
    stack.set_owner(routine.id);
    let (entry, thread_pointer): (arch::Entry, usize) = if !routine.identity {
        (start_without_identity, 0) // the resumer's, each time
    } else if stack.has_identity() {
        (start_entry, stack.thread_pointer())
    } else {
        (build, routine.resumer.thread_pointer)
    };
    // SAFETY: mapped, quiet — the stack is ours, and nothing runs on it.
    let sp = unsafe { arch::first_frame(stack.top(), entry, core as usize) };
    routine.saved = SavedContext { sp, thread_pointer };
    routine.stack = Some(stack);
    Ok(())
}

/// First on a stack without identity, with the resumer's thread pointer: builds the identity, then
/// starts over with it.
///
/// # Safety
/// - **callback**: [`prepare`] laid it out as the first frame, with the core.
unsafe extern "C" fn build(_message: usize, core: usize) -> ! {
    /// # Safety
    /// - **callback**: `call_on_stack` calls it, with the core.
    unsafe extern "C" fn create(core: *mut u8) {
        // SAFETY: the routine's own core.
        let core = unsafe { &mut *core.cast::<Core>() };
        if let Some(stack) = &core.stack {
            // SAFETY: quiet — the stack has none, and only this code runs on it.
            core.error = unsafe { identity::create(stack) }.err();
        }
    }
    let core = core as *mut Core;
    // On the resumer's stack, below its frames: here it would touch a second page, for good.
    // SAFETY: the resumer waits; its core is alive.
    let below = unsafe { (*core).resumer.sp - arch::RED_ZONE_BYTES } as *mut u8;
    // SAFETY: mapped, quiet — the resumer's stack below all that it uses; callback — `create` does
    // not unwind.
    unsafe { arch::call_on_stack(below, create, core.cast()) };
    // SAFETY: the routine's own core.
    let routine = unsafe { &mut *core };
    match &routine.stack {
        Some(stack) if routine.error.is_none() => {
            routine.saved.thread_pointer = stack.thread_pointer();
            // SAFETY: mapped — the stack this runs on; fs — built above. Nothing here needs a drop.
            unsafe {
                arch::restart_stack(stack.top(), stack.thread_pointer(), start, core as usize)
            }
        }
        _ => {
            // SAFETY: inside — with the resumer's thread pointer, as `saved` says.
            unsafe { Core::switch_to_resumer(core, FAILED) };
            std::process::abort()
        }
    }
}

/// First on a stack with an identity.
///
/// # Safety
/// - **callback**: [`prepare`] laid it out as the first frame, with the core.
unsafe extern "C" fn start_entry(_message: usize, core: usize) -> ! {
    // SAFETY: this runs with the identity.
    unsafe { start(core) }
}

/// The whole life of a routine, with its own identity.
///
/// # Safety
/// - **callback**: it runs with the routine's identity, at the top of its stack, with the core.
unsafe extern "C" fn start(core: usize) -> ! {
    let core = core as *mut Core;
    // SAFETY: own — this runs with the routine's identity, fresh or wiped.
    unsafe { identity::begin() };
    // SAFETY: true — an identity of its own, on a thread that `attach` made a carrier.
    unsafe { set_role(Role::Goroutine) };
    CURRENT.set(core);
    // SAFETY: the core is alive while the routine is.
    let run = unsafe { (*core).run };
    // SAFETY: `run` was made for this core's body.
    unsafe { run(core) };
    let lost = is_in_forked_child();
    // SAFETY: own — nothing of it is needed any more.
    unsafe { identity::retire() };
    if lost {
        // The last thread of a forked child has ended.
        // SAFETY: as libc does when a thread's function returns there.
        unsafe { libc::exit(0) };
    }
    // SAFETY: inside — for the last time.
    unsafe { Core::switch_to_resumer(core, FINISHED) };
    std::process::abort()
}

/// The life of a routine without identity: it reads no thread-local here.
///
/// # Safety
/// - **callback**: [`prepare`] laid it out as the first frame, with the core.
unsafe extern "C" fn start_without_identity(_message: usize, core: usize) -> ! {
    let core = core as *mut Core;
    // SAFETY: as in `start`.
    let run = unsafe { (*core).run };
    // SAFETY: as in `start`.
    unsafe { run(core) };
    // SAFETY: inside — for the last time.
    unsafe { Core::switch_to_resumer(core, FINISHED) };
    std::process::abort()
}

/// # Safety
/// - **body**: `core` is the first field of a `Body<T>`, used by nobody else.
unsafe fn run_body<T>(core: *mut Core) {
    let body = core.cast::<Body<T>>();
    // SAFETY: body — promised by the caller. No reference to it lives while `f` runs.
    let f = unsafe { (*body).f.take() };
    if let Some(f) = f {
        let result = catch_unwind(AssertUnwindSafe(f));
        // SAFETY: body — as above.
        unsafe { (*body).result = Some(result) };
    }
}

/// A thread that carries routines: its carrier, and stacks it keeps.
struct CarrierThread {
    carrier: Carrier,
    cache: Option<Cache>,
}

impl Drop for CarrierThread {
    fn drop(&mut self) {
        // SAFETY: attached — by `attach`, on this thread; no routine runs here any more.
        unsafe { self.carrier.detach() };
    }
}

/// Makes the calling thread a carrier, unless it has one or is a goroutine.
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
        // SAFETY: alive — kept in `CARRIER_THREAD` until the thread ends.
        unsafe { here.carrier.attach() }.map_err(refused)?;
        *place.borrow_mut() = Some(here);
        Ok(())
    });
    attached.unwrap_or(Err(StackError::ThreadEnds))
}

/// A thread keeps stacks of the default size only: others are rare, and may be large.
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

/// Asked of the environment once; whoever comes at the same time asks too.
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

/// Brings the stacks that the calling thread keeps to the depot.
pub(crate) fn flush_stack_cache() {
    let _ = CARRIER_THREAD.try_with(|here| {
        if let Some(cache) = here.borrow_mut().as_mut().and_then(|here| here.cache.as_mut()) {
            cache.clear();
        }
    });
}

fn recycle_stack(stack: Stack) {
    if role() == Role::Carrier {
        // Without a cache the stack is dropped, and goes to the depot.
        let _ = CARRIER_THREAD.try_with(|here| {
            if let Some(cache) = here.borrow_mut().as_mut().and_then(|here| here.cache.as_mut()) {
                cache.put(stack);
            }
        });
    }
}
