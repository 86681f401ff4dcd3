//! Waiting for descriptors: the functions that `block` calls.
//!
//! `run::poll` describes which thread polls; on the threads backend it is `poll_thread`. Code here
//! never reads, writes or closes a descriptor: its callers do.

use crate::gmp::commit::Commit;
use crate::gmp::g::G;
use crate::gmp::poll_desc::{PollDesc, Side};
use crate::probe::wait_reason::WaitReason;
use crate::protocol::readiness::{Refusal, WaitDecision};
use crate::sched::contract::Scheduler;
use crate::sched::state::backend::MultiThread;
use crate::sched::threads::poll_thread;
use crate::sched::{Backend, backend};
use crate::sys::poller::{self, Direction};
use std::io;
use std::os::fd::RawFd;
use std::ptr;

/// Registers `fd` with the poller, until [`unregister`].
/// Go: poll_runtime_pollOpen.
///
/// # Errors
/// The descriptor is of a kind that cannot be polled, or the system refuses.
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

/// Removes `fd` from the poller and frees `desc`. Call before `fd` is closed; no waiter may be
/// left.
/// Go: poll_runtime_pollClose.
pub(crate) fn unregister(fd: RawFd, desc: &'static PollDesc) {
    // A forked child shares its parent's poller and must not change it.
    if let Some(poller) = poller::existing().filter(|_| poller::is_own_process()) {
        poller.remove(fd, desc.key());
    }
    desc.free();
}

/// What `commit` needs when the waiter's context is saved.
#[derive(Debug)]
struct Waiting {
    desc: &'static PollDesc,
    direction: Direction,
    /// Whether the poller must report events for this waiter.
    arms_poller: bool,
}

/// Waits until an event arrives for `direction` of `desc`, or returns at once if one has arrived
/// since the caller's last attempt. The caller then retries its operation. A caller with its own
/// time limit uses an alarm, which makes `is_over` return true and then ends the wait.
/// Go: poll_runtime_pollWait.
///
/// # Errors
/// The descriptor is closed, or its deadline has passed.
pub(crate) fn wait(
    desc: &'static PollDesc,
    direction: Direction,
    is_over: impl FnOnce() -> bool,
) -> Result<(), Refusal> {
    wait_for(desc, direction, is_over, true)
}

/// As [`wait`], without arming the poller: waits for the end of the caller's time limit, a
/// deadline, or a close. May also return for an event that the poller reports anyway.
pub(crate) fn wait_unpolled(
    desc: &'static PollDesc,
    direction: Direction,
    is_over: impl FnOnce() -> bool,
) -> Result<(), Refusal> {
    wait_for(desc, direction, is_over, false)
}

/// Parks the caller at its side of `desc`.
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
    // SAFETY: commit — `commit` takes a `Waiting`, which lives in this frame until the wait is
    // over.
    let commit = unsafe { Commit::new(commit, ptr::from_ref(&waiting).cast()) };
    super::park(WaitReason::Io, commit);
    readiness.finish_wait().map(drop)
}

/// Makes sure that a thread polls on the threads backend.
pub(crate) fn ensure_poll_thread() {
    if backend() == Backend::Threads {
        poll_thread::start();
    }
}

/// Publishes the waiting G at its descriptor.
/// Go: netpollblockcommit.
///
/// # Safety
/// - **waiting**: `data` is a `Waiting`, alive until the G is made ready.
unsafe fn commit(g: &'static G, data: *const ()) -> bool {
    // SAFETY: waiting — promised by the caller.
    let &Waiting { desc, direction, arms_poller } = unsafe { &*data.cast::<Waiting>() };
    // Read before the G is published: afterwards the record may belong to another descriptor.
    let key = desc.key();
    if !desc.side(direction).commit(g) {
        return false;
    }
    if arms_poller {
        arm_poller(key, direction);
    }
    true
}

/// Makes sure that the poller reports events for a new waiter, and that an M polls for them.
/// Go: netpollarm.
pub(crate) fn arm_poller(key: usize, direction: Direction) {
    if let Some(poller) = poller::existing() {
        poller.arm(key, direction);
    }
    MultiThread::ensure_poller();
}

/// Sets the deadline of a direction: `None` removes it, and `Some(0)` expires it at once. Must not
/// be called concurrently.
/// Go: poll_runtime_pollSetDeadline.
pub(crate) fn set_deadline(desc: &'static PollDesc, direction: Direction, when: Option<u64>) {
    let side = desc.side(direction);
    side.timer.stop();
    match when {
        Some(0) => make_ready(side, side.readiness.expire()),
        None => side.readiness.unexpire(),
        Some(when) => {
            side.readiness.unexpire();
            // SAFETY: alive — sides are never freed, and the timer was stopped above.
            super::start_timer(unsafe { side.timer.placed() }, when);
        }
    }
}

/// Ends all waits at the descriptor, and refuses new ones.
/// Go: poll_runtime_pollUnblock.
pub(crate) fn close(desc: &'static PollDesc) {
    for direction in [Direction::Read, Direction::Write] {
        let side = desc.side(direction);
        make_ready(side, side.readiness.close());
    }
}

/// Makes the waiter ready, if there is one.
/// Go: netpollgoready.
fn make_ready(side: &Side, waiter: Option<usize>) {
    if let Some(g) = side.resolve_waiter(waiter) {
        super::ready(g);
    }
}
