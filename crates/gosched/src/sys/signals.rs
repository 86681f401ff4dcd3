//! Signals that programs ask for: caught, noted, and told to whoever waits for them.
//!
//! The handler only notes the signal in a word and rings a bell, if it was not noted before: equal ones merge
//! until somebody has looked, as the system merges them itself. All signals are blocked while it runs, so it
//! is not interrupted to move the goroutine below it.
//!
//! Handler: 1. notes the signal; 2. rings. Who waits: 1. is rung for, and takes the ringing back; 2. takes what
//! is noted. So what is noted is seen, now or at the next ringing.

use super::poller::{checked, drain_eventfd, new_eventfd, poll_for, signal_eventfd};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Signals are numbered from 1 to this.
pub(crate) const MAX_SIGNAL: i32 = 64;

/// What was noted: signal `n` is bit `n - 1`.
static PENDING_SIGNALS: AtomicU64 = AtomicU64::new(0);

static WAKE_FD: OnceLock<OwnedFd> = OnceLock::new();

/// What was done with a signal before it was caught.
pub(crate) struct PreviousAction(libc::sigaction);

// SAFETY: the addresses in it are those of handlers, which are anybody's.
unsafe impl Send for PreviousAction {}

/// The bit of a signal.
pub(crate) fn bit(signal: i32) -> u64 {
    debug_assert!((1..=MAX_SIGNAL).contains(&signal));
    1 << (signal - 1)
}

/// The signals whose bits these are.
pub(crate) fn signals_in_mask(bits: u64) -> impl Iterator<Item = i32> {
    (1..=MAX_SIGNAL).filter(move |&signal| bits & bit(signal) != 0)
}

/// Makes the bell: before anything is caught.
///
/// # Errors
/// The system refuses a descriptor.
pub(crate) fn create_wake_fd() -> io::Result<()> {
    if WAKE_FD.get().is_none() {
        let _ = WAKE_FD.set(new_eventfd()?);
    }
    Ok(())
}

/// Notes the signal from here on, whenever it comes.
/// Go: signal_enable.
///
/// # Errors
/// It cannot be caught.
pub(crate) fn catch(signal: i32) -> io::Result<PreviousAction> {
    // SAFETY: no handler, no flags, an empty mask: all of them zeros.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_signal as extern "C" fn(i32) as usize;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: a mask of our own.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    exchange(signal, Some(&action)).map(PreviousAction)
}

/// What was done with it before is done again, unless somebody else has changed that meanwhile.
/// Go: signal_disable.
pub(crate) fn restore(signal: i32, before: &PreviousAction) {
    if exchange(signal, None).is_ok_and(|now| is_ours(&now)) {
        let _ = exchange(signal, Some(&before.0));
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == on_signal as extern "C" fn(i32) as usize
}

/// What is done with a signal; something else from here on, if that is said.
fn exchange(signal: i32, new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut old = MaybeUninit::<libc::sigaction>::uninit();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: null or an action whose handler may be called anywhere; room for another.
    checked(unsafe { libc::sigaction(signal, new, old.as_mut_ptr()) })?;
    // SAFETY: the call has filled it.
    Ok(unsafe { old.assume_init() })
}

/// The handler of a signal, `SIG_DFL` or `SIG_IGN`. `None`: there is no such signal.
pub(crate) fn disposition(signal: i32) -> Option<libc::sighandler_t> {
    exchange(signal, None).ok().map(|now| now.sa_sigaction)
}

/// Whether a signal is ignored.
pub(crate) fn is_ignored(signal: i32) -> bool {
    disposition(signal) == Some(libc::SIG_IGN)
}

/// Go: sigsend.
extern "C" fn on_signal(signal: i32) {
    // SAFETY: the caller's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the caller's own.
    let saved = unsafe { *errno };
    // PAIR signal-noted: noted before it is rung.
    let before = PENDING_SIGNALS.fetch_or(bit(signal), Ordering::AcqRel);
    if before & bit(signal) == 0
        && let Some(wake_fd) = WAKE_FD.get()
    {
        signal_eventfd(wake_fd);
    }
    // SAFETY: the caller's own.
    unsafe { *errno = saved };
}

/// Lets whoever waits come back.
pub(crate) fn interrupt_wait() {
    if let Some(wake_fd) = WAKE_FD.get() {
        signal_eventfd(wake_fd);
    }
}

/// Blocks until something was noted, or somebody disturbs: what was noted.
/// Go: signal_recv.
pub(crate) fn wait() -> u64 {
    let Some(wake_fd) = WAKE_FD.get() else { return 0 };
    let fd = std::os::fd::AsRawFd::as_raw_fd(wake_fd);
    poll_for(&mut [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }], None);
    drain_eventfd(wake_fd);
    // PAIR signal-noted: what was noted before it was rung for is seen.
    PENDING_SIGNALS.swap(0, Ordering::AcqRel)
}
