//! SIGQUIT: all goroutines are shown, and the process ends with status 2, as in Go.
//!
//! The handler asks the thread maker for a thread that reports: whatever lock the interrupted code holds, the goroutine goes
//! on meanwhile. Starting a thread allocates, and so does the report: sysmon must not do either, because a goroutine
//! that was stopped with the allocator's lock gets a P again only through sysmon. Where the lock is never released,
//! the alarm clock (`watchdog`) has [`write_header_once`] and the list of goroutines written, and ends the process.

use super::{fatal, level};
use crate::sched::{self, Backend, inspector};
use crate::sys::signals;
use gosched_fiber::fatal::Stderr;
use gosched_fiber::{arch, exit_guard, watchdog};
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// Where it came, to whom, and how.
static REGISTERS: [AtomicUsize; arch::REGISTER_NAMES.len()] =
    [const { AtomicUsize::new(0) }; arch::REGISTER_NAMES.len()];
static THREAD: AtomicI32 = AtomicI32::new(0);
static CODE: AtomicI32 = AtomicI32::new(0);
/// The first lines were written.
static HEADER_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Installs the handler, unless the program has set a handler of its own or ignores the signal by its own choice.
///
/// A signal that was ignored when the process started is not the program's choice: a shell starts `program &` in a
/// script with SIGINT and SIGQUIT ignored. As in Go (`initsig`), SIGQUIT is handled then too. A child process gets the
/// default action, as every signal with a handler does in `exec`; that is Go's behaviour as well.
pub(crate) fn install_quit_handler() {
    let Some(now) = signals::disposition(libc::SIGQUIT) else { return };
    // Where each goroutine is a thread no sysmon could answer: the signal stays ignored.
    let is_inherited = now == libc::SIG_IGN
        && IGNORED_AT_START.load(Ordering::Relaxed)
        && sched::backend() == Backend::MultiThread;
    if now != libc::SIG_DFL && !is_inherited {
        return;
    }
    // SAFETY: no handler, no flags, an empty mask: all of them zeros.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_quit as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: a mask of our own.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    // SAFETY: the handler keeps the rules of one.
    unsafe { libc::sigaction(libc::SIGQUIT, &action, std::ptr::null_mut()) };
}

/// SIGQUIT was ignored when the process started.
static IGNORED_AT_START: AtomicBool = AtomicBool::new(false);

/// Notes whether SIGQUIT is ignored. Before the program's `main`, which may ignore it by its own choice.
pub(super) fn note_inherited() {
    let is_ignored = signals::disposition(libc::SIGQUIT) == Some(libc::SIG_IGN);
    IGNORED_AT_START.store(is_ignored, Ordering::Relaxed);
}

fn registers() -> [usize; arch::REGISTER_NAMES.len()] {
    REGISTERS.each_ref().map(|value| value.load(Ordering::Relaxed))
}

/// Writes the first lines of the report, if there is to be one and they were not written. Allocates nothing and takes no
/// lock.
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

/// # Safety
/// - **callback**: the kernel calls it, as a signal handler.
unsafe extern "C" fn on_quit(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // The first is answered, and ends the process; so does what was reported before.
    if !exit_guard::claim() {
        return;
    }
    // SAFETY: the interrupted code's own word.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    fatal::arm_watchdog();
    // SAFETY: callback — the kernel's record.
    CODE.store(unsafe { (*info).si_code }, Ordering::Relaxed);
    // SAFETY: it has no precondition.
    THREAD.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    // SAFETY: context — callback: it is the kernel's.
    let registers = unsafe { arch::all_registers(context) };
    for (kept, value) in REGISTERS.iter().zip(registers) {
        kept.store(value, Ordering::Relaxed);
    }
    if !sched::call_on_thread_maker(start) {
        // Nobody is there: what the signal does by itself.
        // SAFETY: the default is no handler of anybody's.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        // SAFETY: it has no precondition.
        unsafe { libc::raise(signal) };
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
}

/// By the thread maker.
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
    // As Go, whatever `GOTRACEBACK` says.
    level::force_details();
    fatal::dump_at_the_end();
    let mut last = String::new();
    for (name, value) in arch::REGISTER_NAMES.iter().zip(registers) {
        let _ = write!(last, "\n{name:<6} {value:#x}");
    }
    fatal::write_watched(format!("{last}\n").as_bytes());
    fatal::print_deadlocks();
    fatal::crash_if_asked();
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(2) }
}
