//! Who tells us that a descriptor can be read or written: epoll, or poll(2) where that was asked for.
//!
//! A descriptor is added once, for its whole life, and removed before it is closed. What is told of it are
//! *edges*: it can be read since the last time it was told, or since it was added. A [`Poller`] may also tell
//! what is not so, or tell it twice: whoever is told tries.
//!
//! Any number of threads may ask at once; one of them may wait. [`Poller::interrupt`] lets that one come
//! back, now or the next time.

mod epoll;
mod poll;

use crate::sys::fatal::warning;
use gosched_fiber::fatal::Errno;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// See the top of this file. Only `add` may take memory.
pub(crate) trait Poller: Sync + Send + std::fmt::Debug {
    /// Tells of `fd` from now on, under the name of `key`.
    /// Go: netpollopen.
    fn add(&self, fd: RawFd, key: usize) -> io::Result<()>;

    /// Tells nothing of it any more; what others have been told just now may still be on its way.
    /// Go: netpollclose.
    fn remove(&self, fd: RawFd, key: usize);

    /// Somebody waits for this: said after it is known to those who are told.
    /// Go: netpollarm.
    fn arm(&self, key: usize, what: Direction);

    /// What has happened; waits for it, up to `timeout`, if that is not zero. May come back early, with
    /// nothing.
    /// Go: netpoll.
    fn poll(&self, buffer: &mut EventBuffer, timeout: Option<Duration>);

    /// Waits until there is something to be told, up to `timeout`, or until `stop` can be read. True: there
    /// is something.
    fn wait_for_events(&self, stop: RawFd, timeout: Duration) -> bool;

    /// See the top of this file.
    /// Go: netpollBreak.
    fn interrupt(&self);

    /// Takes an interruption back that nobody has come back for.
    fn clear_interrupt(&self);
}

/// What a descriptor can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// One thing that was told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Event {
    pub(crate) key: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The other side is gone, or something else is special: it is not over with one look.
    pub(crate) exceptional: bool,
}

/// So many things are told at a time, at most.
pub(crate) const MAX_EVENTS: usize = 128;

/// What was told.
#[derive(Debug)]
pub(crate) struct EventBuffer {
    events: [Event; MAX_EVENTS],
    count: usize,
    capacity: usize,
}

impl EventBuffer {
    /// Room for so many.
    pub(crate) fn new(most: usize) -> EventBuffer {
        let most = most.min(MAX_EVENTS);
        EventBuffer { events: [Event::default(); MAX_EVENTS], count: 0, capacity: most }
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events[..self.count]
    }

    /// There is room for no more.
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

/// The one of this process, made when it is first asked for.
/// Go: netpollinit.
///
/// # Errors
/// The system refuses a descriptor.
pub(crate) fn get_or_create() -> io::Result<&'static dyn Poller> {
    if let Some(poller) = existing() {
        return Ok(poller);
    }
    let stop = new_eventfd()?;
    let poller: Box<dyn Poller> = match std::env::var_os("GOSCHED_POLLER") {
        Some(name) if name == "poll" => Box::new(poll::Poll::new()?),
        _ => match epoll::Epoll::new() {
            Ok(epoll) => Box::new(epoll),
            // A container may refuse epoll.
            Err(why) if is_refusal(&why) => Box::new(poll::Poll::new()?),
            Err(why) => return Err(why),
        },
    };
    SYSMON_WAKE_FD.get_or_init(|| stop);
    OWNER.store(std::process::id(), Ordering::Relaxed);
    Ok(&**POLLER.get_or_init(|| poller))
}

/// Whether this is the process that made it, not a child of that.
pub(crate) fn is_own_process() -> bool {
    OWNER.load(Ordering::Relaxed) == std::process::id()
}

static OWNER: AtomicU32 = AtomicU32::new(0);

/// By which sysmon is called out of the poller. There before that is.
pub(crate) fn sysmon_wake_fd() -> Option<&'static OwnedFd> {
    SYSMON_WAKE_FD.get()
}

static SYSMON_WAKE_FD: OnceLock<OwnedFd> = OnceLock::new();

/// The same, if it was ever asked for.
#[inline]
pub(crate) fn existing() -> Option<&'static dyn Poller> {
    POLLER.get().map(|poller| &**poller)
}

static POLLER: OnceLock<Box<dyn Poller>> = OnceLock::new();

/// The value of a call, or its error.
pub(crate) fn checked(value: libc::c_int) -> io::Result<libc::c_int> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// A time limit as system calls want it.
fn timespec(timeout: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
    }
}

/// Whether the system refuses the call itself, rather than this use of it.
fn is_refusal(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EACCES))
}

/// Waits until one of these can be used, as poll(2), up to `timeout`: how many can. Where the system refuses to
/// say, all of them may be usable, after a short sleep: whoever waits tries, and waits again.
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

/// How long [`poll_for`] sleeps where the system does not say which descriptors can be used.
const BLIND_SLEEP: Duration = Duration::from_millis(5);

/// Says once that descriptors cannot be polled.
#[cold]
fn report_once(why: &io::Error) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !REPORTED.swap(true, Ordering::Relaxed) {
        let why = Errno::of(why);
        warning!("poll fails ({why}): descriptors are tried every few milliseconds");
    }
}

/// poll(2), for systems that refuse ppoll(2).
fn poll_by_millis(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let millis = timeout.map_or(-1, |timeout| {
        libc::c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
    });
    // SAFETY: as many as the length says.
    let found = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) };
    usize::try_from(found).map_err(|_| io::Error::last_os_error())
}

fn poll_exactly(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let limit = timeout.map(timespec);
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let count = fds.len() as libc::nfds_t;
    // SAFETY: as many as `count` says; the limit lives, or is null.
    let found = unsafe { libc::ppoll(fds.as_mut_ptr(), count, limit, std::ptr::null()) };
    usize::try_from(found).map_err(|_| io::Error::last_os_error())
}

/// A descriptor that can be read once it was written to.
pub(crate) fn new_eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let eventfd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(eventfd) })
}

/// It can be read from here on.
pub(crate) fn signal_eventfd(eventfd: &OwnedFd) {
    // SAFETY: eight bytes, as an eventfd takes them. It can only be full, which rings as well.
    unsafe { libc::write(eventfd.as_raw_fd(), (&raw const ONE).cast(), 8) };
}

/// It cannot be read any more.
pub(crate) fn drain_eventfd(eventfd: &OwnedFd) {
    let mut count = 0u64;
    // SAFETY: room for eight bytes.
    unsafe { libc::read(eventfd.as_raw_fd(), (&raw mut count).cast(), 8) };
}

static ONE: u64 = 1;
