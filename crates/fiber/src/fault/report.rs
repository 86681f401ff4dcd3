//! The report of a stack overflow: the goroutine, the size of its stack, how to raise the size, and
//! a stack trace.
//!
//! The message is written first, with `write(2)` only. The trace needs the symbolizer, which
//! allocates and takes locks, and malloc may be the function that overflowed. So a watchdog ends
//! the process if the trace hangs, and a fault handler if it faults. Both write the bare addresses
//! instead, for use with `addr2line`.
//!
//! A report never returns to the code that overflowed, and never runs exit handlers or destructors.

use super::Mapping;
use crate::arch::{self, Interrupted};
use crate::exit_guard;
use crate::hook::Hook;
use crate::stack::{PAGE, StackInfo};
use crate::stderr::Unbuffered;
use crate::thread::signals::unblock;
use crate::watchdog::{self, OnHang};
use std::fmt::{self, Write};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

/// Number of frames shown at each end of a long trace, as in Go.
const FRAMES_AT_EACH_END: usize = 50;

/// Size in bytes of the stack that the symbolizer runs on. The signal stack is too small for it.
const SYMBOLIZER_STACK: usize = 1 << 20;

static SYMBOLIZER: OnceLock<Mapping> = OnceLock::new();

/// Thread id of the reporting thread, or 0. Set at most once: the first thread to overflow reports
/// and ends the process.
static REPORTER: AtomicI32 = AtomicI32::new(0);

/// A function that writes the name of a stack's owner, such as `goroutine 7 (worker)`.
pub type OwnerName = fn(owner: u64, to: &mut dyn Write) -> fmt::Result;

static OWNER_NAME: Hook<OwnerName> = Hook::new();

/// Sets the function that writes the owner's name in overflow reports. It receives the number
/// passed to [`Stack::set_owner`](crate::Stack::set_owner). The default writes `goroutine N`.
///
/// # Safety
/// - **handler**: `name` is called in a signal handler, on any thread. It must be
///   async-signal-safe, must not unwind, and must not switch to another context.
pub unsafe fn set_owner_name(name: &'static OwnerName) {
    OWNER_NAME.set(name);
}

fn write_owner(owner: u64, to: &mut dyn Write) -> fmt::Result {
    match OWNER_NAME.get() {
        None => write!(to, "goroutine {owner}"),
        Some(name) => name(owner, to),
    }
}

/// Reserves the memory that a report needs, because none may be available during an overflow.
pub(super) fn prepare() -> io::Result<()> {
    if SYMBOLIZER.get().is_none() {
        let stack = Mapping::new(PAGE + SYMBOLIZER_STACK)?;
        stack.guard_first_page()?;
        SYMBOLIZER.get_or_init(|| stack);
    }
    Ok(())
}

/// Reports that the code at `at` overflowed the stack `found`, and ends the process.
pub(super) fn report_overflow(found: &StackInfo, at: Interrupted) -> ! {
    // SAFETY: gettid has no precondition.
    let me = unsafe { libc::gettid() };
    if REPORTER.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        exit_guard::wait_for_exit();
    }
    // The result is ignored: the code that overflowed may itself be writing another report.
    exit_guard::claim();
    begin_watch();
    let bytes = found.usable.len();
    let mut to = Unbuffered;
    let _ = to.write_str("runtime: ");
    let _ = write_owner(found.owner, &mut to);
    let _ = writeln!(
        to,
        " exceeds its stack of {bytes} bytes ({} KiB)\n\
         \tstart it with a larger `Builder::stack_size`, or raise the default with GOSCHED_STACK={}k\n\
         fatal error: stack overflow\n",
        bytes / 1024,
        (bytes / 1024).next_power_of_two() * 2,
    );
    let _ = write_owner(found.owner, &mut to);
    let _ = to.write_str(" [running]:\n");
    FRAMES.collect(at.pc);
    if let Some(stack) = SYMBOLIZER.get() {
        let top = (stack.at + stack.bytes) as *mut u8;
        // SAFETY: mapped, quiet — reserved by `prepare`, and only the one reporter uses it;
        // callback — `print` ignores its argument and does not unwind.
        unsafe { arch::call_on_stack(top, print, std::ptr::null_mut()) };
    }
    exit_guard::end_process()
}

/// Gives up on the report if the calling thread is the reporter, since then the report itself has
/// faulted. The SIGSEGV handler calls this function first.
pub(super) fn give_up_if_reporter() {
    if is_reporter() {
        give_up();
    }
}

fn is_reporter() -> bool {
    // SAFETY: gettid has no precondition.
    REPORTER.load(Ordering::Relaxed) == unsafe { libc::gettid() }
}

/// Handles SIGBUS and SIGABRT during the report. On the reporter's thread the report has failed;
/// other threads wait for the process to end.
extern "C" fn on_fault(_signal: i32) {
    if is_reporter() {
        give_up();
    }
    exit_guard::wait_for_exit();
}

/// Ends the process, after writing what can be shown without the symbolizer.
fn give_up() -> ! {
    let shown = PROGRESS.load(Ordering::Relaxed);
    if shown < TRACE_SHOWN {
        let _ =
            Unbuffered.write_str("the functions of the trace cannot be named; the addresses are\n");
        FRAMES.write_addresses();
    }
    if let Some(show) = BARE_DUMP.get().filter(|_| shown < ALL_SHOWN) {
        show();
    }
    exit_guard::end_process()
}

/// How much of the report has been written: nothing (0), the trace, or all.
static PROGRESS: AtomicU32 = AtomicU32::new(0);
const TRACE_SHOWN: u32 = 1;
const ALL_SHOWN: u32 = 2;

/// Makes sure that the process ends with the right status even if the trace hangs or faults.
fn begin_watch() {
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as extern "C" fn(i32) as usize;
    action.sa_flags = libc::SA_ONSTACK;
    // A SIGSEGV during the report goes to the handler of `super`, which calls
    // `give_up_if_reporter`.
    unblock(libc::SIGSEGV);
    for signal in [libc::SIGBUS, libc::SIGABRT] {
        // SAFETY: the handler is valid, and the process is about to end, so replacing other
        // handlers does no harm.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
        unblock(signal);
    }
    watchdog::start(&(give_up as OnHang));
}

/// The first and the last frames of a trace of any length. The fields are atomic because the
/// watchdog may read them at any time.
struct Frames {
    first: [AtomicUsize; FRAMES_AT_EACH_END],
    last: [AtomicUsize; FRAMES_AT_EACH_END],
    count: AtomicUsize,
}

static FRAMES: Frames = Frames {
    first: [const { AtomicUsize::new(0) }; FRAMES_AT_EACH_END],
    last: [const { AtomicUsize::new(0) }; FRAMES_AT_EACH_END],
    count: AtomicUsize::new(0),
};

impl Frames {
    /// Collects the goroutine's frames, walking from this function through the signal frame. Frames
    /// are skipped until the walk reaches `pc`: they belong to the signal handler, not to the
    /// goroutine.
    fn collect(&self, pc: usize) {
        let mut reached = false;
        // SAFETY: only the one reporting thread calls this, once per process.
        unsafe {
            backtrace::trace_unsynchronized(|frame| {
                let ip = frame.ip() as usize;
                reached |= ip == pc;
                // Unwinders return a frame at address 0 for the end of a stack.
                if reached && ip != 0 {
                    self.add(ip);
                }
                ip != 0
            });
        }
        if self.count.load(Ordering::Relaxed) == 0 {
            self.add(pc);
        }
    }

    fn add(&self, ip: usize) {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        // A return address points after its call, so step back into the call.
        let ip = if count == 0 { ip } else { ip - 1 };
        let place = if count < FRAMES_AT_EACH_END {
            &self.first[count]
        } else {
            &self.last[count % FRAMES_AT_EACH_END]
        };
        place.store(ip, Ordering::Relaxed);
    }

    /// Calls `each` with every frame to show, innermost first, and `elided` with the number of
    /// frames omitted between the two ends.
    fn show(&self, each: impl Fn(usize), elided: impl FnOnce(usize)) {
        let count = self.count.load(Ordering::Relaxed);
        let first = count.min(FRAMES_AT_EACH_END);
        self.first[..first].iter().for_each(|ip| each(ip.load(Ordering::Relaxed)));
        let rest = count - first;
        let last = rest.min(FRAMES_AT_EACH_END);
        if rest > last {
            elided(rest - last);
        }
        (count - last..count)
            .for_each(|n| each(self.last[n % FRAMES_AT_EACH_END].load(Ordering::Relaxed)));
    }

    fn write_addresses(&self) {
        let write = |ip: usize| {
            let _ = writeln!(Unbuffered, "\t{ip:#x}");
        };
        self.show(write, write_elided);
    }
}

fn write_elided(count: usize) {
    let _ = writeln!(Unbuffered, "...{count} frames elided...");
}

/// Prints the trace and the other goroutines, and ends the process. Must not return to the signal
/// stack: while this function runs on the symbolizer's stack, the kernel considers the signal stack
/// unused, and the next signal overwrites it.
///
/// # Safety
/// - **callback**: called by `report_overflow`.
unsafe extern "C" fn print(_: *mut u8) {
    FRAMES.show(print_frame, write_elided);
    PROGRESS.store(TRACE_SHOWN, Ordering::Relaxed);
    if let Some(show) = WHOLE_DUMP.get() {
        show();
    }
    PROGRESS.store(ALL_SHOWN, Ordering::Relaxed);
    exit_guard::end_process()
}

/// The functions that [`set_dump_hooks`] sets.
static WHOLE_DUMP: Hook<fn()> = Hook::new();
static BARE_DUMP: Hook<fn()> = Hook::new();

/// Sets the functions that show the other goroutines after an overflow has been reported, before
/// the process ends.
///
/// `whole` runs in a signal handler, on a stack of 1 MiB. Any lock may be held, so it may hang or
/// fault: then the report's watchdog or fault handler calls `bare` and ends the process. `whole`
/// may start a watchdog of its own instead ([`watchdog::start`]).
///
/// `bare` runs in a signal handler, on a signal stack. It must not allocate or take a lock.
pub fn set_dump_hooks(whole: &'static fn(), bare: &'static fn()) {
    WHOLE_DUMP.set(whole);
    BARE_DUMP.set(bare);
}

fn print_frame(ip: usize) {
    let mut named = false;
    backtrace::resolve(ip as *mut std::ffi::c_void, |symbol| {
        if let Some(name) = symbol.name() {
            named = true;
            let _ = writeln!(Unbuffered, "{name:#}(...)");
            let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) else { return };
            let _ = writeln!(Unbuffered, "\t{}:{line}", file.display());
        }
    });
    if !named {
        let _ = writeln!(Unbuffered, "{ip:#x}(...)");
    }
}
