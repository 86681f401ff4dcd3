//! Signal handlers that were installed before ours, and the thread's signal mask. The mask is never
//! changed through libc: `interpose` would record the change as the goroutine's.

use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The action that a signal had before our handler was installed: function, mask and flags.
#[derive(Debug)]
pub(crate) struct PreviousHandler {
    action: OnceLock<libc::sigaction>,
    /// Whether the handler has been called and must not be called again, since it has
    /// `SA_RESETHAND`.
    spent: AtomicBool,
}

impl PreviousHandler {
    pub(crate) const fn new() -> PreviousHandler {
        PreviousHandler { action: OnceLock::new(), spent: AtomicBool::new(false) }
    }

    /// Installs `ours`. Saves the present action first, so that `ours` can forward its first
    /// signal.
    pub(crate) fn replace(&self, signal: i32, ours: &libc::sigaction) -> io::Result<()> {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: reads the present action; `before` is valid for writes.
        if unsafe { libc::sigaction(signal, std::ptr::null(), before.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: filled by the call above.
        self.action.get_or_init(|| unsafe { before.assume_init() });
        // SAFETY: the caller's handler follows the rules for signal handlers.
        match unsafe { libc::sigaction(signal, ours, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the previous handler: the address of a function, `SIG_DFL` or `SIG_IGN`. Returns
    /// `SIG_DFL` if the handler must not be called again.
    pub(crate) fn handler(&self) -> usize {
        let action = self.action.get().filter(|_| !self.spent.load(Ordering::Relaxed));
        action.map_or(libc::SIG_DFL, |action| action.sa_sigaction)
    }

    /// Calls the previous handler as the kernel would, with its mask and flags. Does nothing for
    /// `SIG_DFL` and `SIG_IGN`.
    ///
    /// # Safety
    /// - **arguments**: those that the kernel passed to a signal handler.
    pub(crate) unsafe fn call(
        &self,
        signal: i32,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        let handler = self.handler();
        let is_function = handler != libc::SIG_DFL && handler != libc::SIG_IGN;
        let Some(before) = self.action.get().filter(|_| is_function) else { return };
        if before.sa_flags & libc::SA_RESETHAND != 0 {
            self.spent.store(true, Ordering::Relaxed);
        }
        let saved = change_mask(libc::SIG_BLOCK, Some(&before.sa_mask));
        if before.sa_flags & libc::SA_NODEFER != 0 {
            unblock(signal);
        }
        if before.sa_flags & libc::SA_SIGINFO != 0 {
            type Handler = unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: `SA_SIGINFO` is set, so the handler is a function of this type.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            // SAFETY: arguments — promised by the caller.
            unsafe { handler(signal, info, context) };
        } else {
            // SAFETY: `SA_SIGINFO` is not set, so the handler is a function of this type.
            let handler =
                unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(i32)>(handler) };
            // SAFETY: arguments — promised by the caller.
            unsafe { handler(signal) };
        }
        change_mask(libc::SIG_SETMASK, Some(&saved));
    }
}

/// Unblocks `signal` on the calling thread.
pub(crate) fn unblock(signal: i32) {
    change_mask(libc::SIG_UNBLOCK, Some(&set_of(&[signal])));
}

/// Returns the set of these signals.
pub(crate) fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: all-zero is a valid set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for &signal in signals {
        // SAFETY: a valid set and signal.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    set
}

/// Changes the calling thread's signal mask and returns the previous mask. Makes the system call
/// directly: `interpose` would record a call of libc's function as a change by the goroutine.
pub(crate) fn change_mask(how: i32, set: Option<&libc::sigset_t>) -> libc::sigset_t {
    let mut before = set_of(&[]);
    let set = set.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `set` is null or valid, `before` is valid, and sets have at least the kernel's 8
    // bytes.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, how, set, &raw mut before, 8usize);
    }
    before
}

/// Returns the 64 bits of a set that the kernel reads.
pub(crate) fn signals_of(set: &libc::sigset_t) -> u64 {
    // SAFETY: a set begins with the kernel's 64 bits.
    unsafe { std::ptr::from_ref(set).cast::<u64>().read() }
}
