//! Stack overflow: tells a hit of a guard from any other fault, and ends the process with a report.
//!
//! The handler runs on the carrier's signal stack ([`AltStack`]), at any moment of any thread. It
//! looks the address up in the depot without a lock. A fault that is no overflow goes to the
//! handler that was there before.

mod alt_stack;
mod report;

pub(crate) use alt_stack::AltStack;
use alt_stack::Mapping;
pub use report::{OwnerName, set_dump_hooks, set_owner_name};

use crate::arch::{self, Interrupted};
use crate::lock::Lock;
use crate::stack::{DEPOT, PAGE, StackInfo};
use crate::thread::signals::PreviousHandler;
use std::io;

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
