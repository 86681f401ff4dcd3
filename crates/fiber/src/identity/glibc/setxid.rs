//! Makes `setuid` and related functions work on threads that run goroutines.
//!
//! The kernel keeps user and group ids per thread. To change them for the whole process, libc
//! signals each of its threads; the handler makes the system call and acknowledges it *in the
//! control block of the thread*. On a thread that runs a goroutine, the acknowledgement would go to
//! the goroutine's block, and libc would repeat the signal forever. So on such a thread the handler
//! runs as the carrier.
//!
//! libc's `sigaction` rejects libc's own signals, so this module makes the system call directly.
//!
//! This module never changes an id itself: libc's handler makes the system call.

use crate::arch;
use crate::carrier::can_host;
use std::sync::atomic::{AtomicUsize, Ordering};

/// glibc's signal for these functions: the second real-time signal.
const SIGSETXID: i32 = 33;

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

type Handler = unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

static LIBC_HANDLER: AtomicUsize = AtomicUsize::new(0);

/// Installs our handler in front of libc's. libc installs its handler when it creates the first
/// thread, which the probe has done.
pub(super) fn install() {
    let mut action = KernelAction::default();
    if !rt_sigaction(std::ptr::null(), &mut action) || action.handler <= libc::SIG_IGN {
        return; // this libc does not use the signal
    }
    LIBC_HANDLER.store(action.handler, Ordering::Relaxed);
    action.handler = on_setxid as *const () as usize;
    rt_sigaction(&action, std::ptr::null_mut());
}

fn rt_sigaction(new: *const KernelAction, old: *mut KernelAction) -> bool {
    // SAFETY: both pointers are null or valid; 8 is the size of the kernel's signal set.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, SIGSETXID, new, old, 8usize) == 0 }
}

struct Signal {
    number: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
}

/// # Safety
/// - **callback**: called by the kernel, as a signal handler.
unsafe extern "C" fn on_setxid(
    number: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let mut signal = Signal { number, info, context };
    let data = (&raw mut signal).cast();
    // In a forked child, the goroutine's block *is* the thread's block, also to libc.
    if can_host() {
        // SAFETY: goroutine — checked by `can_host`, and a goroutine is not moved while it runs a
        // signal handler; callback — `libc_handler` takes a `Signal`, and libc's handler does not
        // unwind.
        unsafe { arch::call_host(libc_handler, data) };
    } else {
        // SAFETY: callback — as above.
        unsafe { libc_handler(data) };
    }
}

/// # Safety
/// - **callback**: called by [`on_setxid`], with its [`Signal`].
unsafe extern "C" fn libc_handler(signal: *mut u8) {
    // SAFETY: callback — a `Signal` that lives until `on_setxid` returns.
    let signal = unsafe { &*signal.cast::<Signal>() };
    let handler = LIBC_HANDLER.load(Ordering::Relaxed);
    // SAFETY: the handler that libc had installed for this signal, with SA_SIGINFO.
    let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
    // SAFETY: the kernel's own arguments.
    unsafe { handler(signal.number, signal.info, signal.context) };
}
