//! The SIGQUIT handler: prints all goroutines and ends the process with status 2, as in Go.
//!
//! The handler asks the thread maker to start a reporting thread. The interrupted goroutine
//! continues meanwhile, so it can release any lock that it holds. Both starting a thread and
//! reporting allocate. Sysmon must do neither: a goroutine that was preempted while it held the
//! allocator's lock gets a P again only through sysmon. If the lock is never released, the watchdog
//! calls [`write_header_once`], lists the goroutines and ends the process.
//!
//! The handler itself never allocates and never prints.

use super::{fatal, level};
use crate::sched::{self, Backend, inspector};
use crate::sys::signals;
use gosched_fiber::fatal::Stderr;
use gosched_fiber::{arch, exit_guard, watchdog};
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// The registers of the interrupted code. Written by the handler.
static REGISTERS: [AtomicUsize; arch::REGISTER_NAMES.len()] =
    [const { AtomicUsize::new(0) }; arch::REGISTER_NAMES.len()];
/// The id of the thread that received the signal; 0 if none has. Written by the handler.
static THREAD: AtomicI32 = AtomicI32::new(0);
/// The `si_code` of the signal. Written by the handler.
static CODE: AtomicI32 = AtomicI32::new(0);
/// Whether the first lines of the report were written.
static HEADER_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Installs the handler, unless the program has installed its own handler or has itself chosen to
/// ignore the signal.
///
/// A signal that was ignored when the process started is not the program's choice: a shell starts
/// `program &` in a script with SIGINT and SIGQUIT ignored. In that case SIGQUIT is handled too, as
/// in Go (`initsig`). A child process then starts with the default action, as for every signal that
/// has a handler before `exec`. Go does the same.
pub(crate) fn install_quit_handler() {
    let Some(now) = signals::disposition(libc::SIGQUIT) else { return };
    // If goroutines are threads, there is no thread maker that could report: the signal stays
    // ignored.
    let is_inherited = now == libc::SIG_IGN
        && IGNORED_AT_START.load(Ordering::Relaxed)
        && sched::backend() == Backend::MultiThread;
    if now != libc::SIG_DFL && !is_inherited {
        return;
    }
    // SAFETY: all zeros is a valid `sigaction`: no handler, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_quit as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the mask is part of a local value.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    // SAFETY: the handler obeys the rules for signal handlers.
    unsafe { libc::sigaction(libc::SIGQUIT, &action, std::ptr::null_mut()) };
}

/// Whether SIGQUIT was ignored when the process started. Written by [`note_inherited`].
static IGNORED_AT_START: AtomicBool = AtomicBool::new(false);

/// Records whether SIGQUIT is ignored. Called before the program's `main`, which may itself choose
/// to ignore the signal.
pub(super) fn note_inherited() {
    let is_ignored = signals::disposition(libc::SIGQUIT) == Some(libc::SIG_IGN);
    IGNORED_AT_START.store(is_ignored, Ordering::Relaxed);
}

fn registers() -> [usize; arch::REGISTER_NAMES.len()] {
    REGISTERS.each_ref().map(|value| value.load(Ordering::Relaxed))
}

/// Writes the first lines of the report, if SIGQUIT was received and they were not written yet.
/// Allocates nothing and takes no lock.
pub(super) fn write_header_once() {
    if THREAD.load(Ordering::Relaxed) == 0 || HEADER_WRITTEN.swap(true, Ordering::Relaxed) {
        return;
    }
    let pc = registers()[arch::PC_INDEX];
    let m = inspector::m_with_thread(THREAD.load(Ordering::Relaxed)).unwrap_or(0);
    let code = CODE.load(Ordering::Relaxed);
    let mut out = Stderr::new();
    let _ = write!(out, "SIGQUIT: quit\nPC={pc:#x} m={m} sigcode={code}\n\n");
    out.flush();
}

/// The handler of SIGQUIT.
///
/// # Safety
/// - **callback**: only the kernel calls this function, as a signal handler.
unsafe extern "C" fn on_quit(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // Only one report is written, and it ends the process: a signal during a report is ignored.
    if !exit_guard::claim() {
        return;
    }
    // SAFETY: errno of the interrupted thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    fatal::arm_watchdog_without_reporter();
    // SAFETY: callback — `info` is the kernel's record.
    CODE.store(unsafe { (*info).si_code }, Ordering::Relaxed);
    // SAFETY: `gettid` has no precondition.
    THREAD.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    // SAFETY: context — callback: `context` comes from the kernel.
    let registers = unsafe { arch::all_registers(context) };
    for (kept, value) in REGISTERS.iter().zip(registers) {
        kept.store(value, Ordering::Relaxed);
    }
    if !sched::call_on_thread_maker(&(start as fn())) {
        // There is no thread maker: the signal gets its default action.
        // SAFETY: the default action calls no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        // SAFETY: `raise` has no precondition.
        unsafe { libc::raise(signal) };
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
}

/// Starts the reporting thread; reports on the calling thread if that fails. Called by the thread
/// maker.
fn start() {
    let thread = std::thread::Builder::new().name("gosched-dump".into());
    if thread.spawn(show).is_err() {
        show();
    }
}

fn show() {
    watchdog::pause();
    write_header_once();
    fatal::arm_watchdog();
    let registers = registers();
    fatal::print_seed();
    // All details, regardless of `GOTRACEBACK`, as in Go.
    level::force_details();
    fatal::dump_at_the_end();
    let mut last = String::new();
    for (name, value) in arch::REGISTER_NAMES.iter().zip(registers) {
        let _ = write!(last, "\n{name:<6} {value:#x}");
    }
    fatal::write_watched(format!("{last}\n").as_bytes());
    fatal::print_deadlocks();
    fatal::abort_if_level_is_crash();
    exit_guard::end_process()
}
