//! Waiting for descriptors: what `block` asks, and what comes of an event.
//!
//! Who polls is in `run::poll`, and in `poll_thread` where goroutines are threads.

use crate::gmp::g::G;
use crate::gmp::poll_desc::{PollDesc, Side};
use crate::gmp::readiness::{Refusal, WaitDecision};
use crate::gmp::reason::WaitReason;
use crate::sched::contract::Scheduler;
use crate::sched::state::backend::MultiThread;
use crate::sched::threads::poll_thread;
use crate::sched::{Backend, backend};
use crate::sys::poller::{self, Direction};
use std::io;
use std::os::fd::RawFd;
use std::ptr;

/// Has `fd` polled from here on, until [`unregister`].
/// Go: poll_runtime_pollOpen.
///
/// # Errors
/// It is of a kind that cannot be polled, or the system refuses.
pub(crate) fn register(fd: RawFd) -> io::Result<&'static PollDesc> {
    let poller = poller::get_or_create()?;
    let desc = PollDesc::alloc();
    match poller.add(fd, desc.key()) {
        Ok(()) => Ok(desc),
        Err(why) => {
            desc.free();
            Err(why)
        }
    }
}

/// `fd` is about to be closed, and nobody waits for it.
/// Go: poll_runtime_pollClose.
pub(crate) fn unregister(fd: RawFd, desc: &'static PollDesc) {
    // A forked child has its parent's poller.
    if let Some(poller) = poller::existing().filter(|_| poller::is_own_process()) {
        poller.remove(fd, desc.key());
    }
    desc.free();
}

/// What a wait needs to know when its context is saved.
#[derive(Debug)]
struct Waiting {
    desc: &'static PollDesc,
    direction: Direction,
    /// The poller is asked to tell of it.
    arms_poller: bool,
}

/// Waits until something is told, which may have happened before: the caller then tries again. Who has a
/// time limit of its own disturbs it when that is over, having let `is_over` say so before.
/// Go: poll_runtime_pollWait.
///
/// # Errors
/// It is closed, or its deadline is over.
pub(crate) fn wait(
    desc: &'static PollDesc,
    direction: Direction,
    is_over: impl FnOnce() -> bool,
) -> Result<(), Refusal> {
    wait_for(desc, direction, is_over, true)
}

/// As [`wait`], for what the poller is not asked: for the end of a time limit, a deadline, or a close. It may
/// come back for what is told anyway.
pub(crate) fn wait_unpolled(
    desc: &'static PollDesc,
    direction: Direction,
    is_over: impl FnOnce() -> bool,
) -> Result<(), Refusal> {
    wait_for(desc, direction, is_over, false)
}

/// Go: netpollblock.
fn wait_for(
    desc: &'static PollDesc,
    direction: Direction,
    is_over: impl FnOnce() -> bool,
    arms_poller: bool,
) -> Result<(), Refusal> {
    let readiness = &desc.side(direction).readiness;
    if readiness.prepare_wait()? == WaitDecision::Ready {
        return Ok(());
    }
    if is_over() {
        return readiness.finish_wait().map(drop);
    }
    ensure_poll_thread();
    let waiting = Waiting { desc, direction, arms_poller };
    // SAFETY: commit — it takes a `Waiting`, and this frame waits.
    unsafe { super::park(WaitReason::Io, commit, ptr::from_ref(&waiting).cast()) };
    readiness.finish_wait().map(drop)
}

/// Somebody polls, or will.
pub(crate) fn ensure_poll_thread() {
    if backend() == Backend::Threads {
        poll_thread::start();
    }
}

/// Go: netpollblockcommit.
///
/// # Safety
/// - **waiting**: `data` is a `Waiting`, alive until the G is made ready.
unsafe fn commit(g: &'static G, data: *const ()) -> bool {
    // SAFETY: waiting — promised by the caller.
    let &Waiting { desc, direction, arms_poller } = unsafe { &*data.cast::<Waiting>() };
    // From here on it may be another's.
    let key = desc.key();
    if !desc.side(direction).commit(g) {
        return false;
    }
    if arms_poller {
        arm_poller(key, direction);
    }
    true
}

/// Somebody waits from here on: is it polled for?
/// Go: netpollarm.
pub(crate) fn arm_poller(key: usize, direction: Direction) {
    if let Some(poller) = poller::existing() {
        poller.arm(key, direction);
    }
    MultiThread::ensure_poller();
}

/// Sets the deadline of a direction. By one at a time.
/// Go: poll_runtime_pollSetDeadline.
pub(crate) fn set_deadline(desc: &'static PollDesc, direction: Direction, when: Option<u64>) {
    let side = desc.side(direction);
    side.timer.stop();
    match when {
        Some(0) => make_ready(side, side.readiness.expire()),
        None => side.readiness.unexpire(),
        Some(when) => {
            side.readiness.unexpire();
            // SAFETY: alive — sides are never freed; it was stopped above.
            unsafe { super::start_timer(&side.timer, when) };
        }
    }
}

/// Nobody waits for it any more, nor will.
/// Go: poll_runtime_pollUnblock.
pub(crate) fn close(desc: &'static PollDesc) {
    for direction in [Direction::Read, Direction::Write] {
        let side = desc.side(direction);
        make_ready(side, side.readiness.close());
    }
}

/// Go: netpollgoready.
fn make_ready(side: &Side, waiter: Option<usize>) {
    if let Some(g) = side.resolve_waiter(waiter) {
        super::ready(g);
    }
}
