//! Detection of stack overflows: a SIGSEGV handler that distinguishes a hit of a stack's guard from
//! any other fault, and ends the process with a report.
//!
//! The handler runs on the carrier's signal stack ([`AltStack`]) and may interrupt any thread at
//! any instruction, so it finds the stack of an address in the depot without a lock. It forwards a
//! fault that is not an overflow to the handler that was installed before.
//!
//! The handler never allocates and never takes a lock before it has found an overflow.

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

/// The SIGSEGV handler that was installed before ours.
static PREVIOUS_HANDLER: PreviousHandler = PreviousHandler::new();

/// Whether our handler is installed.
static INSTALLED: Lock<bool> = Lock::new(false);

/// Releases this module's lock in a forked child.
///
/// # Safety
/// - **child**: as for [`Lock::repair_in_child`].
pub(crate) unsafe fn repair_in_child() {
    // SAFETY: child — promised by the caller.
    unsafe { INSTALLED.repair_in_child(|_| ()) };
}

/// Installs the handler. Every carrier calls this function; only the first call has an effect.
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
    // `on_fault` is async-signal-safe up to the point where it decides to end the process.
    PREVIOUS_HANDLER.replace(libc::SIGSEGV, &ours)?;
    *installed = true;
    Ok(())
}

/// # Safety
/// - **callback**: called by the kernel, as a signal handler.
unsafe extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    report::give_up_if_reporter();
    // SAFETY: callback — the kernel passes a valid record.
    let details = unsafe { &*info };
    let code = details.si_code;
    // SAFETY: the record of SIGSEGV has an address field, which is 0 if there is no address.
    let address = unsafe { details.si_addr() } as usize;
    // SAFETY: context — passed by the kernel.
    let at = unsafe { arch::read_interrupted(context) };
    if let Some(found) = find_overflow(code, address, at) {
        report::report_overflow(&found, at);
    }
    // SAFETY: arguments — passed by the kernel.
    unsafe { forward(signal, info, context, code > 0) };
}

/// `si_code` of a SIGSEGV that has no fault address, such as when the kernel cannot push a signal
/// frame.
const SI_KERNEL: i32 = 0x80;

/// Largest distance in bytes below the stack pointer at which an access still counts as a stack
/// access: the red zone plus a margin.
const MAX_REACH_BELOW_SP_BYTES: usize = 512;

/// Largest frame in bytes: how far below the guard a function may move the stack pointer before it
/// touches its frame.
const MAX_FRAME_BYTES: usize = 1 << 30;

/// Returns the stack that the fault overflowed, or `None` if the fault is not an overflow.
fn find_overflow(code: i32, address: usize, at: Interrupted) -> Option<StackInfo> {
    if code == SI_KERNEL {
        // This fault has no address. It is an overflow if the kernel could not push the frame of a
        // handler that runs without `SA_ONSTACK`: the stack pointer is then close to the stack's
        // low end.
        let found = DEPOT.find(at.sp)?;
        return (!at.is_general_protection && at.sp < found.usable.start + 4 * PAGE)
            .then_some(found);
    }
    // A positive code means that the kernel raised the signal for a fault; no process sent it.
    let found = DEPOT.find(address).filter(|found| code > 0 && found.guard.contains(&address))?;
    // Code touches its frames at or above its stack pointer. A stack pointer inside the slot
    // belongs to this stack. A stack pointer below the slot belongs to it only if the code runs
    // with this stack's identity.
    let in_slot = (found.guard.start..found.usable.end).contains(&at.sp);
    let own = found.thread_pointer == arch::thread_pointer()
        && (found.guard.start.saturating_sub(MAX_FRAME_BYTES)..found.guard.start).contains(&at.sp);
    (address + MAX_REACH_BELOW_SP_BYTES >= at.sp && (in_slot || own)).then_some(found)
}

/// Does what would have happened without our handler: calls the previous handler or takes the
/// default action. `fault` is whether the kernel raised the signal for a fault.
///
/// # Safety
/// - **arguments**: those that the kernel passed to the signal handler.
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
            // A fault is raised again when the handler returns to the faulting instruction. A
            // signal that was sent must be sent again; it is blocked until the handler returns.
            // SAFETY: getpid has no precondition.
            let process = unsafe { libc::getpid() };
            // SAFETY: gettid has no precondition.
            let thread = unsafe { libc::gettid() };
            // SAFETY: sends a signal to the calling thread.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
        }
        return;
    }
    // SAFETY: arguments — promised by the caller.
    unsafe { PREVIOUS_HANDLER.call(signal, info, context) };
}
