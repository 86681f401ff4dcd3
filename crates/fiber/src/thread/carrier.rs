//! The role of the running code: an ordinary thread, a thread that carries goroutines, or a
//! goroutine.
//!
//! The carrier is found through GS, which is set once per thread. `clone` copies GS, so a thread
//! started inside a goroutine has its parent's GS. Therefore code checks [`role`] or
//! [`is_attached`] before it reads GS. Both are thread-locals of the running code (inside a
//! goroutine, the goroutine's own), and in a new thread they are [`Role::Foreign`] and `false`.
//! Only a goroutine ([`Role::Goroutine`]) and a thread with a carrier (`is_attached`, which
//! includes [`Role::Carrier`]) may read GS. Signal handlers check in the same order.
//!
//! This module never switches to another stack: [`host`] changes the thread pointer, and runs its
//! closure on the caller's stack.

use crate::arch;
use crate::fault::AltStack;
use crate::magazine::{self, Magazine};
use crate::protocol::signal_word::SignalWord;
use crate::thread::signals::change_mask;
use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

/// What the running code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An ordinary thread, or code inside [`host`].
    Foreign,
    /// Code of a carrier's thread, between goroutines.
    Carrier,
    /// Code inside a goroutine.
    Goroutine,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Foreign) };
    /// Whether this thread has a carrier. Also true inside [`host`].
    static ATTACHED: Cell<bool> = const { Cell::new(false) };
}

/// Returns the caller's role.
#[inline]
pub fn role() -> Role {
    ROLE.get()
}

/// Sets the role of the code that runs with the current thread pointer.
///
/// # Safety
/// - **true**: the role is [`Role::Carrier`] only between [`Carrier::attach`] and
///   [`Carrier::detach`], and [`Role::Goroutine`] only for code with its own identity, on a thread
///   with a carrier.
#[inline]
pub unsafe fn set_role(role: Role) {
    ROLE.set(role);
}

/// Returns whether the calling thread has a carrier, whatever its role is. Returns `false` inside a
/// goroutine.
pub fn is_attached() -> bool {
    ATTACHED.get()
}

/// Returns whether the caller is a goroutine that can run code as its carrier's thread.
pub(crate) fn can_host() -> bool {
    role() == Role::Goroutine && !is_in_forked_child()
}

/// Returns whether the caller is a goroutine in a forked child: its carrier's thread exists only in
/// the parent.
pub(crate) fn is_in_forked_child() -> bool {
    if role() != Role::Goroutine {
        return false;
    }
    // SAFETY: carried — the role is `Goroutine`.
    let carrier = unsafe { arch::carrier() };
    // SAFETY: alive — a carrier is neither moved nor freed while a goroutine runs on it.
    unsafe { (*carrier).in_forked_child.get() }
}

/// Marks the carrier of the calling goroutine as lost. Called in a forked child by the thread that
/// forked; does nothing if that thread was not running a goroutine.
pub(crate) fn mark_forked_child() {
    if role() == Role::Goroutine {
        // SAFETY: carried — the role is `Goroutine`.
        let carrier = unsafe { arch::carrier() };
        // SAFETY: alive — the child has a copy of the parent's memory.
        unsafe { (*carrier).in_forked_child.set(true) };
    }
}

/// A bit of [`Carrier::slow_path_flags`]: a goroutine has changed the thread's signal mask.
pub const MASK_CHANGED: u32 = 1;

/// An OS thread that goroutines run on. The owner embeds the carrier as the first field of a larger
/// record (an M), so the address that [`arch::carrier`] returns is also the address of that record.
#[repr(C)]
#[derive(Debug)]
pub struct Carrier {
    /// gs:0: the carrier's own address, read by [`arch::carrier`].
    self_pointer: Cell<*const Carrier>,
    /// gs:8: the thread's own thread pointer, loaded by `call_host`.
    thread_pointer: Cell<usize>,
    /// gs:16: calls of [`arch::preempt_disable`] minus calls of [`arch::preempt_enable`]. While
    /// this is not 0, preemption is off: the running code is neither stopped nor moved.
    preempt_disable_count: AtomicU32,
    /// gs:20: 1 if the running code is requested to stop once the count above is 0. Written by any
    /// thread.
    preempt_pending: AtomicU32,
    /// gs:24: the thread's row of magazines.
    row: Cell<*const Magazine>,
    /// Flags to handle before other code runs on this carrier: [`MASK_CHANGED`], and the owner's
    /// bits. Written only on the carrier's thread.
    odd: AtomicU32,
    /// State of the signal that `interrupt` sends.
    pub(crate) signal: SignalWord,
    /// Whether the owner handles the signals of `interrupt` on this carrier.
    pub(crate) interruptible: Cell<bool>,
    /// The thread's signal mask without the changes made by goroutines. Set by
    /// [`Carrier::save_mask`].
    mask: Cell<Option<libc::sigset_t>>,
    alt_stack: RefCell<Option<AltStack>>,
    /// Whether a goroutine on this carrier has forked and this is the child: the carrier's thread
    /// is not in this process.
    in_forked_child: Cell<bool>,
}

// Assembly uses these offsets.
const _: () = assert!(std::mem::offset_of!(Carrier, self_pointer) == 0);
const _: () = assert!(std::mem::offset_of!(Carrier, thread_pointer) == 8);
const _: () = assert!(std::mem::offset_of!(Carrier, preempt_disable_count) == 16);
const _: () = assert!(std::mem::offset_of!(Carrier, preempt_pending) == 20);
const _: () = assert!(std::mem::offset_of!(Carrier, row) == 24);

impl Carrier {
    /// Creates a carrier that has no thread.
    pub const fn new() -> Carrier {
        Carrier {
            self_pointer: Cell::new(std::ptr::null()),
            thread_pointer: Cell::new(0),
            preempt_disable_count: AtomicU32::new(0),
            preempt_pending: AtomicU32::new(0),
            row: Cell::new(std::ptr::null()),
            odd: AtomicU32::new(0),
            signal: SignalWord::new(),
            interruptible: Cell::new(false),
            mask: Cell::new(None),
            alt_stack: RefCell::new(None),
            in_forked_child: Cell::new(false),
        }
    }

    /// Attaches the carrier to the calling thread, which can then switch to goroutines. Installs a
    /// signal stack that is large enough for the report of a stack overflow.
    ///
    /// # Errors
    /// The thread already has a carrier, goroutines are not supported on this system, there is no
    /// memory for the signal stack, or the system refuses to set GS.
    ///
    /// # Safety
    /// - **alive**: the carrier is neither moved nor freed until [`Carrier::detach`] is called or
    ///   the thread ends.
    pub unsafe fn attach(&self) -> io::Result<()> {
        if role() != Role::Foreign || is_attached() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the thread already has a carrier: detach it first",
            ));
        }
        crate::identity::support()
            .map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why.clone()))?;
        let alt_stack = AltStack::install()?;
        self.self_pointer.set(self);
        self.thread_pointer.set(arch::thread_pointer());
        self.row.set(magazine::row());
        // SAFETY: alive — promised by the caller.
        if !unsafe { arch::set_carrier(self) } {
            return Err(io::Error::last_os_error());
        }
        self.alt_stack.replace(Some(alt_stack));
        ATTACHED.set(true);
        // SAFETY: true — attached above.
        unsafe { set_role(Role::Carrier) };
        Ok(())
    }

    /// Detaches the carrier from the calling thread, which becomes an ordinary thread again.
    ///
    /// # Safety
    /// - **attached**: the caller runs on this carrier's thread, between goroutines.
    pub unsafe fn detach(&self) {
        // SAFETY: true — `Foreign` is allowed for any code.
        unsafe { set_role(Role::Foreign) };
        ATTACHED.set(false);
        arch::clear_carrier();
        self.alt_stack.replace(None);
    }

    /// Returns the flags to handle before other code runs on this carrier; 0 if there are none.
    #[inline]
    pub fn slow_path_flags(&self) -> u32 {
        self.odd.load(Ordering::Relaxed)
    }

    /// Sets or clears a bit of [`Carrier::slow_path_flags`]. The caller runs on this carrier's
    /// thread and cannot be moved to another one.
    pub fn set_slow_path_flag(&self, bit: u32, on: bool) {
        let rest = self.slow_path_flags() & !bit;
        self.odd.store(if on { rest | bit } else { rest }, Ordering::Relaxed);
    }

    /// Saves the thread's present signal mask, for [`Carrier::restore_mask`] to set again. Called
    /// on this carrier's thread.
    pub fn save_mask(&self) {
        self.mask.set(Some(change_mask(libc::SIG_BLOCK, None)));
    }

    /// Returns the mask that [`Carrier::save_mask`] saved.
    pub(crate) fn saved_mask(&self) -> Option<libc::sigset_t> {
        self.mask.get()
    }

    /// Undoes the changes that goroutines made to the thread's signal mask. Called on this
    /// carrier's thread.
    pub fn restore_mask(&self) {
        self.set_slow_path_flag(MASK_CHANGED, false);
        if let Some(mask) = self.mask.get() {
            change_mask(libc::SIG_SETMASK, Some(&mask));
        }
    }

    /// Returns the number of calls of [`arch::preempt_disable`] minus the number of calls of
    /// [`arch::preempt_enable`] on this carrier. Preemption is off while it is not 0.
    pub fn preempt_disable_count(&self) -> u32 {
        self.preempt_disable_count.load(Ordering::Relaxed)
    }

    /// Requests that the running code stop once preemption is on, or withdraws the request.
    pub fn set_preempt_pending(&self, pending: bool) {
        self.preempt_pending.store(u32::from(pending), Ordering::Relaxed);
    }

    /// Returns whether a request to stop is pending.
    pub fn is_preempt_pending(&self) -> bool {
        self.preempt_pending.load(Ordering::Relaxed) != 0
    }

    /// Returns the thread's row of magazines.
    pub(crate) fn row(&self) -> *const Magazine {
        self.row.get()
    }

    /// Sets the thread's row of magazines.
    pub(crate) fn set_row(&self, row: *const Magazine) {
        self.row.set(row);
    }

    /// Returns the thread's own thread pointer.
    pub fn thread_pointer(&self) -> usize {
        self.thread_pointer.get()
    }
}

impl Default for Carrier {
    fn default() -> Carrier {
        Carrier::new()
    }
}

/// Runs `f` as the thread that carries the calling goroutine: with the thread's own thread-locals,
/// its errno, and its identity in libc. On an ordinary thread, and in a child forked by a
/// goroutine, calls `f` directly.
///
/// Use this for libraries whose state grows with the number of threads that call them, and for
/// calls that change the thread (signal mask, affinity, namespaces). `f` runs on the goroutine's
/// stack and cannot switch to another goroutine: its [`role`] is [`Role::Foreign`]. A panic in `f`
/// propagates to the caller.
pub fn host<F, R>(f: F) -> R
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    if !can_host() {
        return f();
    }
    enum Call<F, R> {
        Todo(F),
        Done(std::thread::Result<R>),
        Taken,
    }
    /// # Safety
    /// - **callback**: `call_host` calls this function, with the address of a `Call`.
    unsafe extern "C" fn run<F: FnOnce() -> R, R>(call: *mut u8) {
        // SAFETY: callback — `host` passes the address of its `Call`, and waits for the return.
        let call = unsafe { &mut *call.cast::<Call<F, R>>() };
        if let Call::Todo(f) = std::mem::replace(call, Call::Taken) {
            // `Carrier`, or `Foreign` if code inside another `host` resumed this goroutine.
            let before = role();
            // SAFETY: true — `Foreign` is allowed for any code.
            unsafe { set_role(Role::Foreign) };
            let result = catch_unwind(AssertUnwindSafe(f));
            // SAFETY: true — this is the role from before the call.
            unsafe { set_role(before) };
            *call = Call::Done(result);
        }
    }
    let mut call = Call::<F, R>::Todo(f);
    // SAFETY: goroutine — `can_host` checked the role, and nothing in `run` can switch; callback —
    // `run` takes a `Call` and catches panics.
    unsafe { arch::call_host(run::<F, R>, (&raw mut call).cast()) };
    match call {
        Call::Done(Ok(result)) => result,
        Call::Done(Err(payload)) => resume_unwind(payload),
        Call::Todo(_) | Call::Taken => unreachable!("`call_host` returned without calling `run`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_foreign_until_it_attaches_and_after_it_detaches() {
        assert_eq!(role(), Role::Foreign);
        let carrier = Carrier::new();
        // SAFETY: alive — detached below.
        unsafe { carrier.attach() }.unwrap();
        assert_eq!(role(), Role::Carrier);
        // SAFETY: carried — attached above.
        assert_eq!(unsafe { arch::carrier() }, &raw const carrier);
        assert_eq!(carrier.thread_pointer(), arch::thread_pointer());
        let child = std::thread::spawn(role).join().unwrap();
        assert_eq!(child, Role::Foreign, "GS was copied to the child, the role was not");
        // SAFETY: attached — above, on this thread.
        unsafe { carrier.detach() };
        assert_eq!(role(), Role::Foreign);
    }

    #[test]
    fn host_on_an_ordinary_thread_calls_the_function_directly() {
        assert_eq!(host(|| 5), 5);
    }
}
