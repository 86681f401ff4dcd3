//! What a stack overflow looks like to a person: whose stack, how large, how to raise it, where.
//!
//! The message is written first, with nothing but `write(2)`. The trace needs the symbolizer, which
//! allocates and locks: it may be what overflowed. So a watchdog ends the process if the trace does
//! not.

use super::Mapping;
use crate::arch::{self, Interrupted};
use crate::stack::{Found, PAGE};
use std::fmt::{self, Write};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Go's exit status for a fatal error.
const STATUS: i32 = 2;

/// Frames shown at each end of a long trace, as Go does.
const SHOWN: usize = 50;

/// How long the trace may take.
const WATCHDOG_SECONDS: u32 = 5;

/// The symbolizer runs on a stack of its own: the signal stack is too small for it.
const SYMBOLIZER_STACK: usize = 1 << 20;

static SYMBOLIZER: OnceLock<Mapping> = OnceLock::new();

/// Set by whoever reports first. Nobody else does: the process ends.
static REPORTING: AtomicBool = AtomicBool::new(false);

/// Writes a stack owner's name, such as `goroutine 7 (worker)`. Called in a signal handler: it must
/// not allocate or lock.
pub type OwnerName = fn(owner: u64, to: &mut dyn Write) -> fmt::Result;

static OWNER_NAME: AtomicUsize = AtomicUsize::new(0);

/// Says how reports name the owner of a stack, given what was passed to
/// [`Stack::set_owner`](crate::Stack::set_owner). Without it, `goroutine N`.
pub fn name_owners(name: OwnerName) {
    OWNER_NAME.store(name as usize, Ordering::Relaxed);
}

fn write_owner(owner: u64, to: &mut dyn Write) -> fmt::Result {
    match OWNER_NAME.load(Ordering::Relaxed) {
        0 => write!(to, "goroutine {owner}"),
        name => {
            // SAFETY: only `name_owners` stores here, and it stores functions of this type.
            let name = unsafe { std::mem::transmute::<usize, OwnerName>(name) };
            name(owner, to)
        }
    }
}

/// Reserves what a report needs, while there is still room.
pub(super) fn prepare() -> io::Result<()> {
    if SYMBOLIZER.get().is_none() {
        // Another thread may be first: then this mapping is dropped.
        let _ = SYMBOLIZER.set(Mapping::new(SYMBOLIZER_STACK)?);
    }
    Ok(())
}

/// Reports an overflow of `found`, hit by the code at `at`, and ends the process.
pub(super) fn overflow(found: &Found, at: Interrupted) -> ! {
    if REPORTING.swap(true, Ordering::Relaxed) {
        loop {
            // SAFETY: waits for a signal; the reporter ends the process.
            unsafe { libc::pause() };
        }
    }
    watchdog();
    let bytes = found.usable.len();
    let mut to = StandardError;
    let _ = to.write_str("runtime: ");
    let _ = write_owner(found.owner, &mut to);
    let _ = writeln!(
        to,
        " exceeds its stack of {bytes} bytes ({} KiB)\n\
         \traise it for this goroutine with `Builder::stack_size`, or for all with GOSCHED_STACK={}k\n\
         fatal error: stack overflow\n",
        bytes / 1024,
        (bytes / 1024).next_power_of_two() * 2,
    );
    let _ = write_owner(found.owner, &mut to);
    let _ = to.write_str(" [running]:\n");
    let mut frames = Frames { first: [0; SHOWN], last: [0; SHOWN], count: 0 };
    frames.collect(at.pc);
    if let Some(stack) = SYMBOLIZER.get() {
        let top = (stack.at + stack.bytes - PAGE) as *mut u8;
        // SAFETY: mapped, quiet — reserved by `prepare` for the one reporter; callback — `print`
        // takes `Frames` and does not unwind.
        unsafe { arch::call_on(top, print, (&raw mut frames).cast()) };
    }
    // SAFETY: ends the process at once; nothing of it can be trusted to run.
    unsafe { libc::_exit(STATUS) }
}

/// Ends the process with the right status if the trace hangs.
fn watchdog() {
    extern "C" fn bark(_: i32) {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(STATUS) }
    }
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = bark as *const () as usize;
    // SAFETY: the handler is valid; the process has nothing to do any more but end.
    unsafe { libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()) };
    // SAFETY: all-zero is a valid set.
    let mut alarm: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a valid set and signal.
    unsafe { libc::sigaddset(&mut alarm, libc::SIGALRM) };
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &alarm, std::ptr::null_mut()) };
    // SAFETY: alarm has no precondition.
    unsafe { libc::alarm(WATCHDOG_SECONDS) };
}

/// The two ends of a trace, however long it is.
struct Frames {
    first: [usize; SHOWN],
    last: [usize; SHOWN],
    count: usize,
}

impl Frames {
    /// Walks from here through the signal frame. What lies above the code at `pc` is ours, not the
    /// goroutine's.
    fn collect(&mut self, pc: usize) {
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
        if self.count == 0 {
            self.add(pc);
        }
    }

    fn add(&mut self, ip: usize) {
        if self.count < SHOWN {
            self.first[self.count] = ip;
        } else {
            self.last[self.count % SHOWN] = ip;
        }
        self.count += 1;
    }
}

/// # Safety
/// - **callback**: `overflow` calls it, with its [`Frames`].
unsafe extern "C" fn print(frames: *mut u8) {
    // SAFETY: `overflow` passes its `Frames` and waits.
    let frames = unsafe { &*frames.cast::<Frames>() };
    let first = frames.count.min(SHOWN);
    frames.first[..first].iter().for_each(|&ip| print_frame(ip));
    let rest = frames.count - first;
    let last = rest.min(SHOWN);
    if rest > last {
        let _ = writeln!(StandardError, "...{} frames elided...", rest - last);
    }
    (frames.count - last..frames.count).for_each(|n| print_frame(frames.last[n % SHOWN]));
}

fn print_frame(ip: usize) {
    let mut named = false;
    backtrace::resolve(ip as *mut std::ffi::c_void, |symbol| {
        if let Some(name) = symbol.name() {
            named = true;
            let _ = writeln!(StandardError, "{name:#}(...)");
            let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) else {
                return;
            };
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
            if written <= 0 {
                return Err(fmt::Error);
            }
            rest = &rest[written as usize..];
        }
        Ok(())
    }
}
