//! Stack overflow: tells a hit of a guard from any other fault, and ends the process with a report.
//!
//! The handler runs on the carrier's signal stack ([`AltStack`]), at any moment of any thread. It
//! looks the address up in the depot without a lock. A fault that is no overflow goes to the
//! handler that was there before.

mod report;

pub use report::{OwnerName, set_dump_hooks, set_owner_name};

use crate::arch::{self, Interrupted};
use crate::lock::Lock;
use crate::signals::PreviousHandler;
use crate::stack::{DEPOT, PAGE, StackInfo};
use std::io;

/// Size of a carrier's signal stack: std's 8 KiB is too small to unwind on.
const SIGNAL_STACK: usize = 64 << 10;

/// The handler that was there before ours.
static PREVIOUS_HANDLER: PreviousHandler = PreviousHandler::new();

/// Whether the handler is in force.
static INSTALLED: Lock<bool> = Lock::new(false);

/// # Safety
/// - **child**: as for [`Lock::repair_in_child`].
pub(crate) unsafe fn repair_in_child() {
    // SAFETY: child — promised by the caller.
    unsafe { INSTALLED.repair_in_child(|_| ()) };
}

/// Installs the handler, once. Called by each carrier.
fn install() -> io::Result<()> {
    let mut installed = INSTALLED.lock_preemptible();
    if *installed {
        return Ok(());
    }
    report::prepare()?;
    // SAFETY: all-zero is a valid sigaction.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_fault as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // It keeps the rules of a signal handler up to the point where it ends the process.
    PREVIOUS_HANDLER.replace(libc::SIGSEGV, &ours)?;
    *installed = true;
    Ok(())
}

/// # Safety
/// - **callback**: the kernel calls it, as a signal handler.
unsafe extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    report::give_up_if_reporter();
    // SAFETY: callback — the kernel's record.
    let details = unsafe { &*info };
    let code = details.si_code;
    // SAFETY: SIGSEGV's record has an address, or 0 where there is none.
    let address = unsafe { details.si_addr() } as usize;
    // SAFETY: context — the kernel's.
    let at = unsafe { arch::read_interrupted(context) };
    if let Some(found) = find_overflow(code, address, at) {
        report::report_overflow(&found, at);
    }
    // SAFETY: the arguments are the kernel's.
    unsafe { forward(signal, info, context, code > 0) };
}

/// `si_code` of a fault that the kernel met itself: it could not push a signal's frame.
const SI_KERNEL: i32 = 0x80;

/// How far below its stack pointer code may reach: a red zone, and some.
const MAX_REACH_BELOW_SP_BYTES: usize = 512;

/// How far beyond its guard a frame may have moved the stack pointer before it was touched.
const MAX_FRAME_BYTES: usize = 1 << 30;

/// The stack that a fault overflowed, if it did.
fn find_overflow(code: i32, address: usize, at: Interrupted) -> Option<StackInfo> {
    if code == SI_KERNEL {
        // No address is told. A handler without a stack of its own, at the end of this one?
        let found = DEPOT.find(at.sp)?;
        return (!at.is_general_protection && at.sp < found.usable.start + 4 * PAGE)
            .then_some(found);
    }
    // A code above 0 is the kernel's own: a fault, not a signal that someone sent.
    let found = DEPOT.find(address).filter(|found| code > 0 && found.guard.contains(&address))?;
    // Frames are touched at or above the stack pointer. In the slot it is surely this stack's own;
    // below, only if the code runs with this stack's identity.
    let in_slot = (found.guard.start..found.usable.end).contains(&at.sp);
    let own = found.thread_pointer == arch::thread_pointer()
        && (found.guard.start.saturating_sub(MAX_FRAME_BYTES)..found.guard.start).contains(&at.sp);
    (address + MAX_REACH_BELOW_SP_BYTES >= at.sp && (in_slot || own)).then_some(found)
}

/// Does what would have happened without our handler.
///
/// # Safety
/// - **arguments**: those of a signal handler.
unsafe fn forward(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    fault: bool,
) {
    let handler = PREVIOUS_HANDLER.handler();
    if handler == libc::SIG_DFL || (handler == libc::SIG_IGN && fault) {
        // SAFETY: the default action is always valid.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        if !fault {
            // A fault comes again by itself; a signal must be sent again. It waits until we return.
            // SAFETY: getpid has no precondition.
            let process = unsafe { libc::getpid() };
            // SAFETY: gettid has no precondition.
            let thread = unsafe { libc::gettid() };
            // SAFETY: to this very thread.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
        }
        return;
    }
    // SAFETY: arguments — promised by the caller.
    unsafe { PREVIOUS_HANDLER.call(signal, info, context) };
}

/// The signal stack of a carrier: in force until dropped, on the thread that installed it.
#[derive(Debug)]
pub(crate) struct AltStack {
    memory: Mapping,
    before: libc::stack_t,
}

impl AltStack {
    /// Gives the calling thread a signal stack, and the process the fault handler.
    pub(crate) fn install() -> io::Result<AltStack> {
        install()?;
        let memory = Mapping::new(PAGE + SIGNAL_STACK)?;
        memory.guard_first_page()?;
        let stack = libc::stack_t {
            ss_sp: (memory.at + PAGE) as *mut libc::c_void,
            ss_flags: 0,
            ss_size: SIGNAL_STACK,
        };
        let mut before = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
        // SAFETY: the memory is ours until `drop` takes the stack out of force.
        if unsafe { libc::sigaltstack(&stack, &mut before) } != 0 {
            let why = io::Error::last_os_error();
            return Err(io::Error::other(format!("the system refuses sigaltstack: {why}")));
        }
        Ok(AltStack { memory, before })
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        let mut now = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
        // SAFETY: asks only.
        unsafe { libc::sigaltstack(std::ptr::null(), &mut now) };
        if now.ss_sp as usize == self.memory.at + PAGE {
            // SAFETY: what was in force before us: its owner keeps it until the thread ends.
            unsafe { libc::sigaltstack(&self.before, std::ptr::null_mut()) };
        }
    }
}

/// Private memory, unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    at: usize,
    bytes: usize,
}

impl Mapping {
    fn new(bytes: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, where the kernel likes.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        match at {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            at => Ok(Mapping { at: at as usize, bytes }),
        }
    }

    fn guard_first_page(&self) -> io::Result<()> {
        // SAFETY: our own memory, not used yet.
        match unsafe { libc::mprotect(self.at as *mut libc::c_void, PAGE, libc::PROT_NONE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; whoever drops it uses it no more.
        unsafe { libc::munmap(self.at as *mut libc::c_void, self.bytes) };
    }
}
