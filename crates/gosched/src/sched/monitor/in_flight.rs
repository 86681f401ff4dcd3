//! Ps in flight: handed to an M that has not acquired them yet. Sysmon checks that the wake-up of
//! that M was not lost.
//!
//! A P in flight is in no list, and no M owns it. A lost wake-up would therefore lose the P: the
//! program would run with one P fewer, and stopping the world would wait for that P. If the giver
//! has woken the receiver, but the kernel reports that the receiver sleeps, sysmon wakes the
//! receiver once more.
//!
//! No wake-up should ever be lost: [`counts::lost`] counts lost wake-ups, and tests require zero. A
//! receiver that was woken and waits for a CPU does not count, however long it waits.
//!
//! Sysmon never takes a P in flight from its receiver: it only repeats the wake-up.

use crate::gmp::m::M;
use crate::gmp::p::P;
use crate::sched::state::counts;
use crate::sys::poller::{self, Poller};
use crate::sys::thread_status::{self, BlockedSyscall, ThreadStatus};
use std::ptr;
use std::sync::atomic::Ordering;

/// How long a P is in flight before sysmon asks the kernel about the receiver, in nanoseconds.
const OVERDUE_NANOS: u64 = 5_000_000;

/// The flight of a P that sysmon saw at its last tick, and since when.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    flight: u64,
    since: u64,
}

/// Checks one P. `now` is the current time.
pub(crate) fn check(p: &'static P, seen: &mut Seen, now: u64) {
    let Some((flight, m)) = p.flight.current() else { return };
    if flight != seen.flight {
        *seen = Seen { flight, since: now };
        return;
    }
    if now - seen.since < OVERDUE_NANOS {
        return;
    }
    let Some(sleep) = p.flight.ask_about_receiver((flight, m), receiver_sleep) else { return };
    seen.since = now;
    if sleep != ReceiverSleep::Awake {
        counts::LOST.fetch_add(u64::from(sleep == ReceiverSleep::Asleep), Ordering::Relaxed);
        wake_again(m);
    }
}

/// What the kernel reports about the thread of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceiverSleep {
    /// The thread sleeps until the M is given a P.
    Asleep,
    /// The thread runs, waits for a CPU, or is blocked elsewhere.
    Awake,
    /// The kernel does not tell.
    Unknown,
}

fn receiver_sleep(m: &'static M) -> ReceiverSleep {
    let (doing, call) = thread_status::status_and_syscall(m.tid());
    match doing {
        ThreadStatus::Blocked if call.is_some_and(|call| is_idle_sleep(m, call)) => {
            ReceiverSleep::Asleep
        }
        ThreadStatus::Running | ThreadStatus::Blocked => ReceiverSleep::Awake,
        ThreadStatus::Unknown => ReceiverSleep::Unknown,
    }
}

/// Returns whether `call` is one in which `m` sleeps until it is given a P: on its note, or in the
/// poller.
fn is_idle_sleep(m: &M, call: BlockedSyscall) -> bool {
    match call.number {
        libc::SYS_futex => call.arguments[0] == ptr::from_ref(&m.note).addr(),
        libc::SYS_epoll_pwait2 | libc::SYS_epoll_wait | libc::SYS_epoll_pwait => true,
        libc::SYS_ppoll | libc::SYS_poll => true,
        _ => false,
    }
}

/// Repeats the futex wake-up and the poller's interrupt. The note is already set. Harmless if the M
/// is awake.
fn wake_again(m: &'static M) {
    m.note.wake_sleeper();
    if m.in_poller.get() {
        poller::existing().into_iter().for_each(Poller::interrupt);
    }
}
