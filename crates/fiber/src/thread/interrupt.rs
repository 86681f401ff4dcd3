//! A signal that interrupts the code on a carrier, for a runtime that wants to stop it there.
//!
//! The runtime's function is called in the handler, on the thread's signal stack, with all other signals
//! held back but those of faults. It may sleep there: then the code is stopped with its thread. Or it makes the code go on in
//! another function ([`Interruption::redirect`]), on the code's own stack, as if it had called it where it
//! was: from there it can be switched away like any other.
//!
//! Our signals carry a mark. A SIGURG without the mark goes to the handler that was there before; but it may be ours all
//! the same, so the runtime's function is called too, which does no harm where nothing was asked for. The kernel drops
//! the mark where the user has too many signals pending; and where a container refuses signals with a mark, we send
//! them without.
//!
//! **A call that must not be interrupted.** The word [`Carrier::signal_state`], and who may change it:
//!
//! - 0: no signal is on its way. A sender makes it [`SENDING`].
//! - [`SENDING`]: one may come. The sender makes it [`SENT`], or what it was if it thought better of it.
//! - [`SENT`]: one is on its way, or has come, or waits since the thread holds it back. The handler makes it 0,
//!   or the thread, once it has been in the kernel. (Never [`SENDING`]: that may be the next one's.)
//!
//! Sender: 1. `SENDING`; 2. looks whether the thread is in such a call, and sends nothing if so. Thread: 1. says
//! that it is in the call; 2. waits while one may come. All four are of one order for all (`SeqCst`), so one of
//! them sees the other. (The thread says so by an exchange, which is a barrier anyway; the heavy one of
//! `barrier` would make the sender wait for every CPU, a thousand times a second.)

use crate::arch::{self, Registers};
use crate::carrier::{Carrier, Role, is_attached, role};
use crate::fatal::{self, Errno};
use crate::stack::DEPOT;
use crate::thread::signals::{PreviousHandler, signals_of, unblock};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// The signal, Go's: by default it does nothing, debuggers let it pass, libc does not use it, and programs
/// that do know that it may come for no reason.
const PREEMPT_SIGNAL: i32 = libc::SIGURG;

const SENDING: u32 = 1;
const SENT: u32 = 2;

/// What a runtime does about an interruption. Called in a signal handler, on the carrier's thread: it keeps
/// the rules of a handler, and does not unwind.
pub type Hook = unsafe fn(&Carrier, &mut Interruption);

static HOOK: AtomicUsize = AtomicUsize::new(0);

static PREVIOUS_HANDLER: PreviousHandler = PreviousHandler::new();

/// This process. (A forked child has no runtime, and sends none.)
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// What a signal of ours carries.
static MARK: u8 = 0;

/// The program's own text: where it begins, and where it ends.
static TEXT: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Stack that must be left below an interrupted frame, beside what the stub takes: for what is called there.
const MIN_STACK_LEFT_BYTES: usize = 16 << 10;

/// Puts the handler in force. Called once in a process.
///
/// # Errors
/// The system refuses.
///
/// # Safety
/// - **then**: it is called on the stack of code that was redirected, with preemption off, and returns with
///   preemption on, perhaps on another thread.
pub unsafe fn install(hook: Hook, then: unsafe extern "C" fn()) -> io::Result<()> {
    arch::init_async_preempt(then);
    find_text();
    // SAFETY: it has no precondition.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    HOOK.store(hook as usize, Ordering::Relaxed);
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

/// The program's text is the first module's; but where libc is in it too, nothing tells the two apart.
fn find_text() {
    /// # Safety
    /// - **callback**: `dl_iterate_phdr` calls it.
    unsafe extern "C" fn first(
        module: *mut libc::dl_phdr_info,
        _size: usize,
        _data: *mut libc::c_void,
    ) -> i32 {
        // SAFETY: callback — a valid record.
        let module = unsafe { &*module };
        // SAFETY: callback — it says where its headers are, and how many.
        let headers =
            unsafe { std::slice::from_raw_parts(module.dlpi_phdr, module.dlpi_phnum.into()) };
        let code = |header: &&libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0
        };
        // A program that is loaded without a loader has libc inside it.
        let is_dynamic = headers.iter().any(|header| header.p_type == libc::PT_INTERP);
        if let Some(text) = headers.iter().find(code).filter(|_| is_dynamic) {
            let start = (module.dlpi_addr + text.p_vaddr) as usize;
            TEXT[0].store(start + TEXT_MARGIN_BYTES, Ordering::Relaxed);
            TEXT[1].store(start + text.p_memsz as usize - TEXT_MARGIN_BYTES, Ordering::Relaxed);
        }
        1
    }
    // SAFETY: the callback only reads.
    unsafe { libc::dl_iterate_phdr(Some(first), std::ptr::null_mut()) };
}

/// Code is looked at around an address.
const TEXT_MARGIN_BYTES: usize = 16;

/// # Safety
/// - **callback**: the kernel calls it, as a signal handler.
unsafe extern "C" fn on_signal(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: errno has an address, always.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the interrupted code's own word.
    let before = unsafe { *errno };
    // SAFETY: callback — the kernel's record.
    let is_marked = unsafe { is_marked(info) };
    // SAFETY: callback — as above.
    unsafe { handle_interruption(context, is_marked) };
    if !is_marked {
        // SAFETY: arguments — the kernel's.
        unsafe { PREVIOUS_HANDLER.call(signal, info, context) };
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// # Safety
/// - **callback**: `info` is the kernel's.
unsafe fn is_marked(info: *const libc::siginfo_t) -> bool {
    // SAFETY: callback — promised by the caller.
    let info = unsafe { &*info };
    // SAFETY: a queued signal's record has a value.
    info.si_code == libc::SI_QUEUE && unsafe { info.si_value() }.sival_ptr == mark()
}

fn mark() -> *mut libc::c_void {
    (&raw const MARK).cast_mut().cast()
}

/// # Safety
/// - **context**: what the kernel passed to the handler.
unsafe fn handle_interruption(context: *mut libc::c_void, is_marked: bool) {
    // A thread that began with its parent's GS, or ended as a carrier, asks first: see `carrier`.
    if role() != Role::Goroutine && !is_attached() {
        return;
    }
    // SAFETY: carried — as above.
    let carrier = unsafe { arch::carrier() };
    // SAFETY: alive — a carrier stays where it is while it carries.
    let carrier = unsafe { &*carrier };
    // Without the mark it may be another's, and ours has yet to come.
    if is_marked {
        carrier.change_signal(SENT, 0);
    }
    let hook = HOOK.load(Ordering::Relaxed);
    if hook == 0 || !carrier.interruptible.get() {
        return;
    }
    // SAFETY: only `install` stores there.
    let hook = unsafe { std::mem::transmute::<usize, Hook>(hook) };
    // SAFETY: context — promised by the caller.
    let at = unsafe { arch::read_interrupted(context) };
    let mut interruption = Interruption { context, pc: at.pc, sp: at.sp };
    // SAFETY: in a handler, on the carrier's thread.
    unsafe { hook(carrier, &mut interruption) };
}

/// Code that was interrupted, as the handler sees it.
#[derive(Debug)]
pub struct Interruption {
    context: *mut libc::c_void,
    pc: usize,
    sp: usize,
}

impl Interruption {
    /// The registers of the code.
    pub fn registers(&self) -> Registers {
        // SAFETY: context — the kernel's, for as long as the handler runs.
        unsafe { arch::registers_of_signal(self.context) }
    }

    /// Whether it is in the program's own text, at a place where any thread may go on with it: not in libc
    /// or another library, not where it uses its carrier, not at a system call.
    pub fn is_async_safe_point(&self) -> bool {
        let text = [0, 1].map(|end| TEXT[end].load(Ordering::Relaxed));
        (text[0]..text[1]).contains(&self.pc)
            && !arch::is_pinned(self.pc)
            // SAFETY: text — it is in the program's, and not at its edges.
            && !unsafe { arch::is_at_system_call(self.pc) }
    }

    /// When the handler returns, the function given to [`install`] runs instead of the code, on the code's
    /// stack; when that returns the code goes on. False if that is not possible here: a place that is not
    /// [an async safe point](Interruption::is_async_safe_point), a stack that is not a goroutine's or has no room, a state that
    /// cannot be saved; or the thread's signal mask is not its own: the code has changed it, or is itself a
    /// handler, which must return where it was called.
    ///
    /// # Safety
    /// - **off**: preemption is off for the function, and the code runs with its own identity.
    pub unsafe fn redirect(&mut self) -> bool {
        let Some(frame) = arch::async_preempt_frame_bytes() else { return false };
        let is_as_it_was = || {
            // SAFETY: carried — the handler found the carrier of this thread.
            let carrier = unsafe { arch::carrier() };
            // SAFETY: alive — a carrier stays where it is while it carries.
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
            // SAFETY: context — the kernel's; room — looked at above.
            unsafe { arch::redirect(self.context) };
        }
        can
    }
}

impl Carrier {
    /// The runtime that owns this carrier wants to be asked about interruptions. On its thread, which lets
    /// the signal through from here on.
    pub fn enable_interrupts(&self) {
        unblock(PREEMPT_SIGNAL);
        self.interruptible.set(true);
    }

    /// Interrupts the code on this carrier, whose thread's id is given; unless `is_in_call` says that it
    /// must not be: it looks by a `SeqCst` read. By any other thread. False: the system lets the caller send none.
    pub fn interrupt(&self, thread: i32, is_in_call: impl Fn() -> bool) -> bool {
        let before = self.signal_state.load(Ordering::Relaxed);
        if before == SENDING || !self.change_signal(before, SENDING) {
            return true; // another thread sends one
        }
        if is_in_call() {
            self.change_signal(SENDING, before);
            return true;
        }
        let sent = send(thread);
        self.change_signal(SENDING, if sent { SENT } else { before });
        sent
    }

    fn change_signal(&self, from: u32, to: u32) -> bool {
        // PAIR in-call: one order for this and the look at the other side's word.
        self.signal_state.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Waits until no signal of [`Carrier::interrupt`] can come any more: after the carrier's thread has
    /// said, by a `SeqCst` write, that it is in a call, and before it is.
    #[inline]
    pub fn drain_signal(&self) {
        // PAIR in-call: one order for this and the sender's.
        if self.signal_state.load(Ordering::SeqCst) != 0 {
            self.drain_signal_slow();
        }
    }

    #[cold]
    fn drain_signal_slow(&self) {
        loop {
            let seen = self.signal_state.load(Ordering::Relaxed);
            // A signal that has been sent comes when a system call returns, unless it is held back: then
            // it interrupts nothing.
            // SAFETY: it has no precondition.
            unsafe { libc::sched_yield() };
            if seen != SENDING {
                self.change_signal(SENT, 0);
                return;
            }
        }
    }
}

/// Sends the signal in a way that the system grants the calling thread: with the mark, or without. Returns false if
/// neither is granted.
fn send(thread: i32) -> bool {
    let Err(why) = send_marked(thread) else { return true };
    let Err(last) = send_unmarked(thread) else { return true };
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if is_refusal(&last) && !REPORTED.swap(true, Ordering::Relaxed) {
        report_refusal(&why, &last);
    }
    false
}

/// Whether the system refuses the call itself, as a container's filter does.
fn is_refusal(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EPERM | libc::ENOSYS | libc::EACCES))
}

/// Says that goroutines cannot be interrupted. Called once.
#[cold]
fn report_refusal(queue: &io::Error, kill: &io::Error) {
    fatal::warn(format_args!(
        "the system refuses to signal threads (rt_tgsigqueueinfo: {}; tgkill: {}): a goroutine is preempted only where \
         it calls the runtime",
        Errno::of(queue),
        Errno::of(kill),
    ));
}

/// Without a mark.
fn send_unmarked(thread: i32) -> io::Result<()> {
    let process = PROCESS.load(Ordering::Relaxed);
    // SAFETY: a thread of this process, or none.
    ignore_ended_thread(unsafe { libc::syscall(libc::SYS_tgkill, process, thread, PREEMPT_SIGNAL) })
}

/// A thread that is gone needs no signal.
fn ignore_ended_thread(result: libc::c_long) -> io::Result<()> {
    match io::Error::last_os_error() {
        _ if result == 0 => Ok(()),
        why if why.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        why => Err(why),
    }
}

/// With the mark.
fn send_marked(thread: i32) -> io::Result<()> {
    // SAFETY: all-zero is a valid record.
    let mut info: Record = unsafe { std::mem::zeroed() };
    info.signal = PREEMPT_SIGNAL;
    info.code = libc::SI_QUEUE;
    info.value = mark() as usize;
    let process = PROCESS.load(Ordering::Relaxed);
    // SAFETY: a valid record; a thread of this process, or none.
    ignore_ended_thread(unsafe {
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, PREEMPT_SIGNAL, &raw const info)
    })
}

/// The kernel's record of a queued signal: libc's hides the fields.
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
