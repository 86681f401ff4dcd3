//! The poller: reports which descriptors have become readable or writable. It uses epoll, or
//! poll(2) if the system refuses epoll or `GOSCHED_POLLER=poll` is set.
//!
//! A descriptor is added once, for its whole lifetime, and removed before it is closed. Events are
//! *edges*: an event means that the descriptor has become readable or writable since its last
//! event, or since it was added. A [`Poller`] may also report spurious and duplicate events, so the
//! receiver of an event must try the operation and be prepared for `WouldBlock`.
//!
//! Any number of threads may poll at the same time, but at most one of them may block in
//! [`Poller::poll`]. [`Poller::interrupt`] makes the blocked thread return; if no thread is
//! blocked, the next blocking call returns at once.
//!
//! The poller never reads or writes a descriptor that was added, and never makes a G ready: it
//! reports keys, and `sched/events.rs` acts on them.

mod epoll;
mod poll;

use crate::sys::fatal::warning;
use gosched_fiber::base::environment;
use gosched_fiber::fatal::Errno;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// A source of readiness events. The rules are at the top of this file. Only `add` may allocate.
pub(crate) trait Poller: Sync + Send + std::fmt::Debug {
    /// Starts reporting events of `fd`. Each of its events carries `key`.
    /// Go: netpollopen.
    fn add(&self, fd: RawFd, key: usize) -> io::Result<()>;

    /// Stops reporting events of `fd`. A concurrent `poll` may still deliver an event that it
    /// collected before the removal.
    /// Go: netpollclose.
    fn remove(&self, fd: RawFd, key: usize);

    /// Requests events in the direction `what`, because a G waits for it. Called after the G was
    /// published as the waiter, so that an event finds the G.
    /// Go: netpollarm.
    fn arm(&self, key: usize, what: Direction);

    /// Collects events into `buffer`. If there are none, blocks until one occurs, at most for
    /// `timeout` (`None` is no limit; zero does not block). May return early and without events.
    /// Go: netpoll.
    fn poll(&self, buffer: &mut EventBuffer, timeout: Option<Duration>);

    /// Blocks until an event is pending, until `stop` is readable, or until `timeout` is over.
    /// Returns whether an event is pending. The events stay pending for [`Poller::poll`]. With
    /// epoll, an interrupt counts as a pending event.
    fn wait_for_events(&self, stop: RawFd, timeout: Duration) -> bool;

    /// Makes the thread that blocks in [`Poller::poll`] return. If no thread blocks there, the next
    /// blocking call returns at once.
    /// Go: netpollBreak.
    fn interrupt(&self);

    /// Withdraws an interrupt that no blocked thread has consumed.
    fn clear_interrupt(&self);
}

/// A direction of I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// A report that a descriptor has become readable or writable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Event {
    /// The key that the descriptor was added with.
    pub(crate) key: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Whether the peer has closed its side, or there is an error or urgent data. From then on a
    /// reader must try before it waits, even if its last read emptied the socket.
    pub(crate) exceptional: bool,
}

/// The maximum number of events that one [`Poller::poll`] collects.
pub(crate) const MAX_EVENTS: usize = 128;

/// The events that one [`Poller::poll`] has collected.
#[derive(Debug)]
pub(crate) struct EventBuffer {
    events: [Event; MAX_EVENTS],
    count: usize,
    capacity: usize,
}

impl EventBuffer {
    /// Creates a buffer for `most` events, at most [`MAX_EVENTS`].
    pub(crate) fn new(most: usize) -> EventBuffer {
        let most = most.min(MAX_EVENTS);
        EventBuffer { events: [Event::default(); MAX_EVENTS], count: 0, capacity: most }
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events[..self.count]
    }

    /// Returns whether the buffer holds as many events as it was created for.
    pub(crate) fn is_full(&self) -> bool {
        self.count == self.capacity
    }

    fn push(&mut self, event: Event) {
        if let Some(slot) = self.events.get_mut(self.count) {
            *slot = event;
            self.count += 1;
        }
    }

    fn clear(&mut self) {
        self.count = 0;
    }
}

/// Returns the poller of this process. The first call creates it.
/// Go: netpollinit.
///
/// # Errors
/// The system refuses to create a descriptor.
pub(crate) fn get_or_create() -> io::Result<&'static dyn Poller> {
    if let Some(poller) = existing() {
        return Ok(poller);
    }
    let stop = new_eventfd()?;
    let poller: Box<dyn Poller> = if environment::POLLER.is("poll") {
        Box::new(poll::Poll::new()?)
    } else {
        match epoll::Epoll::new() {
            Ok(epoll) => Box::new(epoll),
            // The system call filter of a container may refuse epoll.
            Err(why) if is_refusal(&why) => Box::new(poll::Poll::new()?),
            Err(why) => return Err(why),
        }
    };
    SYSMON_WAKE_FD.get_or_init(|| stop);
    OWNER.store(std::process::id(), Ordering::Relaxed);
    Ok(&**POLLER.get_or_init(|| poller))
}

/// Returns whether this process created the poller. Returns `false` in a forked child, which has
/// inherited its parent's poller.
pub(crate) fn is_own_process() -> bool {
    OWNER.load(Ordering::Relaxed) == std::process::id()
}

static OWNER: AtomicU32 = AtomicU32::new(0);

/// Returns the eventfd that makes sysmon return from [`Poller::wait_for_events`]. It is created
/// before the poller.
pub(crate) fn sysmon_wake_fd() -> Option<&'static OwnedFd> {
    SYSMON_WAKE_FD.get()
}

static SYSMON_WAKE_FD: OnceLock<OwnedFd> = OnceLock::new();

/// Returns the poller of this process, if [`get_or_create`] has created it.
#[inline]
pub(crate) fn existing() -> Option<&'static dyn Poller> {
    POLLER.get().map(|poller| &**poller)
}

static POLLER: OnceLock<Box<dyn Poller>> = OnceLock::new();

/// Returns the value of a system call, or the error in errno if the value is negative.
pub(crate) fn checked(value: libc::c_int) -> io::Result<libc::c_int> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Converts a timeout for system calls.
fn timespec(timeout: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
    }
}

/// Returns whether the error means that the system refuses the call itself, not only its arguments.
fn is_refusal(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EACCES))
}

/// Blocks until one of `fds` is ready, as poll(2) does, at most for `timeout`. Returns how many are
/// ready; 0 also after a signal. If the system refuses to poll, sleeps briefly and then reports all
/// of `fds` as ready: the callers try, and wait again if that was too early.
pub(crate) fn poll_for(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> usize {
    let why = match poll_exactly(fds, timeout) {
        Err(why) if is_refusal(&why) => poll_by_millis(fds, timeout).err(),
        Err(why) => Some(why),
        Ok(found) => return found,
    };
    match why {
        None => fds.iter().filter(|fd| fd.revents != 0).count(),
        Some(why) if why.kind() == io::ErrorKind::Interrupted => {
            fds.iter_mut().for_each(|fd| fd.revents = 0);
            0
        }
        Some(why) => {
            report_once(&why);
            std::thread::sleep(timeout.map_or(BLIND_SLEEP, |timeout| timeout.min(BLIND_SLEEP)));
            fds.iter_mut().for_each(|fd| fd.revents = fd.events);
            fds.len()
        }
    }
}

/// How long [`poll_for`] sleeps if the system refuses to poll.
const BLIND_SLEEP: Duration = Duration::from_millis(5);

/// Warns once that descriptors cannot be polled.
#[cold]
fn report_once(why: &io::Error) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !REPORTED.swap(true, Ordering::Relaxed) {
        let why = Errno::of(why);
        warning!(
            "the poll system call fails ({why}): descriptors are retried every few milliseconds instead"
        );
    }
}

/// Calls poll(2), for systems that refuse ppoll(2). Timeouts are rounded up to milliseconds.
fn poll_by_millis(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let millis = timeout.map_or(-1, |timeout| {
        libc::c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
    });
    // SAFETY: `fds` has as many records as its length.
    let found = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) };
    usize::try_from(found).map_err(|_| io::Error::last_os_error())
}

fn poll_exactly(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let limit = timeout.map(timespec);
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let count = fds.len() as libc::nfds_t;
    // SAFETY: `fds` has `count` records; `limit` is null or points to a live value.
    let found = unsafe { libc::ppoll(fds.as_mut_ptr(), count, limit, std::ptr::null()) };
    usize::try_from(found).map_err(|_| io::Error::last_os_error())
}

/// Creates an eventfd, a descriptor that is readable from [`signal_eventfd`] to [`drain_eventfd`].
pub(crate) fn new_eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let eventfd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(eventfd) })
}

/// Makes the eventfd readable.
pub(crate) fn signal_eventfd(eventfd: &OwnedFd) {
    // SAFETY: `ONE` has eight bytes, as an eventfd requires. The write fails only if the counter is
    // at its maximum, and then the eventfd is readable anyway.
    unsafe { libc::write(eventfd.as_raw_fd(), (&raw const ONE).cast(), 8) };
}

/// Makes the eventfd unreadable until the next [`signal_eventfd`].
pub(crate) fn drain_eventfd(eventfd: &OwnedFd) {
    let mut count = 0u64;
    // SAFETY: `count` has room for eight bytes.
    unsafe { libc::read(eventfd.as_raw_fd(), (&raw mut count).cast(), 8) };
}

static ONE: u64 = 1;
