//! Who am I: an ordinary thread, a thread that carries goroutines, or a goroutine?
//!
//! The carrier is found through GS, set once per thread. But `clone` copies GS to the child: a
//! thread started inside a goroutine has its parent's. So [`role`] is asked first, always: it is a
//! thread-local of whoever asks, the goroutine's own inside a goroutine, and a new thread starts
//! with [`Role::Foreign`]. Only [`Role::Carrier`] and [`Role::Goroutine`] may look at GS. Signal
//! handlers keep the same order.

use crate::arch;
use crate::fault::AltStack;
use crate::magazine::{self, Magazine};
use crate::thread::signals::change_mask;
use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

/// What the asking code runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An ordinary thread, or code inside [`host`].
    Foreign,
    /// A carrier's own code, between goroutines.
    Carrier,
    /// Code inside a goroutine.
    Goroutine,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Foreign) };
    /// Whether this thread has a carrier: also true inside [`host`].
    static ATTACHED: Cell<bool> = const { Cell::new(false) };
}

/// What the caller runs as.
#[inline]
pub fn role() -> Role {
    ROLE.get()
}

/// Says what the code with this thread pointer runs as from now on.
///
/// # Safety
/// - **true**: [`Role::Carrier`] only between [`Carrier::attach`] and [`Carrier::detach`];
///   [`Role::Goroutine`] only with an identity of its own, on a thread with a carrier.
#[inline]
pub unsafe fn set_role(role: Role) {
    ROLE.set(role);
}

/// Whether the calling thread has a carrier, whatever its role is now. A goroutine's own answer is
/// no.
pub fn is_attached() -> bool {
    ATTACHED.get()
}

/// Whether the caller is a goroutine whose carrying thread can be called.
pub(crate) fn can_host() -> bool {
    role() == Role::Goroutine && !is_in_forked_child()
}

/// Whether the caller is a goroutine that forked, in the child: its carrier is in the parent.
pub(crate) fn is_in_forked_child() -> bool {
    if role() != Role::Goroutine {
        return false;
    }
    // SAFETY: carried — the role says so.
    let carrier = unsafe { arch::carrier() };
    // SAFETY: alive — a carrier stays where it is while it carries.
    unsafe { (*carrier).in_forked_child.get() }
}

/// In the child of a fork, on the thread that forked: if it was a goroutine, its carrier is lost.
pub(crate) fn mark_forked_child() {
    if role() == Role::Goroutine {
        // SAFETY: carried — the role says so.
        let carrier = unsafe { arch::carrier() };
        // SAFETY: alive — the child has the parent's memory.
        unsafe { (*carrier).in_forked_child.set(true) };
    }
}

/// A bit of [`Carrier::slow_path_flags`]: a goroutine has changed the thread's signal mask.
pub const MASK_CHANGED: u32 = 1;

/// An OS thread that goroutines run on. Its owner embeds it as the first field of a larger record
/// (an M), which [`arch::carrier`] then finds.
#[repr(C)]
#[derive(Debug)]
pub struct Carrier {
    /// gs:0, where [`arch::carrier`] reads it.
    self_pointer: Cell<*const Carrier>,
    /// gs:8: the thread's own thread pointer; what `call_host` loads.
    thread_pointer: Cell<usize>,
    /// gs:16: how many reasons there are not to stop or move the code that runs here.
    preempt_disable_count: AtomicU32,
    /// gs:20: somebody wants it to stop when the last reason is gone.
    preempt_pending: AtomicU32,
    /// gs:24: the thread's row of magazines.
    row: Cell<*const Magazine>,
    /// What must be looked at before other code runs here: [`MASK_CHANGED`], and the owner's own bits.
    odd: AtomicU32,
    /// Where a signal of `interrupt` is: see there.
    pub(crate) signal_state: AtomicU32,
    /// Signals of `interrupt` are for this carrier's owner.
    pub(crate) interruptible: Cell<bool>,
    /// The signals that its thread does not want, but for what goroutines have changed.
    mask: Cell<Option<libc::sigset_t>>,
    alt_stack: RefCell<Option<AltStack>>,
    /// Its thread is not in this process: a goroutine that it carried has forked.
    in_forked_child: Cell<bool>,
}

// These are used in assembly.
const _: () = assert!(std::mem::offset_of!(Carrier, self_pointer) == 0);
const _: () = assert!(std::mem::offset_of!(Carrier, thread_pointer) == 8);
const _: () = assert!(std::mem::offset_of!(Carrier, preempt_disable_count) == 16);
const _: () = assert!(std::mem::offset_of!(Carrier, preempt_pending) == 20);
const _: () = assert!(std::mem::offset_of!(Carrier, row) == 24);

impl Carrier {
    /// A carrier without a thread.
    pub const fn new() -> Carrier {
        Carrier {
            self_pointer: Cell::new(std::ptr::null()),
            thread_pointer: Cell::new(0),
            preempt_disable_count: AtomicU32::new(0),
            preempt_pending: AtomicU32::new(0),
            row: Cell::new(std::ptr::null()),
            odd: AtomicU32::new(0),
            signal_state: AtomicU32::new(0),
            interruptible: Cell::new(false),
            mask: Cell::new(None),
            alt_stack: RefCell::new(None),
            in_forked_child: Cell::new(false),
        }
    }

    /// Makes the calling thread this carrier's: from here on it can switch to goroutines. It gets a
    /// signal stack large enough for a report of a stack overflow.
    ///
    /// # Errors
    /// No memory for the signal stack, or the system refuses to set GS; or the thread has a carrier.
    ///
    /// # Safety
    /// - **alive**: the carrier stays where it is until [`Carrier::detach`] or the thread's end.
    pub unsafe fn attach(&self) -> io::Result<()> {
        if role() != Role::Foreign || is_attached() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a thread has one carrier"));
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
        // SAFETY: true — attached one line above.
        unsafe { set_role(Role::Carrier) };
        Ok(())
    }

    /// Makes the calling thread an ordinary one again.
    ///
    /// # Safety
    /// - **attached**: the caller is this carrier's thread, between goroutines.
    pub unsafe fn detach(&self) {
        // SAFETY: true — any code may call itself foreign.
        unsafe { set_role(Role::Foreign) };
        ATTACHED.set(false);
        arch::clear_carrier();
        self.alt_stack.replace(None);
    }

    /// What must be looked at before other code runs here; 0: nothing.
    #[inline]
    pub fn slow_path_flags(&self) -> u32 {
        self.odd.load(Ordering::Relaxed)
    }

    /// Sets or takes back a bit of [`Carrier::slow_path_flags`]. On this carrier's thread, where it is not moved.
    pub fn set_slow_path_flag(&self, bit: u32, on: bool) {
        let rest = self.slow_path_flags() & !bit;
        self.odd.store(if on { rest | bit } else { rest }, Ordering::Relaxed);
    }

    /// The signal mask that its thread has now is its own: [`Carrier::restore_mask`] brings it back. On
    /// this carrier's thread.
    pub fn save_mask(&self) {
        self.mask.set(Some(change_mask(libc::SIG_BLOCK, None)));
    }

    /// What [`Carrier::save_mask`] found.
    pub(crate) fn saved_mask(&self) -> Option<libc::sigset_t> {
        self.mask.get()
    }

    /// Takes back what a goroutine has changed of the thread's signal mask. On this carrier's thread.
    pub fn restore_mask(&self) {
        self.set_slow_path_flag(MASK_CHANGED, false);
        if let Some(mask) = self.mask.get() {
            change_mask(libc::SIG_SETMASK, Some(&mask));
        }
    }

    /// How many reasons there are not to stop or move the code that runs here:
    /// [`arch::preempt_disable`] less [`arch::preempt_enable`].
    pub fn preempt_disable_count(&self) -> u32 {
        self.preempt_disable_count.load(Ordering::Relaxed)
    }

    /// Asks the code that runs here to stop when the last reason against it is gone, or takes the
    /// request back.
    pub fn set_preempt_pending(&self, pending: bool) {
        self.preempt_pending.store(u32::from(pending), Ordering::Relaxed);
    }

    /// Whether such a request stands.
    pub fn is_preempt_pending(&self) -> bool {
        self.preempt_pending.load(Ordering::Relaxed) != 0
    }

    /// The row of the thread's magazines.
    pub(crate) fn row(&self) -> *const Magazine {
        self.row.get()
    }

    /// The row of the thread's magazines has changed.
    pub(crate) fn set_row(&self, row: *const Magazine) {
        self.row.set(row);
    }

    /// The thread's own thread pointer.
    pub fn thread_pointer(&self) -> usize {
        self.thread_pointer.get()
    }
}

impl Default for Carrier {
    fn default() -> Carrier {
        Carrier::new()
    }
}

/// Runs `f` as the thread that carries this goroutine: with the thread's own thread-locals, its
/// errno, its name for libc. On an ordinary thread it just calls `f`.
///
/// For libraries whose state grows with the number of threads they see, and for calls whose effect
/// is the thread's (signal mask, affinity, namespaces). `f` cannot switch to another goroutine:
/// [`role`] is [`Role::Foreign`] in it. It runs on the goroutine's stack; a panic goes through.
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
    /// - **callback**: `call_host` calls it, with a `Call`.
    unsafe extern "C" fn run<F: FnOnce() -> R, R>(call: *mut u8) {
        // SAFETY: `host` passes its own `Call` and waits.
        let call = unsafe { &mut *call.cast::<Call<F, R>>() };
        if let Call::Todo(f) = std::mem::replace(call, Call::Taken) {
            // The carrier, or code inside another `host` that resumed this goroutine.
            let before = role();
            // SAFETY: true — any code may call itself foreign.
            unsafe { set_role(Role::Foreign) };
            let result = catch_unwind(AssertUnwindSafe(f));
            // SAFETY: true — as it was.
            unsafe { set_role(before) };
            *call = Call::Done(result);
        }
    }
    let mut call = Call::<F, R>::Todo(f);
    // SAFETY: goroutine — `role` says so, and nothing in `run` can switch; callback — `run` takes a
    // `Call` and catches what unwinds.
    unsafe { arch::call_host(run::<F, R>, (&raw mut call).cast()) };
    match call {
        Call::Done(Ok(result)) => result,
        Call::Done(Err(payload)) => resume_unwind(payload),
        Call::Todo(_) | Call::Taken => unreachable!("`run` ran"),
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
    fn host_on_an_ordinary_thread_just_calls() {
        assert_eq!(host(|| 5), 5);
    }
}
