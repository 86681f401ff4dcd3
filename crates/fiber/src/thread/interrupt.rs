//! The preemption signal, which interrupts the code that runs on a carrier so that the runtime can
//! stop it.
//!
//! The handler calls the runtime's hook ([`OnInterruption`]), on the thread's signal stack and with
//! all signals blocked except those of faults. The hook can stop the interrupted code in two ways.
//! It can sleep in the handler, which stops the code together with its thread. Or it can redirect
//! the code ([`Interruption::redirect`]): when the handler returns, the code continues in another
//! function, on its own stack, as if it had called that function. From there the goroutine can be
//! switched away like any other.
//!
//! Our signals carry a mark. A SIGURG without the mark is forwarded to the handler that was
//! installed before ours. The hook is called for it too, because the signal may be ours all the
//! same: the kernel drops the mark if the user has too many signals pending, and where a container
//! refuses marked signals, we send unmarked ones. The extra call does no harm if the runtime has
//! requested nothing.
//!
//! A thread can announce a call that must not be interrupted: [`Carrier::drain_signal`]. The word
//! through which sender and thread agree, and the protocol, are in `protocol::signal_word`.
//!
//! This module never decides when code is interrupted or how it is stopped: the runtime calls
//! `Carrier::interrupt`, and its hook chooses the way.

use crate::arch::{self, Registers};
use crate::base::elf;
use crate::carrier::{Carrier, Role, is_attached, role};
use crate::fatal::{self, Errno};
use crate::hook::Hook;
use crate::stack::DEPOT;
use crate::thread::signals::{PreviousHandler, signals_of, unblock};
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// The preemption signal, the same as Go's. It is ignored by default, debuggers pass it through,
/// libc does not use it, and programs that use it must expect it to arrive without a reason.
const PREEMPT_SIGNAL: i32 = libc::SIGURG;

/// The runtime's function for interruptions. Called in a signal handler, on the carrier's thread:
/// it follows the rules for signal handlers and does not unwind.
pub type OnInterruption = unsafe fn(&Carrier, &mut Interruption);

static HOOK: Hook<OnInterruption> = Hook::new();

static PREVIOUS_HANDLER: PreviousHandler = PreviousHandler::new();

/// Id of this process. (A forked child has no runtime and sends no signals.)
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// The address of this static is the mark of our signals.
static MARK: u8 = 0;

/// Start and end of the program's own text, less a margin. Both are 0 if [`find_text`] cannot tell
/// the program's text from libc's.
static TEXT: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Stack that must be free below an interrupted frame, in addition to the stub's frame: for the
/// function that the stub calls.
const MIN_STACK_LEFT_BYTES: usize = 16 << 10;

/// Installs the signal handler. Called once per process.
///
/// # Errors
/// The system refuses to install the handler.
///
/// # Safety
/// - **then**: the function can be called on the stack of redirected code, with preemption off. It
///   returns with preemption on, possibly on another thread.
pub unsafe fn install(
    hook: &'static OnInterruption,
    then: unsafe extern "C" fn(),
) -> io::Result<()> {
    arch::init_async_preempt(then);
    find_text();
    // SAFETY: getpid has no precondition.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    HOOK.set(hook);
    // SAFETY: all-zero is a valid sigaction.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_signal as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: a valid set.
    unsafe { libc::sigfillset(&mut ours.sa_mask) };
    for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
        // SAFETY: a valid set and signal.
        unsafe { libc::sigdelset(&mut ours.sa_mask, fault) };
    }
    PREVIOUS_HANDLER.replace(PREEMPT_SIGNAL, &ours)
}

/// Finds the program's text in the first module. A static program contains libc: its text stays
/// unknown, because nothing separates the program's code from libc's.
fn find_text() {
    elf::for_each_loaded(|program| {
        if let Some(text) = program.code().next().filter(|_| program.has_interpreter()) {
            TEXT[0].store(text.start + TEXT_MARGIN_BYTES, Ordering::Relaxed);
            TEXT[1].store(text.end - TEXT_MARGIN_BYTES, Ordering::Relaxed);
        }
        ControlFlow::Break(())
    });
}

/// Bytes at both ends of the text that are left out, because [`arch::is_at_system_call`] reads the
/// code around an address.
const TEXT_MARGIN_BYTES: usize = 16;

/// # Safety
/// - **callback**: the kernel calls this function as a signal handler.
unsafe extern "C" fn on_signal(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: errno always has an address.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno of the interrupted code.
    let before = unsafe { *errno };
    // SAFETY: callback — the kernel passed `info`.
    let is_marked = unsafe { is_marked(info) };
    // SAFETY: callback — the kernel passed `context`.
    unsafe { handle_interruption(context, is_marked) };
    if !is_marked {
        // SAFETY: arguments — passed by the kernel.
        unsafe { PREVIOUS_HANDLER.call(signal, info, context) };
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// Returns whether a signal carries our mark.
///
/// # Safety
/// - **callback**: the kernel passed `info` to a signal handler.
unsafe fn is_marked(info: *const libc::siginfo_t) -> bool {
    // SAFETY: callback — promised by the caller.
    let info = unsafe { &*info };
    // SAFETY: the record of a queued signal has a value.
    info.si_code == libc::SI_QUEUE && unsafe { info.si_value() }.sival_ptr == mark()
}

fn mark() -> *mut libc::c_void {
    (&raw const MARK).cast_mut().cast()
}

/// Calls the hook if this thread has a carrier that is interruptible.
///
/// # Safety
/// - **context**: the kernel passed it to the signal handler.
unsafe fn handle_interruption(context: *mut libc::c_void, is_marked: bool) {
    // Checked before GS is read: a new thread has its parent's GS, and a thread that was detached
    // has no carrier. See `carrier`.
    if role() != Role::Goroutine && !is_attached() {
        return;
    }
    // SAFETY: carried — checked above.
    let carrier = unsafe { arch::carrier() };
    // SAFETY: alive — an attached carrier is neither moved nor freed.
    let carrier = unsafe { &*carrier };
    // A signal without the mark may be another sender's, while ours is still on its way.
    if is_marked {
        carrier.signal.arrive();
    }
    let Some(hook) = HOOK.get().filter(|_| carrier.interruptible.get()) else { return };
    // SAFETY: context — promised by the caller.
    let at = unsafe { arch::read_interrupted(context) };
    let mut interruption = Interruption { context, pc: at.pc, sp: at.sp };
    // SAFETY: called in a handler, on the carrier's thread.
    unsafe { hook(carrier, &mut interruption) };
}

/// Code that the signal has interrupted, as seen by the handler.
#[derive(Debug)]
pub struct Interruption {
    context: *mut libc::c_void,
    pc: usize,
    sp: usize,
}

impl Interruption {
    /// Returns the registers of the interrupted code.
    pub fn registers(&self) -> Registers {
        // SAFETY: context — the kernel's, valid as long as the handler runs.
        unsafe { arch::registers_of_signal(self.context) }
    }

    /// Returns whether the code is in the program's own text, at a point where any thread can
    /// continue it: not in libc or another library, not in code that uses its carrier, not at a
    /// system call.
    pub fn is_async_safe_point(&self) -> bool {
        let text = [0, 1].map(|end| TEXT[end].load(Ordering::Relaxed));
        (text[0]..text[1]).contains(&self.pc)
            && !arch::is_pinned(self.pc)
            // SAFETY: text — the address is in the program's text, and not at its edges.
            && !unsafe { arch::is_at_system_call(self.pc) }
    }

    /// Redirects the interrupted code. When the handler returns, the function passed to [`install`]
    /// runs on the code's stack; when that function returns, the code continues.
    ///
    /// Returns `false` if the code cannot be redirected:
    /// - it is not at [an async safe point](Interruption::is_async_safe_point);
    /// - its stack is not a goroutine's, or has too little room;
    /// - its state cannot be saved;
    /// - the thread's signal mask is not the mask saved by [`Carrier::save_mask`]: the code has
    ///   changed the mask, or is itself a signal handler, which must return on the thread where it
    ///   was called.
    ///
    /// # Safety
    /// - **off**: preemption is off for the function, and the code runs with its own identity.
    pub unsafe fn redirect(&mut self) -> bool {
        let Some(frame) = arch::async_preempt_frame_bytes() else { return false };
        let is_as_it_was = || {
            // SAFETY: carried — the handler has found this thread's carrier.
            let carrier = unsafe { arch::carrier() };
            // SAFETY: alive — an attached carrier is neither moved nor freed.
            let mask = unsafe { &*carrier }.saved_mask();
            // SAFETY: context — the kernel's.
            let context = unsafe { &*self.context.cast::<libc::ucontext_t>() };
            mask.is_some_and(|mask| signals_of(&mask) == signals_of(&context.uc_sigmask))
        };
        let has_room = || {
            let stack = DEPOT.find(self.sp).filter(|stack| stack.usable.contains(&self.sp));
            stack.is_some_and(|stack| self.sp - stack.usable.start >= frame + MIN_STACK_LEFT_BYTES)
        };
        // SAFETY: context — the kernel's.
        let can = self.is_async_safe_point()
            && is_as_it_was()
            && has_room()
            && unsafe { arch::can_be_saved(self.context) };
        if can {
            // SAFETY: context — the kernel's; room — checked above.
            unsafe { arch::redirect(self.context) };
        }
        can
    }
}

impl Carrier {
    /// Lets the hook handle interruptions of this carrier, and unblocks the signal. Called on the
    /// carrier's thread.
    pub fn enable_interrupts(&self) {
        unblock(PREEMPT_SIGNAL);
        self.interruptible.set(true);
    }

    /// Interrupts the code on this carrier, whose thread has the id `thread`. Called by another
    /// thread.
    ///
    /// Sends nothing if `is_in_call` returns `true`, that is, while the carrier's thread is in a
    /// call that must not be interrupted, or if another thread is sending a signal. `is_in_call`
    /// must read its state with `SeqCst`. Returns `false` only if the system refuses to send the
    /// signal.
    pub fn interrupt(&self, thread: i32, is_in_call: impl Fn() -> bool) -> bool {
        self.signal.send(is_in_call, || send(thread))
    }

    /// Waits until no signal of [`Carrier::interrupt`] can arrive. Called by the carrier's thread
    /// after it has recorded, by a `SeqCst` write, that it is in a call, and before it makes the
    /// call.
    #[inline]
    pub fn drain_signal(&self) {
        self.signal.drain(|| {
            // SAFETY: sched_yield has no precondition.
            unsafe { libc::sched_yield() };
        });
    }
}

/// Sends the signal with the mark, or without it if the system refuses marked signals. Returns
/// `false` if the system refuses both.
fn send(thread: i32) -> bool {
    let Err(why) = send_marked(thread) else { return true };
    let Err(last) = send_unmarked(thread) else { return true };
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if is_refusal(&last) && !REPORTED.swap(true, Ordering::Relaxed) {
        report_refusal(&why, &last);
    }
    false
}

/// Returns whether the system refuses the call itself, as a container's filter does.
fn is_refusal(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EPERM | libc::ENOSYS | libc::EACCES))
}

/// Warns that goroutines cannot be interrupted. Called once.
#[cold]
fn report_refusal(queue: &io::Error, kill: &io::Error) {
    fatal::warn(format_args!(
        "the system refuses to signal threads (rt_tgsigqueueinfo: {}; tgkill: {}): goroutines are preempted only where \
         they call the runtime",
        Errno::of(queue),
        Errno::of(kill),
    ));
}

/// Sends the signal without the mark.
fn send_unmarked(thread: i32) -> io::Result<()> {
    let process = PROCESS.load(Ordering::Relaxed);
    // SAFETY: `thread` is the id of a thread of this process, or of no thread.
    ignore_ended_thread(unsafe { libc::syscall(libc::SYS_tgkill, process, thread, PREEMPT_SIGNAL) })
}

/// Converts the result of a system call that sends a signal. A thread that has ended needs no
/// signal, so its absence is no error.
fn ignore_ended_thread(result: libc::c_long) -> io::Result<()> {
    match io::Error::last_os_error() {
        _ if result == 0 => Ok(()),
        why if why.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        why => Err(why),
    }
}

/// Sends the signal with the mark.
fn send_marked(thread: i32) -> io::Result<()> {
    // SAFETY: all-zero is a valid record.
    let mut info: Record = unsafe { std::mem::zeroed() };
    info.signal = PREEMPT_SIGNAL;
    info.code = libc::SI_QUEUE;
    info.value = mark() as usize;
    let process = PROCESS.load(Ordering::Relaxed);
    // SAFETY: `info` is a valid record; `thread` is a thread of this process, or no thread.
    ignore_ended_thread(unsafe {
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, PREEMPT_SIGNAL, &raw const info)
    })
}

/// The kernel's record of a queued signal. libc's type does not expose these fields.
#[repr(C)]
#[derive(Debug)]
struct Record {
    signal: i32,
    errno: i32,
    code: i32,
    pad: i32,
    process: i32,
    user: u32,
    value: usize,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<Record>() == size_of::<libc::siginfo_t>());
