//! `setuid` and its kin reach threads that carry goroutines.
//!
//! The kernel keeps user and group ids per thread; libc makes them the process's by a signal to each
//! thread it knows, whose handler does the call and says so *in the control block of the thread*.
//! With a goroutine's block in force the answer goes astray, and libc asks again for ever. So the
//! handler runs as the carrier.
//!
//! libc's own signals cannot be seen through `sigaction`: these are bare system calls.

use crate::arch;
use crate::carrier::can_host;
use std::sync::atomic::{AtomicUsize, Ordering};

/// glibc's signal for this: the second real-time signal.
const SIGSETXID: i32 = 33;

/// The kernel's own form of `struct sigaction`.
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

/// Puts our handler before libc's. libc installs its own with the first thread, which the probe was.
pub(super) fn install() {
    let mut action = KernelAction::default();
    if !rt_sigaction(std::ptr::null(), &mut action) || action.handler <= libc::SIG_IGN {
        return; // no such handler: this libc does it another way
    }
    LIBC_HANDLER.store(action.handler, Ordering::Relaxed);
    action.handler = on_setxid as *const () as usize;
    rt_sigaction(&action, std::ptr::null_mut());
}

fn rt_sigaction(new: *const KernelAction, old: *mut KernelAction) -> bool {
    // SAFETY: both are null or valid; 8 is the size of the kernel's signal set.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, SIGSETXID, new, old, 8usize) == 0 }
}

struct Signal {
    number: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
}

/// # Safety
/// - **callback**: the kernel calls it, as a signal handler.
unsafe extern "C" fn on_setxid(
    number: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let mut signal = Signal { number, info, context };
    let data = (&raw mut signal).cast();
    // In a forked child the goroutine's block *is* the thread's, to libc too.
    if can_host() {
        // SAFETY: goroutine — `can_host` says so, and a signal handler is not moved; callback — it takes
        // a `Signal`, and libc's handler does not unwind.
        unsafe { arch::call_host(libc_handler, data) };
    } else {
        // SAFETY: callback — as above.
        unsafe { libc_handler(data) };
    }
}

/// # Safety
/// - **callback**: [`on_setxid`] calls it, with its [`Signal`].
unsafe extern "C" fn libc_handler(signal: *mut u8) {
    // SAFETY: `on_setxid` passes its `Signal` and waits.
    let signal = unsafe { &*signal.cast::<Signal>() };
    let handler = LIBC_HANDLER.load(Ordering::Relaxed);
    // SAFETY: what the kernel had for this signal, installed by libc with SA_SIGINFO.
    let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
    // SAFETY: the kernel's own arguments.
    unsafe { handler(signal.number, signal.info, signal.context) };
}
