//! What a stack overflow looks like to a person: whose stack, how large, how to raise it, where.
//!
//! The message is written first, with nothing but `write(2)`. The trace needs the symbolizer, which
//! allocates and locks: malloc may be what overflowed. So a watchdog ends the process if the trace
//! does not, or faults: it writes the bare addresses, for `addr2line`.

use super::Mapping;
use crate::arch::{self, Interrupted};
use crate::exit_guard;
use crate::stack::{PAGE, StackInfo};
use crate::thread::signals::unblock;
use crate::watchdog;
use std::fmt::{self, Write};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

/// Go's exit status for a fatal error.
const STATUS: i32 = 2;

/// Frames shown at each end of a long trace, as Go does.
const FRAMES_AT_EACH_END: usize = 50;

/// The symbolizer runs on a stack of its own: the signal stack is too small for it.
const SYMBOLIZER_STACK: usize = 1 << 20;

static SYMBOLIZER: OnceLock<Mapping> = OnceLock::new();

/// The thread that reports, by its id; 0: nobody does. The first is the only one: the process ends.
static REPORTER: AtomicI32 = AtomicI32::new(0);

/// Writes a stack owner's name, such as `goroutine 7 (worker)`.
pub type OwnerName = fn(owner: u64, to: &mut dyn Write) -> fmt::Result;

static OWNER_NAME: AtomicUsize = AtomicUsize::new(0);

/// Says how reports name the owner of a stack, given what was passed to
/// [`Stack::set_owner`](crate::Stack::set_owner). Without it, `goroutine N`.
///
/// # Safety
/// - **handler**: `name` is called in a signal handler, on whatever thread: it does nothing that a
///   handler may not do, does not unwind, and does not switch to other code.
pub unsafe fn set_owner_name(name: OwnerName) {
    OWNER_NAME.store(name as usize, Ordering::Relaxed);
}

fn write_owner(owner: u64, to: &mut dyn Write) -> fmt::Result {
    match OWNER_NAME.load(Ordering::Relaxed) {
        0 => write!(to, "goroutine {owner}"),
        name => {
            // SAFETY: only `set_owner_name` stores here, and it stores functions of this type.
            let name = unsafe { std::mem::transmute::<usize, OwnerName>(name) };
            name(owner, to)
        }
    }
}

/// Reserves what a report needs, while there is still room.
pub(super) fn prepare() -> io::Result<()> {
    if SYMBOLIZER.get().is_none() {
        let stack = Mapping::new(PAGE + SYMBOLIZER_STACK)?;
        stack.guard_first_page()?;
        SYMBOLIZER.get_or_init(|| stack);
    }
    Ok(())
}

/// Reports an overflow of `found`, hit by the code at `at`, and ends the process.
pub(super) fn report_overflow(found: &StackInfo, at: Interrupted) -> ! {
    // SAFETY: gettid has no precondition.
    let me = unsafe { libc::gettid() };
    if REPORTER.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        exit_guard::wait_for_exit();
    }
    // It may be the report of something else that overflows.
    exit_guard::claim();
    begin_watch();
    let bytes = found.usable.len();
    let mut to = StandardError;
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
        // SAFETY: mapped, quiet — reserved by `prepare` for the one reporter; callback — `print`
        // takes nothing and does not unwind.
        unsafe { arch::call_on_stack(top, print, std::ptr::null_mut()) };
    }
    end()
}

/// Ends the process at once: nothing of it can be trusted to run.
fn end() -> ! {
    // SAFETY: it has no precondition.
    unsafe { libc::_exit(STATUS) }
}

/// Called first on every fault: one on the reporter's thread is the report's own.
pub(super) fn give_up_if_reporter() {
    if is_reporter() {
        give_up();
    }
}

fn is_reporter() -> bool {
    // SAFETY: gettid has no precondition.
    REPORTER.load(Ordering::Relaxed) == unsafe { libc::gettid() }
}

/// A fault of the report itself ends it; other threads wait for its end.
extern "C" fn on_fault(_signal: i32) {
    if is_reporter() {
        give_up();
    }
    exit_guard::wait_for_exit();
}

/// Ends the process with what can be said without a symbolizer.
fn give_up() -> ! {
    let shown = PROGRESS.load(Ordering::Relaxed);
    if shown < TRACE_SHOWN {
        let _ = StandardError.write_str("the trace cannot be shown; its addresses are\n");
        FRAMES.write_addresses();
    }
    if shown < ALL_SHOWN {
        call(&DUMP_HOOKS.bare);
    }
    end()
}

/// What has been shown: nothing yet, the trace, or all.
static PROGRESS: AtomicU32 = AtomicU32::new(0);
const TRACE_SHOWN: u32 = 1;
const ALL_SHOWN: u32 = 2;

/// Ends the process with the right status if the trace hangs or faults.
fn begin_watch() {
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as extern "C" fn(i32) as usize;
    action.sa_flags = libc::SA_ONSTACK;
    // A further SIGSEGV comes to our own handler, as always.
    unblock(libc::SIGSEGV);
    for signal in [libc::SIGBUS, libc::SIGABRT] {
        // SAFETY: the handler is valid; the process has nothing to do any more but end.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
        unblock(signal);
    }
    watchdog::start(give_up);
}

/// The two ends of a trace, however long it is. Atomics: the watchdog reads them any time.
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
    /// Walks from here through the signal frame. What lies above the code at `pc` is ours, not the
    /// goroutine's.
    fn collect(&self, pc: usize) {
        let mut reached = false;
        // SAFETY: the process reports once, on this thread.
        unsafe {
            backtrace::trace_unsynchronized(|frame| {
                let ip = frame.ip() as usize;
                reached |= ip == pc;
                // Unwinders show the end of a stack as a frame at 0.
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
        // A return address points behind its call.
        let ip = if count == 0 { ip } else { ip - 1 };
        let place = if count < FRAMES_AT_EACH_END {
            &self.first[count]
        } else {
            &self.last[count % FRAMES_AT_EACH_END]
        };
        place.store(ip, Ordering::Relaxed);
    }

    /// Calls `each` with the frames that are shown, innermost first, and `elided` between the ends.
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
            let _ = writeln!(StandardError, "\t{ip:#x}");
        };
        self.show(write, write_elided);
    }
}

fn write_elided(count: usize) {
    let _ = writeln!(StandardError, "...{count} frames elided...");
}

/// Prints the trace and the other goroutines, and ends the process. It must not return to the signal stack: while this
/// runs on another one, the kernel takes the signal stack for free, and the next signal overwrites it.
///
/// # Safety
/// - **callback**: `report_overflow` calls it.
unsafe extern "C" fn print(_: *mut u8) {
    FRAMES.show(print_frame, write_elided);
    PROGRESS.store(TRACE_SHOWN, Ordering::Relaxed);
    call(&DUMP_HOOKS.whole);
    PROGRESS.store(ALL_SHOWN, Ordering::Relaxed);
    end()
}

/// What shows the others: whole, or bare. 0: nothing does.
struct DumpHooks {
    whole: AtomicUsize,
    bare: AtomicUsize,
}

static DUMP_HOOKS: DumpHooks = DumpHooks { whole: AtomicUsize::new(0), bare: AtomicUsize::new(0) };

fn call(shows: &AtomicUsize) {
    let show = shows.load(Ordering::Relaxed);
    if show != 0 {
        // SAFETY: only `set_dump_hooks` stores in `DUMP_HOOKS`, and it stores functions of this type.
        let show = unsafe { std::mem::transmute::<usize, fn()>(show) };
        show();
    }
}

/// What is called when an overflow has been reported, before the process ends: shows what else there is. On a
/// stack of a mebibyte, in a signal handler, with whatever locks held: it has a watchdog of its own.
///
/// `bare` is called where the report could not be made: in a signal handler, on a signal stack. It allocates nothing
/// and takes no lock.
pub fn set_dump_hooks(whole: fn(), bare: fn()) {
    DUMP_HOOKS.whole.store(whole as usize, Ordering::Relaxed);
    DUMP_HOOKS.bare.store(bare as usize, Ordering::Relaxed);
}

fn print_frame(ip: usize) {
    let mut named = false;
    backtrace::resolve(ip as *mut std::ffi::c_void, |symbol| {
        if let Some(name) = symbol.name() {
            named = true;
            let _ = writeln!(StandardError, "{name:#}(...)");
            let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) else { return };
            let _ = writeln!(StandardError, "\t{}:{line}", file.display());
        }
    });
    if !named {
        let _ = writeln!(StandardError, "{ip:#x}(...)");
    }
}

/// Descriptor 2, without a lock or a buffer.
struct StandardError;

impl Write for StandardError {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            // SAFETY: `rest` is valid for reads over its length.
            let written = unsafe { libc::write(2, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(written) {
                Ok(written) if written > 0 => rest = &rest[written..],
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return Err(fmt::Error),
            }
        }
        Ok(())
    }
}
