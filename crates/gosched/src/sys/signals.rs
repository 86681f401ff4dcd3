//! Catches the signals that the program subscribes to, and returns them to the thread in [`wait`].
//!
//! The handler sets the signal's bit in a word. If the bit was not set before, the handler also
//! signals an eventfd. Equal signals merge until the waiting thread takes them, as they merge in
//! the kernel. All signals are blocked while the handler runs, so the goroutine below it cannot be
//! preempted and moved to another thread.
//!
//! - Handler: 1. sets the bit; 2. signals the eventfd.
//! - Waiting thread: 1. waits for the eventfd and drains it; 2. takes all bits.
//!
//! So every bit is taken, in this round or in the next.
//!
//! The handler never allocates and never runs code of the program.

use super::poller::{checked, drain_eventfd, new_eventfd, poll_for, signal_eventfd};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The highest signal number. Signals are numbered from 1.
pub(crate) const MAX_SIGNAL: i32 = 64;

/// The signals that were caught and not yet taken by [`wait`]. Signal `n` is bit `n - 1`.
static PENDING_SIGNALS: AtomicU64 = AtomicU64::new(0);

/// Eventfd that wakes the thread in [`wait`].
static WAKE_FD: OnceLock<OwnedFd> = OnceLock::new();

/// The action of a signal before it was caught.
pub(crate) struct PreviousAction(libc::sigaction);

// SAFETY: the pointers are addresses of signal handlers, which belong to no thread.
unsafe impl Send for PreviousAction {}

/// Returns the bit of a signal.
pub(crate) fn bit(signal: i32) -> u64 {
    debug_assert!((1..=MAX_SIGNAL).contains(&signal));
    1 << (signal - 1)
}

/// Returns the signals whose bits are set in `bits`.
pub(crate) fn signals_in_mask(bits: u64) -> impl Iterator<Item = i32> {
    (1..=MAX_SIGNAL).filter(move |&signal| bits & bit(signal) != 0)
}

/// Creates the eventfd. Must be called before the first [`catch`].
///
/// # Errors
/// The system refuses to create a descriptor.
pub(crate) fn create_wake_fd() -> io::Result<()> {
    if WAKE_FD.get().is_none() {
        let _ = WAKE_FD.set(new_eventfd()?);
    }
    Ok(())
}

/// Installs the handler for the signal. Returns the action that it replaces.
/// Go: signal_enable.
///
/// # Errors
/// The signal cannot be caught.
pub(crate) fn catch(signal: i32) -> io::Result<PreviousAction> {
    // SAFETY: all zeros is a valid `sigaction`: no handler, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_signal as extern "C" fn(i32) as usize;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the mask is part of a local value.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    exchange(signal, Some(&action)).map(PreviousAction)
}

/// Reinstalls the previous action of the signal, unless another handler was installed meanwhile.
/// Go: signal_disable.
pub(crate) fn restore(signal: i32, before: &PreviousAction) {
    if exchange(signal, None).is_ok_and(|now| is_ours(&now)) {
        let _ = exchange(signal, Some(&before.0));
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == on_signal as extern "C" fn(i32) as usize
}

/// Returns the action of a signal. Installs `new` in its place if it is `Some`.
fn exchange(signal: i32, new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut old = MaybeUninit::<libc::sigaction>::uninit();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `new` is null or an action whose handler may run on any thread at any time; `old` has
    // room for an action.
    checked(unsafe { libc::sigaction(signal, new, old.as_mut_ptr()) })?;
    // SAFETY: the call has filled `old`.
    Ok(unsafe { old.assume_init() })
}

/// Returns the handler of a signal, `SIG_DFL` or `SIG_IGN`. Returns `None` if there is no such
/// signal.
pub(crate) fn disposition(signal: i32) -> Option<libc::sighandler_t> {
    exchange(signal, None).ok().map(|now| now.sa_sigaction)
}

/// Returns whether a signal is ignored.
pub(crate) fn is_ignored(signal: i32) -> bool {
    disposition(signal) == Some(libc::SIG_IGN)
}

/// The signal handler: sets the bit of the signal, and wakes the thread in [`wait`].
/// Go: sigsend.
extern "C" fn on_signal(signal: i32) {
    // SAFETY: errno of the calling thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno of the calling thread.
    let saved = unsafe { *errno };
    // PAIR signal-noted: the bit is set before the eventfd is signalled.
    let before = PENDING_SIGNALS.fetch_or(bit(signal), Ordering::AcqRel);
    if before & bit(signal) == 0
        && let Some(wake_fd) = WAKE_FD.get()
    {
        signal_eventfd(wake_fd);
    }
    // SAFETY: errno of the calling thread.
    unsafe { *errno = saved };
}

/// Makes [`wait`] return even if no signal was caught.
pub(crate) fn interrupt_wait() {
    if let Some(wake_fd) = WAKE_FD.get() {
        signal_eventfd(wake_fd);
    }
}

/// Blocks until a signal is caught or [`interrupt_wait`] is called. Takes and returns the bits of
/// the caught signals. May return 0.
/// Go: signal_recv.
pub(crate) fn wait() -> u64 {
    let Some(wake_fd) = WAKE_FD.get() else { return 0 };
    let fd = std::os::fd::AsRawFd::as_raw_fd(wake_fd);
    poll_for(&mut [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }], None);
    drain_eventfd(wake_fd);
    // PAIR signal-noted: sees every bit that was set before the eventfd was signalled.
    PENDING_SIGNALS.swap(0, Ordering::AcqRel)
}
